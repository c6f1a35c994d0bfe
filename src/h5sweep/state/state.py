"""What is declared, done and missing: each task is done, failed, running, lost or never started.

Every command asks here. All is read from the plan, the record files and the output, without NumPy
or h5py unless the output has changed since it was merged (see `tasks_in_output`), without the
user's code, and is right while a run is going on. Arrays by task number, because a million tasks
must fit into two seconds and 300 MB.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from ..base.missing_reason import MissingReason
from ..base.number_ranges import numbers_in
from ..base.plan import Key, Plan
from ..base.process_id import ProcessId
from ..base.relabels import Relabels
from ..runfolder.fitting_keys import fitted_key, types_of_keys
from ..runfolder.layout import Declared, RunFolder
from ..runfolder.parts import part_beats
from ..runfolder.records import (
    DURATION_S,
    FINISHED_AT,
    KIND,
    NO_TASK,
    TASK,
    Damage,
    RecordFile,
    RecordKind,
    Scan,
)
from .record_place import Failure, RecordPlace, read_failure
from .redo_order import RedoOrder
from .tasks_in_output import HeldTasks, held_tasks, output_identity


class RecordsTaken(Protocol):
    """Many records that a scanner took at a time."""

    def take_new(
        self, state: FolderState, file_number: int, size: int
    ) -> Iterator[tuple[Any, ...]]:
        """Take over results of tasks that had none; yield the others, and the last, singly.

        Numbers from `size` on are not those of the state's plan.
        """


Scanner = Callable[[RecordFile, Scan], Iterator[RecordsTaken | tuple[Any, ...]]]

LOCK_SILENT_S = 60.0  # twelve heartbeats of a run, and room for clocks that differ
IN_OUTPUT = 255  # stands where a Kind does, for a task whose record is gone but whose row is there


@dataclass(frozen=True, slots=True)
class Missing:
    """One task without a result, and why."""

    task: int
    key: Key
    reason: MissingReason
    detail: str = ""


@dataclass
class FolderState:
    """The state of every task of a plan, and of every record file."""

    held: HeldTasks
    paths: list[Path]
    kinds: bytearray
    files: array[int]
    offsets: array[int]
    finished_at: array[float]
    relabels: Relabels = field(default_factory=Relabels)
    failures: dict[int, RecordPlace] = field(default_factory=dict)
    running: dict[int, tuple[ProcessId, float]] = field(default_factory=dict)
    interrupted: dict[int, ProcessId] = field(default_factory=dict)
    lost: dict[int, Damage] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    beyond_plan: list[tuple[Key, RecordPlace]] = field(default_factory=list)  # a merge appends them
    left_out: list[tuple[Key, RecordPlace]] = field(default_factory=list)  # with keys not alike
    heartbeat: float = 0.0  # when the lock was last written
    part_beats: dict[str, float] = field(default_factory=dict)  # and the file of each part
    is_declared: bool = False  # whether anybody has said which tasks there should be
    undeclared: set[int] = field(default_factory=set)  # unfinished, and not asked for
    again: set[int] = field(default_factory=set)  # to be run again; a result they have is kept
    redone: set[int] = field(default_factory=set)  # run again, and not merged since
    done_undeclared: set[int] = field(default_factory=set)  # finished, and not asked for
    duplicates: int = 0
    unreadable: list[Path] = field(default_factory=list)
    notes: dict[int, RecordPlace] = field(default_factory=dict)  # on results that lack values
    codes: dict[int, str] = field(default_factory=dict)  # the id of the code, by file, if known
    salvage_files: set[int] = field(default_factory=set)  # what was found in damaged files

    @property
    def plan(self) -> Plan:
        """Every task that is known, also those that only the output has."""
        return self.held.plan

    @property
    def types(self) -> dict[str, str]:
        """The type of each parameter, also of results that no plan has."""
        return types_of_keys(self.plan, [key for key, _ in self.beyond_plan])

    @property
    def tasks_total(self) -> int:
        """All tasks that the declaration asks for; without one, all that are known."""
        return len(self.plan) - len(self.undeclared) - len(self.done_undeclared)

    @property
    def tasks_done(self) -> int:
        """How many of these have a result."""
        return self.results - len(self.done_undeclared)

    @property
    def results(self) -> int:
        """How many tasks have a result, whether they are asked for or not."""
        return self.kinds.count(RecordKind.DONE) + self.kinds.count(IN_OUTPUT)

    @property
    def tasks_failed(self) -> int:
        """How many have failed last, also of those that have an older result."""
        return len(self.failures)

    @property
    def again_done(self) -> list[int]:
        """The tasks that are to be run again and have a result, which counts until then."""
        return [task for task in self.again if self.is_done(task)]

    @property
    def results_not_merged(self) -> int:
        """How many of the results that are asked for the output lacks, as it is now."""
        others = self.done_undeclared | self.redone
        if not others:
            return self.results - self.held.count
        held = numbers_in(self.held.ranges, len(self.kinds))
        return self.tasks_done - sum(task not in others for task in held)

    def is_done(self, task: int) -> bool:
        return self.kinds[task] in (RecordKind.DONE, IN_OUTPUT)

    def take_record(self, task: int, place: RecordPlace) -> None:
        """Let the result in this record be the one that counts."""
        self.kinds[task] = RecordKind.DONE
        self.files[task] = place.file
        self.offsets[task] = place.offset
        self.finished_at[task] = place.frame[FINISHED_AT]

    def missing_tasks(self) -> Iterator[int]:
        """The numbers of all tasks to run: without a result, or asked to be run again."""
        done, undeclared, again = (RecordKind.DONE, IN_OUTPUT), self.undeclared, self.again
        kinds = enumerate(self.kinds)
        missing = (task for task, kind in kinds if kind not in done or task in again)
        return (task for task in missing if task not in undeclared) if undeclared else missing

    def missing(self) -> Iterator[Missing]:
        """Every task to run, with its key and the reason."""
        for task in self.missing_tasks():
            reason, detail = self.reason(task)
            yield Missing(task, self.plan.key(task), reason, detail)

    def reason(self, task: int) -> tuple[MissingReason, str]:
        """Why a task that `missing_tasks` names is to be run."""
        if task in self.running:
            return MissingReason.RUNNING, str(self.running[task][0])
        if task in self.failures:
            failure = self.all_failures[task]
            return MissingReason.FAILED, f"{failure.kind.words}: {failure.error}: {failure.message}"
        if task in self.lost:
            return MissingReason.LOST, self.lost[task].path.name
        if task in self.interrupted:
            return MissingReason.INTERRUPTED, f"its process ended: {self.interrupted[task]}"
        if task in self.again:
            is_kept = self.is_done(task)
            return MissingReason.AGAIN, "its result is kept until then" if is_kept else ""
        if task in self.held.unsound:
            return MissingReason.CHANGED, "its row differs from what was written"
        return MissingReason.NEVER_STARTED, self._doubt

    @cached_property
    def _doubt(self) -> str:
        """What to add where there is no record of a task, if not all records can be read."""
        is_nameless = any(damage.task is None for damage in self.damages)
        return "unless its record is among the damaged ones" if is_nameless else ""

    @cached_property
    def all_failures(self) -> dict[int, Failure]:
        """How each failed task ended; read from its record once."""
        return self.read_failures(self.failures)

    def read_failures(self, tasks: Iterable[int]) -> dict[int, Failure]:
        """How these failed tasks ended; read from their records, file by file."""
        found = {}
        by_file = sorted(tasks, key=lambda task: self.failures[task].file)
        for file_number, tasks in groupby(by_file, lambda task: self.failures[task].file):
            with RecordFile(self.paths[file_number]) as file:
                for task in tasks:
                    found[task] = read_failure(file, self.failures[task])
        return dict(sorted(found.items()))

    def durations_s(self, tasks: Iterable[int]) -> list[float]:
        """How long these tasks took, of which the results are in record files."""
        found = []
        by_file = sorted(tasks, key=self.files.__getitem__)
        for file_number, of_file in groupby(by_file, self.files.__getitem__):
            with RecordFile(self.paths[file_number]) as file:
                found += [file.frame(self.offsets[task])[DURATION_S] for task in of_file]
        return found


def read_state(
    folder: RunFolder,
    plan: Plan,
    *,
    scan: Scanner = RecordFile.scan,
    declared: Declared | None = None,
    held: HeldTasks | None = None,
) -> FolderState:
    """Read the output and every record file; `scan` may be a faster way through large ones.

    Tasks that are not declared are left out of account; `declared` is what the last run said,
    unless it is given. `held` is what `held_tasks` has found, if somebody has asked. All is read
    again if the output was replaced meanwhile: records that a merge has put there may be gone.
    """
    while True:
        identity = output_identity(folder.output)
        state = _read_once(folder, plan, scan, declared, held or held_tasks(folder, plan))
        if held or output_identity(folder.output) == identity:
            return state


def _read_once(
    folder: RunFolder, plan: Plan, scan: Scanner, declared: Declared | None, held: HeldTasks
) -> FolderState:
    size = len(held.plan)
    order = RedoOrder(folder.load_redo(), held.plan, folder.record_paths())
    state = FolderState(
        held=held,
        paths=order.paths,
        kinds=bytearray(size),
        files=array("i", bytes(4 * size)),
        offsets=array("q", bytes(8 * size)),
        finished_at=array("d", bytes(8 * size)),
        relabels=folder.load_relabels(),
    )
    with suppress(OSError):
        state.heartbeat = folder.lock_path.lstat().st_mtime
    state.part_beats = part_beats(folder)
    _take_held(state)
    order.begin(state.kinds)
    for file_number in range(len(state.paths)):
        order.reach_file(file_number, state.kinds)
        _take_file(state, file_number, scan, order)
    _decide_again(state, order)
    _forget_what_was_mended(state)
    _separate_misfits(state)
    _forget_undeclared(state, declared or folder.load_declared())
    return state


def _take_held(state: FolderState) -> None:
    """Count what is in the output, so that a task stays done when its record file is gone."""
    size = len(state.plan)
    for first, last in state.held.ranges:
        after = min(last + 1, size)
        state.kinds[first:after] = bytes([IN_OUTPUT]) * (after - first)


def _take_file(state: FolderState, file_number: int, scan: Scanner, order: RedoOrder) -> None:
    """Take over what one record file says."""
    path = state.paths[file_number]
    found = Scan()
    try:
        file = RecordFile(path, state.relabels)
    except FileNotFoundError:
        return
    with file:
        _FileReader(state, file, file_number, scan, order).read(found)
    state.damages += found.damages


def _decide_again(state: FolderState, order: RedoOrder) -> None:
    """Choose what counts for tasks that were asked to be run again, and which of them still are.

    A new result counts before the row in the output, and that before an older record.
    """
    order.reach_end(state.kinds)
    held = state.held.ranges if order.outdated else ()
    is_held = bytearray(len(state.kinds) if order.outdated else 0)
    for task in numbers_in(held, below=len(is_held)):
        is_held[task] = 1
    for task, has_new, is_open in order.last_requests():
        if has_new:
            if is_open:
                state.redone.add(task)
            continue
        if is_open or not is_held[task]:
            state.again.add(task)
        if is_held[task]:
            state.kinds[task] = IN_OUTPUT
        elif task not in order.old:
            failure = state.failures.get(task)
            state.kinds[task] = failure.frame[KIND] if failure else 0
        else:
            state.take_record(task, order.old[task])


def _forget_what_was_mended(state: FolderState) -> None:
    """Drop failures, losses and starts of tasks that another attempt has finished."""
    by_task: dict[int, Any]
    for by_task in (state.failures, state.running, state.interrupted, state.lost):
        for task in [task for task in by_task if state.is_done(task)]:
            if task not in state.again:
                del by_task[task]


def _separate_misfits(state: FolderState) -> None:
    """Tell results whose keys can become tasks of the plan from those that no merge takes."""
    types = state.types
    for found in state.beyond_plan:
        if fitted_key(found[0], types) is None:
            state.left_out.append(found)
    if state.left_out:
        state.beyond_plan = [f for f in state.beyond_plan if fitted_key(f[0], types) is not None]


def _forget_undeclared(state: FolderState, declared: Declared | None) -> None:
    """Tell apart the tasks that the sweep, as it was last declared, does not have."""
    if declared is None or not state.plan.tasks_shared_with(declared.plan):
        return
    state.is_declared = True
    for task in numbers_in(declared.without, below=len(state.plan)):
        state.again.discard(task)
        state.failures.pop(task, None)
        if state.is_done(task):
            state.done_undeclared.add(task)
        else:
            state.undeclared.add(task)
            state.kinds[task] = 0


class _FileReader:
    """Reads one record file into a state."""

    def __init__(
        self,
        state: FolderState,
        file: RecordFile,
        file_number: int,
        scan: Scanner,
        order: RedoOrder,
    ) -> None:
        self.order = order
        self.state = state
        self.file = file
        self.file_number = file_number
        self.scan = scan
        self.starts: list[tuple[int, tuple[Any, ...]]] = []

    def read(self, found: Scan) -> None:
        about = self.file.about()
        if about is None and self.file.size_bytes:
            self.state.unreadable.append(self.file.path)
        size = self.state.plan.tasks_shared_with(about.get("plan")) if about is not None else 0
        if about is not None and isinstance(code := about.get("code"), str):
            self.state.codes[self.file_number] = code
        if about is not None and about.get("role") == "salvage":
            self.state.salvage_files.add(self.file_number)
        is_plain = self.scan is RecordFile.scan or not size
        scan = self.file.scan if is_plain else partial(self._scan_stretches, size)
        state, number = self.state, self.file_number
        kinds, files, offsets = state.kinds, state.files, state.offsets
        finished_at, last_ended = state.finished_at, NO_TASK
        for offset, frame in scan(found):
            task, kind = frame[2], frame[3]
            if kind == 2 and task < size and kinds[task] != 2:
                # The way that a million tasks take; all else is below.
                kinds[task] = 2
                files[task] = number
                offsets[task] = offset
                finished_at[task] = frame[6]
                last_ended = task
            elif kind == 7:
                # The result that it is about is behind it, in the same file.
                if task < size:
                    state.notes[task] = RecordPlace(number, offset, frame)
            elif kind >= 2:
                last_ended = task
                self._take_outcome(offset, frame, size)
            elif kind == 1:
                last_ended = NO_TASK
                self.starts.append((offset, frame))
        if about is not None and size:
            self._take_end(about, found, last_ended)

    def _scan_stretches(self, size: int, found: Scan) -> Iterator[tuple[Any, ...]]:
        """The records one by one, without those that were taken in stretches."""
        for record in self.scan(self.file, found):
            if isinstance(record, tuple):
                yield record
            else:
                yield from record.take_new(self.state, self.file_number, size)

    def _take_outcome(self, offset: int, frame: tuple[Any, ...], size: int) -> None:
        state, place = self.state, RecordPlace(self.file_number, offset, frame)
        task = frame[TASK] if frame[TASK] < size else self._number_by_key(offset, frame, place)
        if task is None:
            return
        if frame[KIND] == RecordKind.DONE:
            self._take_result(task, place)
        elif not state.is_done(task):
            known = state.failures.get(task)
            if known is None or place.is_later_than(known.file, known.frame[FINISHED_AT]):
                state.failures[task] = place
                state.kinds[task] = frame[KIND]

    def _take_result(self, task: int, place: RecordPlace) -> None:
        state = self.state
        if task in self.order.outdated:
            self.order.keep_old(task, place)
            return
        if state.kinds[task] == RecordKind.DONE:
            state.duplicates += 1
            if not place.is_later_than(state.files[task], state.finished_at[task]):
                return
        state.take_record(task, place)

    def _number_by_key(self, offset: int, frame: tuple[Any, ...], place: RecordPlace) -> int | None:
        key = self.file.header(offset, frame).get("key")
        if key is None:
            return None
        task = self.state.plan.number(key)
        if task is None and frame[KIND] == RecordKind.DONE:
            self.state.beyond_plan.append((key, place))
        return task

    def _take_end(self, about: dict[str, Any], found: Scan, last_ended: int) -> None:
        """Name the task that the file ends in, and those that damage swallowed."""
        ended = self._take_current(about, found, last_ended)
        size, kinds = len(self.state.plan), self.state.kinds
        nameless = [damage for damage in found.damages if damage.task is None]
        if nameless:
            earlier = [task for start in self.starts[:-1] for task in self._batch(start)]
            swallowed = (t for t in (*earlier, *ended) if t < size and not kinds[t])
            self.state.lost.update(dict.fromkeys(swallowed, nameless[-1]))
        for damage in found.damages:
            task = damage.task
            if task is not None and task < size and task not in self.order.outdated:
                self.state.lost[task] = damage

    def _take_current(self, about: dict[str, Any], found: Scan, last_ended: int) -> list[int]:
        """The process is in the task of its last batch behind the last one that has ended.

        One before it without an outcome was swallowed by damage; one whose record is damaged has
        ended as well. Returns what has ended of that batch.
        """
        if not self.starts:
            return []
        (offset, frame), batch = self.starts[-1], self._batch(self.starts[-1])
        known = {d.task for d in found.damages if d.offset > offset} | {last_ended}
        ended = max((place for place, task in enumerate(batch, 1) if task in known), default=0)
        current = batch[ended] if ended < len(batch) else NO_TASK
        if current < len(self.state.plan) and current not in self.order.outdated:
            owner = ProcessId.from_json(about["process"])
            if not self._may_be_alive(owner, about.get("part")):
                self.state.interrupted[current] = owner
            else:
                since = max(frame[FINISHED_AT], self._ended_at(last_ended))
                self.state.running[current] = (owner, since)
        return batch[:ended]

    def _ended_at(self, task: int) -> float:
        """When a task of this file ended; 0 if it is none of the plan."""
        state = self.state
        if task in state.failures:
            return float(state.failures[task].frame[FINISHED_AT])
        return state.finished_at[task] if task < len(state.plan) else 0.0

    def _may_be_alive(self, owner: ProcessId, part: str | None) -> bool:
        """Whether a process is, or can be where nobody here sees it: its run changes the lock, its
        part a file of its own.
        """
        if (alive := owner.is_alive()) is not None:
            return alive
        beat = self.state.part_beats.get(part, 0.0) if part else self.state.heartbeat
        return time.time() - beat < LOCK_SILENT_S

    def _batch(self, start: tuple[int, tuple[Any, ...]]) -> list[int]:
        """The tasks that a STARTED record names."""
        tasks: list[int] = self.file.header(*start)["tasks"]
        return tasks
