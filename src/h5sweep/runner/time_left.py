"""How fast a run is, what is left, and which tasks take far longer than others, in words.

`run` and `status` both say it from here. What is left is never less than what the task suggests
that has run longest. It is not said where nobody can know it: while none has ended for far longer
than tasks take.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..base.units import clock_text, cut_middle, duration_text, rate_text
from ..runfolder.records import FINISHED_AT
from ..state.state import FolderState

MOST_READ = 200  # results, to say how long tasks take
LONG_SHARE = 0.95
LONG_FACTOR = 3  # times what this share of the tasks take is far too long
LONG_S = 1.0  # and no less than this
LONG_FIRST_S = 60.0  # while nothing has ended, so that nobody knows how long tasks take


@dataclass(frozen=True, slots=True)
class Durations:
    """How long tasks have taken that have ended, the shortest first; a sample if there are many."""

    ascending: tuple[float, ...] = ()

    @classmethod
    def of(cls, durations_s: Iterable[float]) -> Durations:
        return cls(tuple(sorted(durations_s)))

    @property
    def median_s(self) -> float | None:
        return self.ascending[len(self.ascending) // 2] if self.ascending else None

    @property
    def most_within_s(self) -> float | None:
        """How long 95 of 100 tasks take at most."""
        if not self.ascending:
            return None
        return self.ascending[math.ceil(LONG_SHARE * len(self.ascending)) - 1]

    @property
    def long_s(self) -> float:
        """What is far longer than tasks take."""
        most_s = self.most_within_s
        return LONG_FIRST_S if most_s is None else max(LONG_S, LONG_FACTOR * most_s)

    def is_longest(self, running_s: float) -> bool:
        """Whether no task that has ended has taken so long."""
        return not self.ascending or running_s >= self.ascending[-1]

    def left_s(self, running_s: float) -> float:
        """How much longer a task will take that has run so long, as those did that took longer.

        If none did, as long again: nothing better is known.
        """
        longer = self.ascending[bisect_right(self.ascending, running_s) :]
        return sum(longer) / len(longer) - running_s if longer else running_s


def durations_since(state: FolderState, begun: float) -> Durations:
    """How long tasks have taken that have ended since then; read from some of them."""
    done = [task for task, at in enumerate(state.finished_at) if at >= begun]
    return Durations.of(state.durations_s(done[:: len(done) // MOST_READ + 1]))


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that is running: its key and its process as text."""

    key: str
    running_s: float
    process: str
    memory_bytes: int = 0  # of its process; 0 if that cannot be seen from here

    def line(self, width: int | None = None) -> str:
        """`KEY  12 s  pid 4711`, with the key cut so that the rest is seen."""
        rest = f"  {duration_text(self.running_s)}  {self.process}"
        room = len(self.key) if width is None else width - len(rest)
        return (cut_middle(self.key, room) if room > 0 else self.key) + rest


@dataclass(frozen=True, slots=True)
class Moment:
    """What a run has seen so far; what is running is asked for only if somebody looks."""

    done: int
    failed: int
    quiet_s: float  # since the last task ended
    took: Callable[[], Durations]
    running: Callable[[], list[RunningTask]]
    is_ending: bool = False  # no other task is begun any more, so no time is left for the rest


@dataclass(frozen=True)
class Pace:
    """`ended` tasks in `elapsed_s` of one run, the last `quiet_s` ago; `left` have not ended."""

    ended: int
    elapsed_s: float
    left: int
    quiet_s: float
    took: Durations
    running: Sequence[RunningTask]

    @property
    def per_s(self) -> float | None:
        return self.ended / self.elapsed_s if self.ended and self.elapsed_s > 0 else None

    @cached_property
    def longest_first(self) -> list[RunningTask]:
        return sorted(self.running, key=lambda task: -task.running_s)

    @property
    def long_running(self) -> list[RunningTask]:
        """The tasks that have run far longer than others took, the longest first."""
        return [task for task in self.longest_first if task.running_s >= self.took.long_s]

    @property
    def left_s(self) -> float | None:
        """How long it will take until all have ended; None if nobody can know."""
        is_stalled = self.left > len(self.running) and self.quiet_s >= self.took.long_s
        if self.per_s is None or not self.left or is_stalled:
            return None
        return max(self._by_rate_s(self.per_s), self._by_slowest_s)

    def _by_rate_s(self, per_s: float) -> float:
        """The last tasks are running all at once: no rate says when they end."""
        return self.left / per_s if self.left > len(self.running) else 0.0

    @cached_property
    def _by_slowest_s(self) -> float:
        return max((self.took.left_s(task.running_s) for task in self.running), default=0.0)

    def words(self) -> list[str]:
        """`644/h` and `51 min left (until 17:32)`, or what can be said of that."""
        if self.per_s is None:
            return []
        last = f"{self.left:,} tasks are" if self.left > 1 else "task is"
        is_last = 0 < self.left <= len(self.running)
        words = [rate_text(self.per_s), *([f"the last {last} running"] if is_last else [])]
        return [*words, *self._left_words()]

    def _left_words(self) -> list[str]:
        if self.left_s is None:
            return []
        text = f"{duration_text(self.left_s)} left"
        longest_s = self.longest_first[0].running_s if self.running else 0.0
        if self.left_s == self._by_slowest_s and self.took.is_longest(longest_s):
            return [f"{text} or more"]
        return [f"{text} (until {clock_text(time.time() + self.left_s)})"]

    def long_line(self, width: int | None = None) -> list[str]:
        """Name what has run far longer than others took, if anything has."""
        long = self.long_running
        if not long:
            return []
        median_s = self.took.median_s
        usual = "" if median_s is None else f" (median {short_text(median_s)})"
        time_text = f"{duration_text(long[0].running_s)}{usual}"
        if len(long) == 1:
            text = f"1 task running for {time_text}: "
        else:
            text = f"{len(long):,} tasks running for up to {time_text}: "
        room = len(long[0].key) if width is None else width - len(text)
        return [text + cut_middle(long[0].key, max(room, 1))]


def pace_since(state: FolderState, begun: float | None, running: Iterable[RunningTask]) -> Pace:
    """How fast the run goes that began then, by what is recorded; None if none goes on."""
    now = time.time()
    begun = now if begun is None else begun
    ended_at = [at for at in state.finished_at if at >= begun]
    failures_at = (place.frame[FINISHED_AT] for place in state.failures.values())
    failed_at = [at for at in failures_at if at >= begun]
    return Pace(
        ended=len(ended_at) + len(failed_at),
        elapsed_s=now - begun,
        left=state.tasks_total - state.tasks_done + len(state.again_done) - len(failed_at),
        quiet_s=now - max([begun, *failed_at, *ended_at]),
        took=durations_since(state, begun),
        running=tuple(running),
    )


def short_text(seconds: float) -> str:
    """How long a task takes, which may be next to nothing."""
    if seconds >= 1:
        return duration_text(seconds)
    return f"{seconds:.1g} s" if seconds >= 0.001 else "under 1 ms"
