"""Have an engine run tasks elsewhere: send parts to it, show how far they are, end them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import __version__
from ..base.plan import key_text
from ..code.payload import payload_bytes
from ..errors import (
    DamagedError,
    EngineError,
    HopelessError,
    InterruptedRunError,
    StartError,
    StorageError,
    StudyError,
    SweepError,
    UsageError,
)
from ..runfolder.layout import RunFolder
from ..runfolder.orders import ordering
from ..runfolder.parts import PartWatch
from ..runfolder.uniform_records import scan_stretches
from ..state.state import FolderState, read_state
from .choose_tasks import TaskChoice
from .engine import Engine
from .far_calls import FarCalls
from .far_part import HOPELESS, NOT_SEEN, STOPPED, FarOrder, FarOutcome
from .interruption import Interruption, stopping
from .progress import Display
from .run_tasks import FIRST_FAILURE, kept_text
from .settings import PoolSettings
from .time_left import Durations, Moment, RunningTask, durations_since
from .walltime import Walltime

LOOK_EVERY_S = 2.0
LOOK_SHARE = 0.1  # of its time that a run may spend on looking how far it is
NOTICE_S = 5.0  # until a part far away has seen that its order is withdrawn
UNHEARD_S = 30.0


def run_far(
    engine: Engine,
    function: int,
    code: str,
    folder: RunFolder,
    state: FolderState,
    tasks: list[int],
    choice: TaskChoice,
    settings: PoolSettings,
    display: Display,
    *,
    grace_s: float,
    keep_going: bool,
    walltime: Walltime | None,
) -> None:
    """Have an engine run the tasks; the errors are those of `run_tasks`, and EngineError.

    However this ends, parts that are still at work far away end within the grace.
    """
    if not tasks:
        return
    place = RunFolder(folder.output.absolute())
    with ordering(place) as order:
        far = FarOrder(
            version=__version__,
            output=str(place.output),
            order=order,
            code=code,
            place=str(Path.cwd()),
            settings=settings,
            choice=choice,
            grace_s=grace_s,
            keep_going=keep_going,
            end_time=None if walltime is None else time.time() + walltime.end - time.monotonic(),
        )
        look = FarLook(place, state, tasks, choice)
        calls = FarCalls(engine, payload_bytes(function), far, place, look.count_results)
        with _with_kept_results(look):
            _watch(calls, look, display, grace_s)


def _watch(calls: FarCalls, look: FarLook, display: Display, grace_s: float) -> None:
    ends = _Ends(display)
    display.begin(tasks_total=look.kept + look.wanted, tasks_done=look.kept)
    try:
        with stopping(calls, display, grace_s + NOTICE_S) as interruption:
            for outcome in calls.run():
                interruption.check()
                if outcome is not None:
                    ends.take(outcome, interruption)
                display.update(look.moment(is_ending=interruption.has_begun))
                look.say_what_is_new(display)
                if look.is_over:
                    calls.stop()  # calls may not come back, or may never have begun
            look.count_results()
            look.say_what_is_new(display)
    finally:
        display.end()
    if interruption.signal is not None:
        results = kept_text(look.count_results())
        text = f"stopped; {results}. Run the same command again for the rest"
        raise InterruptedRunError(text, interruption.signal)
    if ends.error is not None:
        raise ends.error


@contextmanager
def _with_kept_results(look: FarLook) -> Iterator[None]:
    """Say of an engine that is gone what is left of the run."""
    try:
        yield
    except EngineError as error:
        kept = kept_text(look.count_results())
        raise EngineError(
            f"{error}. {kept[0].upper()}{kept[1:]}. See that the engine runs, then run the same "
            "command again"
        ) from error


class _Ends:
    """What the ends of calls say, and the first of them after which there is no use in going on."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._said: set[str] = set()
        self.error: SweepError | None = None

    def take(self, outcome: FarOutcome, interruption: Interruption) -> None:
        for text in outcome.notes:
            if text not in self._said:
                self._display.say(f"{outcome.host}: {text}")
            self._said.add(text)
        is_over = interruption.signal is not None or self.error is not None
        if is_over or outcome.trouble in ("", STOPPED):
            return
        self.error = _error_of(outcome)
        interruption.begin(f"{outcome.host} cannot go on")


