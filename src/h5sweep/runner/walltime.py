"""When a batch system will end this process, and whether a task that begins now would be done.

A task that is killed at the end of a job has cost its time for nothing. So none is begun that would
take longer than is left, by how long 95 of 100 tasks have taken.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from ..base.units import parse_duration
from ..batch.slurm import end_of_job, end_said_now
from ..errors import UsageError
from .time_left import Durations

ENDING_S = 5.0  # what a run needs to end in order
ASKING_AGAIN_S = 2.0  # of that
WHOLE_SHARE = 0.9  # of a job: its first task begins when workers have started


@dataclass(frozen=True)
class Walltime:
    """The end of a job, on the monotonic clock."""

    end: float
    is_of_job: bool = False  # the batch system has said so, and may have changed it since

    @classmethod
    def at(cls, end_time: float) -> Walltime:
        """By the wall clock, as people and batch systems say it."""
        return cls(time.monotonic() + end_time - time.time())

    @property
    def left_s(self) -> float:
        """What tasks may use of it."""
        return self.end - ENDING_S - time.monotonic()

    def has_room_for(self, durations_s: Collection[float]) -> bool:
        """Whether a task that begins now would most likely be done, if others took this long."""
        return self.left_s > (Durations.of(durations_s).most_within_s or 0)

    def asked_again(self, environment: Mapping[str, str] = os.environ) -> Walltime:
        """With the end that the batch system says now, if it has said this one."""
        end_time = end_said_now(environment, ASKING_AGAIN_S) if self.is_of_job else None
        return self if end_time is None else replace(Walltime.at(end_time), is_of_job=True)


class TimeWatch:
    """Whether the time of a run is up, which may have no end."""

    def __init__(self, walltime: Walltime | None) -> None:
        self.walltime = walltime
        self._begun = time.monotonic()
        self._is_up = False

    def becomes_up(self, durations_s: Collection[float]) -> bool:
        """Whether no task should begin any more; true once, and after another question."""
        if self.walltime is None or self._is_up or self.walltime.has_room_for(durations_s):
            return False
        self.walltime = self.walltime.asked_again()
        self._is_up = not self.walltime.has_room_for(durations_s)
        return self._is_up

    @property
    def left_s(self) -> float:
        """What running tasks may use."""
        return math.inf if self.walltime is None else max(self.walltime.left_s, 0)

    def job_is_shorter_than(self, stopped_after_s: float) -> bool:
        """Whether a task that was stopped had all the time of a job, so that none ever has more."""
        if self.walltime is None or not self.walltime.is_of_job or not self._is_up:
            return False
        whole_s = self.walltime.end - ENDING_S - self._begun
        return stopped_after_s > WHOLE_SHARE * whole_s


def parse_until(text: str) -> Walltime:
    """A duration from now (`3h50min`) or a time (`17:30`, `2026-11-19T06:00`)."""
    with suppress(UsageError):
        return Walltime(time.monotonic() + parse_duration(text))
    try:
        day = "" if "T" in text or "-" in text else f"{datetime.now():%Y-%m-%d}T"
        end_time = datetime.fromisoformat(day + text).timestamp()
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time: write 3h50min, 17:30 or 2026-11-19T06:00"
        ) from None
    if end_time <= time.time():
        raise UsageError(f"--until {text} has passed: write a later time, with its date")
    return Walltime.at(end_time)


def job_walltime(environment: Mapping[str, str] = os.environ) -> Walltime | None:
    """When the batch job ends that this process is in; None if there is none, or nobody says."""
    end_time = end_of_job(environment)
    return None if end_time is None else replace(Walltime.at(end_time), is_of_job=True)
