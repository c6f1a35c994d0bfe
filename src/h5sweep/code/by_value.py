"""A function as it is in this process, for a worker: with its globals, and those of own modules.

cloudpickle does most of it. Own modules are imported in the worker, and then given what functions
name in them as it is here, because their globals, and attributes of their classes, may have been
changed since. Functions and classes that are still what the module has stay that; all functions of
a module share its globals there, as they do here. Of a module that cannot be imported as it is here
(it was edited, or is in no place where it would be looked for) these are sent too. What is
installed is imported; a script is not run again.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import pickle
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from importlib.machinery import PathFinder
from itertools import compress
from types import ModuleType
from typing import Any

import cloudpickle

from ..base.study_function import Callee, file_of
from ..base.units import command_text, near_path
from ..errors import StudyError
from .own_modules import loaded_own_modules
from .reachable import code_names, own_functions, own_values
from .source_facts import read_source
from .version import CodeVersion


def dump_function(
    callee: object,
    function: Callee,
    version: CodeVersion,
    name: str,
    take_buffer: Callable[[Any], Any],
) -> bytes:
    """What calls the user's function, as bytes; large arrays go to `take_buffer`.

    StudyError names what cannot be sent.
    """
    modules = loaded_own_modules()
    mentioned = _mentioned_names(function, version, modules)
    with _sending_by_value(_not_importable(modules, version)):
        try:
            named = _named_modules(version, modules, mentioned)
            return _dumped((callee, named), modules, mentioned, take_buffer)
        except Exception as error:  # whatever an object's own __reduce__ may raise
            raise _refusal(function, name, modules, mentioned, error) from error


def load_function(content: bytes, buffers: Iterable[Any]) -> Any:
    """What `dump_function` has packed, in a worker of the same run."""
    function, _ = pickle.loads(content, buffers=buffers)
    return function


_PLAIN = (bool, int, float, str, bytes, type(None))
_CACHED = type(functools.lru_cache(repr))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it says nothing of its types
    """Sends own modules, and keeps the globals of their functions together."""

    def __init__(
        self,
        file: io.BytesIO,
        modules: dict[str, ModuleType],
        mentioned: set[str],
        take_buffer: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=take_buffer)
        self._modules, self._mentioned = modules, mentioned
        for name, module in modules.items():
            self.globals_ref[id(vars(module))] = _Globals(name=name)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Globals):
            return _globals_of, _identity(self._modules[obj["name"]])
        if isinstance(obj, ModuleType) and self._modules.get(_name_of(obj)) is obj:
            return _module_of, _identity(obj), self._state(obj), None, None, _fill
        if getattr(type(obj), "is_sweep", False):
            return _as_is, (obj.function,)  # nobody needs its plan there
        if isinstance(obj, _CACHED):  # which pickles itself as a name to import
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)

    def _state(self, module: ModuleType) -> dict[str, object]:
        """What functions name in a module, and plain values, which they may ask for by other ways.

        Sorted, so that the same state is the same bytes.
        """
        found = sorted(vars(module).items())
        is_sent = [n in self._mentioned or type(v) in _PLAIN for n, v in found]
        state = {n: v for n, v in compress(found, is_sent) if not n.startswith("__")}
        classes = [v for v in vars(module).values() if isinstance(v, type)]
        own = [c for c in classes if c.__module__ == module.__name__ and not issubclass(c, Enum)]
        return {"globals": state, "classes": [(c, _class_state(c, self._mentioned)) for c in own]}


class _Globals(dict[str, str]):
    """Stands for the globals of a module, of which it has the name."""


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
            f"{self._module}.{name} was not sent to the workers, because no function names it: "
            f"name {self._module}.{name} in the function"
        )


def _globals_of(*identity: Any) -> dict[str, Any]:
    return vars(_module_of(*identity))


def _fill(module: ModuleType, state: dict[str, Any]) -> None:
    vars(module).update(state["globals"])
    for kind, attributes in state["classes"]:
        for name, value in attributes.items():
            setattr(kind, name, value)


def _class_state(kind: type, mentioned: set[str]) -> dict[str, object]:
    """The values of a class that functions name; its methods are those of the class."""
    found = vars(kind).items()
    return {n: v for n, v in found if n in mentioned and not n.startswith("__") and _is_data(v)}


def _is_data(value: object) -> bool:
    return not callable(value) and not hasattr(type(value), "__get__")


def _name_of(module: ModuleType) -> str:
    return str(getattr(module, "__name__", ""))


def _cached(function: Any, parameters: dict[str, Any]) -> object:
    return functools.lru_cache(**parameters)(function)


def _as_is(value: object) -> object:
    return value


def _dumped(
    value: object,
    modules: dict[str, ModuleType],
    mentioned: set[str],
    take_buffer: Callable[[Any], Any] | None = None,
) -> bytes:
    file = io.BytesIO()
    _Pickler(file, modules, mentioned, take_buffer).dump(value)
    return file.getvalue()


def _not_importable(modules: dict[str, ModuleType], version: CodeVersion) -> list[ModuleType]:
    """Own modules that a worker would not find as they are here."""
    known = {source.module for source in version.sources if source.text}
    edited = set(version.edited)
    return [
        module
        for name, module in modules.items()
        if module.__file__ in edited or (name not in known and not _is_found(name, module))
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


def _mentioned_names(function: Callee, version: CodeVersion, modules: Container[str]) -> set[str]:
    """Every name that own functions, or modules that they may import, may ask a module for."""
    found: set[str] = set()
    for one in own_functions(function):
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


def _refusal(
    function: Callee,
    name: str,
    modules: dict[str, ModuleType],
    mentioned: set[str],
    error: Exception,
) -> StudyError:
    """Which of the values that a function uses cannot be sent, and what to do."""
    what, reason = name, error
    for label, value in own_values(function).items():
        try:
            _dumped(value, {}, mentioned)
        except Exception as refused:  # the same as above
            what = f"{label.removeprefix('__main__.')} (a {type(value).__name__})"
            reason = refused
            break
    path = file_of(function)
    other = ""
    if path is not None:
        other = f". Or let each worker import the file: {command_text('run', near_path(path))}"
    return StudyError(
        f"{name} uses {what}, which cannot be sent to workers ({reason}): make it inside the "
        f"function{other}"
    )
