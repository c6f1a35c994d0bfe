"""Supervised worker processes on this machine. Knows records, but neither HDF5 nor plans.

What happens to tasks is kept apart from what happens to processes: `task_queue` decides which task
runs when and how often, `_Member` is one process and what it was given, `Pool` watches them.

Each worker has its own connection and its own shared memory: a worker that dies, at whatever
instant, can leave no lock behind that another one waits for. The task that a dead worker was in is
read from the slot and from the worker's record file, never guessed, so exactly that task is blamed
and the rest of its batch runs elsewhere.
"""

from __future__ import annotations

import json
import os
import resource
import select
import selectors
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .durable import Syncer
from .errors import StorageError, StudyError, UsageError
from .launch import (
    Forker,
    Launcher,
    LaunchOrder,
    Spawner,
    TooManyThreadsError,
    WorkerProcess,
    describe_exit,
    kill_group,
    signal_name,
    start_worker,
)
from .records import FAILURES, KIND, TASK, Kind, RecordFile, Scan
from .settings import PoolSettings
from .slot import NO_END, Slot
from .task_queue import LARGEST_BATCH, TaskQueue

STUCK_S = 0.5
EXIT_S = 5.0
CLOSING_S = 0.5
TICK_S = 0.1
STARTS_WITHOUT_SUCCESS = 3
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
    kind: Kind
    error: dict[str, str]
    duration_s: float
    will_retry: bool
    recorded: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should hear once."""

    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened for a moment: time to redraw."""


Event = Ended | Failed | Note | Tick


@dataclass(frozen=True, slots=True)
class Current:
    """A task that is running now."""

    task: int
    pid: int
    running_s: float


@dataclass
class _Member:
    """One worker process, as its coordinator sees it."""

    process: WorkerProcess
    connection: Connection
    slot: Slot
    sentinel: int
    record_path: Path | None = None
    batch: list[int] = field(default_factory=list)
    batch_begun: float = 0.0
    tasks_run: int = 0
    leaves_by: float = 0.0
    scan_from: int = 0
    seen_position: tuple[int, int] | None = None
    taken_back_at: int | None = None
    killed_for: tuple[Kind, dict[str, str]] | None = None
    is_synced: bool = False

    @property
    def is_idle(self) -> bool:
        return self.record_path is not None and not self.batch

    def current(self) -> tuple[int, float] | None:
        """The task it is in, and for how many seconds."""
        position = self.slot.position()
        if position is None or position[0] >= len(self.batch):
            return None
        index, begun_ns = position
        return self.batch[index], (time.monotonic_ns() - begun_ns) / 1e9

    def give(self, tasks: list[int]) -> None:
        self.batch = tasks
        self.batch_begun = time.monotonic()
        self.taken_back_at = None
        self.slot.end = NO_END
        self.connection.send_bytes(json.dumps(tasks).encode())

    def close(self) -> None:
        self.connection.close()
        self.slot.close()
        os.close(self.sentinel)


