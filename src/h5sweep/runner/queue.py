"""Which task runs when, and how often. Knows nothing of processes."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterable

from ..runfolder.records import RecordKind
from .settings import PoolSettings

BATCH_S = 0.2
BATCH_GROWTH = 8
LARGEST_BATCH = 20_000
LONGEST_BACKOFF_S = 60.0


class TaskQueue:
    """The tasks that wait: new ones in order, failed ones again after a pause."""

    def __init__(self, tasks: Iterable[int], settings: PoolSettings) -> None:
        self._new = deque(tasks)
        self._later: list[tuple[float, int]] = []
        self._failures: dict[tuple[int, RecordKind], int] = {}
        self._settings = settings
        self._seconds_a_task: float | None = None
        self._last_size = 1

    def __len__(self) -> int:
        return len(self._new) + len(self._later)

    def next_batch(self, largest: int) -> list[int]:
        """As many tasks as fill about BATCH_S; a task tried again comes alone."""
        if self._later and self._later[0][0] <= time.monotonic():
            return [heapq.heappop(self._later)[1]]
        size = min(self._batch_size(), largest, len(self._new))
        return [self._new.popleft() for _ in range(size)]

    def _batch_size(self) -> int:
        if self._seconds_a_task is None:
            return 1
        fitting = int(BATCH_S / max(self._seconds_a_task, 1e-9))
        share = len(self._new) // (2 * self._settings.workers)
        self._last_size = max(1, min(fitting, share, self._last_size * BATCH_GROWTH, LARGEST_BATCH))
        return self._last_size

    def learn(self, tasks: int, elapsed_s: float) -> None:
        """Take note of how long a batch took."""
        seconds = elapsed_s / tasks
        known = self._seconds_a_task
        self._seconds_a_task = seconds if known is None else (known + seconds) / 2

    def give_back(self, tasks: list[int]) -> None:
        """Put tasks that were handed out but not begun back to the front."""
        self._new.extendleft(reversed(tasks))

    def retry(self, task: int, kind: RecordKind) -> bool:
        """Whether a failed task is tried again; if so, it is queued after a growing pause."""
        failures = self._failures[task, kind] = self._failures.get((task, kind), 0) + 1
        if failures > self._settings.retries.allowed(kind):
            return False
        pause_s = min(self._settings.backoff_s * 2 ** (failures - 1), LONGEST_BACKOFF_S)
        heapq.heappush(self._later, (time.monotonic() + pause_s, task))
        return True

    def clear(self) -> None:
        """Hand out nothing more."""
        self._new.clear()
        self._later.clear()
