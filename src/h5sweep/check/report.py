"""What a check found, as data, and shown as text, JSON, CSV or HTML. Prints nothing."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ..base.key_pattern import Comparison
from ..base.plan import plain_value
from ..base.safe_text import csv_lines, json_text, printable
from ..base.static_html import lines_html, table_html
from ..base.units import count_text, size_text
from ..worker_files.findings import (
    KEEP,
    NOT_CLOSED_CODES,
    Finding,
    State,
    against_merging,
    unmergeable_text,
)
from ..worker_files.layouts import Contents

SCHEMA = "h5sweep.check/1"
MOST_LINES = 8  # files shown of one group, unless all are wanted
LEAST_WIDTH, USUAL_WIDTH = 20, 80
MOST_VALUES = 12
MOST_FINDINGS = 3  # of one file, in a table
_COLUMNS = (
    *("path", "state", "tasks", "datasets", "bytes", "first_key", "last_key", "modified_at"),
    *("code", "name", "message", "next"),  # of the worst finding
)


FILE_HEAD = ("file", "state", "tasks", "why", "next")


class Depth(StrEnum):
    """How closely files are looked at."""

    QUICK = "quick"
    STRUCTURE = "structure"
    USUAL = "usual"  # deep, as far as that is done in seconds; of the other files, the structure
    DEEP = "deep"


class NextStep(StrEnum):
    """What to do after a check, as it says it."""

    CLOSER = "the same command without --quick shows what is in them"
    SALVAGE = "h5sweep salvage with the same paths shows what can be recovered"
    MERGE = "h5sweep merge with the same paths and -o OUTPUT"
    MERGE_REST = "h5sweep merge with the same paths and -o OUTPUT --on-damaged skip"
    EXPECT = "--expect study.py, or a CSV of keys, shows which tasks are missing"
    LATER = "run the same command again when the writers have ended"
    RUN = "run the missing tasks"


class FileReport(NamedTuple):
    """What was found out about one file; the worst finding first.

    A tuple, because there are many: a frozen dataclass takes twice as long to make.
    """

    path: str
    state: State
    findings: tuple[Finding, ...]
    contents: Contents | None
    size_bytes: int
    modified_at: float
    is_read: bool = False  # its data too

    @property
    def is_mergeable(self) -> bool:
        """Whether a merge takes it as it is."""
        return self.contents is not None and not against_merging(self.findings)

    @property
    def tasks(self) -> int | None:
        return None if self.contents is None else self.contents.tasks


@dataclass(frozen=True)
class CheckReport:
    """What `check` answers."""

    files: tuple[FileReport, ...]
    depth: Depth = Depth.USUAL
    others: int = 0  # files in folders that neither are HDF5 nor claim to be
    comparison: Comparison | None = None

    @property
    def exit_code(self) -> int:
        """0 if every file is sound or being written, else 3."""
        return 3 if any(f.state not in (State.SOUND, State.LIVE) for f in self.files) else 0

    @property
    def totals(self) -> dict[str, int]:
        """How many files are in each state, how many of all a merge takes, tasks and bytes."""
        counts = {state.value: 0 for state in State}
        counts |= {"mergeable": 0, "tasks": _tasks_in(self.files), "bytes": 0}
        for file in self.files:
            counts[file.state.value] += 1
            counts["mergeable"] += file.is_mergeable
            counts["bytes"] += file.size_bytes
        return {"files": len(self.files), **counts}

    @property
    def unread(self) -> list[FileReport]:
        """Files whose structure was looked at and whose data were not: there were too many."""
        if self.depth is not Depth.USUAL:
            return []
        return [f for f in self.files if f.contents and f.contents.data_bytes and not f.is_read]

    def __str__(self) -> str:
        return report_text(self).rstrip("\n")

    def _repr_html_(self) -> str:
        return report_html(self)


@dataclass(frozen=True)
class _FindingGroup:
    """Files of one state with the same worst finding, which a merge all takes or refuses."""

    state: State
    finding: Finding | None
    is_mergeable: bool
    files: tuple[FileReport, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing is lost in these files, so that they need not be named."""
        codes = {f.code for file in self.files for f in file.findings}
        return self.is_mergeable and codes <= NOT_CLOSED_CODES


def _groups(report: CheckReport) -> list[_FindingGroup]:
    """The worst first; within a state, the commonest first."""
    found: dict[tuple[State, str, bool], list[FileReport]] = {}
    for file in report.files:
        code = file.findings[0].code if file.findings else ""
        found.setdefault((file.state, code, file.is_mergeable), []).append(file)
    order = list(State)
    groups = [
        _FindingGroup(state, next(iter(files[0].findings), None), is_mergeable, tuple(files))
        for (state, _, is_mergeable), files in found.items()
    ]
    return sorted(groups, key=lambda group: (order.index(group.state), -len(group.files)))