def _error_of(outcome: FarOutcome) -> SweepError:
    if outcome.trouble == NOT_SEEN:
        return UsageError(
            f"{outcome.host}, where the engine runs tasks, does not see the run folder: the output "
            "must lie in a folder that this machine shares with all of the engine's workers"
        )
    if outcome.trouble == HOPELESS:
        return HopelessError(outcome.text)
    return _KINDS.get(outcome.trouble, EngineError)(f"{outcome.host}: {outcome.text}")


_KINDS: dict[str, type[SweepError]] = {
    kind.__name__: kind for kind in (DamagedError, StartError, StorageError, StudyError, UsageError)
}


class FarLook:
    """How far a run is, by what is in its folder; looked at not too often."""

    def __init__(
        self, folder: RunFolder, before: FolderState, tasks: list[int], choice: TaskChoice
    ) -> None:
        self._folder = folder
        self._before, self._state = before, before
        self._choice, self._parts = choice, PartWatch(folder)
        self._known_failures = _failure_places(before)
        self.wanted = len(tasks)
        self.kept = before.tasks_done - sum(map(before.is_done, tasks))
        self._last_end = self._last_at_work = time.monotonic()
        self._begun_at = time.time()
        self._next_look = self._last_end + LOOK_EVERY_S
        self._failed: set[int] = set()
        self._has_said_failure = False
        self._is_heard = self._has_said_silence = False
        self.is_over = False  # nothing is left to do, and nobody was at work on it for a while

    def count_results(self) -> int:
        self._look()
        return self._state.tasks_done

    def moment(self, *, is_ending: bool) -> Moment:
        """How far it was when last looked at."""
        if time.monotonic() >= self._next_look:
            self._look()
        state, now = self._state, time.time()

        def running() -> list[RunningTask]:
            return [
                RunningTask(key_text(state.plan.key(task)), now - since, str(process))
                for task, (process, since) in state.running.items()
            ]

        def took() -> Durations:
            return durations_since(state, self._begun_at)

        done = state.tasks_done - self.kept
        quiet_s = time.monotonic() - self._last_end
        return Moment(done, len(self._failed), quiet_s, took, running, is_ending)

    def _look(self) -> None:
        begun, before = time.monotonic(), self._state.tasks_done
        is_at_work = any(alive is not False for alive in self._parts.look().values())
        self._state = read_state(self._folder, self._before.plan, scan=scan_stretches)
        places = _failure_places(self._state)
        self._failed = {task for task, at in places.items() if self._known_failures.get(task) != at}
        is_left = is_at_work or bool(self._choice.choose(self._state).tasks)
        now = time.monotonic()
        if self._state.tasks_done != before:
            self._last_end = now
        if is_at_work or self._state.tasks_done != before:
            self._is_heard, self._has_said_silence, self._last_at_work = True, False, now
        self.is_over = not is_left and now - self._last_at_work > NOTICE_S
        self._next_look = now + max(LOOK_EVERY_S, (now - begun) / LOOK_SHARE)

    def say_what_is_new(self, display: Display) -> None:
        """Say the first failure, and that nobody is at work for long."""
        if self._failed and not self._has_said_failure:
            self._has_said_failure = True
            task = min(self._failed)
            failure = self._state.all_failures[task]
            what = f"{failure.kind.words}: {failure.error}: {failure.message}"
            display.say(f"{FIRST_FAILURE}{key_text(self._state.plan.key(task))}: {what}")
        if not self._has_said_silence and time.monotonic() - self._last_at_work > UNHEARD_S:
            self._has_said_silence = True
            what = "no worker is at work" if self._is_heard else "nothing has begun yet"
            display.say(f"{what}: waiting for workers of the engine")


def _failure_places(state: FolderState) -> dict[int, tuple[Path, int]]:
    return {task: (state.paths[at.file], at.offset) for task, at in state.failures.items()}
