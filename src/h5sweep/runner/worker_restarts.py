"""When to start a worker, and when to give up starting more. Knows no processes.

A worker that ends before its first task was ended by the study, which is a mistake in it, or from
outside: by somebody, by a batch system, by the kernel for want of memory. That may pass, so it is
tried again for longer, after pauses that grow. Workers that were started together count once.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from ..errors import StartError, StudyError, SweepError

MOST_BY_STUDY = 3  # failures in a row
MOST_FROM_OUTSIDE = 9
NOTED_FROM_OUTSIDE = 3
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


class Starts:
    """The starts since a worker last got to a task."""

    def __init__(self, logs_path: Path) -> None:
        self._logs_path = logs_path
        self._by_study = self._from_outside = 0
        self._last_failure = -math.inf
        self._next_start = -math.inf
        self._reason = self._detail = ""

    @property
    def is_due(self) -> bool:
        """Whether a worker may be started now."""
        return time.monotonic() >= self._next_start

    @property
    def is_hopeless(self) -> bool:
        return self._by_study >= MOST_BY_STUDY or self._from_outside >= MOST_FROM_OUTSIDE

    def succeed(self) -> None:
        """A worker has got to a task."""
        self._by_study = self._from_outside = 0
        self._next_start = -math.inf

    def fail(self, started: float, reason: str, *, by_study: bool, detail: str = "") -> str | None:
        """A worker that was started then has got to none; return what the user should hear."""
        if started < self._last_failure:
            return None
        self._reason, self._detail = reason, detail
        self._by_study += by_study
        self._from_outside += not by_study
        failures = self._by_study + self._from_outside
        self._last_failure = time.monotonic()
        pause_s = min(FIRST_PAUSE_S * 2 ** (failures - 1), LONGEST_PAUSE_S)
        self._next_start = self._last_failure + pause_s
        if by_study or self._from_outside != NOTED_FROM_OUTSIDE:
            return None
        return f"{self._text(self._from_outside)}; trying again, with longer and longer pauses"

    def error(self) -> SweepError:
        """Why no more are started."""
        if self._by_study >= MOST_BY_STUDY:
            advice = f"read the logs in {self._logs_path}"
            return StudyError(f"{self._text(self._by_study)}: {advice}\n{self._detail}".rstrip())
        return StartError(self._text(self._from_outside))

    def _text(self, failures: int) -> str:
        return f"{failures} times in a row no worker reached its first task ({self._reason})"
