"""What a merge of files did, as data and shown. Prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..base.safe_text import json_text
from ..base.static_html import ShownAsText
from ..base.units import command_text, count_text, size_text
from ..runfolder.audit import Conflict, conflict_text
from ..worker_files.findings import Finding, State, against_merging, state_of
from ..worker_files.inputs import Input, Taken
from ..worker_files.layouts import indexed_table
from ..worker_files.skipped_names import Names, is_named

SCHEMA = "h5sweep.merge/1"
MOST_LINES = 20
MOST_NAMED = 4
_SHAPES = {
    "columns": "columns as they were",
    "groups": "groups as they were",
    "both": "groups and columns as they were",
    "sweep": "one row per task",
}


class TakenFile(NamedTuple):
    """What of one file went into the output; a tuple, because there may be many thousands."""

    path: str
    size_bytes: int
    findings: tuple[Finding, ...]  # what is worth knowing about it all the same
    tasks: int
    duplicates: int  # those of them that another file has as well, with equal content
    datasets: tuple[str, ...]
    skipped: tuple[str, ...]  # what is not in the output, such as /init
    left_out: Mapping[str, str]  # attributes that only the audit trail has → their values

    @classmethod
    def of(cls, one: Taken) -> TakenFile:
        source, name = one.source, one.source.name
        is_plain = "./" not in name and "//" not in name  # or a path says it shorter, but slowly
        return cls(
            name if is_plain else str(source.path),
            source.size_bytes,
            source.findings,
            one.tasks,
            one.duplicates,
            one.datasets,
            one.skipped,
            one.left_out,
        )


class RefusedFile(NamedTuple):
    """A file that was not merged."""

    path: str
    size_bytes: int
    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, one: Input) -> RefusedFile:
        return cls(str(one.path), one.size_bytes, one.findings)

    @property
    def state(self) -> State:
        return state_of(self.findings)

    @property
    def why(self) -> Finding:
        """The first reason against merging it."""
        return (against_merging(self.findings) or self.findings)[0]

    def __str__(self) -> str:
        """`empty  worker_61817.h5  D101 0 bytes; its process died before its first write`."""
        return f"{self.state}  {self.path}  {self.why.code} {self.why.message}"


@dataclass(frozen=True)
class FilesReport(ShownAsText):
    """What a merge of files did; `notes` are sentences for the user."""

    output: Path
    way: str  # "columns", "groups", "both", or "sweep"
    taken: tuple[TakenFile, ...]  # in the order of the files
    refused: tuple[RefusedFile, ...]
    tasks: int  # each once
    duplicates: int  # those that a second file has as well, with equal content
    size_bytes: int
    notes: tuple[str, ...]
    duration_s: float
    conflicts: tuple[Conflict, ...] = ()  # different results for one task, and which was taken
    tasks_in_output: int = 0  # those that it had before, too
    skip: Names = frozenset()  # what was to be left out
    once_by: tuple[str, ...] = ()  # columns in which no two rows are alike, if that was looked for

    def __str__(self) -> str:
        return "\n".join(closing_lines(self))


def closing_lines(report: FilesReport, *, will_remove: bool = False) -> Iterator[str]:
    """What to tell somebody at the end of a merge, the next command last.

    Not `clean`, if the merge will remove what is safe to remove by itself.
    """
    conflicts = [f"conflict: {conflict_text(one)}" for one in report.conflicts]
    skipped = [place for one in report.taken for place in _skipped(one, report.skip)]
    yield from _some([f"note: {note}" for note in report.notes], "notes")
    yield from _some(conflicts, "conflicts")
    yield from _some([f"skipped, not a result: {place}" for place in skipped], "datasets skipped")
    yield from _some(list(_named(report)), "names skipped")
    yield from _some([f"left out: {one}" for one in report.refused], "files left out")
    about = f"{_counts(report)}; {_SHAPES[report.way]}, {size_text(report.size_bytes)}"
    yield f"wrote {report.output} ({about})"
    if report.way == "sweep" or not will_remove:
        yield f"next: {_next(report)}"


def _counts(report: FilesReport) -> str:
    """How many tasks the output has, and how many of them are from the files.

    Rows of which two may be of one task are called rows.
    """
    noun = "row" if report.way == "columns" and not report.once_by else "task"
    total, files = count_text(report.tasks_in_output, noun), count_text(len(report.taken), "file")
    if not report.taken:
        return f"{total}, as before"
    were = "was an equal duplicate" if report.duplicates == 1 else "were equal duplicates"
    twice = f", {report.duplicates:,} more {were}" * bool(report.duplicates)
    if report.once_by:
        names = report.once_by
        by = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} integers and texts"
        twice += f", each {by} once"
    if report.tasks == report.tasks_in_output:
        return f"{total} from {files}{twice}"
    return f"{total}, {report.tasks:,} of them from {files}{twice}"


def _named(report: FilesReport) -> Iterator[str]:
    """What the user wanted left out, each once."""
    names = [n for one in report.taken for n in one.skipped if is_named(n, report.skip)]
    for name, count in Counter(names).items():
        yield f"skipped by --skip: {name} in {count_text(count, 'file')}"


def _skipped(one: TakenFile, named: Names) -> Iterator[str]:
    """What else is not in the output: datasets, and the indexes of tables by these."""
    tables = [indexed_table(name) for name in one.skipped]
    for name, table in zip(one.skipped, tables, strict=True):
        if table not in one.datasets and not is_named(name, named):
            yield f"{one.path}: {name}"
    for table in dict.fromkeys(table for table in tables if table in one.datasets):
        yield f"{one.path}: the index of {table}, which PyTables can rebuild"


def _next(report: FilesReport) -> str:
    if report.way == "sweep":
        run = command_text("run", "STUDY", "-o", report.output)
        return f"{run} computes the missing tasks"
    return f"{command_text('clean', report.output)} lists the worker files that are safe to remove"


def _some(lines: list[str], what: str) -> Iterator[str]:
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"… and {len(lines) - MOST_LINES:,} more {what}: all are in the audit trail"


def report_json(report: FilesReport) -> str:
    """The same for programs, as one JSON object."""
    files = [
        {
            "path": one.path,
            "tasks": one.tasks,
            "duplicates": one.duplicates,
            "skipped": list(one.skipped),
            "findings": [finding.code for finding in one.findings],
        }
        for one in report.taken
    ]
    refused = [
        {
            "path": one.path,
            "state": one.state.value,
            "findings": [finding.code for finding in one.findings],
        }
        for one in report.refused
    ]
    content = {
        "schema": SCHEMA,
        "output": str(report.output),
        "way": report.way,
        "tasks": report.tasks,
        "tasks_in_output": report.tasks_in_output,
        "duplicates": report.duplicates,
        "once_by": list(report.once_by),
        "bytes": report.size_bytes,
        "files": files,
        "refused": refused,
        "conflicts": [one._asdict() for one in report.conflicts],
        "notes": list(report.notes),
        "duration_s": round(report.duration_s, 3),
    }
    return json_text(content, indent=1)
