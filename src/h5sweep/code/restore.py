"""A version again: what its globals and constants were, and what is not as it was.

A value that was recorded as it is can be set again. One of which only a checksum or a type was
recorded must come out of the sources as it was, or it cannot be had.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.study_function import Callee, code_of
from ..errors import UsageError
from .describe_value import describe_value, value_text
from .source_facts import SourceFacts, digest_of, read_source
from .version import (
    CodeVersion,
    Source,
    describe_globals,
    find_environment,
    find_packages,
    input_checksum,
)


def study_source(version: CodeVersion) -> Source | None:
    """The file that the function was in; None if it was in none, as in a notebook."""
    if any(not source.module and not source.name.endswith(".py") for source in version.sources):
        return None
    return next((source for source in version.sources if source.text), None)


def restore_globals(function: Callee, recorded: Mapping[str, Any]) -> list[str]:
    """Set globals to what they were; return, in words, those of which that cannot be had."""
    lost, now = [], describe_globals(function)
    for label, was in recorded.items():
        if label in now and now[label] == was:
            continue
        place, name = _place_of(function, label)
        try:
            place[name] = plain_value(was, place.get(name))
        except LookupError:
            lost.append(_lost_text(label, was))
    return lost


def restore_constants(
    given: Mapping[str, object], recorded: Mapping[str, Any]
) -> tuple[dict[str, object], list[str]]:
    """Constants as they were, given those of the sources; and those that cannot be had."""
    found, lost = {}, []
    for name, was in recorded.items():
        value = given.get(name)
        try:
            is_same = name in given and describe_value(value) == was
            found[name] = value if is_same else plain_value(was, value)
        except LookupError:
            lost.append(_lost_text(f"the constant {name}", was))
    return found, lost


def plain_value(recorded: Any, like: object) -> object:
    """The value that was recorded as this JSON, of the type of the one that there is now.

    LookupError if more is needed than was recorded.
    """
    if isinstance(like, float) and recorded in ("nan", "inf", "-inf"):
        return type(like)(recorded)
    if isinstance(recorded, list):
        items = [plain_value(item, None) for item in recorded]
        return type(like)(items) if isinstance(like, tuple | set | frozenset) else items
    if isinstance(recorded, dict):
        # The names of other keys may have been numbers; with a type it is an object.
        if "type" in recorded or not all(name.isidentifier() for name in recorded):
            raise LookupError
        return {name: plain_value(value, None) for name, value in recorded.items()}
    is_of_numpy = type(like).__module__ == "numpy" and not isinstance(recorded, str | None)
    return type(like)(recorded) if is_of_numpy else recorded  # type: ignore[call-arg]


def facts_of_worker(version: CodeVersion, function: Callee) -> dict[str, Any]:
    """What only a process can say that has imported the sources: packages, and globals."""
    now = describe_globals(function)
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


def _place_of(function: Callee, label: str) -> tuple[dict[str, Any], str]:
    """Where a global lies; nowhere if it is the part of something else."""
    module, _, name = label.rpartition(".")
    if not module:
        return getattr(code_of(function), "__globals__", _Nowhere()), name
    if module in sys.modules:
        return vars(sys.modules[module]), name
    return _Nowhere(), name


class _Nowhere(dict[str, Any]):
    """Takes nothing."""

    def __setitem__(self, name: str, value: object) -> None:
        raise LookupError(name)


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
    if source.text or not source.module:
        return source
    try:
        return replace(source, digest=digest_of(Path(source.path).read_bytes()))
    except OSError:
        return replace(source, digest="")
