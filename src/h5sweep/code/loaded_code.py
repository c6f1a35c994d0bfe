"""Whether a module that this process has loaded is still what its file says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .own_modules import OwnModule
from .source_facts import digest_of


def loaded_module(module: OwnModule) -> ModuleType | None:
    """The module that was loaded from this file; None if none was."""
    named = sys.modules.get(module.name)
    main = sys.modules.get("__main__")
    found = (m for m in (named, main) if getattr(m, "__file__", None) == module.path)
    return next(found, None)


def is_as_loaded(module: OwnModule) -> bool:
    """Whether the functions that were loaded from a file are those that it has now."""
    loaded = loaded_module(module)
    if loaded is None or not module.text or is_rewritten(loaded):
        return True
    try:
        now = {_identity(code) for code in _codes(compile(module.text, module.path, "exec"))}
    except (SyntaxError, ValueError):
        return False
    return all(_identity(function.__code__) in now for function in _functions(loaded))


def is_rewritten(module: ModuleType) -> bool:
    """Whether it was loaded by an importer that may change code, as pytest's does."""
    loader = getattr(module, "__loader__", None)
    is_usual = type(loader).__module__.startswith(("_frozen_importlib", "h5sweep."))
    return loader is not None and not is_usual


def loaded_digest(module: OwnModule) -> str:
    """A digest of the functions that were loaded, in the place of one of a text."""
    loaded = loaded_module(module)
    found = [repr(_identity(f.__code__)) for f in _functions(loaded)] if loaded else []
    return digest_of("\n".join(sorted(found)).encode())


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Functions and methods that are defined in a module, and not made by a decorator elsewhere."""
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if isinstance(value, type) else [value]
        for one in members:
            function = getattr(one, "function", one) if hasattr(type(one), "is_sweep") else one
            is_plain = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if is_plain and function.__code__.co_filename == module.__file__:
                yield function


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def code_digest(code: CodeType) -> str:
    """The same for functions that do the same, in any process of one Python."""
    return digest_of(repr(_identity(code)).encode())


def _text(constant: object) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _identity(code: CodeType) -> tuple[Any, ...]:
    """What a function does, wherever it stands in its file."""
    constants = tuple(_text(c) for c in code.co_consts if not isinstance(c, CodeType))
    inside = tuple(_identity(c) for c in code.co_consts if isinstance(c, CodeType))
    return code.co_name, code.co_code, constants, code.co_names, code.co_varnames, inside
