"""Supervised worker processes on this machine. Knows records, but neither HDF5 nor plans.

What happens to tasks is kept apart from what happens to processes: `queue` decides which task runs
when and how often, and says how each ended; `workers` are the processes, and a `WorkerHandle` is
one of them and what it was given. `Pool` watches them.

Each worker has its own channel and its own shared memory: a worker that dies, at whatever
instant, can leave no lock behind that another one waits for. The task that a dead worker was in is
read from the slot and from the worker's record file, never guessed, so exactly that task is blamed
and the rest of its batch runs elsewhere.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import StorageError, StudyError, UsageError
from ..runfolder.records import RecordKind
from .channel import NOT_YET
from .constants_watch import changed_text
from .events import Event, Note, Stopped, Tick
from .hand_over import GlobalsWatch, beyond_text
from .queue import LARGEST_BATCH, MoreTasks, TaskQueue
from .settings import PoolSettings
from .worker_handle import Current, LaunchOrder, Outcome, WorkerHandle, cause_of_death
from .workers import Workers

STUCK_S = 0.5
CLOSING_S = 0.5
MOST_STOPPED = 8
DESCRIPTORS_EACH = 5
DESCRIPTORS_ELSE = 200
_CLOSED = "the task closed file descriptors that were not its own"


class Pool:
    """Runs tasks in worker processes and says what happened to each.

    `run` yields events until every task has ended, or the pool was told to stop. Whatever it
    yields as done is in a record file that survives SIGKILL, and is durable within a second.
    """

    unit, at_once = "running task", "stop now"  # what is waited for, and what a second Ctrl-C does

    def __init__(self, order: LaunchOrder, settings: PoolSettings) -> None:
        _allow_descriptors(DESCRIPTORS_EACH * settings.workers)
        self._settings, self._said = settings, set[str]()
        self.tasks = TaskQueue((), settings)
        self._has_started, self._globals = False, GlobalsWatch(is_dealt=bool(settings.env))
        self._start_error, self._stopping = "", False
        self._trouble: StorageError | None = None
        self._workers = Workers(order, self._set_trouble)
        self.has_results_untold = self._workers.have_results_untold
        self.is_busy = self._workers.are_busy

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End every worker; what they recorded is durable afterwards, or StorageError is raised."""
        self._workers.close()
        if error is None and self._trouble is not None:
            raise self._trouble

    def warm_up(self, tasks: int) -> None:
        """Start workers for so many tasks while it is still being found out which they are."""
        for _ in range(min(self._settings.workers, tasks)):
            if self._workers.starts.is_due:
                self._workers.start()

    def run(self, tasks: Iterable[int], more: MoreTasks | None = None) -> Iterator[Event]:
        """Run all tasks, and what `more` gives when these run low.

        StorageError if results can no longer be kept: what was done is kept.
        """
        self.tasks.add(tasks, more)
        try:
            yield from self._supervise()
        finally:
            self._workers.kill_all()
        if self._trouble:
            raise self._trouble

    def drain(self) -> None:
        """Let running tasks finish and begin no others. Safe in a signal handler."""
        self.tasks.is_draining = True

    def stop(self) -> None:
        """End running tasks now. Safe in a signal handler."""
        self._stopping = True

    def current(self) -> list[Current]:
        """The tasks that are running now."""
        return [current for _, current in self._workers.running()]

    def _supervise(self) -> Iterator[Event]:
        while not self._stopping and self._trouble is None:
            if self.tasks.is_draining:
                self._begin_no_more()
            self.tasks.refill(is_idle=all(worker.is_idle for worker in self._workers.active))
            self._fill()
            if not self._workers.active and self.tasks.is_over:
                return
            yield from self._wait()
            self._watch()
            yield from self._note_once("slow import", self._workers.slow_import_text())
            yield Tick()
        if self._stopping:
            yield from self._stop_tasks()

    def _stop_tasks(self) -> Iterator[Stopped]:
        """End running tasks, and say where those were that ran longest: they may have hung."""
        longest = sorted(self._workers.running(), key=lambda pair: -pair[1].running_s)
        running = longest[:MOST_STOPPED]
        for worker, _ in running:
            worker.end_with_stack()
        for worker, current in running:
            worker.has_ended(max(worker.ends_by - time.monotonic(), 0))
            if current.task not in worker.outcomes_on_disk():
                yield Stopped(current.task, current.running_s, worker.stack()["where"])

    def _begin_no_more(self) -> None:
        self.tasks.clear()
        for worker in self._workers.active:
            worker.begin_no_more()

    # Workers begin and end

    def _fill(self) -> None:
        """Give every idle worker a batch or dismiss it, and start workers for the rest."""
        for worker in [m for m in self._workers.active if m.is_idle]:
            self._give_or_dismiss(worker)
        busy = sum(not m.is_idle for m in self._workers.active)
        wanted = min(self._settings.workers, busy + len(self.tasks))
        if wanted and not self._workers.active and self._workers.starts.is_hopeless:
            raise self._workers.starts.error()
        while len(self._workers.active) < wanted and self._workers.starts.is_due:
            self._workers.start()

    def _give_or_dismiss(self, worker: WorkerHandle) -> None:
        limit = self._settings.tasks_per_worker
        left = LARGEST_BATCH if limit is None else limit - worker.tasks_run
        batch = self.tasks.next_batch(left) if left > 0 else []
        if batch:
            worker.give(batch)
        elif left <= 0 or not len(self.tasks):
            self._workers.dismiss(worker)

    # What workers say

    def _wait(self) -> Iterator[Event]:
        """Take what workers say, then what became of those that ended."""
        saying, ended = self._workers.wait()
        for worker in saying:
            yield from self._hear(worker)
        for worker in ended:
            if worker.is_dismissed:
                self._workers.reap(worker)
            else:
                yield from self._take_death(worker)

    def _hear(self, worker: WorkerHandle) -> Iterator[Event]:
        message = worker.channel.receive_packet()
        if message is NOT_YET:
            yield from self._note_once("other writers", worker.other_writers_text)
        elif message is not None:
            yield from self._take_message(worker, message)
        elif not worker.has_ended(CLOSING_S):
            # It is not about to end, so its task must have closed the channel.
            worker.kill_for(None, Outcome.failure(RecordKind.DIED, "closed", _CLOSED))

    def _take_message(self, worker: WorkerHandle, message: dict[str, Any]) -> Iterator[Event]:
        if "ready" in message:
            worker.record_path, self._has_started = Path(message["ready"]), True
            found = message["differing"], message["unexplained"]
            for text in self._globals.texts(worker.number, *found):
                yield from self._note_once(text, text)
        elif "broken" in message and not worker.is_ready and self._has_started:
            # It could be imported before: what it needs for that may come back.
            self._start_error = message["broken"]["message"]
        elif "broken" in message:
            self._break(message["broken"])
        else:
            if message["ended"]:
                self._workers.starts.succeed()
            yield from self._note_once("modules", beyond_text(message["beyond"]))
            yield from self._note_once("constants", changed_text(message["changed"]))
            yield from self.tasks.take_answer(worker, message)

    def _break(self, error: dict[str, Any]) -> None:
        """A worker cannot go on, and no other one could."""
        if error["type"] != "StorageError":
            raise StudyError(error["message"])
        trouble = StorageError(error["message"])
        trouble.errno = error["errno"]
        self._set_trouble(trouble)

    def _note_once(self, about: str, text: str) -> Iterator[Note]:
        """Say in a run only once what is about the same."""
        if text and about not in self._said:
            self._said.add(about)
            yield Note(text)

    # What becomes of those that die

    def _take_death(self, worker: WorkerHandle) -> Iterator[Event]:
        """Find out what a worker that ended unasked had finished, and what it died of."""
        while (
            worker.channel.has_something()
            and (message := worker.channel.receive_packet()) is not None
        ):
            # It may have answered just before it ended.
            if message is not NOT_YET:
                yield from self._take_message(worker, message)
        current, exit_code = worker.current(), self._workers.reap(worker)
        if worker.tasks_run or current is not None or worker.outcomes_on_disk():
            self._workers.starts.succeed()
        else:
            reason = cause_of_death(exit_code, self.tasks.oom_kills).error["message"]
            note = self._workers.fail_start(worker, exit_code, reason, self._start_error)
            yield from [Note(note)] if note else []
        yield from self.tasks.settle_batch(worker, current, exit_code)

    # What is enforced

    def _watch(self) -> None:
        """Enforce the limits on running tasks; take back what is stuck behind a long one."""
        for worker, current in self._workers.steady():
            self._workers.check_limits(worker, current, self._settings)
            if current.running_s >= STUCK_S:
                self.tasks.give_back(worker.take_back_behind(current.index))
        self._workers.kill_overdue()

    def _set_trouble(self, error: StorageError) -> None:
        self._trouble = self._trouble or error


def _allow_descriptors(wanted: int) -> None:
    """Raise the limit of open files if so many workers would meet it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_ELSE
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UsageError(
            f"these workers need {needed:,} open files, but only {hard:,} are allowed: "
            "use fewer --workers, or raise the limit (ulimit -n)"
        )
    if needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
