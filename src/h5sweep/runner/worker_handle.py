"""A worker process, as its coordinator sees it: its batch, its position, how it ended.

Its end has three words. An idle worker is *dismissed*: it is given no more and ends by itself. A
worker is *killed*: it ends at once, wherever it is. A worker that has ended, however that came, is
*reaped*: what its tasks left behind ends too, and nothing is held open for it any longer.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..base.new_process import python_command, signal_name
from ..disk.durable import storage_error
from ..runfolder.layout import RunFolder
from ..runfolder.records import FAILURES, KIND, TASK, RecordFile, RecordKind, Scan
from .channel import Channel, is_readable
from .crash_stacks import asked_stack, crash_stack, end_with_stack, size_bytes
from .settings import THREAD_VARIABLES, WORKER_VARIABLE
from .worker import WorkerOrder
from .worker_position import NO_END, WorkerPosition

EXIT_S = 5.0
STACK_S = 1.0


@dataclass(frozen=True)
class LaunchOrder:
    """What every worker of a run has in common."""

    folder: RunFolder
    function: int  # the descriptor of what `hand_over` has packed
    threads: int
    environment: Mapping[str, str]
    part: str = ""  # which part of a sweep they work for
    place: str | None = None  # the folder in which they work, if not that of this process
    dealt: Mapping[str, Sequence[str]] = field(default_factory=dict)  # variables, value by value
    first_number: int = 0  # of its workers, as they find it in their environment

    def start(self, connection: int, slot: int, number: int) -> subprocess.Popen[bytes]:
        """Start a new interpreter that runs `main` of `worker`."""
        output = str(self.folder.output)
        order = WorkerOrder(output, connection, slot, self.function, os.getpid(), self.part)
        # Each library's threads are limited to this worker's share of cores.
        defaults = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        # Sets of texts are in one order in all of them, today and tomorrow.
        defaults["PYTHONHASHSEED"] = "0"
        # A session of its own: Ctrl-C in the terminal reaches the coordinator alone.
        return subprocess.Popen(
            python_command("h5sweep.runner.worker", order.to_json()),
            pass_fds={connection, slot, self.function},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=self.place,
            env={**defaults, **self.environment, **self._own_variables(self.first_number + number)},
        )

    def _own_variables(self, number: int) -> dict[str, str]:
        """What differs between workers: which one it is, and what falls to it of each variable."""
        dealt = {name: values[number % len(values)] for name, values in self.dealt.items()}
        return {WORKER_VARIABLE: str(number), **dealt}


@dataclass(frozen=True, slots=True)
class Current:
    """A task that is running now; `index` is its place in the batch of its worker."""

    task: int
    index: int
    pid: int
    running_s: float


class Outcome(NamedTuple):
    """How a task ended, and what is known about that if it failed."""

    kind: RecordKind
    error: dict[str, str]

    @classmethod
    def failure(cls, kind: RecordKind, cause: str, message: str) -> Outcome:
        return cls(kind, {"type": cause, "message": message, "where": "", "traceback": ""})


@dataclass(eq=False)
class WorkerHandle:
    """A worker of a pool. `sentinel` is readable once its process has ended."""

    folder: RunFolder
    process: subprocess.Popen[bytes]
    channel: Channel
    slot: WorkerPosition
    sentinel: int
    number: int  # from 0; who replaces it has the same
    started: float = field(default_factory=time.monotonic)
    record_path: Path | None = None
    batch: list[int] = field(default_factory=list)
    batch_begun: float = 0.0
    tasks_run: int = 0
    killed_for: Outcome | None = None
    ends_by: float = math.inf  # or it is killed
    is_dismissed: bool = False
    is_synced: bool = False
    _scan_from: int = 0
    _seen_position: tuple[int, int] | None = None
    _taken_back_at: int | None = None
    _killed_in: int | None = None
    _stack_start: int = sys.maxsize  # of its log; it was not asked for a stack

    @classmethod
    def start(cls, order: LaunchOrder, number: int) -> WorkerHandle:
        """Start a worker process; it says when it is ready."""
        ours, theirs = Channel.make_pair()
        with ours, theirs, WorkerPosition.create() as (slot, descriptor):
            process = order.start(theirs.fileno(), descriptor, number)
            sentinel = os.pidfd_open(process.pid)
            return cls(order.folder, process, Channel(ours.detach()), slot, sentinel, number)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it has imported the study and said where its records will be."""
        return self.record_path is not None

    @property
    def log(self) -> Path:
        """Where it writes what its tasks print, once it was given one."""
        assert self.record_path is not None  # it was given a task
        return self.folder.log_path(self.record_path)

    @property
    def is_idle(self) -> bool:
        return self.is_ready and not self.batch

    # What it is given

    def give(self, tasks: list[int]) -> None:
        """Hand it a batch. If it has died, its sentinel says so next, and `batch` what it had."""
        self.batch = tasks
        self.batch_begun = time.monotonic()
        self._taken_back_at = None
        self.slot.end = NO_END
        self.channel.send(tasks)

    def end_batch(self, ended: int) -> list[int]:
        """Make it idle after so many tasks of its batch; return the rest. StorageError if its
        record file is not there any more, or the disk does not say.
        """
        assert self.record_path is not None  # it said so before it was given a batch
        left = self.batch[ended : self._taken_back_at]
        self.batch = []
        self.tasks_run += ended
        try:
            self._scan_from = self.record_path.stat().st_size
        except OSError as error:
            why = "it has been removed" if error.errno == errno.ENOENT else error.strerror
            raise storage_error(self.record_path, OSError(error.errno, why)) from error
        return left

    def begin_no_more(self) -> None:
        """Have it end its batch after the task that it is in."""
        position = self.slot.position()
        self.slot.end = position[0] + 1 if position else 0

    def take_back_behind(self, index: int) -> list[int]:
        """Take back the tasks behind the one at `index`, by asking twice.

        The first time nothing is returned: the worker may be about to begin the next. Asked again
        while it is in the same task, it has seen where its batch ends now.
        """
        end = index + 1
        if end >= len(self.batch) or self._taken_back_at is not None:
            return []
        if self.slot.end != end:
            self.slot.end = end
            return []
        self._taken_back_at = end
        return self.batch[end:]

    @property
    def other_writers_text(self) -> str:
        """That a task of it writes where it should not: it may do harm elsewhere."""
        if not self.channel.has_met_others:
            return ""
        return (
            f"a task in process {self.pid} has written to file descriptors that it did not "
            "open; what came from there is left out"
        )

    # Where it is

    def current(self) -> Current | None:
        """The task that it is in."""
        return self._current_at(self.slot.position())

    def steady_current(self) -> Current | None:
        """The task that it is in, if it was in it at the last look too.

        Only what two looks agree on counts: the two numbers in the slot are not written as one.
        """
        position = self.slot.position()
        is_steady, self._seen_position = position == self._seen_position, position
        return self._current_at(position) if is_steady else None

    def _current_at(self, position: tuple[int, int] | None) -> Current | None:
        if position is None or position[0] >= len(self.batch):
            return None
        index, begun_ns = position
        running_s = (time.monotonic_ns() - begun_ns) / 1e9
        return Current(self.batch[index], index, self.pid, running_s)

    # How it ends

    def dismiss(self) -> None:
        """Have it end by itself; it makes its record file durable on the way out.

        What a task left behind, such as a thread, may keep it: then it is overdue after EXIT_S.
        """
        self.is_dismissed = True
        self.ends_by = time.monotonic() + EXIT_S
        self.channel.close()

    def kill(self) -> None:
        """End it at once, with whatever its tasks have started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill_for(self, task: int | None, outcome: Outcome) -> None:
        """Kill it; the task that it is in has ended so. What was said first stays said."""
        self._blame(task, outcome)
        self.kill()

    def stop_for(self, task: int, outcome: Outcome) -> None:
        """The same, but have it leave its stack."""
        self._blame(task, outcome)
        self.end_with_stack()

    def end_with_stack(self) -> None:
        """End it, having left its stack in its log; if it refuses, it is overdue after STACK_S."""
        self._stack_start = size_bytes(self.log)
        self.ends_by = time.monotonic() + STACK_S
        end_with_stack(self.pid)

    def stack(self) -> dict[str, str]:
        """Where it was when it was ended, if it left that: a part of what a failure says."""
        return asked_stack(self.log, self._stack_start)

    def _blame(self, task: int | None, outcome: Outcome) -> None:
        if self.killed_for is None:
            self.killed_for, self._killed_in = outcome, task

    def outcome_of(self, task: int, exit_code: int, oom_kills: OomKills) -> Outcome | None:
        """How the task has ended that it died in; None if it was killed for an earlier one."""
        if self.killed_for is None:
            kind, error = cause_of_death(exit_code, oom_kills)
            return Outcome(kind, {**error, **crash_stack(self.log)})
        if self._killed_in not in (task, None):
            return None
        kind, error = self.killed_for
        return Outcome(kind, {**error, **self.stack()})

    def has_ended(self, wait_s: float) -> bool:
        return is_readable(self.sentinel, wait_s)

    def reap(self) -> int:
        """Wait for its end and leave nothing of it; return its exit code, negative for a signal."""
        self.kill()
        self.channel.close()
        exit_code = self.process.wait()
        self.slot.close()
        os.close(self.sentinel)
        return exit_code

    def unanswered(self) -> list[int]:
        """What it has of a batch that it has not answered."""
        return self.batch[: self._taken_back_at]

    def outcomes_on_disk(self) -> dict[int, Outcome]:
        """How tasks of its last batch ended, from what it left in its record file."""
        if self.record_path is None or not self.record_path.exists():
            return {}
        return _read_outcomes(self.record_path, self._scan_from)


def _read_outcomes(path: Path, start: int) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    with RecordFile(path) as file:
        for offset, frame in file.scan(Scan(), start=start):
            if frame[KIND] == RecordKind.DONE:
                outcomes[frame[TASK]] = Outcome(RecordKind.DONE, {})
            elif frame[KIND] in FAILURES:
                error = file.header(offset, frame)["error"]
                outcomes[frame[TASK]] = Outcome(RecordKind(frame[KIND]), error)
    return outcomes


class OomKills:
    """How many processes the kernel has ended for want of memory."""

    def __init__(self) -> None:
        self._known = self._count()

    def have_risen(self) -> bool:
        """Whether there are more than when this was last asked."""
        known, self._known = self._known, self._count()
        return self._known > known

    def _count(self) -> int:
        try:
            text = Path("/proc/vmstat").read_text()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in text.splitlines() if "oom_kill " in line), 0)


def is_from_outside(exit_code: int) -> bool:
    """Whether a worker was ended by a signal that others send, not by what it did itself."""
    return -exit_code in _SENT_BY_OTHERS


def cause_of_death(exit_code: int, oom_kills: OomKills) -> Outcome:
    """What is known about why a worker ended by itself, and not after its last batch."""
    if exit_code >= 0:
        message = f"the process ended with exit code {exit_code}"
        return Outcome.failure(RecordKind.DIED, "exit", message)
    name = signal_name(-exit_code)
    reason = _SIGNAL_REASONS.get(name, "")
    if name == "SIGKILL" and oom_kills.have_risen():
        reason = "probably by the kernel, out of memory (its OOM count rose)"
    message = f"the process was ended by {name}" + (f": {reason}" if reason else "")
    return Outcome.failure(RecordKind.DIED, name, message)


_SENT_BY_OTHERS = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)
_SIGNAL_REASONS = {
    "SIGABRT": "it aborted itself",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic error",
    "SIGILL": "illegal instruction",
    "SIGKILL": "by kill -9, or by the kernel, out of memory",
    "SIGSEGV": "segmentation fault",
}
