"""Which task runs when, how often, and what became of each."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..runfolder.records import RecordKind
from .events import Ended, Event, Failed
from .settings import PoolSettings
from .worker_handle import Current, OomKills, Outcome, WorkerHandle

BATCH_S = 0.2
BATCH_GROWTH = 8
LARGEST_BATCH = 20_000
LONGEST_BACKOFF_S = 60.0
DURATIONS_KEPT = 1000
BATCHES_AHEAD = 4  # for each worker, of tasks that are claimed as they are needed

# Gives at least so many more tasks, or as many as there are; none if there will be no more, None if
# there may be later. It is told whether nothing runs any more.
MoreTasks = Callable[[int, bool], list[int] | None]


class TaskQueue:
    """The tasks of a run: new ones in order, failed ones again after a pause.

    What workers answer, and what dead ones left, becomes events here.
    """

    def __init__(self, tasks: Iterable[int], settings: PoolSettings) -> None:
        self._new = deque(tasks)
        self._later: list[tuple[float, int]] = []
        self._failures: dict[tuple[int, RecordKind], int] = {}
        self._settings = settings
        self._seconds_a_task: float | None = None
        self._last_size = 1
        self._more: MoreTasks | None = None
        self.is_draining = False  # no task is begun any more
        self.oom_kills = OomKills()
        self.durations_s: deque[float] = deque(
            maxlen=DURATIONS_KEPT
        )  # of tasks, or of a batch each

    def __len__(self) -> int:
        return len(self._new) + len(self._later)

    def add(self, tasks: Iterable[int], more: MoreTasks | None = None) -> None:
        self._new.extend(tasks)
        self._more = more

    def clear(self) -> None:
        """Hand out nothing more."""
        self._new.clear()
        self._later.clear()
        self._more = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to hand out, and will be nothing."""
        return not len(self) and self._more is None

    def refill(self, *, is_idle: bool) -> None:
        """Get more tasks before workers have to wait for them."""
        wanted = self._tasks_ahead()
        if self._more is None or self.is_draining or len(self._new) >= wanted:
            return
        found = self._more(wanted - len(self._new), is_idle and not len(self))
        if found is not None and not found:
            self._more = None
        self._new.extend(found or ())

    def _tasks_ahead(self) -> int:
        """So many that batches need not be smaller than they would be, and no long ones."""
        fitting = 0 if self._seconds_a_task is None else BATCH_S / max(self._seconds_a_task, 1e-9)
        return self._settings.workers * min(max(int(BATCHES_AHEAD * fitting), 1), LARGEST_BATCH)

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
        self.durations_s.append(seconds)

    def give_back(self, tasks: list[int]) -> None:
        """Put tasks that were handed out but not begun back to the front, unless none is begun."""
        if not self.is_draining:
            self._new.extendleft(reversed(tasks))

    def retry(self, task: int, kind: RecordKind) -> bool:
        """Whether a failed task is tried again; if so, it is queued after a growing pause."""
        failures = self._failures[task, kind] = self._failures.get((task, kind), 0) + 1
        if self.is_draining or failures > self._settings.retries.allowed(kind):
            return False
        pause_s = min(self._settings.backoff_s * 2 ** (failures - 1), LONGEST_BACKOFF_S)
        heapq.heappush(self._later, (time.monotonic() + pause_s, task))
        return True

    # How tasks ended

    def take_answer(self, worker: WorkerHandle, answer: dict[str, Any]) -> Iterator[Event]:
        """Say how the tasks of a batch ended; those that its worker has left go elsewhere."""
        batch, ended, errors = worker.batch, answer["ended"], answer["errors"]
        self.give_back(worker.end_batch(ended))
        if worker.killed_for:
            # Its task has ended after all; the signal may still be on its way.
            worker.kill()
        if ended:
            self.learn(ended, time.monotonic() - worker.batch_begun)
        yield Ended(ended - len(errors))
        for index, error in errors.items():
            outcome = Outcome(RecordKind(error["kind"]), error["error"])
            yield self._failed(batch[int(index)], outcome)

    def settle_batch(
        self, worker: WorkerHandle, current: Current | None, exit_code: int
    ) -> Iterator[Event]:
        """Say how the tasks of a dead worker ended, blame the one that it was in, save the rest."""
        batch = worker.unanswered()
        if not batch:
            return
        outcomes = worker.outcomes_on_disk()
        yield Ended(sum(outcome.kind == RecordKind.DONE for outcome in outcomes.values()))
        for task, outcome in outcomes.items():
            if outcome.kind != RecordKind.DONE:
                yield self._failed(task, outcome)
        left = [task for task in batch if task not in outcomes]
        if current is not None and current.task in left:
            last = worker.outcome_of(current.task, exit_code, self.oom_kills)
            if last is not None:
                left.remove(current.task)
                seconds = current.running_s
                yield self._failed(current.task, last, duration_s=seconds, recorded=False)
        self.give_back(left)

    def _failed(
        self, task: int, outcome: Outcome, *, duration_s: float = 0.0, recorded: bool = True
    ) -> Failed:
        will_retry = self.retry(task, outcome.kind)
        return Failed(task, outcome.kind, outcome.error, duration_s, will_retry, recorded)
