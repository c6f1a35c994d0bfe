"""What own modules have in a running program that an import of theirs may not give a worker.

Their globals, the values and replaced members of their classes, the defaults, attributes and
closures of their functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

from .members import closure_of, function_attributes, functions_in, registry_of
from .reachable import is_data

_PLAIN = (bool, int, float, str, bytes, type(None))
_HOME = (FunctionType, staticmethod, classmethod, property)


class ModuleStates:
    """What own modules have that an import in a worker may not give: values, and replaced members.

    Of values those that the functions `mentioned`; any others as far as they can be sent, because
    a task may choose its module, or a name in it. What cannot be sent, and may be as an import
    gives it, is noted in `left`.
    """

    def __init__(self, mentioned: set[str], is_sendable: Callable[[object], bool]) -> None:
        self._mentioned, self._is_sendable = mentioned, is_sendable
        self.left: list[str] = []

    def of(self, module: ModuleType) -> dict[str, Any]:
        """Sorted, so that the same state is the same bytes."""
        found = [pair for pair in sorted(vars(module).items()) if not pair[0].startswith("__")]
        name = module.__name__
        state = {
            n: v for n, v in found if n in self._mentioned or self._can_be_sent(f"{name}.{n}", v)
        }
        classes = list(_classes_in(module, module.__name__))
        owners: list[ModuleType | type] = [module, *classes]
        return {
            "globals": state,
            "classes": [(kind, self._members(kind)) for kind in classes],
            "functions": [s for owner in owners for s in self._functions(owner)],
            "registries": list(_registries(state)),
        }

    def _members(self, kind: type) -> dict[str, object]:
        """Values of a class, and members that are not what its body says."""
        found = {}
        for name, value in list(vars(kind).items()):
            label = f"{kind.__module__}.{kind.__qualname__}.{name}"
            if functions_in(value):
                is_wanted = not _is_at_home(kind, name, value)
            else:
                is_wanted = not name.startswith("__") and is_data(value)
            if is_wanted and self._can_be_sent(label, value):
                found[name] = value
        return found

    def _functions(self, owner: ModuleType | type) -> Iterator[tuple[Any, str, list[Any]]]:
        """Defaults, attributes and closures of the functions that a module or class has."""
        for name, value in sorted(vars(owner).items()):
            if isinstance(value, _HOME) and _is_at_home(owner, name, value):
                states = [self._function_state(one) for one in functions_in(value)]
                if any(states):
                    yield owner, name, states

    def _function_state(self, function: FunctionType) -> dict[str, Any]:
        place = f"{function.__module__}.{function.__qualname__}"
        attributes = function_attributes(function)
        cells = {n: v for n, v in closure_of(function).items() if not _is_code(v)}
        sent = {
            "closure": {n: v for n, v in cells.items() if self._can_be_sent(f"{place}.{n}", v)},
            "attributes": {
                n: v for n, v in attributes.items() if self._can_be_sent(f"{place}.{n}", v)
            },
        }
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value and self._can_be_sent(f"{place}.", value):
                sent[name] = value
        return {name: value for name, value in sent.items() if value}

    def _can_be_sent(self, label: str, value: object) -> bool:
        is_sent = type(value) in _PLAIN or self._is_sendable(value)
        if not is_sent:
            self.left.append(label)
        return is_sent


def fill_module(module: ModuleType, state: dict[str, Any]) -> None:
    """Make a module in a worker what `ModuleStates.of` has found it to be."""
    vars(module).update(state["globals"])
    for kind, members in state["classes"]:
        for name, value in members.items():
            setattr(kind, name, value)
    for owner, name, states in state["functions"]:
        functions = functions_in(vars(owner).get(name))
        for function, found in zip(functions, states, strict=False):  # else their codes differ
            _fill_function(function, found)
    for name, registry in state["registries"]:
        for kind, function in registry.items():
            vars(module)[name].register(kind, function)


def _registries(values: dict[str, object]) -> Iterator[tuple[str, dict[type, object]]]:
    """What functions of `functools.singledispatch` have been told by others."""
    for name, value in values.items():
        if registry := registry_of(value):
            home = getattr(value, "__module__", None)
            yield name, {k: f for k, f in registry.items() if f.__module__ != home}


def _fill_function(function: FunctionType, state: dict[str, Any]) -> None:
    for name in ("__defaults__", "__kwdefaults__"):
        if name in state:
            setattr(function, name, state[name])
    vars(function).update(state.get("attributes", {}))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name, value in state.get("closure", {}).items():
        cells[name].cell_contents = value


def _classes_in(owner: ModuleType | type, module: str) -> Iterator[type]:
    """The classes that are defined in a module, and in these."""
    for name, value in sorted(vars(owner).items()):
        is_defined = isinstance(value, type) and value.__module__ == module
        if is_defined and value.__name__ == name and not issubclass(value, Enum):
            yield value
            yield from _classes_in(value, module)


def _is_at_home(owner: ModuleType | type, name: str, value: object) -> bool:
    """Whether the body of a module or class has given it this member."""
    first = functions_in(value)[:1]
    module = owner.__module__ if isinstance(owner, type) else owner.__name__
    place = f"{owner.__qualname__}.{name}" if isinstance(owner, type) else name
    return [(one.__module__, one.__qualname__) for one in first] == [(module, place)]


def _is_code(value: object) -> bool:
    return isinstance(value, type | ModuleType) or bool(functions_in(value))
