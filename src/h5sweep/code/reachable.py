"""What a function depends on: the user's own functions that it can reach, and the values they use.

These are globals, variables of enclosing functions, defaults, attributes of own classes and
modules, the object that a method is bound to, the arguments of a partial function.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from importlib.machinery import PathFinder
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from ..base.study_function import Callee, code_of
from .members import (
    attributes_of,
    closure_of,
    function_attributes,
    functions_in,
    held_functions,
    is_own_class,
    is_own_function,
    member_attributes,
    registry_of,
)
from .own_modules import is_made_by_hand, is_own_module, loaded_own_modules

# What every module has, and what says where it is: no values of the study.
_OF_MODULES = {*vars(ModuleType("")), "__file__", "__cached__", "__builtins__", "__path__"}
_OF_THE_PROCESS = ("__main__", "sys")  # have values that say which process it is
_BY_TEXT = {"globals", "eval", "exec", "__main__"}  # give globals by their names
_SUBCLASSES = "__subclasses__"
ARGUMENTS = "sys.argv"
MEMBERS = ".__members__"  # of an enum


def own_values(function: Callee, constants: Iterable[object] = ()) -> dict[str, object]:
    """Every value that the function can reach, by a name such as `model.SCALE`."""
    walk = _Walk()
    for value in (function, *constants):
        walk.visit("", value)
    if callable(function) and plain_function(function) is None:
        walk.values["self"] = function  # an object that is called
    walk.visit_subclasses()
    if walk.reads_arguments and getattr(code_of(function), "__module__", "") == "__main__":
        walk.values[ARGUMENTS] = sys.argv[1:]  # workers have the same
    return walk.values


def own_functions(function: object) -> list[FunctionType]:
    """The function and every own function that it can reach."""
    return _walked(function).functions


def own_subclasses(function: object) -> list[type]:
    """Own classes that the function may reach through `__subclasses__()` alone."""
    walk = _walked(function)
    walk.visit_subclasses()
    return walk.classes


def put_values(function: object) -> dict[str, dict[str, object]]:
    """What the function uses of packages, by module, that may not be what an import gives."""
    return _walked(function).put


def made_modules(function: object) -> list[ModuleType]:
    """Modules that the function names and that no import gives."""
    return list(_walked(function).made.values())


def code_names(code: CodeType) -> Iterator[str]:
    """Every global, attribute and module that a code object names, with the code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant  # perhaps for getattr


def names_globals_by_text(function: FunctionType) -> bool:
    """Whether it may use globals that it does not name, as with `globals()`."""
    names, loaded = set(code_names(function.__code__)), set(_loaded_names(function.__code__))
    return _are_by_text(names, loaded)


def _are_by_text(names: set[str], loaded: set[str]) -> bool:
    return not loaded.isdisjoint(_BY_TEXT) or ("sys" in loaded and "modules" in names)


_LOADS = {dis.opmap[name]: shift for name, shift in (("LOAD_GLOBAL", 1), ("LOAD_NAME", 0))}
_LOADS |= {dis.opmap[n]: 0 for n in ("LOAD_FROM_DICT_OR_GLOBALS", "IMPORT_NAME") if n in dis.opmap}


def _loaded_names(code: CodeType) -> Iterator[str]:
    """The globals that a code object uses, and modules that it imports; no names of attributes."""
    above = 0
    for operation, argument in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument |= above
        above = argument << 8 if operation == dis.EXTENDED_ARG else 0
        if operation in _LOADS:
            yield code.co_names[argument >> _LOADS[operation]]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _loaded_names(constant)


