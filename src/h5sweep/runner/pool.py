"""Supervised worker processes on this machine. Knows records, but neither HDF5 nor plans.

What happens to tasks is kept apart from what happens to processes: `task_queue` decides which task
runs when and how often, a `member` is one process and what it was given, `Pool` watches them.

Each worker has its own channel and its own shared memory: a worker that dies, at whatever
instant, can leave no lock behind that another one waits for. The task that a dead worker was in is
read from the slot and from the worker's record file, never guessed, so exactly that task is blamed
and the rest of its batch runs elsewhere.
"""

from __future__ import annotations

import resource
import selectors
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..disk.durable import Syncer
from ..errors import StorageError, StudyError, UsageError
from ..runfolder.records import RecordKind
from .channel import NOT_YET
from .launch import LaunchOrder
from .queue import LARGEST_BATCH, TaskQueue
from .settings import PoolSettings
from .starts import Starts
from .worker_handle import Current, OomKills, Outcome, WorkerHandle, cause_of_death, is_from_outside

SLOW_IMPORT_S = 30.0
STUCK_S = 0.5
CLOSING_S = 0.5
TICK_S = 0.1
MOST_STOPPED = 8
DESCRIPTORS_EACH = 5
DESCRIPTORS_ELSE = 200


@dataclass(frozen=True, slots=True)
class Ended:
    """So many tasks of a batch ended as done."""

    tasks_done: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A task did not end well. `recorded` says whether its worker left a record of that."""

    task: int
    kind: RecordKind
    error: dict[str, str]
    duration_s: float
    will_retry: bool
    recorded: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task was running when the pool was told to stop; `where` it was, if it said so."""

    task: int
    running_s: float
    where: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should hear once."""

    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened for a moment: time to redraw."""


Event = Ended | Failed | Stopped | Note | Tick


