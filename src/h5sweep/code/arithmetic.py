"""How a process calculates, where that is not as Python and NumPy begin.

`np.seterr(all="raise")` and `decimal.getcontext().prec = 50` hold for a process, or inside a
`with`: a direct call has them, and so have workers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_NUMPY, _DECIMAL = "numpy.geterr()", "decimal.getcontext()"
_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
_CONTEXT: dict[str, Any] = {
    "prec": 28,
    "rounding": "ROUND_HALF_EVEN",
    "Emin": -999999,
    "Emax": 999999,
    "capitals": 1,
    "clamp": 0,
    "traps": ["DivisionByZero", "InvalidOperation", "Overflow"],
}


def arithmetic_now() -> dict[str, Any]:
    """What is not as it begins, as JSON; of packages that are not loaded nothing."""
    found = {}
    np, decimal = (sys.modules.get(name) for name in ("numpy", "decimal"))
    if np is not None:
        found[_NUMPY] = _unlike(_ERRORS, np.geterr())
    if decimal is not None:
        context = decimal.getcontext()
        traps = sorted(kind.__name__ for kind, is_on in context.traps.items() if is_on)
        now = {name: getattr(context, name) for name in _CONTEXT.keys() - {"traps"}}
        found[_DECIMAL] = _unlike(_CONTEXT, now | {"traps": traps})
    return {name: values for name, values in found.items() if values}


def set_arithmetic(recorded: Mapping[str, Any]) -> None:
    """Calculate as another process did, of which this is what `arithmetic_now` gave there."""
    if _NUMPY in recorded:
        import numpy as np

        np.seterr(**(_ERRORS | recorded[_NUMPY]))
    if _DECIMAL in recorded:
        import decimal

        wanted = _CONTEXT | recorded[_DECIMAL]
        wanted["traps"] = [getattr(decimal, name) for name in wanted["traps"]]
        decimal.setcontext(decimal.Context(**wanted))


def is_arithmetic(package: str, call: str) -> bool:
    """Whether this is all that a script does by a call, or by what it assigns to its result."""
    name = call.partition("(")[0].rpartition(".")[2]
    return package == "decimal" or (package == "numpy" and name in ("seterr", "errstate"))


def _unlike(usual: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {name: now[name] for name in sorted(usual) if now[name] != usual[name]}
