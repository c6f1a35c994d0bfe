"""Whether the results of a record file are rows of the output: both are read again and compared.

What the output gives back is what a later merge would take from it when the records are gone, so
nothing is compared by checksums, or as it lies in the file, but value by value, in all their bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...base.compare import are_same
from ...base.plan import Plan, key_text
from ...base.relabels import Relabels
from ...base.values import Array
from ...errors import UnreadableError
from ...output.reader import OutputReader, OutputSource
from ...output.record_rows import BlockCells, RecordSource, Rows, spans
from ...output.row_tasks import tasks_of_output
from ...runfolder.records import KIND, TASK, RecordFile, RecordKind, Scan
from ...runfolder.redo_requests import Requests


@dataclass
class _RecordedTasks:
    """What one record file says."""

    done: list[tuple[int, int]] = field(default_factory=list)  # task, offset of its record
    named: set[int] = field(default_factory=set)  # every task that it says anything about
    nameless: str = ""  # a key that is not in the plan


class RecordProof:
    """Proves record files against one output, which is open for reading."""

    def __init__(
        self, reader: OutputReader, plan: Plan, requests: Requests, relabels: Relabels
    ) -> None:
        self._plan = plan
        self._requests, self._relabels = requests, relabels
        self._source = OutputSource(reader)
        tasks = tasks_of_output(reader, plan)
        self._order = np.argsort(tasks, kind="stable")
        self._tasks = tasks[self._order]

    def objection(self, path: Path) -> str:
        """Why this file cannot go; empty if the output has all that it says.

        A file that names a task without a row is kept, also if it has no result for it: that the
        task failed, or was being run, is what `status` and `missing` read there.
        """
        scan = Scan()
        with RecordFile(path, self._relabels) as file:
            if file.size_bytes and file.about() is None:
                return "it has no readable record"
            found = self._read(file, scan)
        if scan.damages:
            return f"it is damaged at byte {scan.damages[0].offset:,}"
        if found.nameless:
            return f"it has a result for {found.nameless}, which is not in the plan"
        named = np.array(sorted(found.named), np.int64)
        absent = named[self._rows_of(named) < 0]
        if len(absent):
            return (
                f"it has records of tasks without a row in the output: {len(absent):,}, "
                f"first {key_text(self._plan.key(int(absent[0])))}"
            )
        try:
            return self._compare(path, found.done)
        except UnreadableError as error:
            return f"it cannot be read: {error.refusal}"

    def _read(self, file: RecordFile, scan: Scan) -> _RecordedTasks:
        found = _RecordedTasks()
        about = file.about() or {}
        size = self._plan.tasks_shared_with(about.get("plan"))
        # These were run again since, and the output has the new result.
        replaced = self._requests.outdated(self._plan, about.get("redo", 0), closed_only=True)
        for offset, frame in file.scan(scan):
            if frame[KIND] == RecordKind.FILE:
                continue
            if frame[KIND] == RecordKind.STARTED:
                # Numbers of a plan that is not ours mean nothing.
                started = file.header(offset, frame)["tasks"] if size else ()
                found.named.update(started)
                continue
            task = self._number(file, offset, frame, size)
            if task is None:
                key = file.header(offset, frame).get("key")
                found.nameless = key_text(key) if key else f"task {frame[TASK]}"
                continue
            found.named.add(task)
            if frame[KIND] == RecordKind.DONE and task not in replaced:
                found.done.append((task, offset))
        return found

    def _number(
        self, file: RecordFile, offset: int, frame: tuple[Any, ...], size: int
    ) -> int | None:
        if frame[TASK] < size:
            return int(frame[TASK])
        key = file.header(offset, frame).get("key")
        return None if key is None else self._plan.number(key)

    def _rows_of(self, tasks: Array) -> Array:
        """The row of each task in the output, -1 where there is none."""
        if not len(self._tasks):
            return np.full(len(tasks), -1)
        places = np.minimum(np.searchsorted(self._tasks, tasks), len(self._tasks) - 1)
        return np.where(self._tasks[places] == tasks, self._order[places], -1)

    def _compare(self, path: Path, done: list[tuple[int, int]]) -> str:
        if not done:
            return ""
        tasks, offsets = np.array(done, np.int64).T
        output_rows = self._rows_of(tasks)
        order = np.argsort(output_rows, kind="stable")  # long stretches of it are read at once
        tasks, offsets, output_rows = tasks[order], offsets[order], output_rows[order]
        records = RecordSource([path], self._relabels)
        rows = Rows.empty(tasks)
        records.locate(rows, np.arange(len(tasks)), 0, offsets)
        different: list[int] = []
        for block in rows.blocks():
            wanted = output_rows[block]
            stored = list(self._source.parts(np.arange(len(wanted)), wanted))
            is_different = _differing(records.parts(rows, block), stored, len(wanted))
            different += tasks[block][is_different].tolist()
        if not different:
            return ""
        return (
            f"{len(different):,} of its {len(done):,} results differ from the output, "
            f"first that of {key_text(self._plan.key(different[0]))}"
        )


def _differing(recorded: Iterable[BlockCells], stored: list[BlockCells], rows: int) -> Array:
    """Which rows have a recorded cell that none of the stored ones equals."""
    is_different: Array = np.zeros(rows, bool)
    for part in recorded:
        is_open = np.ones(len(part.rows), bool)
        for other in stored:
            if other.name == part.name:
                is_open &= ~_equal_cells(part, other)
        is_different[part.rows[is_open]] = True
    return is_different


def _equal_cells(part: BlockCells, other: BlockCells) -> Array:
    """Which cells of a part are in the other, with the same shape and the same value."""
    is_equal: Array = np.zeros(len(part.rows), bool)
    if part.axes.shape[1] != other.axes.shape[1]:
        return is_equal
    _, mine, theirs = np.intersect1d(part.rows, other.rows, assume_unique=True, return_indices=True)
    alike = (part.axes[mine] == other.axes[theirs]).all(axis=1)
    mine, theirs = mine[alike], theirs[alike]
    if not len(mine):
        return is_equal
    counts = part.counts[mine]
    first = _elements(part.load(), part.counts, mine)
    second = _elements(other.load(), other.counts, theirs)
    wrong = np.repeat(np.arange(len(mine)), counts)[~are_same(first, second)]
    is_equal[mine] = True
    is_equal[mine[wrong]] = False
    return is_equal


def _elements(values: Array, counts: Array, chosen: Array) -> Array:
    """The elements of the chosen cells, one after the other."""
    starts = np.cumsum(counts) - counts
    return values[spans(starts[chosen], counts[chosen])]
