"""Which tasks the output holds now: by the note of the last merge, or by its rows.

The note counts for an output of the size and time that it names. Any other output (touched, copied,
edited, or of another folder) is read, and a row counts if its checksum holds: nothing else could
tell a copy from an edited file. Only then are NumPy and HDF5 needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.plan import Plan
from ..disk.inside_folder import forget_missing
from ..runfolder.layout import RunFolder


@dataclass(frozen=True)
class HeldTasks:
    """The tasks of an output: `ranges` are [first, last] pairs of numbers of `plan`."""

    plan: Plan  # as it was given, and behind it what only the output has
    ranges: list[list[int]] = field(default_factory=list)
    unsound: frozenset[int] = frozenset()  # tasks whose rows are not what was written, if read
    described: Mapping[str, Mapping[str, Any]] | None = None  # attributes; None if not read
    dims: Mapping[str, list[str]] = field(default_factory=dict)  # that were declared, if read
    coords: Mapping[str, Any] = field(default_factory=dict)  # likewise
    code_texts: Mapping[int, str] = field(default_factory=dict)  # versions of the code, if read

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def held_tasks(folder: RunFolder, plan: Plan) -> HeldTasks:
    """What the output of a run folder holds; nothing on disk changes.

    DamagedError if the output cannot be read, WrongFolderError if it is not ours or over other
    parameters than the plan.
    """
    identity, merged = output_identity(folder.output), folder.load_merged()
    if identity is None:
        return HeldTasks(plan)
    if plan.tasks_shared_with(merged.get("plan")) and merged["output"] == identity:
        return HeldTasks(plan, merged["tasks"])
    from ..output.row_tasks import read_rows

    return HeldTasks(*read_rows(folder.output, plan, folder.load_relabels()))


def output_identity(output: Path) -> list[int] | None:
    """What tells one output from another without opening it: size and time; None if absent."""
    forget_missing(output.parent)
    try:
        stat = output.stat()
    except FileNotFoundError:
        return None
    return [stat.st_size, stat.st_mtime_ns]
