"""Run what is missing: scan the folder, run, merge. The same call again finishes the job."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..base.plan import Plan, key_text
from ..base.selection import Only
from ..base.units import count_text, duration_text
from ..errors import HopelessError, InterruptedRunError, StartError, StorageError
from ..merge.from_records.build import merge_run
from ..merge.from_records.output_plan import MergeReport
from ..runfolder.layout import RunFolder
from ..runfolder.lock import holding_folder
from ..runfolder.records import Damage, RecordFile, RecordWriter
from ..runfolder.uniform_records import scan_stretches
from ..state.code_change import OnChange
from ..state.declare_sweep import declare_sweep, require_own_folder
from ..state.extend_plan import is_up_to_date
from ..state.state import FolderState, read_state
from ..state.state_notes import refusal_texts
from ..state.study import Declaration
from .choose_tasks import TaskChoice
from .early_stop import EarlyStop
from .events import Ended, Failed, Note, Stopped
from .failures import failures_text
from .hand_over import changed_input_texts, handed_over, sending_texts
from .pool import Pool
from .progress import Display
from .settings import PoolSettings
from .time_left import Moment, RunningTask
from .worker import failure_header
from .worker_handle import LaunchOrder

ORPHANS_S = 3.0
DEFAULT_GRACE_S = 20.0
SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class RunReport:
    """How a run ended."""

    output: Path
    tasks_total: int
    tasks_kept: int
    tasks_done: int
    tasks_failed: int
    tasks_missing: int  # also those that are still to be run again
    merge: MergeReport | None
    tasks_not_selected: int = 0  # missing too, but the run was told to leave them alone
    results_undeclared: int = 0  # of tasks that the sweep has no longer

    @property
    def is_complete(self) -> bool:
        """Whether every task has its result that is still declared, and was selected."""
        return self.tasks_missing == 0


def run_sweep(
    declaration: Declaration,
    output: Path,
    settings: PoolSettings,
    display: Display,
    *,
    merge: bool = True,
    compress: bool = False,
    grace_s: float = DEFAULT_GRACE_S,
    changed: OnChange | None = None,
    only: Only = (),
    failed: str = "retry",
    keep_going: bool = False,
) -> RunReport:
    """Run every task that has no result yet, then merge all results into `output`.

    `only` selects among them, `failed="keep"` leaves those alone that have failed before, `changed`
    is what to do with results of other code. HopelessError if the first tasks all fail of one
    cause, unless `keep_going` is said.

    Killed at any moment, what was finished is kept and the same call runs the rest.
    """
    folder = RunFolder.of(output)
    choice = TaskChoice.of(declaration.plan, only, failed)
    require_own_folder(folder, declaration)
    version = declaration.version()
    with (
        _naming_next_step(),
        handed_over(declaration, version) as function,
        holding_folder(folder, tell=display.say),
        _knowing_how_children_end(),
        Pool(_launch_order(folder, function, settings), settings) as pool,
    ):
        for text in sending_texts(declaration, version):
            display.say(text)
        if not folder.plan_path.exists() and not folder.output.exists():
            pool.warm_up(len(declaration.plan))
        _wait_for_orphans(folder)
        state = declare_sweep(folder, declaration, version, display.say, changed)
        _say_damage(state, display)
        chosen = choice.choose(state)
        for text in chosen.texts(state):
            display.say(text)
        stop = None if keep_going else EarlyStop(len(chosen.tasks))
        _run_tasks(pool, chosen.tasks, folder, state, display, grace_s, stop)
        for text in changed_input_texts(declaration, version):
            display.say(text)
        merged = None
        if merge and (compress or not is_up_to_date(folder, state.plan)):
            merged = _merge(folder, compress, display)
        return _report(folder, state, choice, chosen.tasks, merged)


@contextmanager
def _naming_next_step() -> Iterator[None]:
    """Say what to do about a disk that refuses, unless somebody has said so already."""
    try:
        yield
    except StorageError as error:
        if error.errno is None:
            raise
        raise StorageError(f"{error}. {error.next_step}") from error


def _wait_for_orphans(folder: RunFolder) -> None:
    """Let the workers of a coordinator that was killed end, so that no task runs twice."""
    deadline = time.monotonic() + ORPHANS_S
    for path in folder.record_paths():
        with RecordFile(path) as file:
            about = file.about() or {}
            owner = file.owner() if about.get("role") == "worker" else None
        while owner is not None and owner.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)  # the kernel ends them; there is nothing to wait on across processes


def _say_damage(state: FolderState, display: Display) -> None:
    tasks: dict[Damage, list[int]] = {}
    for task, damage in state.lost.items():
        tasks.setdefault(damage, []).append(task)
    for text in refusal_texts(state):
        display.say(text)
    is_incomplete = state.tasks_done < state.tasks_total
    for damage in state.damages:
        lost = tasks.get(damage, [])
        if lost or (damage.task is None and is_incomplete):
            what = key_text(state.plan.key(lost[0])) if len(lost) == 1 else "what it held"
            display.say(
                f"damaged record in {damage.path.name} at byte {damage.offset:,}: "
                f"{what} is run again"
            )


def _launch_order(folder: RunFolder, function: int, settings: PoolSettings) -> LaunchOrder:
    """What all workers of this run have in common, also those that are started much later."""
    threads = max(1, len(os.sched_getaffinity(0)) // settings.workers)
    return LaunchOrder(RunFolder(folder.output.absolute()), function, threads, dict(os.environ))


def _run_tasks(
    pool: Pool,
    wanted: list[int],
    folder: RunFolder,
    state: FolderState,
    display: Display,
    grace_s: float,
    stop: EarlyStop | None,
) -> None:
    """Run the tasks; InterruptedRunError if a signal stopped it, or why it cannot go on."""
    if not wanted:
        return
    outcomes = _Outcomes(folder, state.plan, display)
    kept = state.tasks_done - sum(map(state.is_done, wanted))
    display.begin(tasks_total=kept + len(wanted), tasks_done=kept)
    try:
        with _stopping(pool, display, grace_s) as interruption:
            for event in pool.run(wanted):
                interruption.check()
                outcomes.take(event)
                if stop is not None and stop.take(event, pool.has_results_untold):
                    interruption.begin()
                display.update(outcomes.moment(pool))
    except (StorageError, StartError) as error:
        done = read_state(folder, state.plan).tasks_done
        text = f"{error}. The run has stopped; {_kept_text(done)}"
        if isinstance(error, StorageError):
            raise StorageError(f"{text}. {error.next_step}") from error
        again = "Run the same command again, with fewer --workers if memory is short"
        raise StartError(f"{text}. {again}") from error
    finally:
        outcomes.close()
        display.end()
    if interruption.signal is not None:
        # Counted again: workers that were stopped had finished more than they could say.
        kept_text = _kept_text(read_state(folder, state.plan).tasks_done)
        text = f"stopped; {kept_text}. Run the same command again for the rest"
        raise InterruptedRunError(text, interruption.signal)
    if stop is not None and stop.is_hopeless:
        raise HopelessError(_hopeless_text(read_state(folder, state.plan), stop.failed))


def _hopeless_text(state: FolderState, failed: list[int]) -> str:
    failures = {task: state.all_failures[task] for task in failed if task in state.failures}
    return (
        f"stopped, because the first {len(failed):,} tasks all failed in the same way and none "
        f"succeeded:\n\n{failures_text(state.plan, failures)}\n{_kept_text(state.tasks_done)}. Fix "
        "that, then run the same command again; with --keep-going (keep_going=True) it runs all "
        "tasks whatever fails"
    )


def _kept_text(results: int) -> str:
    return f"{count_text(results, 'finished result')} {'is' if results == 1 else 'are'} kept"


class _Outcomes:
    """What this run has seen so far, and a record file for failures no worker lived to record."""

    def __init__(self, folder: RunFolder, plan: Plan, display: Display) -> None:
        self._folder = folder
        self._plan = plan
        self._display = display
        self._records: RecordWriter | None = None
        self._done = 0
        self._failed: set[int] = set()
        self._last_end = time.monotonic()

    def take(self, event: object) -> None:
        if isinstance(event, Ended | Failed):
            self._last_end = time.monotonic()
        if isinstance(event, Ended):
            self._done += event.tasks_done
        elif isinstance(event, Note):
            self._display.say(event.text)
        elif isinstance(event, Stopped):
            where = f" at {event.where}" if event.where else ""
            ran = duration_text(event.running_s)
            self._display.say(f"stopped after {ran}{where}: {self._key_text(event.task)}")
        elif isinstance(event, Failed):
            self._take_failure(event)

    def _take_failure(self, failed: Failed) -> None:
        if not failed.recorded:
            self._record(failed)
        if not failed.will_retry:
            if not self._failed:
                error = failed.error
                where = f" at {error['where']}" if error["where"] else ""
                what = f"{error['type']}{where}: {error['message']}"
                self._display.say(f"first failure: {self._key_text(failed.task)}: {what}")
            self._failed.add(failed.task)

    def _record(self, failed: Failed) -> None:
        if self._records is None:
            path = self._folder.new_record_path("run")
            about = {"role": "run", "plan": self._plan.id, **self._folder.about_records()}
            self._records = RecordWriter(path, about=about)
        self._records.append(
            failed.kind,
            failed.task,
            failure_header(self._plan.key(failed.task), failed.error),
            finished_at=time.time(),
            duration_s=failed.duration_s,
        )

    def moment(self, pool: Pool) -> Moment:
        """How far the run is now."""

        def running() -> list[RunningTask]:
            return [
                RunningTask(self._key_text(one.task), one.running_s, f"pid {one.pid}")
                for one in pool.current()
            ]

        quiet_s = time.monotonic() - self._last_end
        return Moment(self._done, len(self._failed), quiet_s, pool.usual_s, running)

    def _key_text(self, task: int) -> str:
        return key_text(self._plan.key(task))

    def close(self) -> None:
        if self._records is not None:
            self._records.close()


class Interruption:
    """What signals have asked of a run: once, finish what runs within the grace; twice, stop.

    Failures may ask for the first too.
    """

    def __init__(self, pool: Pool, display: Display, grace_s: float) -> None:
        self._pool = pool
        self._display = display
        self._grace_s = grace_s
        self._deadline: float | None = None
        self._said = False
        self.signal: int | None = None
        self.count = 0

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal; everything that is not safe here is left to `check`."""
        self.signal = number
        self.count += 1
        self.begin()
        if self.count > 1 and number == signal.SIGINT:
            self._pool.stop()

    def begin(self) -> None:
        """Let running tasks finish within the grace, and begin no others."""
        self._pool.drain()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace_s

    def check(self) -> None:
        """Say once what happens now; stop if nothing is running any more, or for too long."""
        if self._deadline is None:
            return
        running, grace = len(self._pool.current()), duration_text(self._grace_s)
        tasks = count_text(running, "running task")
        if not running:
            self._pool.stop()
        elif not self._said:
            self._display.say(self._announcement(tasks, grace))
        elif time.monotonic() > self._deadline:
            self._deadline = math.inf
            self._display.say(f"stopping {tasks} after {grace}")
            self._pool.stop()
        self._said = True

    def _announcement(self, tasks: str, grace: str) -> str:
        if self.signal == signal.SIGINT:
            return f"waiting up to {grace} for {tasks}; press Ctrl-C again to stop now"
        if self.signal is None:
            return f"everything fails: waiting up to {grace} for {tasks}"
        return f"told to stop: waiting up to {grace} for {tasks}"