def imported_names(code: CodeType) -> Iterator[str]:
    """The modules that a code object imports by itself."""
    for operation in dis.get_instructions(code):
        if operation.opname == "IMPORT_NAME":
            yield str(operation.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from imported_names(constant)


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
        self.reads_arguments = False
        self.classes: list[type] = []
        self.put: dict[str, dict[str, object]] = {}  # into packages, or perhaps always there
        self.made: dict[int, ModuleType] = {}  # by hand
        self._seen: dict[int, object] = {}

    def visit(self, label: str, value: Any) -> None:
        """Take a value, or go on from it if it is a function, a class or a module of the user's."""
        if label and callable(value):
            self._note(label, value)  # it may be another one next time
        if id(value) in self._seen and not _is_plain(value):
            return
        self._seen[id(value)] = value
        if isinstance(value, ModuleType):
            return  # its attributes are visited where they are named
        if isinstance(value, type):
            self._visit_class(value)
        elif isinstance(value, functools.partial | functools.partialmethod):
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

    def visit_subclasses(self) -> None:
        """If functions ask for subclasses: all of the user's, also those that nothing names."""
        asked = any(_SUBCLASSES in code_names(one.__code__) for one in self.functions)
        for kind in self.classes if asked else ():  # which grows
            known: list[type] = type.__subclasses__(kind)
            found = [one for one in known if is_own_class(one)]
            if found:
                self._note(f"{kind.__module__}.{kind.__qualname__}.{_SUBCLASSES}()", found)
            for one in found:
                self.visit("", one)

    def _note(self, label: str, value: object) -> None:
        """Take a value; two of one label, as of two closures of one function, are kept apart."""
        while label in self.values and self.values[label] is not value:
            label += "'"
        self.values[label] = value

    def _visit_inside(self, value: Any) -> None:
        """Go on to functions and objects of the user's that a value holds."""
        inside: list[object] = []
        if isinstance(value, dict | MappingProxyType):
            inside = list(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            inside = list(value)
        elif not is_own_class(type(value)) and not _is_plain(value):
            inside = list(held_functions(value))
        if is_own_class(type(value)):
            self._visit_class(type(value))
            inside += attributes_of(value).values()
        for item in inside:
            if not isinstance(item, bool | int | float | str | bytes | None):
                self.visit("", item)

    def _visit_wrapper(self, value: Any) -> None:
        if isinstance(value, FunctionType):
            self._visit_function(value)
            if registry := registry_of(value):
                self.visit(f"{value.__module__}.{value.__qualname__}.registry", registry)

    def _visit_all(self, label: str, values: dict[str, object]) -> None:
        for name, value in values.items():
            self.visit(f"{label}.{name}".lstrip("."), value)

    def _visit_function(self, function: FunctionType) -> None:
        if not is_own_function(function):
            return
        module, code = function.__globals__.get("__name__", ""), function.__code__
        self.functions.append(function)
        names, loaded = set(code_names(code)), set(_loaded_names(code))
        self.reads_arguments |= "argv" in names
        named = names if _are_by_text(names, loaded) else loaded
        entered: set[int] = set()
        self._visit_named(module, function.__globals__, named - _OF_MODULES, names, entered)
        imported = dict(self._imported_modules(function, loaded))
        self._visit_named("", imported, set(imported), names, entered)
        self._visit_package(builtins, loaded - function.__globals__.keys(), entered)
        place = f"{module}.{function.__qualname__}"
        closure = closure_of(function)
        self.visit("", closure.pop("__class__", None))
        self._visit_all(place, closure)
        defaults = function.__defaults__ or ()
        arguments = code.co_varnames[: code.co_argcount]
        self._visit_all(place, dict(zip(arguments[-len(defaults) :], defaults, strict=False)))
        self._visit_all(place, dict(function.__kwdefaults__ or {}))
        self._visit_all(place, function_attributes(function))

    def _visit_named(
        self,
        module: str,
        values: dict[str, Any],
        named: set[str],
        names: set[str],
        entered: set[int],
    ) -> None:
        """What a function uses of a module, and its `names` in own modules that it reaches so.

        `entered` are those that were, by identity: two may name each other, or have one name.
        """
        for name in sorted(named & values.keys()):
            value = values[name]
            if not isinstance(value, ModuleType):
                self.visit(f"{module}.{name}", value)
            elif id(value) not in entered:
                entered.add(id(value))
                inside = names - _OF_MODULES
                if is_made := is_made_by_hand(value):
                    self.made[id(value)] = value
                if is_made or is_own_module(value):
                    self._visit_named(value.__name__, vars(value), inside, inside, entered)
                else:
                    self._visit_package(value, inside, entered)

    def _visit_package(self, module: ModuleType, names: set[str], entered: set[int]) -> None:
        """What somebody may have put into a module that is not the user's: `math.pi = 3`."""
        place = module.__name__
        if sys.modules.get(place) is not module or place in _OF_THE_PROCESS:
            return
        if "__getattr__" in vars(module):
            _load_parts(module, names)
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if isinstance(value, ModuleType):
                if id(value) not in entered:
                    entered.add(id(value))
                    self._visit_package(value, names, entered)
            elif not name.startswith("__") and _may_be_put(place, name, value):
                self.put.setdefault(place, {})[name] = value
                self.visit(f"{place}.{name}", value)

    def _imported_modules(
        self, function: FunctionType, loaded: set[str]
    ) -> Iterator[tuple[str, ModuleType]]:
        """Modules that a function imports by itself, if others have them too.

        One that only tasks import is there or not, by whether one was run here before.
        """
        package = function.__globals__.get("__package__") or ""
        for name in loaded - function.__globals__.keys():
            for full_name in (name, f"{package}.{name}"):
                module = sys.modules.get(full_name)
                if isinstance(module, ModuleType) and (
                    full_name in self._modules_in_globals or is_made_by_hand(module)
                ):
                    yield full_name, module

    @functools.cached_property
    def _modules_in_globals(self) -> set[str]:
        return _modules_in_globals()

    def _visit_class(self, kind: type) -> None:
        if not is_own_class(kind) or kind in self.classes:
            return
        self.classes.append(kind)
        place = f"{kind.__module__}.{kind.__qualname__}"
        self._note(place, kind)
        if is_enum := issubclass(kind, Enum):
            self._note(f"{place}{MEMBERS}", {one.name: _member(one) for one in kind})
        for name, value in list(vars(kind).items()):
            if functions := functions_in(value):
                for function in functions:
                    self.visit("", function)
                if isinstance(value, functools.partialmethod):
                    self.visit(f"{place}.{name}", value)
            elif not name.startswith(("__", "_abc_")) and is_data(value) and not is_enum:
                self.visit(f"{place}.{name}", value)
        for base in kind.__bases__:
            self.visit("", base)


def _load_parts(package: ModuleType, names: set[str]) -> None:
    """Load what a package loads when it is asked for, as `scipy.special`: as the function will.

    Else what it names there would be new once somebody had called it.
    """
    with suppress(Exception):  # whatever a `__dir__` of a package's own may raise
        names = names.intersection(dir(package))
    for name in sorted(names - vars(package).keys()):
        with suppress(Exception), warnings.catch_warnings():  # whatever an import may raise
            warnings.simplefilter("ignore")
            if PathFinder.find_spec(f"{package.__name__}.{name}", package.__path__):
                importlib.import_module(f"{package.__name__}.{name}")


def _may_be_put(module: str, name: str, value: Any) -> bool:
    """Whether what a module has by a name is a number, a text, or from somewhere else."""
    if type(value) in (bool, int, float, str):
        return True
    if not callable(value):
        return is_own_class(type(value))
    home = (getattr(value, "__module__", None) or type(value).__module__).partition(".")[0]
    is_at_home = home in sys.stdlib_module_names or home == module.partition(".")[0]
    return not is_at_home or getattr(value, "__name__", name) != name


def _walked(function: object) -> _Walk:
    walk = _Walk()
    walk.visit("", function)
    return walk


def _member(member: Enum) -> object:
    """The value of a member, with attributes that somebody has given it."""
    named = member_attributes(member)
    return [member.value, named] if named else member.value


def _modules_in_globals() -> set[str]:
    """Own modules that another one, or the script, has by a name: not only because it has them."""
    owners = [*loaded_own_modules().values(), sys.modules.get("__main__")]
    found: set[str] = set()
    for owner in filter(None, owners):
        named = [value for value in list(vars(owner).values()) if isinstance(value, ModuleType)]
        found |= {m.__name__ for m in named if m.__name__.rpartition(".")[0] != owner.__name__}
    return found


def is_data(value: object) -> bool:
    """Whether a member of a class is a value; a descriptor is one if its class is the user's."""
    return not hasattr(type(value), "__get__") or is_own_class(type(value))


def _is_plain(value: object) -> bool:
    """Whether equal values may be one object, which then stands under several names."""
    return value is None or isinstance(value, bool | int | float | str | bytes | tuple)
