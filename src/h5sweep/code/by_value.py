"""A function as it is in this process, for a worker: with its globals, and those of own modules.

cloudpickle does most of it. Own modules are imported in the worker, and then given what is in them
here, because their globals, and attributes of their classes, may have been changed since. Functions
and classes that are still what the module has stay that; all functions of a module share its
globals there, as they do here. Of a module that cannot be imported as it is here (it was edited, or
is in no place where it would be looked for) these are sent too. What is installed is imported; a
script is not run again.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import pickle
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, EnumType
from functools import partial
from importlib.machinery import PathFinder
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import cloudpickle

from ..base.study_function import Callee
from ..errors import StudyError
from .loaded_code import is_rewritten
from .members import member_attributes, registry_of
from .module_state import ModuleStates, fill_module
from .own_modules import is_made_by_hand, loaded_own_modules
from .reachable import (
    code_names,
    made_modules,
    names_globals_by_text,
    own_functions,
    own_subclasses,
    own_values,
    put_values,
)
from .source_facts import read_source
from .version import CodeVersion


@dataclass(frozen=True)
class SentFunction:
    """A function on its way to workers, and what is left to what an import gives there."""

    content: bytes
    left: tuple[str, ...]  # where values lie that cannot be sent


def dump_function(
    callee: object,
    function: Callee,
    version: CodeVersion,
    name: str,
    take_buffer: Callable[[Any], Any],
    instead: str = "",
) -> SentFunction:
    """What calls the user's function, as bytes; large arrays go to `take_buffer`.

    StudyError names what cannot be sent, and the command that would do `instead`.
    """
    modules, functions = loaded_own_modules(), own_functions(function)
    mentioned, made = _mentioned_names(functions, version, modules), made_modules(function)
    listed = [module for module in made if _is_listed(module)]
    with _sending_by_value([*_not_importable(modules, version), *listed]):
        state = ModuleStates(mentioned, partial(_is_sendable, modules))
        try:
            sent = _Sent(
                callee,
                function,
                [*_named_modules(version, modules, mentioned), *listed],
                list(_globals_by_text(functions, modules)),
                own_subclasses(function) if "__subclasses__" in mentioned else [],
                _sendable_of_packages(function, modules),
            )
            content = _dumped(sent, modules, state.of, take_buffer, made)
        except Exception as error:  # whatever an object's own __reduce__ may raise
            raise _refusal(function, name, error, instead) from error
    return SentFunction(content, tuple(state.left))


class _Sent(NamedTuple):
    callee: Any
    function: Any
    modules: list[ModuleType]
    globals_by_text: list[tuple[FunctionType, dict[str, object]]]
    subclasses: list[type]
    of_packages: dict[str, dict[str, object]]


_loaded: list[_Sent] = []  # classes that only their base class knows would end


def load_function(content: bytes, buffers: Iterable[Any]) -> tuple[Any, Any]:
    """What `dump_function` has packed, in a worker of the same run: what to call, the function."""
    sent: _Sent = pickle.loads(content, buffers=buffers)
    _put_into_script(sent.function)
    for name, values in sent.of_packages.items():
        vars(importlib.import_module(name)).update(values)
    for function, values in sent.globals_by_text:
        function.__globals__.update(values)
        if function.__module__ == "__main__":
            vars(sys.modules["__main__"]).update(values)  # where some look for them
    _loaded.append(sent)
    return sent.callee, sent.function


def _put_into_script(function: Any) -> None:
    """Functions and classes of a script go where pickle looks for them, if a task uses that."""
    for one in own_functions(function):
        if one.__globals__.get("__name__") == "__main__":
            values = one.__globals__.items()
            found = ((n, v) for n, v in values if isinstance(v, type | FunctionType))
            defined = {n: v for n, v in found if v.__module__ == "__main__"}
            vars(sys.modules["__main__"]).update(defined)


_CACHED = type(functools.lru_cache(repr))
_StateOf = Callable[[ModuleType], Any]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it says nothing of its types
    """Sends own modules, and keeps the globals of their functions together."""

    def __init__(
        self,
        file: io.BytesIO,
        modules: dict[str, ModuleType],
        state_of: _StateOf | None,
        take_buffer: Callable[[Any], Any] | None,
        made: Iterable[ModuleType],
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=take_buffer)
        self._modules, self._state_of = modules, state_of
        for name, module in modules.items():
            self.globals_ref[id(vars(module))] = _Globals(name=name)
        for module in made:
            self.globals_ref.setdefault(id(vars(module)), _Globals(made=module))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Globals) and "made" in obj:
            return vars, (obj["made"],)
        if isinstance(obj, _Globals):
            return _globals_of, _identity(self._modules[obj["name"]])
        if isinstance(obj, ModuleType) and self._modules.get(_name_of(obj)) is obj:
            if self._state_of is None:
                return _module_of, _identity(obj)
            return _module_of, _identity(obj), self._state_of(obj), None, None, fill_module
        if isinstance(obj, ModuleType) and is_made_by_hand(obj):
            identity = _name_of(obj), _is_listed(obj)
            return _made_module, identity, _content_of(obj), None, None, _set_content
        if getattr(type(obj), "is_sweep", False):
            return _as_is, (obj.function,)  # nobody needs its plan there
        if isinstance(obj, _CACHED):  # which pickles itself as a name to import
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        if isinstance(obj, functools.cached_property):  # which has a lock in Python 3.11
            return _cached_property, (obj.func, obj.attrname)
        if isinstance(obj, io.TextIOWrapper) and obj not in (sys.stdout, sys.stderr):
            raise pickle.PicklingError("it is an open file")  # cloudpickle would open another
        if type(obj).__module__ == "unittest.mock":
            raise pickle.PicklingError("it is a mock")  # which would call itself without end there
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced[1]) == _CLASS_PARTS:
            return _class_once, (reduced[0], *reduced[1]), *reduced[2:]
        if isinstance(reduced, tuple) and (registry := registry_of(obj)):
            return _dispatcher, (), registry, None, None, _fill_dispatcher
        if isinstance(obj, EnumType) and isinstance(reduced, tuple):  # sent, not imported
            members: list[Enum] = list(obj)
            named = {one.name: member_attributes(one) for one in members}
            return (*reduced[:2], (reduced[5], reduced[2], named), None, None, _set_enum)
        return reduced


class _Globals(dict[str, Any]):
    """Stands for the globals of a module, of which it has the name, or itself."""


def _identity(module: ModuleType) -> tuple[Any, ...]:
    path = getattr(module, "__path__", None)
    return module.__name__, module.__file__, module.__package__, path and list(path)


def _module_of(name: str, file: str, package: str, path: list[str] | None) -> ModuleType:
    """The module of this name in a worker; if it cannot be found there, it has what it is sent."""
    if name in sys.modules:
        return sys.modules[name]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # it is there, and needs another that is not
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(__file__=file, __package__=package, __getattr__=_Absent(name))
        if path is not None:
            vars(module).update(__path__=path)
    return module


class _Absent:
    """Says of an attribute that was not sent why it is not there."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __call__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self._module}.{name} is not there in workers, because it cannot be sent to them: "
            "make it inside the function"
        )


