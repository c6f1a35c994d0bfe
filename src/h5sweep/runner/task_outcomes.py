"""What happened to tasks, as events: what workers answer, and what dead workers left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ..runfolder.records import RecordKind
from .events import Ended, Event, Failed
from .queue import TaskQueue
from .settings import PoolSettings
from .worker_handle import Current, OomKills, Outcome, WorkerHandle


class TaskOutcomes:
    """The tasks of a run: those that wait, in `queue`, and how the others ended."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self.queue = TaskQueue((), settings)
        self.is_draining = False  # no task is begun any more
        self.oom_kills = OomKills()
        self._answered = 0  # tasks, of batches that took so long:
        self._answered_s = 0.0

    def begin(self, tasks: Iterable[int]) -> None:
        self.queue = TaskQueue(tasks, self._settings)

    @property
    def usual_s(self) -> float | None:
        """How long a task takes on average; None if none has ended."""
        return self._answered_s / self._answered if self._answered else None

    def take_answer(self, worker: WorkerHandle, answer: dict[str, Any]) -> Iterator[Event]:
        """Say how the tasks of a batch ended; those that its worker has left go elsewhere."""
        batch, ended, errors = worker.batch, answer["ended"], answer["errors"]
        self.give_back(worker.end_batch(ended))
        if worker.killed_for:
            # Its task has ended after all; the signal may still be on its way.
            worker.kill()
        if ended:
            elapsed_s = time.monotonic() - worker.batch_begun
            self.queue.learn(ended, elapsed_s)
            self._answered += ended
            self._answered_s += elapsed_s
        yield Ended(ended - len(errors))
        for index, error in errors.items():
            outcome = Outcome(RecordKind(error["kind"]), error["error"])
            yield self._failed(batch[int(index)], outcome)

    def give_back(self, tasks: list[int]) -> None:
        """Have tasks run by another worker, unless no more are begun."""
        if not self.is_draining:
            self.queue.give_back(tasks)

    def _failed(
        self, task: int, outcome: Outcome, *, duration_s: float = 0.0, recorded: bool = True
    ) -> Failed:
        will_retry = not self.is_draining and self.queue.retry(task, outcome.kind)
        return Failed(task, outcome.kind, outcome.error, duration_s, will_retry, recorded)

    def settle_batch(
        self,
        worker: WorkerHandle,
        current: Current | None,
        exit_code: int,
        log_of: Callable[[WorkerHandle], Path],
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
            last = worker.outcome_of(current.task, exit_code, self.oom_kills, log_of(worker))
            if last is not None:
                left.remove(current.task)
                seconds = current.running_s
                yield self._failed(current.task, last, duration_s=seconds, recorded=False)
        self.give_back(left)
