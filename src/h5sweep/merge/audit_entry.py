"""The audit entry of a merge of files: what was taken from each input, and what was refused.

Apart from `audit`, which a run's merge needs too: it must not load the readers of HDF5 for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..disk.find_files import absolute
from ..runfolder.audit import AuditEntry, AuditInput, Conflict, Refused
from ..worker_files.inputs import Input, Taken


def entry_of_files(
    output: Path,
    taken: Sequence[Taken],
    refused: Sequence[Input] = (),
    *,
    records: Sequence[AuditInput] = (),
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
        inputs=[*(_taken(one, here) for one in taken), *records],
        refused=[_refused(one, here) for one in refused],
        conflicts=tuple(conflicts),
        notes=tuple(notes),
    )


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
