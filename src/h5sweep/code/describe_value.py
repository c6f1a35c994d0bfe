"""Values as they are compared and recorded: plain ones as they are, large ones by checksum.

What two equal values give is equal, in any process. Of what cannot be told so (a lock, a logger, an
object of an installed package) only the type is said.
"""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import sys
from contextlib import suppress
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

from .loaded_code import code_digest
from .own_modules import is_own_module

_MOST_TEXT = 500
_MOST_DEPTH = 12


def describe_constant(value: object, own_prefix: str = "") -> Any:
    """The same; of what would be known by its type alone, a checksum of what is sent to workers."""
    described = describe_value(value, own_prefix)
    if not isinstance(described, dict) or described.keys() != {"type"}:
        return described
    with suppress(Exception):  # whatever an object's own __reduce__ may raise: it is told elsewhere
        described["sha256"] = _sha256(pickle.dumps(value, protocol=5))
    return described


def describe_value(value: object, own_prefix: str = "") -> Any:
    """A value as strict JSON; `own_prefix` is left out of names of functions and types."""
    described = _Description(own_prefix).of(value)
    text = json.dumps(described, sort_keys=True)
    if len(text) <= _MOST_TEXT:
        return described
    return {"type": type(value).__name__, "sha256": _sha256(text.encode())}


def value_text(described: object) -> str:
    """What `describe_value` has given, as people read it: `7`, `float64 (3, 4), sha256 1f0c…`."""
    if isinstance(described, dict) and described.keys() == {"type", "sha256"}:
        return f"{described['type']}, sha256 {described['sha256'][:8]}…"
    if isinstance(described, dict) and described.keys() == {"type", "value"}:
        return str(described["value"])
    return json.dumps(described)


class _Description:
    """Describes one value and all that is in it; what comes again, as in a circle, once."""

    def __init__(self, own_prefix: str) -> None:
        self._own_prefix = own_prefix
        self._places: dict[int, int] = {}
        self._kept: list[object] = []  # so that no other object gets the place of one that ended

    def of(self, value: object, depth: int = 0) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        if depth > _MOST_DEPTH:
            return {"type": self._type(value)}
        if isinstance(value, tuple):
            return {"type": self._type(value), "value": [self.of(v, depth + 1) for v in value]}
        if isinstance(value, set | frozenset):
            inside = sorted((self.of(item, depth + 1) for item in value), key=json.dumps)
            return {"type": self._type(value), "value": inside}
        is_new = id(value) not in self._places
        place = self._places.setdefault(id(value), len(self._places))
        if not is_new and not callable(value):
            return {"type": self._type(value), "place": place}
        self._kept.append(value)
        if isinstance(value, list):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {self._key(k): self.of(v, depth + 1) for k, v in value.items()}
        return self._object(value, depth)

    def _key(self, key: object) -> str:
        return key if type(key) is str else f"{type(key).__name__} {json.dumps(self.of(key))}"

    def _type(self, value: object) -> str:
        return _type_name(value).removeprefix(self._own_prefix)

    def _object(self, value: object, depth: int) -> Any:
        kind = self._type(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return {"type": f"bytes ({len(value)})", "sha256": _sha256(bytes(value))}
        if isinstance(value, Enum):
            return {"type": kind, "value": value.name}
        if isinstance(value, ModuleType):
            return {"type": "module", "value": value.__name__}
        if callable(value) and hasattr(value, "__qualname__"):
            name = f"{value.__module__}.{value.__qualname__}".removeprefix(self._own_prefix)
            code = {"code": code_digest(value.__code__)} if hasattr(value, "__code__") else {}
            return {"type": "function", "value": name, **code}
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
            return {"type": str(value.dtype), "value": str(value)}
        if isinstance(value, np.ma.MaskedArray):
            return {"mask": self.of(np.ma.getmaskarray(value)), **self._array(value.data, depth)}
        array = np.asarray(value)
        if array.dtype.hasobject:
            return self.of(array.tolist(), depth + 1)
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        return {"type": f"{array.dtype} {array.shape}", "sha256": _sha256(content)}


def _plain_text(value: object) -> str | None:
    """What an object of Python's own, or a number or text of another class, says that it is."""
    if isinstance(value, int | float | str):
        return value.__str__()
    is_pythons = type(value).__module__.partition(".")[0] in sys.stdlib_module_names
    text = repr(value) if is_pythons and not hasattr(value, "__dict__") else "<"
    return None if text.startswith("<") else text


def _attributes(value: object) -> dict[str, object]:
    """What an object of a class of the user's has; of others nobody knows what counts."""
    module = sys.modules.get(type(value).__module__)
    is_loaded = isinstance(module, ModuleType) and type(value).__module__ != "__main__"
    is_own = is_own_module(module) if isinstance(module, ModuleType) and is_loaded else True
    is_open = is_own or isinstance(value, SimpleNamespace)
    if not is_open:
        return {}
    slots = {name: getattr(value, name, None) for name in getattr(type(value), "__slots__", ())}
    return {**slots, **getattr(value, "__dict__", {})}


def _columns(value: Any) -> dict[Any, Any]:
    """The columns of a table or dataset of pandas or xarray, and its index."""
    if hasattr(value, "variables"):
        return {name: [one.dims, one.to_numpy()] for name, one in value.variables.items()}
    if hasattr(value, "coords"):
        coordinates = {name: one.to_numpy() for name, one in value.coords.items()}
        return {"dims": value.dims, "values": value.to_numpy(), "coords": coordinates}
    index = value.index.to_numpy() if hasattr(value, "index") else None
    if hasattr(value, "columns"):
        columns = [[name, value[name].to_numpy()] for name in value.columns]
        return {"index": index, "columns": columns}
    return {"index": index, "values": getattr(value, "to_numpy", value.__str__)()}


def _type_name(value: object) -> str:
    kind = type(value)
    is_builtin = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()