def report_text(report: CheckReport, *, width: int | None = None, show_all: bool = False) -> str:
    """A check for people; lines longer than `width`, or than 80 letters, are wrapped."""
    is_quick = report.depth is Depth.QUICK
    groups = _groups(report)
    lines = [line for g in groups for line in _group_lines(g, show_all, width, is_quick=is_quick)]
    if report.comparison is not None:
        lines += _comparison_lines(report.comparison)
    lines += summary_lines(report)
    if step := next_step(report):
        lines.append(f"next: {step}")
    return "\n".join(_wrapped(printable(line, breaks=""), width) for line in lines) + "\n"


def _shortened(path: str, width: int | None) -> str:
    """A path of which the beginning gives way to what is wrong with the file."""
    room = None if width is None else width // 2 - 4
    return path if room is None or len(path) <= room else "…" + path[len(path) - room + 1 :]


def _tasks_in(files: Sequence[FileReport]) -> int:
    """How many tasks are in files; those in the records of an output among them count once."""
    paths = {file.path for file in files}
    return sum(file.tasks or 0 for file in files if _output_of(file.path) not in paths)


def _output_of(path: str) -> str | None:
    """The output that a record file belongs to, by where it lies."""
    folder, is_records, _ = path.rpartition(".run/records/")
    return folder if is_records else None


def _group_lines(
    group: _FindingGroup, show_all: bool, width: int | None, *, is_quick: bool
) -> Iterator[str]:
    many = count_text(len(group.files), "file")
    if group.finding is not None:
        many += f": {group.finding.name} ({group.finding.code})"
    if group.is_well:
        many += f", {count_text(_tasks_in(group.files), 'task')}"
    yield f"{group.state}  {many}{'' if is_quick else _merging_text(group)}"
    most = len(group.files) if show_all or len(group.files) <= MOST_LINES else MOST_LINES - 1
    if group.is_well and not show_all:
        most = 0 if len(group.files) > (MOST_LINES if group.finding is None else 1) else most
    for file in group.files[:most]:
        yield f"  {_file_line(file, width)}"
    if most and len(group.files) > most:
        yield f"  … and {len(group.files) - most:,} more: --all shows them"
    if group.finding is not None and group.finding.next != "nothing":
        yield f"  = next: {group.finding.next}"


def _merging_text(group: _FindingGroup) -> str:
    """What a merge does with these files, where their state does not say it."""
    if group.is_mergeable == (group.state is State.SOUND) or group.state is State.LIVE:
        return ""
    can = "can" if group.is_mergeable else "cannot"
    return f"; {can} be merged as {'it is' if len(group.files) == 1 else 'they are'}"


def _file_line(file: FileReport, width: int | None) -> str:
    messages = [finding.message for finding in file.findings]
    more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
    why = f"  {messages[0]}{more}" if messages else ""
    inside = _inside_text(file)
    return f"{_shortened(file.path, width)}{why}" + (f"  [{inside}]" if inside else "")


def _inside_text(file: FileReport) -> str:
    found = file.contents
    if found is None or found.tasks is None:
        return ""
    keys = ""
    if found.first_key and found.tasks:
        same = found.first_key == found.last_key
        keys = f" ({found.first_key})" if same else f" ({found.first_key} to {found.last_key})"
    written = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.modified_at))
    return f"{count_text(found.tasks, 'task')}{keys}, {size_text(file.size_bytes)}, {written}"


def _comparison_lines(found: Comparison) -> Iterator[str]:
    total, done, missing = found.tasks, found.tasks_done, found.tasks_missing
    if found.is_inferred and done:
        combinations = f"{total:,} combinations of their values"
        yield f"{done:,} keys; {missing:,} of the {combinations} are missing"
    elif not found.is_inferred:
        yield f"{done:,} of {total:,} expected tasks are there, {missing:,} missing"
    for name, counts in found.columns.items():
        if len(counts) < 2:
            continue
        yield f"  {name}"
        by_share = sorted(counts, key=lambda count: count[1] / max(count[2], 1))[:MOST_VALUES]
        for value, done, of_all in (count for count in counts if count in by_share):
            yield f"    {value!s:>16}  {done:>9,} of {of_all:<9,}"
        if len(counts) > MOST_VALUES:
            yield f"    {'…':>16}  {len(counts) - MOST_VALUES:,} more, equally far or further"
    if found.duplicates:
        yield f"  {count_text(found.duplicates, 'task')} found more than once"
    if found.unknown:
        yield f"  {count_text(found.unknown, 'task')} that were not expected"
    if found.keyless:
        yield f"  {count_text(found.keyless, 'task')} without a readable key: give --key"


