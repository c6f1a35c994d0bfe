"""What a run folder says of each task: done, failed, running, lost, or never started.

Everything is read from the record files and the plan, without NumPy, h5py or the user's code, and
is right while a run is going on. Arrays by task number, because a million tasks must fit into a
second and 300 MB.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import compress
from pathlib import Path
from typing import Any

from .folder import RunFolder
from .plan import Key, Plan
from .processes import ProcessId
from .records import FAILURES, NO_TASK, Damage, Kind, RecordFile, Scan

IN_OUTPUT = 255  # stands where a Kind does, for a task whose record is gone but whose row is there


class Reason(StrEnum):
    """Why a task is missing."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    FAILED = "failed"
    LOST = "lost with a damaged record"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a task ended that did not end well."""

    kind: Kind
    error: str
    message: str
    where: str
    traceback: str
    finished_at: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Missing:
    """One task without a result, and why."""

    task: int
    key: Key
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies: which of `FolderState.paths`, and its offset there."""

    file: int
    offset: int
    frame: tuple[Any, ...]


@dataclass
class FolderState:
    """The state of every task of a plan, and of every record file."""

    plan: Plan
    paths: list[Path]
    kinds: bytearray
    files: array[int]
    offsets: array[int]
    finished_at: array[float]
    failures: dict[int, Place] = field(default_factory=dict)
    running: dict[int, tuple[ProcessId, float]] = field(default_factory=dict)
    interrupted: dict[int, ProcessId] = field(default_factory=dict)
    lost: dict[int, Damage] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    beyond_plan: list[tuple[Key, Place]] = field(default_factory=list)
    duplicates: int = 0
    unreadable: list[Path] = field(default_factory=list)

    @property
    def tasks_done(self) -> int:
        return self.kinds.count(Kind.DONE) + self.kinds.count(IN_OUTPUT)

    @property
    def tasks_failed(self) -> int:
        return sum(self.kinds.count(kind) for kind in FAILURES)

    def is_done(self, task: int) -> bool:
        return self.kinds[task] in (Kind.DONE, IN_OUTPUT)

    def missing_tasks(self) -> Iterator[int]:
        """The numbers of all tasks without a result."""
        return (task for task, kind in enumerate(self.kinds) if kind not in (Kind.DONE, IN_OUTPUT))

    def missing(self) -> Iterator[Missing]:
        """Every task without a result, with its key and the reason."""
        for task in self.missing_tasks():
            reason, detail = self._reason(task)
            yield Missing(task, self.plan.key(task), reason, detail)

    def _reason(self, task: int) -> tuple[Reason, str]:
        if task in self.running:
            return Reason.RUNNING, str(self.running[task][0])
        if task in self.failures:
            failure = self.failure(task)
            return Reason.FAILED, f"{failure.kind.words}: {failure.error}: {failure.message}"
        if task in self.lost:
            return Reason.LOST, self.lost[task].path.name
        if task in self.interrupted:
            return Reason.INTERRUPTED, f"its process ended: {self.interrupted[task]}"
        return Reason.NEVER_STARTED, ""

    def failure(self, task: int) -> Failure:
        """Read how a failed task ended."""
        place = self.failures[task]
        with RecordFile(self.paths[place.file]) as file:
            error = file.header(place.offset, place.frame)["error"]
        return Failure(
            Kind(place.frame[3]),
            error["type"],
            error["message"],
            error.get("where", ""),
            error.get("traceback", ""),
            place.frame[6],
            place.frame[7],
        )

    def counts_by_column(self) -> dict[str, list[tuple[object, int, int]]]:
        """For each key column, each value with its number of finished and of all tasks."""
        done_flags = self.kinds.translate(_DONE_FLAGS)
        counts = {}
        for column in self.plan.columns:
            done = Counter(compress(column.codes, done_flags))
            total = Counter(column.codes)
            counts[column.name] = [
                (value, done[code], total[code]) for code, value in enumerate(column.values)
            ]
        return counts


def read_state(folder: RunFolder, plan: Plan) -> FolderState:
    """Scan every record file of the folder."""
    size = len(plan)
    state = FolderState(
        plan=plan,
        paths=folder.record_paths(),
        kinds=bytearray(size),
        files=array("i", bytes(4 * size)),
        offsets=array("q", bytes(8 * size)),
        finished_at=array("d", bytes(8 * size)),
    )
    _take_merged(folder, state)
    for file_number in range(len(state.paths)):
        _take_file(state, file_number)
    for task in list(state.failures):
        if state.is_done(task):
            del state.failures[task]
    return state


