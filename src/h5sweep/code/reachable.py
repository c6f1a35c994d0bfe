"""What a function depends on: the user's own functions that it can reach, and the values they use.

These are globals, variables of enclosing functions, defaults, attributes of own classes and
modules, the object that a method is bound to, the arguments of a partial function.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .own_modules import is_own_module


def own_values(function: object, constants: Iterable[object] = ()) -> dict[str, object]:
    """Every value that the function can reach, by a name such as `model.SCALE`."""
    walk = _Walk()
    for value in (function, *constants):
        walk.visit("", value)
    if callable(function) and plain_function(function) is None:
        walk.values["self"] = function  # an object that is called
    return walk.values


def own_functions(function: object) -> list[FunctionType]:
    """The function and every own function that it can reach."""
    walk = _Walk()
    walk.visit("", function)
    return walk.functions


def code_names(code: CodeType) -> Iterator[str]:
    """Every global, attribute and module that a code object names, with the code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant  # perhaps for getattr


def plain_function(function: object) -> FunctionType | None:
    """The Python function behind a partial, a method, a decorated or compiled function."""
    for _ in range(20):
        if isinstance(function, FunctionType):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is None:
                return function
            function = wrapped
        elif isinstance(function, functools.partial):
            function = function.func
        elif getattr(type(function), "is_sweep", False):
            function = function.function  # type: ignore[attr-defined]  # every sweep has one
        else:
            inner = (getattr(function, name, None) for name in _INNER)
            function = next((one for one in inner if one is not None), None)
            if function is None:
                return None
    return None


_INNER = ("__func__", "py_func", "__wrapped__")  # of a method, numba, a cache


class _Walk:
    """Goes from function to function; each is visited once."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.functions: list[FunctionType] = []
        self._seen: set[int] = set()

    def visit(self, label: str, value: Any) -> None:
        """Take a value, or go on from it if it is a function, a class or a module of the user's."""
        if id(value) in self._seen and not _is_plain(value):
            return
        self._seen.add(id(value))
        if isinstance(value, ModuleType):
            return  # its attributes are visited where they are named
        if isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, functools.partial):
            self._visit_all(label, {"arguments": value.args, **value.keywords})
            self.visit(label, value.func)
        elif isinstance(value, MethodType):
            self.visit(f"{label}.self".lstrip("."), value.__self__)
            self.visit(label, value.__func__)
        elif (function := plain_function(value)) is not None:
            if function is not value:
                self._visit_wrapper(value)
            self._visit_function(function)
        else:
            self._visit_inside(value)
            if label:
                self._note(label, value)

    def _note(self, label: str, value: object) -> None:
        """Take a value; two of one label, as of two closures of one function, are kept apart."""
        while label in self.values and self.values[label] is not value:
            label += "'"
        self.values[label] = value

    def _visit_inside(self, value: Any) -> None:
        """Go on to functions and objects of the user's that a value holds."""
        inside: list[object] = []
        if isinstance(value, dict):
            inside = list(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            inside = list(value)
        elif _is_own_class(type(value)):
            self._visit_class(type(value))
            inside = list(getattr(value, "__dict__", {}).values())
        for item in inside:
            if not isinstance(item, bool | int | float | str | bytes | None):
                self.visit("", item)

    def _visit_wrapper(self, value: Any) -> None:
        if isinstance(value, FunctionType):
            self._visit_function(value)

    def _visit_all(self, label: str, values: dict[str, object]) -> None:
        for name, value in values.items():
            self.visit(f"{label}.{name}".lstrip("."), value)

    def _visit_function(self, function: FunctionType) -> None:
        module = function.__globals__.get("__name__", "")
        if not _is_own(function):
            return
        self.functions.append(function)
        self._visit_named(module, function.__globals__, set(code_names(function.__code__)), set())
        place = f"{module}.{function.__qualname__}"
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._visit_all(place, {name: _content(cell) for name, cell in cells})
        defaults = function.__defaults__ or ()
        arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._visit_all(place, dict(zip(arguments[-len(defaults) :], defaults, strict=False)))
        self._visit_all(place, dict(function.__kwdefaults__ or {}))

    def _visit_named(
        self, module: str, values: dict[str, Any], names: set[str], entered: set[str]
    ) -> None:
        """What a function names in a module, and in own modules that it reaches through that.

        `entered` are those that were: two may name each other.
        """
        for name in sorted(names & values.keys()):
            value = values[name]
            if isinstance(value, ModuleType) and is_own_module(value):
                if value.__name__ not in entered:
                    entered.add(value.__name__)
                    self._visit_named(value.__name__, vars(value), names, entered)
                continue
            if callable(value):
                self._note(f"{module}.{name}", value)  # it may be another one next time
            self.visit(f"{module}.{name}", value)

    def _visit_class(self, kind: type) -> None:
        if not _is_own_class(kind) or issubclass(kind, Enum):
            return
        for name, value in list(vars(kind).items()):
            value = getattr(value, "__func__", getattr(value, "fget", value))
            if callable(value):
                self.visit("", value)
            elif not name.startswith("__") and not hasattr(type(value), "__get__"):
                self.visit(f"{kind.__module__}.{kind.__qualname__}.{name}", value)
        for base in kind.__bases__:
            self.visit("", base)


def _is_own_class(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    if isinstance(module, ModuleType) and kind.__module__ != "__main__":
        return is_own_module(module)
    return kind.__module__ not in sys.stdlib_module_names


def _is_own(function: FunctionType) -> bool:
    name = function.__globals__.get("__name__", "")
    module = sys.modules.get(name)
    if name == "__main__" or module is None or vars(module) is not function.__globals__:
        return True
    return is_own_module(module)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None


def _is_plain(value: object) -> bool:
    """Whether equal values may be one object, which then stands under several names."""
    return value is None or isinstance(value, bool | int | float | str | bytes | tuple)