def summary_lines(report: CheckReport) -> Iterator[str]:
    """How many files are in each state, and how many a merge refuses, what was not read."""
    totals = report.totals
    states = [f"{totals[s.value]:,} {s}" for s in reversed(State) if totals[s.value]]
    others = f"; {count_text(report.others, 'other file')}" if report.others else ""
    tasks = f"; {count_text(totals['tasks'], 'task')}" if report.depth is not Depth.QUICK else ""
    files = f"{count_text(totals['files'], 'file')}: {', '.join(states)}{tasks}"
    yield f"{files if states else 'no HDF5 file'}{others}. Nothing was changed."
    bad = totals["files"] - totals["mergeable"]
    if bad and report.depth is not Depth.QUICK:
        yield unmergeable_text(bad, totals["files"])
    if report.unread:
        files = count_text(len(report.unread), "file")
        size = size_text(sum(file.size_bytes for file in report.unread))
        yield f"the data of {files} ({size}) were not read: --deep reads them"


def next_step(report: CheckReport) -> NextStep | None:
    """None if nothing is left to do before a merge."""
    totals = report.totals
    damaged = [file for file in report.files if file.state is State.DAMAGED]
    if report.exit_code and report.depth is Depth.QUICK:
        return NextStep.CLOSER
    if any(KEEP in found.next for f in damaged if not f.is_mergeable for found in f.findings):
        return NextStep.SALVAGE
    if any(f.is_mergeable for f in damaged):
        return NextStep.MERGE_REST if totals["files"] > totals["mergeable"] else NextStep.MERGE
    if report.exit_code and report.comparison is None and not damaged:
        return NextStep.EXPECT
    if totals["live"]:
        return NextStep.LATER
    is_short = report.comparison is not None and report.comparison.tasks_missing
    return NextStep.RUN if is_short else None


def _wrapped(line: str, width: int | None) -> str:
    """A line in the width of the terminal; without one, paths stay whole."""
    return textwrap.fill(
        line,
        USUAL_WIDTH if width is None else max(width, LEAST_WIDTH),
        subsequent_indent=" " * 6,
        break_long_words=width is not None,
        break_on_hyphens=False,
    )


def report_json(report: CheckReport) -> str:
    """A check for programs."""
    value: dict[str, Any] = {
        "schema": SCHEMA,
        "depth": report.depth.value,
        "files": [_file_json(file) for file in report.files],
        "totals": {**report.totals, "others": report.others},
    }
    if (found := report.comparison) is not None:
        value["expected"] = {
            "is_inferred": found.is_inferred,
            "tasks": found.tasks,
            "done": found.tasks_done,
            "missing": found.tasks_missing,
            "duplicates": found.duplicates,
            "unexpected": found.unknown,
            "without_key": found.keyless,
            "columns": {
                name: [
                    {"value": plain_value(v), "done": done, "tasks": total} for v, done, total in c
                ]
                for name, c in found.columns.items()
            },
        }
    return json_text(value)


def _file_json(file: FileReport) -> dict[str, Any]:
    found = file.contents
    return {
        "path": file.path,
        "state": file.state.value,
        "tasks": file.tasks,
        "style": None if found is None else found.style.value,
        "datasets": None if found is None else found.datasets,
        "data_bytes": None if found is None else found.data_bytes,
        "first_key": (found.first_key or None) if found else None,
        "last_key": (found.last_key or None) if found else None,
        "bytes": file.size_bytes,
        "modified_at": file.modified_at,
        "mergeable": file.is_mergeable,
        "data_read": file.is_read,
        "findings": [
            {"code": f.code, "name": f.name, "message": f.message, "next": f.next}
            for f in file.findings
        ],
    }


def report_csv(report: CheckReport) -> Iterator[str]:
    """A check for spreadsheets: one line per file, with its worst finding."""
    return csv_lines([_COLUMNS, *map(_csv_row, report.files)])


def _csv_row(file: FileReport) -> list[object]:
    about = _file_json(file)
    worst = about["findings"][0] if about["findings"] else {}
    return [about.get(name, worst.get(name, "")) for name in _COLUMNS]


def report_html(report: CheckReport) -> str:
    """A check in a notebook: static HTML."""
    totals = report.totals
    states = ", ".join(f"{totals[s.value]:,} {s}" for s in reversed(State) if totals[s.value])
    about = [
        count_text(totals["files"], "file"),
        f"{states}; {count_text(totals['tasks'], 'task')}",
    ]
    return lines_html(about) + table_html(FILE_HEAD, file_rows(report))


def file_rows(report: CheckReport) -> list[tuple[str, ...]]:
    """What FILE_HEAD names of each file, the worst first."""
    order = list(State)
    return [_file_row(f) for f in sorted(report.files, key=lambda file: order.index(file.state))]


def _file_row(file: FileReport) -> tuple[str, ...]:
    found = [f"{f.code} {f.message}" for f in file.findings]
    more = [f"and {len(found) - MOST_FINDINGS} more"] if len(found) > MOST_FINDINGS else []
    why = "; ".join([*found[:MOST_FINDINGS], *more])
    next_ = file.findings[0].next if file.findings else ""
    tasks = "" if file.tasks is None else f"{file.tasks:,}"
    return file.path, file.state.value, tasks, why, next_
