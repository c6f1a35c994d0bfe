"""The worker processes of a pool: started, ended, limited and synced."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..disk.durable import Syncer
from ..errors import StorageError
from ..runfolder.records import RecordKind
from .launch import LaunchOrder
from .settings import PoolSettings
from .worker_handle import Current, Outcome, WorkerHandle
from .worker_restarts import Starts

TICK_S = 0.1


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
        try:
            worker = WorkerHandle.start(self._order)
        except OSError as error:
            # Too many processes or open files, or too little memory: that may pass.
            reason = f"cannot start a worker: {error.strerror}"
            self.starts.fail(time.monotonic(), reason, by_study=False)
            return
        self.active.append(worker)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        self._selector.register(worker.sentinel, selectors.EVENT_READ, worker)

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

    def steady(self) -> Iterator[tuple[WorkerHandle, Current]]:
        """Workers with the task that each is in; record files that are new are synced from now."""
        for worker in self.active:
            self._sync(worker)
            current = worker.steady_current()
            if current is not None:
                yield worker, current

    def kill_overdue(self) -> None:
        """End those that were dismissed, or told to stop, and should have ended by now."""
        for worker in (*self.active, *self._dismissed):
            if worker.is_overdue:
                worker.kill()

    def check_limits(self, worker: WorkerHandle, current: Current, settings: PoolSettings) -> None:
        """End a worker whose task takes longer, or more memory, than it may."""
        if worker.killed_for:
            return
        timeout_s, memory_bytes = settings.timeout_s, settings.memory_bytes
        running_s = current.running_s
        if timeout_s is not None and running_s > timeout_s:
            message = f"still running after {running_s:.1f} s; the limit is {timeout_s:g} s"
            outcome = Outcome.failure(RecordKind.TIMED_OUT, "time limit", message)
            worker.stop_for(current.task, outcome, self.log_of(worker))
        elif memory_bytes is not None and (used := worker.resident_bytes()) > memory_bytes:
            message = f"used {used / 1e6:,.0f} MB; the limit is {memory_bytes / 1e6:,.0f} MB"
            outcome = Outcome.failure(RecordKind.OVER_MEMORY, "memory limit", message)
            worker.kill_for(current.task, outcome)

    def log_of(self, worker: WorkerHandle) -> Path:
        """Where a worker that was given a task writes what that prints."""
        assert worker.record_path is not None  # it was given a task
        return self._order.folder.log_path(worker.record_path)
