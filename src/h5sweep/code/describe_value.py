"""Values as they are compared and recorded: plain ones as they are, large ones by checksum.

What two equal values give is equal, in any process. Of what cannot be told so (a lock, a logger, an
object of an installed package) only the type is said, and which functions of the user's it holds.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import pickle
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from types import MappingProxyType, ModuleType
from typing import Any

from .loaded_code import code_digest
from .members import attributes_of, functions_in, held_functions, is_own_class
from .source_facts import digest_of

_MOST_TEXT = 500
_MOST_DEPTH = 12
_KEY_DEPTHS = (2, 5)  # as far as members of a set are looked into to put them in order


def describe_constant(value: object, own_prefix: str = "") -> Any:
    """The same; of parts known by their types alone, a checksum of what is sent to workers."""
    return _described(value, _Description(own_prefix, with_pickles=True))


def describe_value(value: object, own_prefix: str = "") -> Any:
    """A value as strict JSON; `own_prefix` is left out of names of functions and types."""
    return _described(value, _Description(own_prefix))


def _described(value: object, description: _Description) -> Any:
    described = description.whole(value)
    text = json.dumps(described, sort_keys=True)
    if len(text) <= _MOST_TEXT:
        return described
    return {"type": type(value).__name__, "sha256": _sha256(text.encode())}


def is_code(described: object) -> bool:
    """Whether it stands for a function or a class."""
    return isinstance(described, dict) and described.get("type") in ("function", "class")


def is_array(described: Any) -> bool:
    """Whether it stands for an array, by its checksum alone."""
    is_told_so = isinstance(described, dict) and described.keys() == {"type", "sha256"}
    return is_told_so and str(described["type"]).endswith(")")


def value_text(described: object) -> str:
    """What `describe_value` has given, as people read it: `7`, `float64 (3, 4), sha256 1f0c…`."""
    readable = _readable(described)
    is_text = isinstance(readable, str) and not isinstance(described, str)
    return str(readable) if is_text else json.dumps(readable)


def _readable(described: Any) -> Any:
    if isinstance(described, list):
        return [_readable(one) for one in described]
    if not isinstance(described, dict):
        return described
    if described.keys() == {"type", "sha256"}:
        return f"{described['type']}, sha256 {described['sha256'][:8]}…"
    if is_code(described):
        code = f", code {described['code'][:8]}…" if "code" in described else ""
        return f"the {described['type']} {described['value']}{code}"
    if described.keys() == {"type", "attributes"}:
        return {described["type"]: _readable(described["attributes"])}
    if described.keys() != {"type", "value"}:
        return {name: _readable(one) for name, one in described.items()}
    value = _readable(described["value"])
    if described["type"] not in ("dict", "list", "float", "str") and isinstance(value, list):
        return {described["type"]: value}
    if described["type"] == "dict":
        texts = [key if isinstance(key, str) else json.dumps(key) for key, _ in value]
        return dict(zip(texts, (one for _, one in value), strict=True))
    return value


class _Description:
    """Describes one value and all that is in it; what comes again, as in a circle, once.

    With a depth, only as far as that, to put members of a set in order.
    """

    def __init__(
        self, own_prefix: str, key_depth: int | None = None, *, with_pickles: bool = False
    ) -> None:
        self._own_prefix, self._key_depth = own_prefix, key_depth
        self._with_pickles = with_pickles
        self._places: dict[int, int] = {}
        self._kept: list[object] = []  # so that no other object gets the place of one that ended
        self._deeper: list[object] = []

    def whole(self, value: object) -> Any:
        """What is nested deeper than a few levels comes after the rest, however deep it is."""
        described, deeper = self.of(value), []
        while self._deeper:
            deeper.append(self._content(self._deeper.pop(0), 0))
        if deeper:
            return {"type": self._type(value), "value": described, "deeper": deeper}
        return described

    def of(self, value: object, depth: int = 0) -> Any:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        if (atom := self._atom(value)) is not None:
            return atom
        is_deep = depth > (_MOST_DEPTH if self._key_depth is None else self._key_depth)
        if is_deep and self._key_depth is not None:
            return {"type": self._type(value)}
        # Equal tuples may be one object in one process, and two in another.
        if is_deep or type(value) not in (tuple, frozenset):
            if id(value) in self._places:
                return {"type": self._type(value), "place": self._places[id(value)]}
            self._places[id(value)] = len(self._places)
            self._kept.append(value)
        if is_deep:
            self._deeper.append(value)
            return {"type": self._type(value), "place": self._places[id(value)]}
        return self._content(value, depth)

    def _type(self, value: object) -> str:
        return _type_name(value).removeprefix(self._own_prefix)

    def _atom(self, value: Any) -> Any:
        """A value that has nothing inside, and is the same wherever it comes again; else None."""
        if type(value) in (bytes, bytearray, memoryview):
            return {"type": f"bytes ({len(value)})", "sha256": _sha256(bytes(value))}
        if isinstance(value, Enum):
            return {"type": self._type(value), "value": value.name}
        if isinstance(value, ModuleType):
            return {"type": "module", "value": value.__name__}
        if getattr(type(value), "is_sweep", False):
            return self._atom(value.function) or self.of(value.function)
        if callable(value) and hasattr(value, "__qualname__"):
            return self._callable(value)
        if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.shape:
            is_number = not isinstance(value, sys.modules["numpy"].ndarray)
            if is_number and not value.dtype.hasobject:
                return {"type": str(value.dtype), "value": str(value)}
        if (text := _plain_text(value)) is not None:
            return {"type": self._type(value), "value": text}
        return None

    def _callable(self, value: Any) -> Any:
        """A function or a class: its name, and a digest of what the user's own ones do."""
        # Of a class its last name: cloudpickle loses what it was defined in.
        last = value.__name__ if isinstance(value, type) else value.__qualname__
        name = f"{value.__module__}.{last}".removeprefix(self._own_prefix)
        if not isinstance(value, type):
            digests = [code_digest(one.__code__) for one in functions_in(value)]
        elif is_own_class(value):
            digests = list(_member_digests(value))
        else:
            digests = []
        code = digests[0] if len(digests) == 1 else digest_of("\n".join(digests).encode())
        kind = "class" if isinstance(value, type) else "function"
        return {"type": kind, "value": name, **({"code": code} if digests else {})}

    def _content(self, value: Any, depth: int) -> Any:
        if type(value) is list:
            return self._items(value, depth)
        if type(value) is dict and _is_json_object(value):
            return {key: self.of(inside, depth + 1) for key, inside in value.items()}
        found = {"type": self._type(value), **self._inside(value, depth)}
        named: dict[str, object] = {}
        if is_own_class(type(value)) or _is_open(value):
            named = attributes_of(value)
        elif found.keys() == {"type"} and (functions := list(held_functions(value))):
            named = {"functions": functions}
        if named:
            found["attributes"] = {name: self.of(one, depth + 1) for name, one in named.items()}
        elif self._with_pickles and found.keys() == {"type"} and not is_own_class(type(value)):
            with suppress(Exception):  # whatever its __reduce__ may raise: it is told elsewhere
                found["sha256"] = _sha256(pickle.dumps(value, protocol=5))
        return found

    def _inside(self, value: Any, depth: int) -> dict[str, Any]:
        """What a container, a number or an array has in it, whatever else its class may add."""
        if isinstance(value, list | tuple | deque):
            return {"value": self._items(value, depth)}
        if isinstance(value, set | frozenset):
            return {"value": self._set(value, depth)}
        if isinstance(value, dict | MappingProxyType):
            pairs = [[self.of(k, depth + 1), self.of(v, depth + 1)] for k, v in value.items()]
            makes = {"new": self.of(value.default_factory)} if type(value) is defaultdict else {}
            return {"value": pairs, **makes}
        if isinstance(value, functools.partial | functools.partialmethod):
            return {"value": self._items([value.func, value.args, value.keywords], depth)}
        if isinstance(value, BaseException):
            return {"value": self._items(value.args, depth)}
        if isinstance(value, bytes | bytearray):
            return {"sha256": _sha256(bytes(value))}
        for base in (int, float, complex, str):
            if isinstance(value, base):
                return {"value": base.__repr__(value) if base is not str else str.__str__(value)}
        return self._table(value, depth)

    def _items(self, items: Iterable[object], depth: int) -> list[Any]:
        return [self.of(item, depth + 1) for item in items]

    def _set(self, value: Iterable[object], depth: int) -> Any:
        """Members in an order that does not depend on their hashes, which differ by process."""
        items = list(value)
        if self._key_depth is not None:
            return len(items)
        keys: list[str] = []
        for most in _KEY_DEPTHS:
            keys = [json.dumps(_Description(self._own_prefix, most).of(item)) for item in items]
            if len(set(keys)) == len(keys):
                in_order = sorted(zip(keys, range(len(items)), strict=True))
                return [self.of(items[index], depth + 1) for _, index in in_order]
        return sorted(keys)  # nobody can say which of two is the first

    def _table(self, value: Any, depth: int) -> dict[str, Any]:
        """An array, a table or a dataset, by checksums; of anything else nothing."""
        np = sys.modules.get("numpy")
        if np is not None and isinstance(value, np.ndarray | np.generic):
            return self._array(value, depth)
        if _type_name(value).startswith(("pandas.", "xarray.")):
            attributes = getattr(value, "attrs", None) or {}
            named = {"attributes": self.of(dict(attributes), depth)} if attributes else {}
            columns = _columns(value)
            return named if columns is None else {"value": self.of(columns, depth), **named}
        return {}

    def _array(self, value: Any, depth: int) -> dict[str, Any]:
        """An array of NumPy's, by type, shape and checksum."""
        import numpy as np

        if isinstance(value, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(value)
            return {"mask": self.of(mask), **self._array(value.data, depth)}
        array = np.asarray(value)
        kind = {} if is_own_class(type(value)) else {"type": f"{array.dtype} {array.shape}"}
        if array.dtype.hasobject:
            return {**kind, "value": self.of(array.tolist(), depth + 1)}
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        about = {} if kind else {"array": f"{array.dtype} {array.shape}"}
        return {**kind, **about, "sha256": _sha256(content)}


def _is_json_object(value: dict[Any, Any]) -> bool:
    """Whether JSON says all of it: names in order, and none that stands for something else."""
    names = list(value)
    return all(type(n) is str for n in names) and "type" not in value and names == sorted(names)


def _member_digests(kind: type) -> Iterable[str]:
    """What the functions in a class do, each by its name; other values have names of their own."""
    for name, member in sorted(vars(kind).items()):
        codes = [code_digest(one.__code__) for one in functions_in(member)]
        if codes:
            yield f"{name} {type(member).__name__} {' '.join(codes)}"
    yield "bases " + " ".join(base.__name__ for base in kind.__bases__)


def _plain_text(value: object) -> str | None:
    """What an object of Python's own says that it is."""
    is_pythons = type(value).__module__.partition(".")[0] in sys.stdlib_module_names
    if not is_pythons or isinstance(value, _CONTAINERS) or hasattr(value, "__dict__"):
        return None
    text = repr(value)
    return None if text.startswith("<") or " at 0x" in text else text


_CONTAINERS = (list, tuple, dict, set, frozenset, deque, MappingProxyType, BaseException)
_OPEN = {"Namespace", "SimpleNamespace", "UserDict", "UserList", "ConfigParser"}


def _is_open(value: object) -> bool:
    """Whether attributes are all that an object of Python's own is."""
    kind = type(value)
    is_pythons = kind.__module__.partition(".")[0] in sys.stdlib_module_names
    return isinstance(value, BaseException) or (is_pythons and kind.__name__ in _OPEN)


def _columns(value: Any) -> dict[Any, Any] | None:
    """The columns of a table or dataset of pandas or xarray, and its index.

    None for what only says where it lies in memory, such as `table.groupby("farm")`.
    """
    if hasattr(value, "variables"):
        variables = value.variables.items()
        return {name: [one.dims, one.to_numpy(), dict(one.attrs)] for name, one in variables}
    if hasattr(value, "coords"):
        coordinates = {name: one.to_numpy() for name, one in value.coords.items()}
        return {"dims": value.dims, "values": value.to_numpy(), "coords": coordinates}
    index = value.index.to_numpy() if hasattr(value, "index") else None
    if hasattr(value, "columns"):
        columns = [[name, value[name].to_numpy()] for name in value.columns]
        return {"index": index, "columns": columns}
    values = getattr(value, "to_numpy", value.__str__)()
    return (
        None
        if isinstance(values, str) and " at 0x" in values
        else {"index": index, "values": values}
    )


def _type_name(value: object) -> str:
    kind = type(value)
    is_builtin = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()
