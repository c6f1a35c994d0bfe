"""How fast a run is, what is left, and which tasks take far longer than usual, in words.

`run` and `status` both say it from here. Time left is said only where it can be told: not when the
last tasks are running, and not when none has ended for far longer than a task usually takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..base.units import cut_middle, duration_text, rate_text

LONG_FACTOR = 5  # times the usual
LONG_S = 10.0  # and no less than this
LONG_FIRST_S = 60.0  # while nothing has ended, so that nobody knows what is usual


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that is running: its key and its process as text."""

    key: str
    running_s: float
    process: str

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
    usual_s: float | None
    running: Callable[[], list[RunningTask]]


@dataclass(frozen=True)
class Pace:
    """`ended` tasks in `elapsed_s` of one run, the last `quiet_s` ago; `left` have not ended."""

    ended: int
    elapsed_s: float
    left: int
    quiet_s: float
    usual_s: float | None
    running: Sequence[RunningTask]

    @property
    def per_s(self) -> float | None:
        return self.ended / self.elapsed_s if self.ended and self.elapsed_s > 0 else None

    @cached_property
    def longest_first(self) -> list[RunningTask]:
        return sorted(self.running, key=lambda task: -task.running_s)

    @property
    def long_running(self) -> list[RunningTask]:
        """The tasks that have run far longer than usual, the longest first."""
        return [task for task in self.longest_first if task.running_s >= self._long_s]

    @property
    def _long_s(self) -> float:
        return LONG_FIRST_S if self.usual_s is None else max(LONG_S, LONG_FACTOR * self.usual_s)

    def words(self) -> list[str]:
        """`644/h` and `51 min left`, or what can be said of that."""
        if self.per_s is None:
            return []
        return [rate_text(self.per_s), *self._left_words(self.per_s)]

    def _left_words(self, per_s: float) -> list[str]:
        if self.left > len(self.running):
            is_stalled = self.quiet_s >= self._long_s
            return [] if is_stalled else [f"{duration_text(self.left / per_s)} left"]
        last = f"{self.left:,} tasks are" if self.left > 1 else "task is"
        return [f"the last {last} running"] if self.left else []

    def long_line(self, width: int | None = None) -> list[str]:
        """Name what has run far longer than usual, if anything has."""
        long = self.long_running
        if not long:
            return []
        usual = "" if self.usual_s is None else f" (usually {_usual_text(self.usual_s)})"
        time = f"{duration_text(long[0].running_s)}{usual}"
        if len(long) == 1:
            text = f"1 task running for {time}: "
        else:
            text = f"{len(long):,} tasks running for up to {time}: "
        room = len(long[0].key) if width is None else width - len(text)
        return [text + cut_middle(long[0].key, max(room, 1))]


def _usual_text(seconds: float) -> str:
    return duration_text(seconds) if seconds >= 1 else "under 1 s"