class Pool:
    """Runs tasks in worker processes and says what happened to each.

    `run` yields events until every task has ended, or the pool was told to stop. Whatever it
    yields as done is in a record file that survives SIGKILL, and is durable within a second.
    """

    def __init__(self, order: LaunchOrder, settings: PoolSettings) -> None:
        _allow_descriptors(DESCRIPTORS_EACH * settings.workers)
        self._order = order
        self._settings = settings
        self._queue = TaskQueue((), settings)
        self._selector = selectors.DefaultSelector()
        self._members: list[WorkerHandle] = []  # that have a task or may be given one
        self._dismissed: list[WorkerHandle] = []  # that end by themselves
        self._answered = 0  # tasks, of batches that took so long:
        self._answered_s = 0.0
        self._starts = Starts(order.folder.logs_path)
        self._has_started = False
        self._start_error = ""
        self._is_slow_import_noted = False
        self._is_other_noted = False
        self._draining = False
        self._stopping = False
        self._trouble: StorageError | None = None
        self._oom_kills = OomKills()
        self._syncer = Syncer(self._set_trouble)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End every worker; what they recorded is durable afterwards, or StorageError is raised."""
        self._kill_members()
        for member in list(self._dismissed):
            if not member.has_ended(max(member.ends_by - time.monotonic(), 0)):
                member.kill()
            self._reap(member)
        self._selector.close()
        self._syncer.close()
        if error is None and self._trouble is not None:
            raise self._trouble

    def warm_up(self, tasks: int) -> None:
        """Start workers for so many tasks while it is still being found out which they are."""
        for _ in range(min(self._settings.workers, tasks)):
            if self._starts.is_due:
                self._start()

    def run(self, tasks: Iterable[int]) -> Iterator[Event]:
        """Run all tasks. StorageError if results can no longer be kept: what was done is kept."""
        self._queue = TaskQueue(tasks, self._settings)
        try:
            yield from self._supervise()
        finally:
            self._kill_members()
        if self._trouble:
            raise self._trouble

    def drain(self) -> None:
        """Let running tasks finish and begin no others. Safe in a signal handler."""
        self._draining = True

    def stop(self) -> None:
        """End running tasks now. Safe in a signal handler."""
        self._stopping = True

    def current(self) -> list[Current]:
        """The tasks that are running now."""
        return [current for m in self._members if (current := m.current()) is not None]

    @property
    def usual_s(self) -> float | None:
        """How long a task takes on average; None if none has ended."""
        return self._answered_s / self._answered if self._answered else None

    def _supervise(self) -> Iterator[Event]:
        while not self._stopping and self._trouble is None:
            if self._draining:
                self._begin_no_more()
            self._fill()
            if not self._members and not len(self._queue):
                return
            yield from self._wait()
            self._watch()
            yield from self._note_slow_import()
            yield Tick()
        if self._stopping:
            yield from self._stop_tasks()

    def _stop_tasks(self) -> Iterator[Stopped]:
        """End running tasks, and say where those were that ran longest: they may have hung."""
        found = [(m, current) for m in self._members if (current := m.current()) is not None]
        running = sorted(found, key=lambda pair: -pair[1].running_s)[:MOST_STOPPED]
        for member, _ in running:
            member.end_with_stack(self._log_of(member))
        for member, current in running:
            member.has_ended(max(member.ends_by - time.monotonic(), 0))
            if current.task not in member.outcomes_on_disk():
                where = member.stack(self._log_of(member))["where"]
                yield Stopped(current.task, current.running_s, where)

    def _begin_no_more(self) -> None:
        self._queue.clear()
        for member in self._members:
            member.begin_no_more()

    # Workers begin and end

    def _fill(self) -> None:
        """Give every idle worker a batch or dismiss it, and start workers for the rest."""
        for member in [m for m in self._members if m.is_idle]:
            self._give_or_dismiss(member)
        busy = sum(not m.is_idle for m in self._members)
        wanted = min(self._settings.workers, busy + len(self._queue))
        if wanted and not self._members and self._starts.is_hopeless:
            raise self._starts.error()
        while len(self._members) < wanted and self._starts.is_due:
            self._start()

    def _give_or_dismiss(self, member: WorkerHandle) -> None:
        limit = self._settings.tasks_per_worker
        left = LARGEST_BATCH if limit is None else limit - member.tasks_run
        batch = self._queue.next_batch(left) if left > 0 else []
        if batch:
            member.give(batch)
        elif left <= 0 or not len(self._queue):
            self._dismiss(member)

    def _start(self) -> None:
        try:
            member = WorkerHandle.start(self._order)
        except OSError as error:
            # Too many processes or open files, or too little memory: that may pass.
            reason = f"none can be started: {error.strerror}"
            self._starts.fail(time.monotonic(), reason, by_study=False)
            return
        self._members.append(member)
        self._selector.register(member.channel, selectors.EVENT_READ, member)
        self._selector.register(member.sentinel, selectors.EVENT_READ, member)

    def _dismiss(self, member: WorkerHandle) -> None:
        """Have an idle worker end by itself. Nobody waits for it: `_wait` meets its end."""
        self._members.remove(member)
        self._selector.unregister(member.channel)
        self._dismissed.append(member)
        member.dismiss()

    def _kill_members(self) -> None:
        """End what is running; that is no task's failure."""
        for member in self._members:
            member.kill()
        for member in list(self._members):
            self._reap(member)

    def _reap(self, member: WorkerHandle) -> int:
        """Leave nothing of a worker that has ended but its record file; return its exit code."""
        if member.is_dismissed:
            self._dismissed.remove(member)
        else:
            self._members.remove(member)
            self._selector.unregister(member.channel)
        self._selector.unregister(member.sentinel)
        exit_code = member.reap()
        self._sync(member)
        if member.record_path is not None:
            self._syncer.remove(member.record_path)
        return exit_code

    def _sync(self, member: WorkerHandle) -> None:
        """Have a worker's record file synced from now on, as soon as it is there."""
        if not member.is_synced and member.record_path is not None and member.record_path.exists():
            member.is_synced = True
            self._syncer.add(member.record_path)

    # What workers say

    def _wait(self) -> Iterator[Event]:
        """Take what workers say, then what became of those that ended."""
        ready = self._selector.select(TICK_S)
        ended = [key.data for key, _ in ready if key.fd == key.data.sentinel]
        for key, _ in ready:
            if key.fd != key.data.sentinel:
                yield from self._hear(key.data)
        for member in ended:
            if member.is_dismissed:
                self._reap(member)
            else:
                yield from self._take_death(member)

    def _hear(self, member: WorkerHandle) -> Iterator[Event]:
        message = member.hear()
        if message is NOT_YET:
            yield from self._note_others(member)
        elif message is not None:
            yield from self._take_message(member, message)
        elif not member.has_ended(CLOSING_S):
            # It is not about to end, so its task must have closed the channel.
            what = "the task closed file descriptors that were not its own"
            member.kill_for(None, Outcome.failure(RecordKind.DIED, "closed", what))

    def _note_others(self, member: WorkerHandle) -> Iterator[Note]:
        """Say once in a run that a task writes where it should not: it may do harm elsewhere."""
        if member.channel.has_met_others and not self._is_other_noted:
            self._is_other_noted = True
            yield Note(
                f"a task in process {member.pid} has written to file descriptors that it did not "
                "open; what came from there is left out"
            )

    def _take_message(self, member: WorkerHandle, message: dict[str, Any]) -> Iterator[Event]:
        if "ready" in message:
            member.record_path = Path(message["ready"])
            self._has_started = True
        elif "broken" in message and not member.is_ready and self._has_started:
            # The study could be imported before: perhaps it is being edited, and is mended soon.
            self._start_error = message["broken"]["message"]
        elif "broken" in message:
            self._break(message["broken"])
        else:
            yield from self._take_answer(member, message)

    def _break(self, error: dict[str, Any]) -> None:
        """A worker cannot go on, and no other one could."""
        if error["type"] == "StorageError":
            trouble = StorageError(error["message"])
            trouble.errno = error["errno"]
            self._set_trouble(trouble)
        else:
            raise StudyError(error["message"])

    def _take_answer(self, member: WorkerHandle, answer: dict[str, Any]) -> Iterator[Event]:
        batch, ended, errors = member.batch, answer["ended"], answer["errors"]
        self._give_back(member.end_batch(ended))
        if member.killed_for:
            # Its task has ended after all; the signal may still be on its way.
            member.kill()
        if ended:
            self._starts.succeed()
            elapsed_s = time.monotonic() - member.batch_begun
            self._queue.learn(ended, elapsed_s)
            self._answered += ended
            self._answered_s += elapsed_s
        yield Ended(ended - len(errors))
        for index, error in errors.items():
            outcome = Outcome(RecordKind(error["kind"]), error["error"])
            yield self._failed(batch[int(index)], outcome)

    def _give_back(self, tasks: list[int]) -> None:
        if not self._draining:
            self._queue.give_back(tasks)

    def _failed(
        self, task: int, outcome: Outcome, *, duration_s: float = 0.0, recorded: bool = True
    ) -> Failed:
        will_retry = not self._draining and self._queue.retry(task, outcome.kind)
        return Failed(task, outcome.kind, outcome.error, duration_s, will_retry, recorded)

    # What becomes of those that die

    def _take_death(self, member: WorkerHandle) -> Iterator[Event]:
        """Find out what a worker that ended unasked had finished, and what it died of."""
        while member.channel.has_something() and (message := member.hear()) is not None:
            # It may have answered just before it ended.
            if message is not NOT_YET:
                yield from self._take_message(member, message)
        current = member.current()
        exit_code = self._reap(member)
        if member.tasks_run or current is not None or member.outcomes_on_disk():
            self._starts.succeed()
        else:
            yield from self._take_failed_start(member, exit_code)
        yield from self._settle_batch(member, current, exit_code)

    def _take_failed_start(self, member: WorkerHandle, exit_code: int) -> Iterator[Note]:
        by_study = not is_from_outside(exit_code)
        reason = cause_of_death(exit_code, self._oom_kills).error["message"]
        note = self._starts.fail(
            member.started, reason, by_study=by_study, detail=self._start_error
        )
        if note:
            yield Note(note)

    def _settle_batch(
        self, member: WorkerHandle, current: Current | None, exit_code: int
    ) -> Iterator[Event]:
        """Say how the tasks of a dead worker ended, blame the one that it was in, save the rest."""
        batch = member.unanswered()
        if not batch:
            return
        outcomes = member.outcomes_on_disk()
        yield Ended(sum(outcome.kind == RecordKind.DONE for outcome in outcomes.values()))
        for task, outcome in outcomes.items():
            if outcome.kind != RecordKind.DONE:
                yield self._failed(task, outcome)
        left = [task for task in batch if task not in outcomes]
        if current is not None and current.task in left:
            log = self._log_of(member)
            last = member.outcome_of(current.task, exit_code, self._oom_kills, log)
            if last is not None:
                left.remove(current.task)
                seconds = current.running_s
                yield self._failed(current.task, last, duration_s=seconds, recorded=False)
        self._give_back(left)

    # What is enforced

    def _watch(self) -> None:
        """Enforce the limits on running tasks; take back what is stuck behind a long one."""
        for member in self._members:
            self._sync(member)
            current = member.steady_current()
            if current is not None:
                self._check_limits(member, current)
                if current.running_s >= STUCK_S:
                    self._give_back(member.take_back_behind(current.index))
        for member in (*self._members, *self._dismissed):
            if member.is_overdue:
                member.kill()

    def _note_slow_import(self) -> Iterator[Note]:
        """Say once in a run that the study takes long: it may wait for what never comes."""
        for member in self._members:
            waited_s = time.monotonic() - member.started
            is_slow = not member.is_ready and waited_s >= SLOW_IMPORT_S
            if is_slow and not self._is_slow_import_noted:
                self._is_slow_import_noted = True
                log = self._order.folder.log_pattern("worker", member.pid)
                yield Note(
                    f"worker {member.pid} is still importing the study after {waited_s:.0f} s; "
                    f"what it prints is in {log}"
                )

    def _check_limits(self, member: WorkerHandle, current: Current) -> None:
        if member.killed_for:
            return
        timeout_s, memory_bytes = self._settings.timeout_s, self._settings.memory_bytes
        running_s = current.running_s
        if timeout_s is not None and running_s > timeout_s:
            message = f"still running after {running_s:.1f} s; the limit is {timeout_s:g} s"
            outcome = Outcome.failure(RecordKind.TIMED_OUT, "time limit", message)
            member.stop_for(current.task, outcome, self._log_of(member))
        elif memory_bytes is not None and (used := member.resident_bytes()) > memory_bytes:
            message = f"used {used / 1e6:,.0f} MB; the limit is {memory_bytes / 1e6:,.0f} MB"
            outcome = Outcome.failure(RecordKind.OVER_MEMORY, "memory limit", message)
            member.kill_for(current.task, outcome)

    def _log_of(self, member: WorkerHandle) -> Path:
        assert member.record_path is not None  # it was given a task
        return self._order.folder.log_path(member.record_path)

    def _set_trouble(self, error: StorageError) -> None:
        self._trouble = self._trouble or error


def _allow_descriptors(wanted: int) -> None:
    """Raise the limit of open files if so many workers would meet it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_ELSE
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(
            f"so many workers need {needed:,} open files, and {hard:,} are allowed: "
            "ask for fewer with --workers, or raise the limit (ulimit -n)"
        )
    if needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
