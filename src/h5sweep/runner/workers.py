"""The worker processes of a pool: started, ended, limited and synced.

A worker that ends before its first task was ended by the study, which is a mistake in it, or from
outside: by somebody, by a batch system, by the kernel for want of memory. That may pass, so it is
tried again for longer, after pauses that grow. Workers that were started together count once.
"""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from ..base.process_id import resident_bytes
from ..disk.durable import Syncer
from ..errors import StartError, StorageError, StudyError, SweepError
from ..runfolder.records import RecordKind
from .settings import PoolSettings
from .worker_handle import (
    Current,
    LaunchOrder,
    Outcome,
    WorkerHandle,
    is_from_outside,
)

TICK_S = 0.1
SLOW_IMPORT_S = 30.0
MOST_BY_STUDY = 3  # failures in a row
MOST_FROM_OUTSIDE = 9
NOTED_FROM_OUTSIDE = 3
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


class Workers:
    """The processes of one pool. What they record is synced for as long as they are there."""

    def __init__(self, order: LaunchOrder, on_trouble: Callable[[StorageError], None]) -> None:
        """`on_trouble` is told, in another thread, of a sync that failed."""
        self._order = order
        self._selector = selectors.DefaultSelector()
        self.active: list[WorkerHandle] = []  # that have a task or may be given one
        self._dismissed: list[WorkerHandle] = []  # that end by themselves
        self.starts = Starts(order.folder.logs_path)
        self._syncer = Syncer(on_trouble)

    def close(self) -> None:
        """End every worker; what they recorded is durable afterwards, or there was trouble."""
        self.kill_all()
        for worker in list(self._dismissed):
            if not worker.has_ended(max(worker.ends_by - time.monotonic(), 0)):
                worker.kill()
            self.reap(worker)
        self._selector.close()
        self._syncer.close()

    def start(self) -> None:
        """Start one more; one that cannot be started is noted in `starts`."""
        taken = {worker.number for worker in self.active}
        number = next(number for number in count() if number not in taken)
        try:
            worker = WorkerHandle.start(self._order, number)
        except OSError as error:
            # Too many processes or open files, or too little memory: that may pass.
            reason = f"cannot start a worker: {error.strerror}"
            self.starts.fail(time.monotonic(), reason, by_study=False)
            return
        self.active.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        self._selector.register(worker.sentinel, selectors.EVENT_READ, worker)

    def fail_start(
        self, worker: WorkerHandle, exit_code: int, reason: str, detail: str
    ) -> str | None:
        """Note that a worker ended before its first task; return what the user should hear."""
        by_study = not is_from_outside(exit_code)
        return self.starts.fail(worker.started, reason, by_study=by_study, detail=detail)

    def dismiss(self, worker: WorkerHandle) -> None:
        """Have an idle worker end by itself. Nobody waits for it: `wait` meets its end."""
        self.active.remove(worker)
        self._selector.unregister(worker.channel)
        self._dismissed.append(worker)
        worker.dismiss()

    def kill_all(self) -> None:
        """End what is running; that is no task's failure."""
        for worker in self.active:
            worker.kill()
        for worker in list(self.active):
            self.reap(worker)

    def reap(self, worker: WorkerHandle) -> int:
        """Leave nothing of a worker that has ended but its record file; return its exit code."""
        if worker.is_dismissed:
            self._dismissed.remove(worker)
        else:
            self.active.remove(worker)
            self._selector.unregister(worker.channel)
        self._selector.unregister(worker.sentinel)
        exit_code = worker.reap()
        self._sync(worker)
        if worker.record_path is not None:
            self._syncer.remove(worker.record_path)
        return exit_code

    def _sync(self, worker: WorkerHandle) -> None:
        """Have a worker's record file synced from now on, as soon as it is there."""
        if not worker.is_synced and worker.record_path is not None and worker.record_path.exists():
            worker.is_synced = True
            self._syncer.add(worker.record_path)

    def wait(self) -> tuple[list[WorkerHandle], list[WorkerHandle]]:
        """Wait for a moment; return those that say something, and those that have ended."""
        ready = self._selector.select(TICK_S)
        saying = [key.data for key, _ in ready if key.fd != key.data.sentinel]
        return saying, [key.data for key, _ in ready if key.fd == key.data.sentinel]

    def are_busy(self) -> bool:
        """Whether one has tasks; it may be about to begin one that is not seen to run yet."""
        return any(worker.batch for worker in self.active)

    def running(self) -> list[tuple[WorkerHandle, Current]]:
        """Workers with the task that each is in."""
        return [(w, current) for w in self.active if (current := w.current()) is not None]

    def steady(self) -> Iterator[tuple[WorkerHandle, Current]]:
        """The same, if two looks agree; record files that are new are synced from now."""
        for worker in self.active:
            self._sync(worker)
            current = worker.steady_current()
            if current is not None:
                yield worker, current

    def have_results_untold(self) -> bool:
        """Whether one has finished a task of a batch that it has not answered yet."""
        return any(
            outcome.kind == RecordKind.DONE
            for worker in self.active
            for outcome in worker.outcomes_on_disk().values()
        )

    def kill_overdue(self) -> None:
        """End those that were dismissed, or told to stop, and should have ended by now."""
        for worker in (*self.active, *self._dismissed):
            if time.monotonic() > worker.ends_by:
                worker.kill()

    def slow_import_text(self) -> str:
        """That a study takes long to import: it may wait for what never comes."""
        for worker in self.active:
            waited_s = time.monotonic() - worker.started
            if not worker.is_ready and waited_s >= SLOW_IMPORT_S:
                log = self._order.folder.log_pattern("worker", worker.pid)
                return (
                    f"worker {worker.pid} is still importing the study after {waited_s:.0f} s; "
                    f"what it prints is in {log}"
                )
        return ""

    def check_limits(self, worker: WorkerHandle, current: Current, settings: PoolSettings) -> None:
        """End a worker whose task takes longer, or more memory, than it may."""
        if worker.killed_for:
            return
        timeout_s, memory_bytes = settings.timeout_s, settings.memory_bytes
        running_s = current.running_s
        if timeout_s is not None and running_s > timeout_s:
            message = f"still running after {running_s:.1f} s; the limit is {timeout_s:g} s"
            outcome = Outcome.failure(RecordKind.TIMED_OUT, "time limit", message)
            worker.stop_for(current.task, outcome)
        elif memory_bytes is not None and (used := resident_bytes(worker.pid)) > memory_bytes:
            message = f"used {used / 1e6:,.0f} MB; the limit is {memory_bytes / 1e6:,.0f} MB"
            outcome = Outcome.failure(RecordKind.OVER_MEMORY, "memory limit", message)
            worker.kill_for(current.task, outcome)