class Pool:
    """Runs tasks in worker processes and says what happened to each.

    `run` yields events until every task has ended, or the pool was told to stop. Whatever it
    yields as done is in a record file that survives SIGKILL, and is durable within a second.
    """

    def __init__(self, order: LaunchOrder, settings: PoolSettings) -> None:
        self._order = order
        self._settings = settings
        self._selector = selectors.DefaultSelector()
        self._members: dict[int, _Member] = {}
        self._leaving: dict[int, _Member] = {}
        self._failed_starts = 0
        self._has_started = False
        self._start_error = ""
        self._draining = False
        self._stopping = False
        self._trouble: StorageError | None = None
        self._oom_kills = _oom_kills()
        _allow_descriptors(DESCRIPTORS_EACH * settings.workers)
        self._queue = TaskQueue((), settings)
        self._launcher: Launcher = Spawner(order)
        self._syncer = Syncer(self._set_trouble)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End every worker; what they recorded is durable afterwards, or StorageError is raised."""
        self._end_running()
        for member in list(self._leaving.values()):
            if not _has_ended(member, max(member.leaves_by - time.monotonic(), 0)):
                kill_group(member.process.pid)
            self._let_go(member)
        self._selector.close()
        self._launcher.close()
        self._syncer.close()
        if error is None and self._trouble is not None:
            raise self._trouble

    def warm_up(self, tasks: int) -> None:
        """Start workers for so many tasks while it is still being found out which they are."""
        if self._settings.start == "spawn":
            for _ in range(min(self._settings.workers, tasks)):
                self._start()

    def run(self, tasks: Iterable[int]) -> Iterator[Event]:
        """Run all tasks. StorageError if results can no longer be kept: what was done is kept."""
        self._queue = TaskQueue(tasks, self._settings)
        try:
            if self._settings.start == "forkserver":
                self._launcher, notes = _forker(self._order)
                yield from notes
            yield from self._supervise()
        finally:
            self._end_running()
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
        found = ((m.current(), m.process.pid) for m in self._members.values())
        return [Current(c[0], pid, c[1]) for c, pid in found if c is not None]

    def _supervise(self) -> Iterator[Event]:
        while not self._stopping and self._trouble is None:
            if self._draining:
                self._take_back_all()
            self._fill()
            if not self._members:
                return
            yield from self._wait()
            self._watch()
            yield Tick()

    def _take_back_all(self) -> None:
        self._queue.clear()
        for member in self._members.values():
            position = member.slot.position()
            member.slot.end = position[0] + 1 if position else 0

    def _fill(self) -> None:
        """Give every idle worker a batch, start workers for the rest, let go of those spare."""
        for member in list(self._members.values()):
            if member.is_idle:
                self._give_or_end(member)
        busy = sum(1 for m in self._members.values() if not m.is_idle)
        wanted = min(self._settings.workers, busy + len(self._queue))
        while len(self._members) < wanted:
            self._start()

    def _give_or_end(self, member: _Member) -> None:
        limit = self._settings.tasks_per_worker
        left = LARGEST_BATCH if limit is None else limit - member.tasks_run
        batch = self._queue.next_batch(left) if left > 0 else []
        if batch:
            # If it has died, its sentinel says so next, and the batch is taken back then.
            with suppress(ConnectionError):
                member.give(batch)
        elif left <= 0 or not len(self._queue):
            self._dismiss(member)

    def _dismiss(self, member: _Member) -> None:
        """Let an idle worker end; it makes its file durable on the way out.

        Nobody waits for it here: what a task left behind may keep it from ending by itself.
        """
        del self._members[member.process.pid]
        self._selector.unregister(member.connection)
        member.connection.close()
        member.leaves_by = time.monotonic() + EXIT_S
        self._leaving[member.sentinel] = member

    def _let_go(self, member: _Member) -> None:
        """Take leave of a worker that has ended, and end what its tasks left behind."""
        del self._leaving[member.sentinel]
        self._selector.unregister(member.sentinel)
        kill_group(member.process.pid)
        member.process.exit_code()
        self._close(member)

    def _close(self, member: _Member) -> None:
        member.close()
        self._sync(member)
        if member.record_path is not None:
            self._syncer.remove(member.record_path)

    def _sync(self, member: _Member) -> None:
        """Have a worker's record file synced from now on, as soon as it is there."""
        if not member.is_synced and member.record_path is not None and member.record_path.exists():
            member.is_synced = True
            self._syncer.add(member.record_path)

    def _start(self) -> None:
        process, connection, slot = start_worker(self._launcher)
        member = _Member(process, connection, slot, os.pidfd_open(process.pid))
        self._members[process.pid] = member
        self._selector.register(connection, selectors.EVENT_READ, member)
        self._selector.register(member.sentinel, selectors.EVENT_READ, member)

    def _forget(self, member: _Member) -> None:
        del self._members[member.process.pid]
        self._selector.unregister(member.connection)
        self._selector.unregister(member.sentinel)

    def _wait(self) -> Iterator[Event]:
        """Take what workers say, then what became of those that ended."""
        ready = self._selector.select(TICK_S)
        ended = [key.data for key, _ in ready if key.fd == key.data.sentinel]
        for key, _ in ready:
            if key.fd != key.data.sentinel:
                yield from self._hear(key.data)
        for member in ended:
            if member.sentinel in self._leaving:
                self._let_go(member)
            else:
                yield from self._bury(member)

    def _hear(self, member: _Member) -> Iterator[Event]:
        try:
            message = json.loads(member.connection.recv_bytes())
        except (EOFError, OSError):
            self._end_deaf(member)
        else:
            yield from self._take_message(member, message)

    def _take_message(self, member: _Member, message: dict[str, Any]) -> Iterator[Event]:
        if "ready" in message:
            member.record_path = Path(message["ready"])
            self._failed_starts = 0
            self._has_started = True
        elif "broken" in message and member.record_path is None and self._has_started:
            # The study could be imported before: perhaps it is being edited, and is mended soon.
            self._start_error = message["broken"]["message"]
        elif "broken" in message:
            self._break(message["broken"])
        else:
            yield from self._take_answer(member, message)

    def _end_deaf(self, member: _Member) -> None:
        """A worker without a connection is about to end, or else its task has closed it."""
        if not _has_ended(member, CLOSING_S):
            message = "the task closed file descriptors that were not its own"
            self._kill(member, Kind.DIED, "closed", message)

    def _break(self, error: dict[str, Any]) -> None:
        """A worker cannot go on, and no other one could."""
        if error["type"] == "StorageError":
            trouble = StorageError(error["message"])
            trouble.errno = error["errno"]
            self._set_trouble(trouble)
        else:
            raise StudyError(error["message"])

    def _take_answer(self, member: _Member, answer: dict[str, Any]) -> Iterator[Event]:
        batch, ended = member.batch, answer["ended"]
        member.batch = []
        assert member.record_path is not None  # it said so before it was given a batch
        member.scan_from = member.record_path.stat().st_size
        member.tasks_run += ended
        left = batch[ended : member.taken_back_at]
        if not self._draining:
            self._queue.give_back(left)
        if ended:
            self._queue.learn(ended, time.monotonic() - member.batch_begun)
        errors = answer["errors"]
        yield Ended(ended - len(errors))
        for index, error in errors.items():
            yield self._failed(batch[int(index)], Kind(error["kind"]), error["error"], 0.0, True)

    def _failed(
        self, task: int, kind: Kind, error: dict[str, str], duration_s: float, recorded: bool
    ) -> Failed:
        will_retry = not self._draining and self._queue.retry(task, kind)
        return Failed(task, kind, error, duration_s, will_retry, recorded)

    def _bury(self, member: _Member) -> Iterator[Event]:
        """Find out what a worker that ended had finished, and what it died of."""
        while member.connection.poll():
            # It may have answered just before it ended.
            try:
                message = json.loads(member.connection.recv_bytes())
            except (EOFError, OSError):
                break
            yield from self._take_message(member, message)
        self._forget(member)
        current = member.current()
        kill_group(member.process.pid)
        exit_code = member.process.exit_code()
        self._close(member)
        if member.record_path is None:
            self._count_failed_start(exit_code)
        yield from self._settle_batch(member, current, exit_code)

    def _count_failed_start(self, exit_code: int | None) -> None:
        self._failed_starts += 1
        if self._failed_starts >= STARTS_WITHOUT_SUCCESS:
            raise StudyError(
                f"{self._failed_starts} workers in a row {describe_exit(exit_code)} before their "
                f"first task: look into {self._order.logs_path}"
                + (f"\n{self._start_error}" if self._start_error else "")
            )

    def _settle_batch(
        self, member: _Member, current: tuple[int, float] | None, exit_code: int | None
    ) -> Iterator[Event]:
        batch = member.batch[: member.taken_back_at]
        if not batch or member.record_path is None:
            self._queue.give_back(batch)
            return
        outcomes = _outcomes_on_disk(member.record_path, member.scan_from)
        yield Ended(sum(kind == Kind.DONE for kind, _ in outcomes.values()))
        for task, (kind, error) in outcomes.items():
            if kind != Kind.DONE:
                yield self._failed(task, kind, error, 0.0, True)
        left = [task for task in batch if task not in outcomes]
        if current is not None and current[0] in left and exit_code is not None:
            left.remove(current[0])
            kind, error = member.killed_for or (Kind.DIED, self._cause(exit_code))
            yield self._failed(current[0], kind, error, current[1], False)
        if not self._draining:
            self._queue.give_back(left)

    def _cause(self, exit_code: int) -> dict[str, str]:
        """What is known about why a process ended by itself."""
        if exit_code >= 0:
            return _error("exit", f"the process ended with exit code {exit_code}")
        name = signal_name(-exit_code)
        reason = _SIGNAL_REASONS.get(name, "")
        if name == "SIGKILL":
            reason = "killed from outside"
            if (kills := _oom_kills()) > self._oom_kills:
                self._oom_kills = kills
                reason = "probably by the kernel, for want of memory (its OOM count rose)"
        return _error(name, f"the process was ended by {name}" + (f": {reason}" if reason else ""))

    def _watch(self) -> None:
        """Enforce the limits on running tasks; take back what is stuck behind a long one."""
        for member in self._members.values():
            self._sync(member)
            position = member.slot.position()
            settled, member.seen_position = position == member.seen_position, position
            # Only what two looks agree on counts: the two numbers are not written as one.
            if position is None or not settled or (current := member.current()) is None:
                continue
            self._check_limits(member, current[1])
            self._take_back_behind(member, position[0], current[1])
        for member in self._leaving.values():
            if time.monotonic() > member.leaves_by:
                kill_group(member.process.pid)

    def _check_limits(self, member: _Member, running_s: float) -> None:
        if member.killed_for:
            return
        timeout_s, memory_bytes = self._settings.timeout_s, self._settings.memory_bytes
        if timeout_s is not None and running_s > timeout_s:
            message = f"still running after {running_s:.1f} s; the limit is {timeout_s:g} s"
            self._kill(member, Kind.TIMED_OUT, "time limit", message)
        elif memory_bytes is not None and (used := _resident_bytes(member)) > memory_bytes:
            message = f"used {used / 1e6:,.0f} MB; the limit is {memory_bytes / 1e6:,.0f} MB"
            self._kill(member, Kind.OVER_MEMORY, "memory limit", message)

    def _kill(self, member: _Member, kind: Kind, cause: str, message: str) -> None:
        member.killed_for = member.killed_for or (kind, _error(cause, message))
        kill_group(member.process.pid)

    def _take_back_behind(self, member: _Member, index: int, running_s: float) -> None:
        """Give the tasks behind a long one to others; twice, so that the worker has seen it."""
        end = index + 1
        if running_s < STUCK_S or end >= len(member.batch) or member.taken_back_at is not None:
            return
        if member.slot.end != end:
            member.slot.end = end
        else:
            member.taken_back_at = end
            self._queue.give_back(member.batch[end:])

    def _set_trouble(self, error: StorageError) -> None:
        self._trouble = self._trouble or error

    def _end_running(self) -> None:
        for member in list(self._members.values()):
            kill_group(member.process.pid)
            self._dismiss(member)
            self._let_go(member)


