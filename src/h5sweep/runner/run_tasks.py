"""Have a pool run tasks: show it, record what no worker lived to record, stop when asked to."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..base.plan import Plan, key_text
from ..base.units import count_text, duration_text
from ..errors import HopelessError, InterruptedRunError, StartError, StorageError
from ..runfolder.layout import RunFolder
from ..runfolder.parts import PartNumber
from ..runfolder.records import Damage, RecordWriter
from ..state.state import FolderState, read_state
from ..state.state_notes import refusal_texts
from .early_stop import EarlyStop
from .events import Ended, Failed, Note, Stopped
from .failures import failures_text
from .interruption import TIME_IS_UP, stopping
from .pool import Pool
from .progress import Display
from .queue import MoreTasks
from .settings import THREAD_VARIABLES, PoolSettings
from .time_left import Durations, Moment, RunningTask, durations_since
from .walltime import TimeWatch, Walltime
from .worker import failure_header
from .worker_handle import LaunchOrder

FIRST_FAILURE = "first failure: "
EVER = 1.0  # by the wall clock: 0 stands where nothing has ended
# By these MPI takes a process for the rank that a launcher has started, as its workers are not.
_RANK_VARIABLES = re.compile(r"(PMI|PRTE|PMIX(?!_MCA))_\w+|OMPI_MCA_(ess|orte|pmix)\w*")
# Which of the ranks on its node a process is, from 0, as launchers tell it.
_NODE_RANKS = (
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # MPICH, Intel MPI
    "PALS_LOCAL_RANKID",  # Cray
    "SLURM_LOCALID",  # srun
)


@contextmanager
def naming_next_step() -> Iterator[None]:
    """Say what to do about a disk that refuses, unless somebody has said so already."""
    try:
        yield
    except StorageError as error:
        if error.errno is None:
            raise
        raise StorageError(f"{error}. {error.next_step}") from error


def say_damage(state: FolderState, display: Display) -> None:
    tasks: dict[Damage, list[int]] = {}
    for task, damage in state.lost.items():
        tasks.setdefault(damage, []).append(task)
    for text in refusal_texts(state):
        display.say(text)
    is_incomplete = state.tasks_done < state.tasks_total
    for damage in state.damages:
        lost = tasks.get(damage, [])
        if lost or (damage.task is None and is_incomplete):
            if len(lost) == 1:
                again = f"{key_text(state.plan.key(lost[0]))} is run again"
            else:
                again = "what it held is run again, unless the output has it"
            display.say(f"damaged record in {damage.path.name} at byte {damage.offset:,}: {again}")


def launch_order(
    folder: RunFolder,
    function: int,
    settings: PoolSettings,
    name: str = "",
    part: PartNumber | None = None,
    place: str = "",
) -> LaunchOrder:
    """What all workers of this run have in common, also those that are started much later.

    `name` and `part` are of the part that they work for. `place` is where the run was started that
    sent it here, to an engine, which has given us a core for each worker; if there is no such
    folder, workers are where the engine is.
    """
    threads = 1 if place else max(1, len(os.sched_getaffinity(0)) // settings.workers)
    working = place if place and Path(place).is_dir() else None
    output = RunFolder(folder.output.absolute())
    variables = {n: v for n, v in os.environ.items() if not _RANK_VARIABLES.fullmatch(n)}
    first = 0 if part is None else _parts_before(part) * settings.workers
    return LaunchOrder(output, function, threads, variables, name, working, settings.env, first)


def _parts_before(part: PartNumber) -> int:
    """How many parts come before it on its node; if nobody says which are there, how many at all.

    So that what is dealt round the workers of a node goes round once.
    """
    if part.is_rank:
        for name in _NODE_RANKS:
            with suppress(KeyError, ValueError):
                return int(os.environ[name])
    return part.number - 1


def threads_text(settings: PoolSettings) -> str:
    """That workers get in each other's way, because somebody has set how many threads they have."""
    cores = len(os.sched_getaffinity(0))
    for name in THREAD_VARIABLES:
        value = os.environ.get(name, "")
        threads = int(value) * settings.workers if value.isdecimal() and int(value) > 1 else 0
        if threads > cores:
            return (
                f"{name} is {value}: {count_text(settings.workers, 'worker')} may use {threads:,} "
                f"threads on {count_text(cores, 'core')}. Unset it, and each worker gets its share"
            )
    return ""