@contextmanager
def _stopping(pool: Pool, display: Display, grace_s: float) -> Iterator[Interruption]:
    """Take the signals that end a run, while it runs."""
    interruption = Interruption(pool, display, grace_s)
    # A signal that is ignored from the start (nohup) stays ignored.
    taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with _handling(taken, interruption.handle):
        yield interruption


@contextmanager
def _knowing_how_children_end() -> Iterator[None]:
    """Undo what a parent may have set: with SIGCHLD ignored nobody learns how a worker ended."""
    is_ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    with _handling([signal.SIGCHLD] if is_ignored else [], signal.SIG_DFL):
        yield


@contextmanager
def _handling(numbers: list[int], handler: Any) -> Iterator[None]:
    """Take signals in this way for the while, if this is the thread that may say so."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _merge(folder: RunFolder, compress: bool, display: Display) -> MergeReport:
    try:
        return merge_run(folder, compress=compress, progress=display.merging)
    finally:
        display.end()


def _report(
    folder: RunFolder,
    before: FolderState,
    choice: TaskChoice,
    wanted: list[int],
    merged: MergeReport | None,
) -> RunReport:
    """What there is now, counted where it lies: what workers have said may be damaged since."""
    if merged is not None and _has_all(merged, before):
        tasks_done, tasks_failed, tasks_missing, not_selected = before.tasks_total, 0, 0, 0
    else:
        is_as_before = not wanted and merged is None
        after = before if is_as_before else read_state(folder, before.plan, scan=scan_stretches)
        tasks_done, tasks_failed = after.tasks_done, after.tasks_failed
        not_selected = choice.count_not_selected(after)
        tasks_missing = sum(1 for _ in after.missing_tasks()) - not_selected
    return RunReport(
        folder.output,
        tasks_total=before.tasks_total,
        tasks_kept=before.tasks_done,
        tasks_done=tasks_done,
        tasks_failed=tasks_failed,
        tasks_missing=tasks_missing,
        merge=merged,
        tasks_not_selected=not_selected,
        results_undeclared=len(before.done_undeclared),
    )


def _has_all(merged: MergeReport, before: FolderState) -> bool:
    """Whether the output has a row of every task; not if recorders have added tasks meanwhile."""
    rows = before.tasks_total + len(before.done_undeclared)
    is_whole = merged.tasks_merged == rows and not before.again
    return is_whole and merged.tasks_planned == len(before.plan)
