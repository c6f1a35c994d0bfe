"""Values as they are compared and recorded: plain ones as they are, large ones by checksum.

What two equal values give is equal, in any process. Of what cannot be told so (a lock, a logger, an
object of an installed package) only the type is said.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any

from .own_modules import is_own_module

_MOST_TEXT = 500
_MOST_DEPTH = 12


def describe_value(value: object) -> Any:
    """A value as strict JSON."""
    described = _describe(value, 0)
    text = json.dumps(described)
    if len(text) <= _MOST_TEXT:
        return described
    return {"type": type(value).__name__, "sha256": _sha256(text.encode())}


def value_text(described: object) -> str:
    """What `describe_value` has given, as people read it: `7`, `float64 (3, 4), sha256 1f0c…`."""
    if isinstance(described, dict) and "sha256" in described:
        return f"{described['type']}, sha256 {described['sha256'][:8]}…"
    if isinstance(described, dict) and described.keys() == {"type", "value"}:
        return str(described["value"])
    return json.dumps(described)


def _describe(value: object, depth: int) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _MOST_DEPTH:
        return {"type": _type_name(value)}
    if isinstance(value, list | tuple):
        return [_describe(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_key(k): _describe(v, depth + 1) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_describe(v, depth + 1) for v in value), key=json.dumps)
    return _describe_object(value, depth)


def _key(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(_describe(key, _MOST_DEPTH))


def _describe_object(value: object, depth: int) -> Any:
    kind = _type_name(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"type": f"bytes ({len(value)})", "sha256": _sha256(bytes(value))}
    if isinstance(value, Enum):
        return {"type": kind, "value": value.name}
    if isinstance(value, int | str):
        return {"type": kind, "value": value.__str__()}
    if isinstance(value, PurePath | date | time | timedelta | range | complex):
        return {"type": kind, "value": str(value)}
    if isinstance(value, ModuleType):
        return {"type": "module", "value": value.__name__}
    if callable(value) and hasattr(value, "__qualname__"):
        return {"type": "function", "value": f"{value.__module__}.{value.__qualname__}"}
    if kind.startswith("numpy."):
        return _describe_array(value, depth)
    if kind.startswith(("pandas.", "xarray.")):
        return _describe_table(value, depth)
    return {"type": kind, **_describe(_attributes(value), depth)}


def _attributes(value: object) -> dict[str, object]:
    """What an object of a class of the user's has; of others nobody knows what counts."""
    module = sys.modules.get(type(value).__module__)
    is_own = module is None or module.__name__ == "__main__" or is_own_module(module)
    is_open = is_own or isinstance(value, SimpleNamespace)
    return dict(getattr(value, "__dict__", {})) if is_open else {}


def _describe_array(value: Any, depth: int) -> Any:
    """An array of NumPy's, by type, shape and checksum; a single number as itself."""
    import numpy as np

    if not isinstance(value, np.ndarray | np.generic):
        return {"type": _type_name(value)}
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        if isinstance(plain := value.item(), bool | int | float | str):
            return _describe(plain, depth)
        return {"type": str(value.dtype), "value": str(value)}
    array = np.asarray(value)
    if array.dtype.hasobject:
        return _describe(array.tolist(), depth + 1)
    about = f"{array.dtype} {array.shape}"
    return {"type": about, "sha256": _sha256(np.ascontiguousarray(array).view(np.uint8).data)}


def _describe_table(value: Any, depth: int) -> Any:
    """A table or dataset of pandas or xarray, column by column."""
    columns: dict[Any, Any]
    if hasattr(value, "variables"):
        columns = {name: [one.dims, one.to_numpy()] for name, one in value.variables.items()}
    elif hasattr(value, "columns"):
        columns = {name: value[name].to_numpy() for name in value.columns}
    else:
        columns = {"values": getattr(value, "to_numpy", str)()}
    index = value.index.to_numpy() if hasattr(value, "index") else None
    return {"type": _type_name(value), **_describe({"index": index, **columns}, depth)}


def _type_name(value: object) -> str:
    kind = type(value)
    is_builtin = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()
