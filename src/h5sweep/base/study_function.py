"""The function of a sweep: its name, the file it lies in, and what it can be called with.

It may be anything that can be called: a function, a `functools.partial`, a method of an object, an
object with `__call__`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError

# All but the parameters.
SWEEP_ARGUMENTS = ("tasks", "dims", "coords", "units", "constants", "inputs")
Callee = Callable[..., object]
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def name_of(function: Callee) -> str:
    """Its name: of a partial, that of its function; of an object, that of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def sweep_name(function: Callee) -> str:
    """The name of its sweep, by which a run folder knows whose results it has."""
    return name_of(function).strip("<>")  # of a lambda: lambda


def code_of(function: Callee) -> Any:
    """What has the source code: the plain function behind decorators, a partial or an object."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return inspect.unwrap(type(inner).__call__)


def file_of(function: Callee) -> Path | None:
    """The file that it is written in; None in a notebook, or if it is not written in Python."""
    code = code_of(function)
    try:
        path = Path(inspect.getsourcefile(code) or "")
    except TypeError:  # built in
        return None
    module = Path(getattr(code, "__globals__", {}).get("__file__") or "")
    if module.name == path.name:  # of which it may be compiled as a copy
        path = module
    return path.absolute() if path.is_file() else None


def parameters_of(function: Callee) -> Mapping[str, inspect.Parameter]:
    """The parameters that it takes; UsageError if it does not say which."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name_of(function)} does not say which parameters it takes: call it in a function "
            "of your own, and declare the sweep above that"
        ) from error


def defaults_of(function: Callee) -> dict[str, object]:
    """The default values of those parameters that have one."""
    found = {name: parameter.default for name, parameter in parameters_of(function).items()}
    return {name: value for name, value in found.items() if value is not inspect.Parameter.empty}


def check_own_names(function: Callee, names: Iterable[str]) -> None:
    """Raise UsageError if it needs a parameter of one of these names, which `sweep` has itself."""
    for name in names:
        taken = parameters_of(function).get(name)
        if taken and taken.kind in _BY_KEYWORD and taken.default is taken.empty:
            raise UsageError(
                f"{name_of(function)} has a parameter {name!r}, but {name}= means something else "
                f"to h5sweep.sweep: rename the parameter"
            )


def check_signature(function: Callee, names: Iterable[str]) -> None:
    """Raise UsageError unless `function` can be called with exactly these keyword arguments."""
    names = list(names)
    parameters = parameters_of(function)
    title = name_of(function)
    positional_only = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY]
    if positional_only:
        raise UsageError(f"{title} takes {positional_only[0]} by position only; drop the '/'")
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    taken = [p.name for p in parameters.values() if p.kind in _BY_KEYWORD]
    for name in names:
        if name not in taken and not takes_any:
            raise UsageError(
                f"{title} takes no parameter {name!r}; it takes {', '.join(taken) or 'none'}"
            )
    for name in taken:
        if name not in names and parameters[name].default is inspect.Parameter.empty:
            raise UsageError(f"{title} needs {name!r}, but the sweep gives no values for it")