def tasks_to_ranges(tasks: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as [first, last] pairs."""
    ranges: list[list[int]] = []
    for task in tasks:
        if ranges and ranges[-1][1] == task - 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ranges


def output_identity(output: Path) -> list[int] | None:
    """What tells one output from another without opening it: size and time; None if absent."""
    try:
        stat = output.stat()
    except FileNotFoundError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _take_merged(folder: RunFolder, state: FolderState) -> None:
    """Count what is in the output, so that a task stays done when its record file is gone."""
    merged = folder.load_merged()
    if not merged or merged["plan"] != state.plan.id:
        return
    if merged["output"] != output_identity(folder.output):
        return
    for first, last in merged["tasks"]:
        state.kinds[first : last + 1] = bytes([IN_OUTPUT]) * (last + 1 - first)


def _take_file(state: FolderState, file_number: int) -> None:
    """Take over what one record file says."""
    path = state.paths[file_number]
    found = Scan()
    try:
        file = RecordFile(path)
    except FileNotFoundError:
        return
    with file:
        _FileReader(state, file, file_number).read(found)
    state.damages += found.damages
    for damage in found.damages:
        if damage.task is not None and damage.task < len(state.plan):
            state.lost[damage.task] = damage


class _FileReader:
    """Reads one record file into a state."""

    def __init__(self, state: FolderState, file: RecordFile, file_number: int) -> None:
        self.state = state
        self.file = file
        self.file_number = file_number
        self.batch: list[int] = []
        self.batch_started_at = 0.0
        self.ended_in_batch = 0
        self.earlier_tasks: set[int] = set()

    def read(self, found: Scan) -> None:
        about = self.file.about()
        if about is None and self.file.size_bytes:
            self.state.unreadable.append(self.file.path)
        numbered = about is not None and about.get("plan") == self.state.plan.id
        state, number, size = self.state, self.file_number, len(self.state.plan)
        kinds, files, offsets = state.kinds, state.files, state.offsets
        finished_at = state.finished_at
        for offset, frame in self.file.scan(found):
            kind = frame[3]
            self.ended_in_batch += kind >= 2
            if kind == 2 and numbered and (task := frame[2]) < size and kinds[task] != 2:
                # The way that a million tasks take; all else is below.
                kinds[task] = 2
                files[task] = number
                offsets[task] = offset
                finished_at[task] = frame[6]
            elif kind >= 2:
                self._take_outcome(offset, frame, numbered)
            elif kind == 1:
                self._take_start(offset, frame, numbered)
        self._take_end(about, found)

    def _take_outcome(self, offset: int, frame: tuple[Any, ...], numbered: bool) -> None:
        state, place = self.state, Place(self.file_number, offset, frame)
        task = frame[2] if numbered else self._number_by_key(offset, frame, place)
        if task is None or task >= len(state.plan):
            return
        if frame[3] == Kind.DONE:
            self._take_result(task, place)
        elif not state.is_done(task):
            known = state.failures.get(task)
            if known is None or known.frame[6] <= frame[6]:
                state.failures[task] = place
                state.kinds[task] = frame[3]

    def _take_result(self, task: int, place: Place) -> None:
        state = self.state
        if state.kinds[task] == Kind.DONE:
            state.duplicates += 1
            if place.frame[6] < state.finished_at[task]:
                return
        state.kinds[task] = Kind.DONE
        state.files[task] = place.file
        state.offsets[task] = place.offset
        state.finished_at[task] = place.frame[6]

    def _number_by_key(self, offset: int, frame: tuple[Any, ...], place: Place) -> int | None:
        key = self.file.header(offset, frame).get("key")
        if key is None:
            return None
        task = self.state.plan.number(key)
        if task is None and frame[3] == Kind.DONE:
            self.state.beyond_plan.append((key, place))
        return task

    def _take_start(self, offset: int, frame: tuple[Any, ...], numbered: bool) -> None:
        if numbered and frame[2] != NO_TASK:
            self.earlier_tasks.update(self.batch)
            self.batch = self.file.header(offset, frame)["tasks"]
            self.batch_started_at = frame[6]
            self.ended_in_batch = 0

    def _take_end(self, about: dict[str, Any] | None, found: Scan) -> None:
        """Name the task that the file ends in, and those that damage swallowed."""
        self._take_current(about)
        size, kinds = len(self.state.plan), self.state.kinds
        for damage in found.damages:
            if damage.task is None:
                swallowed = (t for t in self.earlier_tasks if t < size and not kinds[t])
                self.state.lost.update(dict.fromkeys(swallowed, damage))

    def _take_current(self, about: dict[str, Any] | None) -> None:
        """The process is in the first task of its last batch that has no outcome."""
        left = self.batch[self.ended_in_batch :]
        if not left or left[0] >= len(self.state.plan) or about is None:
            return
        owner = ProcessId.from_json(about["process"])
        if owner.is_alive() is False:
            self.state.interrupted[left[0]] = owner
        else:
            self.state.running[left[0]] = (owner, self.batch_started_at)


_DONE_FLAGS = bytes(1 if kind in (Kind.DONE, IN_OUTPUT) else 0 for kind in range(256))
