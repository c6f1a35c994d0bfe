"""Values as they are compared and recorded: plain ones as they are, large ones by checksum.

What two equal values give is equal, in any process. Of what cannot be told so (a lock, a logger, an
object of an installed package) only the type is said.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

from .own_modules import is_own_module

_MOST_TEXT = 500
_MOST_DEPTH = 12


def describe_value(value: object) -> Any:
    """A value as strict JSON."""
    described = _Description().of(value)
    text = json.dumps(described, sort_keys=True)
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


class _Description:
    """Describes one value and all that is in it; what comes again, as in a circle, once."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def of(self, value: object, depth: int = 0) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(value)
        if depth > _MOST_DEPTH:
            return {"type": _type_name(value)}
        if isinstance(value, tuple):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.of(item, depth + 1) for item in value), key=json.dumps)
        place = self._places.setdefault(id(value), len(self._places))
        if place < len(self._places) - 1 and not callable(value):
            return {"type": _type_name(value), "place": place}
        if isinstance(value, list):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self._key(k): self.of(v, depth + 1) for k, v in value.items()}
        return self._object(value, depth)

    def _key(self, key: object) -> str:
        return key if isinstance(key, str) else json.dumps(self.of(key, _MOST_DEPTH))

    def _object(self, value: object, depth: int) -> Any:
        kind = _type_name(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return {"type": f"bytes ({len(value)})", "sha256": _sha256(bytes(value))}
        if isinstance(value, Enum):
            return {"type": kind, "value": value.name}
        if isinstance(value, ModuleType):
            return {"type": "module", "value": value.__name__}
        if callable(value) and hasattr(value, "__qualname__"):
            return {"type": "function", "value": f"{value.__module__}.{value.__qualname__}"}
        if kind.startswith("numpy."):
            return self._array(value, depth)
        if kind.startswith(("pandas.", "xarray.")):
            return {"type": kind, **self.of(_columns(value), depth)}
        if (text := _plain_text(value)) is not None:
            return {"type": kind, "value": text}
        return {"type": kind, **self.of(_attributes(value), depth)}

    def _array(self, value: Any, depth: int) -> Any:
        """An array of NumPy's, by type, shape and checksum; a single number as itself."""
        import numpy as np

        if not isinstance(value, np.ndarray | np.generic):
            return {"type": _type_name(value)}
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            if isinstance(plain := value.item(), bool | int | float | str):
                return self.of(plain, depth)
            return {"type": str(value.dtype), "value": str(value)}
        array = np.asarray(value)
        if array.dtype.hasobject:
            return self.of(array.tolist(), depth + 1)
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return {"type": f"{array.dtype} {array.shape}", "sha256": _sha256(content)}


def _plain_text(value: object) -> str | None:
    """What an object of Python's own, or a number or text of another class, says that it is."""
    if isinstance(value, int | str):
        return value.__str__()
    is_pythons = type(value).__module__.partition(".")[0] in sys.stdlib_module_names
    text = repr(value) if is_pythons and not hasattr(value, "__dict__") else "<"
    return None if text.startswith("<") else text


def _attributes(value: object) -> dict[str, object]:
    """What an object of a class of the user's has; of others nobody knows what counts."""
    module = sys.modules.get(type(value).__module__)
    is_own = module is None or module.__name__ == "__main__" or is_own_module(module)
    is_open = is_own or isinstance(value, SimpleNamespace)
    if not is_open:
        return {}
    slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
    return {**slots, **getattr(value, "__dict__", {})}


def _columns(value: Any) -> dict[Any, Any]:
    """The columns of a table or dataset of pandas or xarray, and its index."""
    if hasattr(value, "variables"):
        return {name: [one.dims, one.to_numpy()] for name, one in value.variables.items()}
    index = value.index.to_numpy() if hasattr(value, "index") else None
    if hasattr(value, "columns"):
        return {"index": index, **{name: value[name].to_numpy() for name in value.columns}}
    return {"index": index, "values": getattr(value, "to_numpy", value.__str__)()}


def _type_name(value: object) -> str:
    kind = type(value)
    is_builtin = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()