def _forker(order: LaunchOrder) -> tuple[Launcher, list[Note]]:
    forker = Forker(order)
    try:
        forker.start()
    except TooManyThreadsError as error:
        text = f"importing the study starts {error} threads, so workers are spawned, not forked"
        return Spawner(order), [Note(text)]
    return forker, []


def _outcomes_on_disk(path: Path, start: int) -> dict[int, tuple[Kind, dict[str, str]]]:
    """How the tasks of a worker's last batch ended, from what it left in its file since `start`."""
    outcomes: dict[int, tuple[Kind, dict[str, str]]] = {}
    if not path.exists():
        return outcomes
    with RecordFile(path) as file:
        for offset, frame in file.scan(Scan(), start=start):
            if frame[KIND] == Kind.DONE:
                outcomes[frame[TASK]] = (Kind.DONE, {})
            elif frame[KIND] in FAILURES:
                outcomes[frame[TASK]] = (Kind(frame[KIND]), file.header(offset, frame)["error"])
    return outcomes


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


def _error(kind: str, message: str) -> dict[str, str]:
    return {"type": kind, "message": message, "where": "", "traceback": ""}


def _has_ended(member: _Member, wait_s: float) -> bool:
    poll = select.poll()  # select.select would refuse a descriptor beyond 1023
    poll.register(member.sentinel, select.POLLIN)
    return bool(poll.poll(1000 * wait_s))


def _resident_bytes(member: _Member) -> int:
    try:
        fields = Path(f"/proc/{member.process.pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since boot."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if "oom_kill " in line), 0)


_SIGNAL_REASONS = {
    "SIGSEGV": "segmentation fault",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic error",
    "SIGILL": "illegal instruction",
    "SIGABRT": "it aborted itself",
}
