"""A version again: what its globals and constants were, and what is not as it was.

A value that was recorded as it is can be set again. One of which only a checksum or a type was
recorded must come out of the sources as it was, or it cannot be had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ..base.study_function import Callee, code_of
from ..errors import UsageError
from .describe_value import describe_constant, value_text
from .reachable import ARGUMENTS
from .source_facts import SourceFacts, digest_of, read_source
from .version import (
    CodeVersion,
    Source,
    describe_globals,
    find_environment,
    find_packages,
    input_checksum,
    own_prefix_of,
)


def study_source(version: CodeVersion) -> Source | None:
    """The file that the function was in; None if it was in none, as in a notebook."""
    if any(not source.module and not source.name.endswith(".py") for source in version.sources):
        return None
    return next((source for source in version.sources if source.text), None)


def restore_globals(
    function: Callee, constants: Mapping[str, object], recorded: Mapping[str, Any]
) -> list[str]:
    """Set globals to what they were; return, in words, those of which that cannot be had."""
    lost, now = [], describe_globals(function, constants.values())
    for label, was in recorded.items():
        if label == ARGUMENTS or (label in now and now[label] == was):
            continue
        try:
            owner, name = _owner_of(function, label)
            _set(owner, name, plain_value(was, vars(owner).get(name)))
        except LookupError:
            lost.append(_lost_text(label, was))
    return lost


def own_globals(version: CodeVersion) -> dict[str, Any]:
    """Globals that were recorded, but those of packages that are of another version now."""
    was, now = version.facts["packages"], find_packages(_said_by(version))
    upgraded = {name for name in was if was[name] != now.get(name)}
    if "python" in upgraded:
        upgraded |= sys.stdlib_module_names
    found = version.facts["globals"].items()
    return {name: value for name, value in found if name.partition(".")[0] not in upgraded}


def restore_constants(
    function: Callee, given: Mapping[str, object], recorded: Mapping[str, Any]
) -> tuple[dict[str, object], list[str]]:
    """Constants as they were, given those of the sources; and those that cannot be had."""
    found, lost, own_prefix = {}, [], own_prefix_of(function)
    for name, was in recorded.items():
        value = given.get(name)
        try:
            is_same = name in given and describe_constant(value, own_prefix) == was
            found[name] = value if is_same else plain_value(was, value)
        except LookupError:
            lost.append(_lost_text(f"the constant {name}", was))
    return found, lost


def plain_value(recorded: Any, like: object = None) -> object:
    """The value that was recorded as this JSON; a member of an enum, if there is another of it now.

    LookupError if more is needed than was recorded.
    """
    if isinstance(recorded, list):
        return [plain_value(item) for item in recorded]
    if not isinstance(recorded, dict):
        return recorded
    if "type" not in recorded:
        return {name: plain_value(value) for name, value in recorded.items()}
    if recorded.keys() != {"type", "value"}:
        raise LookupError
    kind, value = recorded["type"], recorded["value"]
    if isinstance(like, Enum) and kind.endswith(type(like).__qualname__):
        return type(like)[value]
    if kind == "float":
        return float(value)
    if kind in _CONTAINERS and isinstance(value, list):
        items: Any = [plain_value(item) for item in value]
        return _CONTAINERS[kind](items)
    return _numpy_number(kind, value)


_CONTAINERS: dict[str, Callable[[Any], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,  # of pairs
}


def _numpy_number(kind: str, value: object) -> object:
    import numpy as np

    try:
        number = np.dtype(kind).type
    except TypeError:
        raise LookupError(kind) from None
    return np.bool_(value == "True") if kind == "bool" else number(value)


def facts_of_worker(
    version: CodeVersion, function: Callee, constants: Mapping[str, object]
) -> dict[str, Any]:
    """What only a process can say that has imported the sources: packages, and globals."""
    now = describe_globals(function, constants.values()) | {ARGUMENTS: sys.argv[1:]}
    known = {label: now[label] for label in version.facts["globals"] if label in now}
    return {"packages": find_packages(_said_by(version)), "globals": known}


def version_now(version: CodeVersion, of_worker: Mapping[str, Any]) -> CodeVersion:
    """The version as it would be now, from the same sources."""
    source = study_source(version)
    folder = Path(source.path).parent if source is not None else Path.cwd()
    facts = {
        **version.facts,
        "environment": find_environment(_said_by(version)),
        "inputs": dict(_checksums(folder, version.facts["inputs"])),
        **of_worker,
    }
    return CodeVersion(tuple(map(_as_now, version.sources)), facts)


def _owner_of(function: Callee, label: str) -> tuple[Any, str]:
    """The module, class or function that has a value, and its name there; else LookupError."""
    *words, name = label.split(".")
    owner: Any = sys.modules[code_of(function).__module__]
    if words and words[0] not in vars(owner):
        known = [n for n in range(len(words), 0, -1) if ".".join(words[:n]) in sys.modules]
        owner, words = sys.modules[".".join(words[: known[0]])], words[known[0] :]
    for word in words:
        owner = vars(owner)[word]
        if not isinstance(owner, ModuleType | type | FunctionType):
            raise LookupError(label)
    return owner, name


def _set(owner: Any, name: str, value: object) -> None:
    if not isinstance(owner, FunctionType) or name in vars(owner):
        try:
            setattr(owner, name, value)
        except (AttributeError, TypeError) as error:  # it takes no other
            raise LookupError(name) from error
        return
    if name in (by_name := owner.__kwdefaults__ or {}):
        by_name[name] = value
        return
    if name in owner.__code__.co_freevars:
        (owner.__closure__ or ())[owner.__code__.co_freevars.index(name)].cell_contents = value
        return
    defaults = list(owner.__defaults__ or ())
    names = owner.__code__.co_varnames[: owner.__code__.co_argcount][-len(defaults) :]
    if not defaults or name not in names:
        raise LookupError(name)
    defaults[names.index(name)] = value
    owner.__defaults__ = tuple(defaults)


def _lost_text(name: str, was: Any) -> str:
    return f"{name} was {value_text(was)}, which the recorded sources do not give"


def _said_by(version: CodeVersion) -> list[SourceFacts]:
    return [read_source(source.text) for source in version.sources if source.text]


def _checksums(folder: Path, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in names:
        with suppress(UsageError):  # it is gone
            yield name, input_checksum(folder / name)


def _as_now(source: Source) -> Source:
    """A compiled module has no source that could be kept: it is loaded from the disk."""
    if source.is_known or not source.module:
        return source
    try:
        return replace(source, digest=digest_of(Path(source.path).read_bytes()))
    except OSError:
        return replace(source, digest="")
