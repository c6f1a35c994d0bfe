"""What is asked of a batch system, and what one has to be able to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Resources:
    """What each part may use."""

    cpus: int = 1
    time_s: float | None = None  # None: what the batch system gives to who does not ask
    memory_bytes: int | None = None
    more: tuple[str, ...] = ()  # options of the batch system, as its own program takes them


@dataclass(frozen=True)
class Job:
    """The parts of a sweep, or what follows them."""

    name: str
    about: str  # for whoever reads the script
    lines: Sequence[str]  # of a shell script
    resources: Resources
    folder: Path  # where it is run
    logs: Path
    parts: int | None = None  # None: it is one job


@dataclass(frozen=True)
class QueuedPart:
    """A part of a job that is not over."""

    job: str
    state: str  # pending, running, as the batch system calls it
    reason: str = ""  # why it waits


class BatchSystem(Protocol):
    """What a batch system has to be able to do."""

    title: str  # as people write it
    part_variable: str  # what the shell knows the number of a part by, from 1

    def require_installed(self) -> None:
        """Raise UsageError if nothing can be submitted from here."""

    def script_text(self, job: Job) -> str:
        """The script of a job; UsageError if there can be none."""

    def submit(self, script: Path, job: Job, after: str = "") -> str:
        """Submit a script; return how the batch system calls the job. SubmitError if it refuses.

        With `after`, it begins when that job is over, however that ended.
        """

    def queued(
        self, jobs: Sequence[str], scripts: Collection[Path], within_s: float
    ) -> list[QueuedPart] | None:
        """Each part that is not over, of these jobs and of those with these scripts; None: no
        answer.
        """

    def cancel_command(self, jobs: Sequence[str]) -> str:
        """What a user types to end jobs."""