class Starts:
    """The starts since a worker last got to a task."""

    def __init__(self, logs_path: Path) -> None:
        self._logs_path = logs_path
        self._by_study = self._from_outside = 0
        self._last_failure = -math.inf
        self._next_start = -math.inf
        self._reason = self._detail = ""

    @property
    def is_due(self) -> bool:
        """Whether a worker may be started now."""
        return time.monotonic() >= self._next_start

    @property
    def is_hopeless(self) -> bool:
        return self._by_study >= MOST_BY_STUDY or self._from_outside >= MOST_FROM_OUTSIDE

    def succeed(self) -> None:
        """A worker has got to a task."""
        self._by_study = self._from_outside = 0
        self._next_start = -math.inf

    def fail(self, started: float, reason: str, *, by_study: bool, detail: str = "") -> str | None:
        """A worker that was started then has got to none; return what the user should hear."""
        if started < self._last_failure:
            return None
        self._reason, self._detail = reason, detail
        self._by_study += by_study
        self._from_outside += not by_study
        failures = self._by_study + self._from_outside
        self._last_failure = time.monotonic()
        pause_s = min(FIRST_PAUSE_S * 2 ** (failures - 1), LONGEST_PAUSE_S)
        self._next_start = self._last_failure + pause_s
        if by_study or self._from_outside != NOTED_FROM_OUTSIDE:
            return None
        return f"{self._text(self._from_outside)}; trying again, with longer and longer pauses"

    def error(self) -> SweepError:
        """Why no more are started."""
        if self._by_study >= MOST_BY_STUDY:
            advice = f"read the logs in {self._logs_path}"
            return StudyError(f"{self._text(self._by_study)}: {advice}\n{self._detail}".rstrip())
        return StartError(self._text(self._from_outside))

    def _text(self, failures: int) -> str:
        return f"{failures} times in a row no worker reached its first task ({self._reason})"