def _is_listed(module: ModuleType) -> bool:
    """Whether an import statement would find it."""
    return sys.modules.get(_name_of(module)) is module


def _made_module(name: str, is_listed: bool) -> ModuleType:
    module = ModuleType(name)
    return sys.modules.setdefault(name, module) if is_listed else module


def _content_of(module: ModuleType) -> dict[str, object]:
    """All that is in a module that was made by hand, which no import would give."""
    left = ("__builtins__", "__loader__", "__spec__")
    return {n: v for n, v in vars(module).items() if n not in left}


def _set_content(module: ModuleType, content: dict[str, object]) -> None:
    vars(module).update(content)


def _globals_of(*identity: Any) -> dict[str, Any]:
    return vars(_module_of(*identity))


def _globals_by_text(
    functions: Iterable[FunctionType], modules: dict[str, ModuleType]
) -> Iterator[tuple[FunctionType, dict[str, object]]]:
    """Globals of a script for functions that may ask for any, as far as they can be sent."""
    for one in functions:
        if names_globals_by_text(one) and one.__globals__.get("__name__") not in modules:
            found = {n: v for n, v in one.__globals__.items() if not n.startswith("__")}
            yield one, {n: v for n, v in found.items() if _is_sendable(modules, v)}


def _sendable_of_packages(
    function: Callee, modules: dict[str, ModuleType]
) -> dict[str, dict[str, object]]:
    """What the function uses of packages and may not find there in a worker, if it can be sent."""
    return {
        name: {n: v for n, v in values.items() if _is_sendable(modules, v)}
        for name, values in put_values(function).items()
    }


