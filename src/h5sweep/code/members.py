"""What classes, functions and objects of the user's hold: functions, attributes."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from enum import Enum
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from .own_modules import is_made_by_hand, is_own_path

_INNER = ("__func__", "fget", "fset", "fdel", "func", "dispatcher", "py_func", "__wrapped__")
_MADE_OF_FUNCTIONS = (
    FunctionType,
    MethodType,
    staticmethod,
    classmethod,
    property,
    functools.partial,
    functools.partialmethod,
    functools.cached_property,
    functools.singledispatchmethod,
)


def is_own_class(kind: type) -> bool:
    return kind.__module__ != "builtins" and _is_own_name(kind.__module__)


def is_own_function(function: FunctionType) -> bool:
    about = function.__globals__
    return _is_own_name(about.get("__name__", ""), about.get("__file__"))


def _is_own_name(name: str, sent_from: object = None) -> bool:
    """Whether what is defined in a module of this name is the user's own.

    A function that was sent to a worker may be of a module that is not loaded there.
    """
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType) and isinstance(sent_from, str) and name != "__main__":
        return _is_own_path(sent_from)
    if not isinstance(module, ModuleType) or name == "__main__":
        return name not in sys.stdlib_module_names or name == "__main__"
    path = getattr(module, "__file__", None)
    return _is_own_path(path) if isinstance(path, str) else is_made_by_hand(module)


_is_own_path = functools.cache(is_own_path)  # asked for every function


def functions_in(member: object) -> list[FunctionType]:
    """The own functions that a member of a module or a class is made of, in a fixed order.

    A decorated function is made of the one that decorates it and of that in its closure.
    """
    if isinstance(member, FunctionType) and not member.__closure__ and not vars(member):
        return [member] if is_own_function(member) else []
    found: list[FunctionType] = []
    seen: dict[int, object] = {}
    left = [member]
    while left:
        one: Any = left.pop(0)
        if id(one) in seen or not _is_made_of_functions(one):
            continue
        seen[id(one)] = one
        if isinstance(one, FunctionType):
            if is_own_function(one):
                found.append(one)
            left += [*closure_of(one).values(), *vars(one).get("registry", {}).values()]
            left.append(vars(one).get("__wrapped__"))
        elif getattr(type(one), "is_sweep", False):
            left.append(one.function)
        else:
            left += [getattr(one, name, None) for name in _INNER]
    return found


def _is_made_of_functions(value: object) -> bool:
    if isinstance(value, _MADE_OF_FUNCTIONS) or getattr(type(value), "is_sweep", False):
        return True
    if not callable(value) or isinstance(value, type):
        return False
    return hasattr(value, "__wrapped__") or hasattr(value, "py_func")  # cached, or compiled


def closure_of(function: FunctionType) -> dict[str, object]:
    """The variables of enclosing functions that it uses; None for what has no value yet."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: _content(cell) for name, cell in cells}


def function_attributes(function: FunctionType) -> dict[str, object]:
    """What somebody has added to a function; not what decorators copy to it."""
    return {n: v for n, v in vars(function).items() if not n.startswith("__")}


def registry_of(value: object) -> dict[type, Any]:
    """What a function of `functools.singledispatch` calls, by type; nothing of any other value."""
    found = vars(value).get("registry") if isinstance(value, FunctionType) else None
    return dict(found) if isinstance(found, MappingProxyType) else {}


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None


def attributes_of(value: object) -> dict[str, object]:
    """What an object has by names, sorted; slots too, of all its classes."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            is_private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if is_private else slot
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return dict(sorted(found.items()))


def member_attributes(member: Enum) -> dict[str, object]:
    """What somebody has given a member of an enum, sorted; not what its class caches in it."""
    found = {n: v for n, v in sorted(vars(member).items()) if not n.startswith("_")}
    return {name: value for name, value in found.items() if not hasattr(type(member), name)}


def held_functions(value: object) -> Iterator[object]:
    """Own functions and objects that an object of a package holds, such as `np.vectorize(f)`."""
    for held in gc.get_referents(value):
        inside = gc.get_referents(held) if type(held) in (dict, list, tuple) else [held]
        yield from (one for one in inside if _is_own_part(one))


def _is_own_part(value: object) -> bool:
    is_function = isinstance(value, FunctionType) and is_own_function(value)
    is_object = not isinstance(value, type | FunctionType | ModuleType)
    return is_function or (is_object and is_own_class(type(value)))
