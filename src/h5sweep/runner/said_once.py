"""Messages that a user should see once per run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from .events import Note
from .launch import LaunchOrder
from .worker_handle import WorkerHandle

SLOW_IMPORT_S = 30.0


class SaidOnce:
    """Notes on what tasks and studies do, each said once in a run."""

    def __init__(self, order: LaunchOrder) -> None:
        self._order = order
        self._is_slow_import_said = False
        self._is_other_said = False

    def slow_import(self, workers: Iterable[WorkerHandle]) -> Iterator[Note]:
        """Say once in a run that the study takes long: it may wait for what never comes."""
        for worker in workers:
            waited_s = time.monotonic() - worker.started
            is_slow = not worker.is_ready and waited_s >= SLOW_IMPORT_S
            if is_slow and not self._is_slow_import_said:
                self._is_slow_import_said = True
                log = self._order.folder.log_pattern("worker", worker.pid)
                yield Note(
                    f"worker {worker.pid} is still importing the study after {waited_s:.0f} s; "
                    f"what it prints is in {log}"
                )

    def other_writers(self, worker: WorkerHandle) -> Iterator[Note]:
        """Say once in a run that a task writes where it should not: it may do harm elsewhere."""
        if worker.channel.has_met_others and not self._is_other_said:
            self._is_other_said = True
            yield Note(
                f"a task in process {worker.pid} has written to file descriptors that it did not "
                "open; what came from there is left out"
            )