def _name_of(module: ModuleType) -> str:
    return str(getattr(module, "__name__", ""))


_CLASS_PARTS = 6  # what cloudpickle makes a class of; the fifth is its id
_classes: dict[str, type] = {}


def _class_once(make: Callable[..., type], *parts: Any) -> type:
    """A class that is sent; if its base class knows it, it is there already when its turn comes.

    Made twice, it would tell its base class so, which would then know the wrong one.
    """
    identity = parts[4]
    if identity not in _classes:
        _classes.setdefault(identity, make(*parts))
    return _classes[identity]


def _set_enum(kind: Any, state: tuple[Any, Any, dict[str, dict[str, object]]]) -> None:
    """Complete an enum, and give its members the attributes that its `__init__` has not run for."""
    complete, content, attributes = state
    complete(kind, content)
    for name, named in attributes.items():
        vars(kind[name]).update(named)


def _dispatcher() -> Any:
    return functools.singledispatch(_as_is)


def _fill_dispatcher(function: Any, registry: dict[type, Any]) -> None:
    """Complete a function of `functools.singledispatch`: others may call it, so they come later."""
    for kind, one in registry.items():
        function.register(kind, one)
    functools.update_wrapper(function, registry[object])


def _cached(function: Any, parameters: dict[str, Any]) -> object:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Any, name: str | None) -> object:
    found: functools.cached_property[Any] = functools.cached_property(function)
    found.attrname = name
    return found


def _as_is(value: object) -> object:
    return value


def _is_sendable(modules: dict[str, ModuleType], value: object) -> bool:
    try:
        _dumped(value, modules, None, lambda _: None)
    except Exception:  # whatever an object's own __reduce__ may raise
        return False
    return True


def _dumped(
    value: object,
    modules: dict[str, ModuleType],
    state_of: _StateOf | None = None,
    take_buffer: Callable[[Any], Any] | None = None,
    made: Iterable[ModuleType] = (),
) -> bytes:
    file = io.BytesIO()
    _Pickler(file, modules, state_of, take_buffer, made).dump(value)
    return file.getvalue()


def _not_importable(modules: dict[str, ModuleType], version: CodeVersion) -> list[ModuleType]:
    """Own modules that a worker would not find as they are here."""
    known = {source.module for source in version.sources if source.is_known}
    edited = set(version.edited)
    return [
        module
        for name, module in modules.items()
        if module.__file__ in edited
        or is_rewritten(module)
        or (name not in known and not _is_found(name, module))
    ]


def _is_found(name: str, module: ModuleType) -> bool:
    """Whether this is what an import of the name would look for."""
    parent = sys.modules.get(name.rpartition(".")[0])
    places = list(getattr(parent, "__path__", ())) if "." in name else None
    spec = PathFinder.find_spec(name, places)
    return spec is not None and spec.origin == module.__file__


def _named_modules(
    version: CodeVersion, modules: dict[str, ModuleType], mentioned: set[str]
) -> list[ModuleType]:
    """Own modules that the study or its modules import, or that functions may."""
    imported = {source.module for source in version.sources} | mentioned
    return [m for name, m in modules.items() if {name, name.rpartition(".")[2]} & imported]


def _mentioned_names(
    functions: Iterable[FunctionType], version: CodeVersion, modules: Container[str]
) -> set[str]:
    """Every name that own functions, or modules that they may import, may ask a module for."""
    found: set[str] = set()
    for one in functions:
        found.update(code_names(one.__code__))
    for source in version.sources:
        if source.module and source.module not in modules:
            found |= read_source(source.text).attributes
    return found


@contextmanager
def _sending_by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    registered = cloudpickle.list_registry_pickle_by_value()
    new = [module for module in modules if module.__name__ not in registered]
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)


def _refusal(function: Callee, name: str, error: Exception, instead: str) -> StudyError:
    """Which of the values that a function uses cannot be sent, and what to do."""
    what, reason = name, error
    values = sorted(own_values(function).items(), key=lambda pair: callable(pair[1]))
    for label, value in values:  # functions last: they lead to the others
        try:
            _dumped(value, {})
        except Exception as refused:  # the same as above
            what = f"{label.removeprefix('__main__.')} (a {type(value).__name__})"
            reason = refused
            break
    other = f". Or let each worker import the file: {instead}" if instead else ""
    return StudyError(
        f"{name} uses {what}, which cannot be sent to workers ({reason}): make it inside the "
        f"function{other}"
    )
