"""The settings of a run: workers, limits, retries."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..runfolder.records import RecordKind


@dataclass(frozen=True)
class Retries:
    """How often a task is tried again in the same run, by how it ended."""

    died: int = 2
    timed_out: int = 0
    raised: int = 0
    over_memory: int = 0

    def __post_init__(self) -> None:
        if (least := min(self.died, self.timed_out, self.raised, self.over_memory)) < 0:
            raise UsageError(f"retries must be 0 or more, not {least}")

    def allowed(self, kind: RecordKind) -> int:
        return int(getattr(self, kind.name.lower()))


@dataclass(frozen=True)
class PoolSettings:
    """How tasks are run."""

    workers: int
    timeout_s: float | None = None
    memory_bytes: int | None = None
    retries: Retries = Retries()
    backoff_s: float = 1.0
    tasks_per_worker: int | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be 1 or more, not {self.workers}")
        if self.tasks_per_worker is not None and self.tasks_per_worker < 1:
            raise UsageError(f"tasks_per_worker must be 1 or more, not {self.tasks_per_worker}")


def parse_retries(text: str) -> Retries:
    """`2`, or `died=3,timed-out=1,raised=0`."""
    if text.isdigit():
        return Retries(*[int(text)] * 4)
    try:
        pairs = [item.split("=") for item in text.split(",")]
        return Retries(**{name.strip().replace("-", "_"): int(count) for name, count in pairs})
    except (ValueError, TypeError) as error:
        advice = "write a number, or died=3,timed-out=1,raised=0,over-memory=0"
        raise UsageError(f"{text!r} is not a number of retries: {advice}") from error
