"""What goes where in an output, before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...base.attribute_json import united_with_units
from ...base.plan import RESERVED_NAMES, key_text
from ...base.progress_callback import Progress
from ...base.provenance import user_name
from ...base.units import command_text, count_text
from ...base.values import Array
from ...code.relabelled import relabels_since, text_with_relabels
from ...code.store import numbers_by_id, parse_version, version_texts, with_texts
from ...disk import durable
from ...output.columns import ColumnLayout, decide_columns
from ...output.dimensions import Dimensions
from ...output.reader import AUDIT, COORDINATES, FORMAT, SNAPSHOT, OutputReader
from ...output.record_rows import OLD_OUTPUT
from ...output.stored_labels import RETURNED
from ...output.writer import key_column
from ...runfolder.audit import AuditEntry, audit_path, now_text, record_input
from ...runfolder.layout import RunFolder
from ...state.extend_plan import with_labels
from ...state.state import IN_OUTPUT, FolderState
from ...state.state_notes import left_out_text, not_stored_text, refusal_texts
from .axis_coordinates import axis_coordinates
from .one_label import require_one_label
from .returned_labels import with_returned_labels
from .rows import Sources

_LARGEST_ROW_BYTES = 16 << 20  # beyond, a copy of some rows takes more memory than it is worth
_TEXT_BYTES = 64  # what a text of a key column takes in HDF5, with room to spare


@dataclass(frozen=True)
class MergeReport:
    """What a merge did; `notes` are sentences for the user."""

    output: Path
    tasks_merged: int
    tasks_planned: int
    tasks_kept: int
    tasks_left_out: int
    failures: int
    size_bytes: int
    notes: tuple[str, ...]


class OutputPlan:
    """What goes where in an output, out of the records and the output that is there."""

    def __init__(
        self,
        folder: RunFolder,
        state: FolderState,
        old: OutputReader | None,
        *,
        compress: bool,
        progress: Progress | None,
        declared_only: bool,
        snapshot: Path | None = None,
    ) -> None:
        self.folder, self.state, self.plan, self.old = folder, state, state.plan, old
        self.compress, self._progress = compress, progress
        self.target, self._is_snapshot = snapshot or folder.output, snapshot is not None
        self._sweep = with_labels(folder.load_sweep(), state.held)
        left_out = _leave_out_undeclared(state) if declared_only else (0, 0)
        self._left_out, self._left_out_of_old = left_out
        self._sources = Sources(state, old)
        self.rows = self._sources.rows
        self._failures = _failure_table(state)
        self.codes = self._find_codes()
        self._provenance = {**_provenance_texts(self._sweep), **self._code_texts()}
        self._notes = [*_notes_on_records(state), *self._notes_on_undeclared()]
        labels = with_returned_labels(*self._sources.labels(), self._sweep)
        self._provenance |= _provenance_texts({RETURNED: labels.returned or None})
        self._found, self._units, self._dims = labels.attributes, labels.units, labels.dims
        self._given = united_with_units(self._found, self._units)
        self._notes += labels.notes
        require_one_label(folder, self._sweep, self._versions, self.codes, self._sources, state)
        self._decide()
        self._attributes = self._describe()

    def _find_codes(self) -> Array:
        """The version of the code that made each row; 0 if that is not known."""
        old, of_old_rows = self.old, np.zeros(0, np.uint16)
        of_old = old.code_texts() if old is not None else {}
        self._texts, numbers = with_texts(version_texts(self.folder), of_old)
        if old is not None:
            table = np.zeros(1 << 16, np.uint16)
            table[list(numbers)] = list(numbers.values())
            of_old_rows = table[old.codes()]
        self._versions = {number: parse_version(text) for number, text in self._texts.items()}
        known, codes = numbers_by_id(self._versions), self.state.codes
        files = range(len(self.state.paths))
        of_files = np.array([known.get(codes.get(file, ""), 0) for file in files], np.uint16)
        return self._sources.codes(of_files, of_old_rows)

    def _notes_on_undeclared(self) -> Iterator[str]:
        if self._left_out:
            yield f"{count_text(self._left_out, 'result')} of tasks that are not declared left out"
        if rows := len(self.state.done_undeclared):
            command = command_text("merge", self.folder.output, "--declared-only")
            what = f"{count_text(rows, 'row')} of tasks that are not declared"
            yield f"{what}: {command} leaves them out"

    def _code_texts(self) -> dict[str, bytes]:
        """What /provenance says of each version of the code."""
        found, relabels = {}, self.state.relabels
        for number, text in self._texts.items():
            since = relabels_since(self._versions[number], relabels)
            found[f"code/{number}"] = text_with_relabels(text, since, relabels).encode()
        return found

    def _decide(self) -> None:
        variants = self._sources.variants()
        taken = RESERVED_NAMES | set(self.plan.names)
        columns, notes = decide_columns(variants, len(self.rows), self._sources, taken=taken)
        counts = self._sources.counts([c for c in columns if c.layout is not ColumnLayout.FIXED])
        self._dimensions = Dimensions(len(self.rows), taken | {c.name for c in columns})
        self.columns = [
            self._dimensions.name(c, counts.get(c.name), self._dims.get(c.source_name, ()))
            for c in columns
        ]
        self._coordinates, notes_on_axes = axis_coordinates(
            self._sweep.get("coords") or {}, self.columns, self._dimensions, self._sources
        )
        sizes = [column.row_bytes for column in columns]
        self._rows_are_alike = bool(sizes) and all(sizes) and sum(sizes) <= _LARGEST_ROW_BYTES
        self._is_verbatim = self._sources.are_verbatim(columns)
        self._notes += notes + self._dimensions.notes + notes_on_axes + self._notes_on_labels()
        results = {column.source_name for column in columns}
        self._notes += _notes_on_old_names(self.folder, self.state, results)
        self._starts = {name: np.cumsum(sizes) - sizes for name, sizes in counts.items()}

    def _notes_on_labels(self) -> list[str]:
        """What the sweep says of results that there are not."""
        results = dict.fromkeys(column.source_name for column in self.columns)
        known = {*results, *self.plan.names, *self._coordinates}
        return [
            f"{what} names {name}, which is not a result; results are {', '.join(results)}"
            for what in ("units", "dims")
            for name in (self._sweep.get(what) or {})
            if results and name not in known
        ]

    def require_space(self) -> None:
        """Raise StorageError if the output surely does not fit, before anything is written."""
        row_bytes = 8 * (4 + len(self.columns)) + _TEXT_BYTES * len(self.plan.columns)
        needed = int(self.rows.size_bytes.sum()) + len(self.rows) * row_bytes
        if self.compress:
            needed //= 2  # A guess; if it is too low, the disk says so while writing.
        durable.require_space(self.target, needed)

    def keep_old_aside(self) -> None:
        """Leave the old output there under another name if the new one lacks something of it."""
        reasons = self._reasons_to_keep_old()
        if reasons:
            aside = durable.keep_aside(self.folder.output)
            self._notes += [f"{reason}; the old output is kept as {aside}" for reason in reasons]

    def _reasons_to_keep_old(self) -> list[str]:
        damaged, lost = self._sources.damaged_tasks, self._sources.lost_tasks
        strangers = self.old.strangers() if self.old else []
        reasons = []
        if len(damaged):
            key = key_text(self.plan.key(int(damaged[0])))
            lacking = f"; {count_text(len(lost), 'task')} must be run again"
            reasons.append(
                f"{count_text(len(damaged), 'row')} of the old output had a wrong "
                f"checksum or key, first that of {key}: not kept"
                f"{lacking if len(lost) else ''}"
            )
        if self._left_out_of_old:
            rows = count_text(self._left_out_of_old, "row")
            reasons.append(f"{rows} of tasks that are not declared came from the old output")
        if strangers:
            reasons.append(f"{', '.join(strangers)} in the old output did not come from the sweep")
        return reasons

    def report(self) -> MergeReport:
        return MergeReport(
            self.target,
            tasks_merged=len(self.rows),
            tasks_planned=len(self.plan),
            tasks_kept=int((self.rows.source == OLD_OUTPUT).sum()),
            tasks_left_out=len(self.state.left_out) + len(self._sources.lost_tasks),
            failures=len(self._failures["task"]),
            size_bytes=self.target.stat().st_size,
            notes=tuple(self._notes),
        )

    def audit_entry(self, duration_s: float) -> AuditEntry:
        """Which rows of the output that is in its place now came from which record file."""
        sources = self.rows.source[self.rows.source != OLD_OUTPUT]
        counts = np.bincount(sources, minlength=len(self.state.paths)).tolist()
        inputs = list(map(record_input, self.state.paths, counts))
        return AuditEntry.now(
            self.folder.output,
            way="sweep",
            duration_s=duration_s,
            inputs=inputs,
            notes=tuple(self._notes),
        )

    def _generated(self) -> Iterator[tuple[str, Array]]:
        """The columns that are not results: numbers, keys, counts, times."""
        rows = self.rows
        yield "task", rows.tasks
        for name in self.plan.names:
            yield name, key_column(self.plan, name, rows.tasks)
        yield from self._dimensions.counts.values()
        yield from ((name, values) for name, (_, values) in self._coordinates.items())
        yield "code", self.codes
        yield "duration_s", rows.duration_s
        yield "finished_at", rows.finished_at

    def _describe(self) -> dict[str, str | int]:
        sweep, old = self._sweep, self.old.attributes if self.old is not None else {}
        now = now_text()
        name = sweep.get("name") or self.folder.output.stem
        done = len(self.rows)
        total = self.state.tasks_total + len(self.state.done_undeclared)
        of_all = f" of {total:,}" if self.state.is_declared else ""
        program, did = (
            f"h5sweep {__version__}",
            "made a snapshot of" if self._is_snapshot else "merged",
        )
        history = f"{now}: {program} {did} {done:,}{of_all} tasks"
        return {
            "Conventions": "CF-1.11, ACDD-1.3",
            "title": str(name),
            "summary": f"{done:,}{of_all} tasks of {name} over {', '.join(self.plan.names)}",
            "history": "\n".join([history, *filter(None, [old.get("history")])]),
            "source": _source_text(sweep, program),
            "creator_name": str(sweep.get("user") or user_name() or f"user {os.getuid()}"),
            "date_created": str(old.get("date_created", now)),
            "date_modified": now,
            "h5sweep_format": FORMAT,
            "h5sweep_key": " ".join(self.plan.names),
            "h5sweep_plan": self.plan.id,
            "h5sweep_columns": " ".join(column.name for column in self.columns),
            **({COORDINATES: " ".join(self._coordinates)} if self._coordinates else {}),
            **_place(self.folder.output, is_snapshot=self._is_snapshot),
            **{f"h5sweep_{mark}": known for mark, known in self.state.relabels.about().items()},
            "tasks_done": done,
            "tasks_planned": len(self.plan),
        }


def _notes_on_old_names(folder: RunFolder, state: FolderState, results: set[str]) -> list[str]:
    """Which results have come under a name that was changed since, beside those renamed."""
    undo = command_text("relabel", folder.output, "--undo")
    return [
        f"{old} is called {new} since a relabel, and newer rows have {old}: let the study "
        f"return {new} and run these again, or have one column {old} again: {undo}"
        for old, new in state.relabels.names.items()
        if {old, new} <= results
    ]


def _place(output: Path, *, is_snapshot: bool) -> dict[str, str]:
    """What leads from the new file to what lies beside the output."""
    return {SNAPSHOT: output.name} if is_snapshot else {AUDIT: audit_path(output).name}


def _leave_out_undeclared(state: FolderState) -> tuple[int, int]:
    """Forget results that are not asked for: how many these were, and those of the old output."""
    left_out = state.done_undeclared
    of_old_output = sum(state.kinds[task] == IN_OUTPUT for task in left_out)
    for task in left_out:
        state.kinds[task] = 0
    state.undeclared, state.done_undeclared = state.undeclared | left_out, set()
    return len(left_out), of_old_output


def _source_text(sweep: Mapping[str, Any], program: str) -> str:
    commit = sweep.get("git_commit")
    if not commit:
        return program
    return f"{program}; git commit {commit}{', changed since' if sweep.get('git_dirty') else ''}"


def _failure_table(state: FolderState) -> dict[str, Array]:
    """The columns of /failures: how each task ended that has no result."""
    found = {task: it for task, it in state.all_failures.items() if not state.is_done(task)}
    tasks, failures = np.array(list(found), np.int64), list(found.values())
    keys = {name: key_column(state.plan, name, tasks) for name in state.plan.names}
    return {
        "task": tasks,
        **keys,
        "outcome": _texts(failure.kind.words for failure in failures),
        "error": _texts(failure.error for failure in failures),
        "message": _texts(failure.message for failure in failures),
        "where": _texts(failure.where for failure in failures),
        "traceback": _texts(failure.traceback for failure in failures),
        "finished_at": np.array([failure.finished_at for failure in failures], np.float64),
        "duration_s": np.array([failure.duration_s for failure in failures], np.float64),
    }


def _provenance_texts(sweep: Mapping[str, Any]) -> dict[str, bytes]:
    """What is known about the sweep, each thing as a text; JSON where it is no text already."""
    known = {name: value for name, value in sweep.items() if value is not None}
    texts = [v if isinstance(v, str) else json.dumps(v, indent=1) for v in known.values()]
    return dict(zip(known, _texts(texts), strict=True))


def _notes_on_records(state: FolderState) -> list[str]:
    notes = refusal_texts(state)
    notes += [f"{path.name} has an unreadable beginning" for path in state.unreadable]
    for damage in state.damages:
        task = "" if damage.task is None else f", the result of task {damage.task}"
        notes.append(
            f"{damage.path.name}: {damage.size_bytes:,} bytes at {damage.offset:,} are damaged "
            f"({damage.what}){task}"
        )
    if state.duplicates:
        notes.append(f"{count_text(state.duplicates, 'result')} recorded again: the latest is kept")
    if state.beyond_plan:
        meanwhile = count_text(len(state.beyond_plan), "result")
        notes.append(f"{meanwhile} recorded during this merge: run the same command again")
    notes += filter(None, [not_stored_text(state)])
    if state.left_out:
        notes.append(left_out_text(state))
    return notes


def _texts(texts: Iterable[str]) -> Array:
    """Texts as HDF5 can hold them: a message may be anything, also a NUL or half a surrogate."""
    encoded = [text.encode("utf-8", "replace").replace(b"\0", b"") for text in texts]
    array = np.empty(len(encoded), object)
    array[:] = encoded
    return array
