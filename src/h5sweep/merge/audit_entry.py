"""The audit entry of a merge of files: what was taken from each input, and what was refused.

Apart from `audit`, which a run's merge needs too: it must not load the readers of HDF5 for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from ..disk.find_files import absolute
from ..runfolder.audit import AuditEntry, AuditInput, Conflict, Refused, compact_json
from ..worker_files.inputs import Input, Taken
from .report import TakenFile


def entry_of_files(
    output: Path,
    taken: Sequence[Taken],
    refused: Sequence[Input] = (),
    *,
    way: str,
    duration_s: float,
    key: str | None = None,
    policy: Mapping[str, Any] | None = None,
    conflicts: Sequence[Conflict] = (),
    notes: Sequence[str] = (),
) -> AuditEntry:
    """The entry of the merge that has just written `output`; nothing is written here."""
    here = str(Path.cwd())
    return AuditEntry.now(
        output,
        way=way,
        duration_s=duration_s,
        key=key,
        policy=policy or {},
        inputs=audit_inputs(taken),
        refused=[_refused(one, here) for one in refused],
        conflicts=tuple(conflicts),
        notes=tuple(notes),
    )


def audit_inputs(taken: Iterable[Taken]) -> list[AuditInput]:
    """What went into an output, as the audit trail says it."""
    here = str(Path.cwd())
    return [_taken(one, here) for one in taken]


def _taken(one: Taken, here: str) -> AuditInput:
    source = one.source
    return AuditInput(
        absolute(source.name, here),
        source.size_bytes,
        source.modified_ns,
        f"{one.xxh3:016x}" if one.xxh3 else None,
        source.state,
        tuple(finding.code for finding in source.findings),
        source.style,
        one.tasks,
        one.duplicates,
        one.datasets,
        one.attributes,
        one.skipped,
        one.rows,
        one.left_out,
    )


class TakenListing(NamedTuple):
    """All that was taken, in one text and in numbers."""

    json: str  # the `audit_inputs`, as they stand in the trail
    tasks: int
    duplicates: int
    files: tuple[TakenFile, ...]


def list_taken(taken: Iterable[Taken]) -> TakenListing:
    """Pass over what was taken."""
    taken = list(taken)
    text = ",".join([compact_json(one._asdict()) for one in audit_inputs(taken)])
    files = tuple(_file(one) for one in taken)
    return TakenListing(
        text, sum(one.tasks for one in files), sum(one.duplicates for one in files), files
    )


def _file(one: Taken) -> TakenFile:
    source = one.source
    return TakenFile(
        str(source.path),
        source.size_bytes,
        source.findings,
        one.tasks,
        one.duplicates,
        one.datasets,
        one.skipped,
        one.left_out,
    )


def _refused(one: Input, here: str) -> Refused:
    reasons = one.reasons or one.findings
    return Refused(
        absolute(one.name, here),
        one.size_bytes,
        one.modified_ns,
        one.state.value,
        [finding.code for finding in one.findings],
        "; ".join(f"{finding.code} {finding.message}" for finding in reasons),
    )


def path_texts(inputs: Sequence[Input]) -> list[str]:
    """The paths of many, as they were given, without the pieces that say nothing."""
    names = [one.name for one in inputs]
    text = "\n".join(names)
    return [str(Path(name)) for name in names] if "./" in text or "//" in text else names


def absolute_paths(inputs: Sequence[Input]) -> list[str]:
    """The `absolute` paths of many, most of which are that already."""
    names, here = [one.name for one in inputs], str(Path.cwd())
    text = "\n".join(names)
    if all(map(str.startswith, names, repeat("/"))) and "/." not in text and "//" not in text:
        return names
    return [absolute(name, here) for name in names]