def run_tasks(
    pool: Pool,
    wanted: list[int],
    folder: RunFolder,
    state: FolderState,
    display: Display,
    grace_s: float,
    stop: EarlyStop | None,
    code: str,
    more: MoreTasks | None = None,
    walltime: Walltime | None = None,
    is_withdrawn: Callable[[], bool] = lambda: False,
    part: str = "",
) -> None:
    """Run the tasks; InterruptedRunError if a signal stopped it, or why it cannot go on.

    If the walltime ends before that, or they are withdrawn, it returns, as if there were no others.
    """
    if not wanted and more is None:
        return
    outcomes = _Outcomes(folder, state.plan, code, display, part)
    kept = state.tasks_done - sum(map(state.is_done, wanted))
    is_part = more is not None
    total = state.tasks_total if is_part else kept + len(wanted)
    display.begin(tasks_total=total, tasks_done=kept, is_part=is_part)
    watch = TimeWatch(walltime)
    if walltime is not None:
        pool.tasks.durations_s.extend(known_durations_s(state, walltime))
    try:
        with stopping(pool, display, grace_s) as interruption:
            for event in pool.run(wanted, more):
                interruption.check()
                outcomes.take(event)
                if stop is not None and stop.take(event, pool.has_results_untold):
                    interruption.begin("everything fails")
                if watch.becomes_up(pool.tasks.durations_s):
                    interruption.begin(TIME_IS_UP, watch.left_s)
                if is_withdrawn():
                    interruption.begin("the run has ended")
                display.update(outcomes.moment(pool, is_ending=interruption.has_begun))
            interruption.check()  # what the last event has begun was not said yet
    except (StorageError, StartError) as error:
        done = read_state(folder, state.plan).tasks_done
        text = f"{error}. The run has stopped; {kept_text(done)}"
        if isinstance(error, StorageError):
            raise StorageError(f"{text}. {error.next_step}") from error
        again = "Run the same command again, with fewer --workers if memory is short"
        raise StartError(f"{text}. {again}") from error
    finally:
        outcomes.close()
        display.end()
    if watch.job_is_shorter_than(outcomes.longest_stopped_s):
        display.say("tasks take longer than the job: submit with a longer --time")
    if interruption.signal is not None:
        # Counted again: workers that were stopped had finished more than they could say.
        results = kept_text(read_state(folder, state.plan).tasks_done)
        text = f"stopped; {results}. Run the same command again for the rest"
        raise InterruptedRunError(text, interruption.signal)
    if stop is not None and stop.is_hopeless:
        raise HopelessError(_hopeless_text(read_state(folder, state.plan), stop.failed))


def known_durations_s(state: FolderState, walltime: Walltime) -> list[float]:
    """How long some of the tasks took that have a result, of those that there is time for.

    Longer ones do not count: whatever is begun has no more time than there is now.
    """
    known = durations_since(state, EVER).ascending
    return [seconds for seconds in known if seconds < walltime.left_s]


def _hopeless_text(state: FolderState, failed: list[int]) -> str:
    failures = {task: state.all_failures[task] for task in failed if task in state.failures}
    return (
        f"stopped, because the first {len(failed):,} tasks all failed in the same way and none "
        f"succeeded:\n\n{failures_text(state.plan, failures)}\n{kept_text(state.tasks_done)}. Fix "
        "that, then run the same command again; with --keep-going (keep_going=True) it runs all "
        "tasks whatever fails"
    )


def kept_text(results: int) -> str:
    return f"{count_text(results, 'finished result')} {'is' if results == 1 else 'are'} kept"


class _Outcomes:
    """What this run has seen so far, and a record file for failures no worker lived to record."""

    def __init__(
        self, folder: RunFolder, plan: Plan, code: str, display: Display, part: str
    ) -> None:
        self._folder = folder
        self._part = part
        self._plan = plan
        self._code = code
        self._display = display
        self._records: RecordWriter | None = None
        self._done = 0
        self._failed: set[int] = set()
        self.longest_stopped_s = 0.0
        self._last_end = time.monotonic()

    def take(self, event: object) -> None:
        if isinstance(event, Ended | Failed):
            self._last_end = time.monotonic()
        if isinstance(event, Ended):
            self._done += event.tasks_done
        elif isinstance(event, Note):
            self._display.say(event.text)
        elif isinstance(event, Stopped):
            self.longest_stopped_s = max(self.longest_stopped_s, event.running_s)
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
                self._display.say(f"{FIRST_FAILURE}{self._key_text(failed.task)}: {what}")
            self._failed.add(failed.task)

    def _record(self, failed: Failed) -> None:
        if self._records is None:
            path = self._folder.new_record_path("run")
            about = {"role": "run", "plan": self._plan.id, "code": self._code}
            about |= {"part": self._part} if self._part else {}
            self._records = RecordWriter(path, about=about | self._folder.about_records())
        self._records.append(
            failed.kind,
            failed.task,
            failure_header(self._plan.key(failed.task), failed.error),
            finished_at=time.time(),
            duration_s=failed.duration_s,
        )

    def moment(self, pool: Pool, *, is_ending: bool) -> Moment:
        """How far the run is now."""

        def running() -> list[RunningTask]:
            return [
                RunningTask(self._key_text(one.task), one.running_s, f"pid {one.pid}")
                for one in pool.current()
            ]

        def took() -> Durations:
            return Durations.of(pool.tasks.durations_s)

        quiet_s = time.monotonic() - self._last_end
        return Moment(self._done, len(self._failed), quiet_s, took, running, is_ending)

    def _key_text(self, task: int) -> str:
        return key_text(self._plan.key(task))

    def close(self) -> None:
        if self._records is not None:
            self._records.close()
