"""Which jobs were submitted for a run folder, and which of these are not over.

submit/2.sh          the script of the second submission: all its parts
submit/2.merge.sh    what follows them
submit/2.json        which jobs these became
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..disk import durable
from ..disk.inside_folder import parse_json, read_file
from ..runfolder.layout import RunFolder
from .job import BatchSystem, QueuedPart
from .slurm import Slurm

BATCH_SYSTEMS: dict[str, BatchSystem] = {"slurm": Slurm()}
ANSWER_S = 2.0


@dataclass(frozen=True)
class Submission:
    """Jobs that were submitted together, by the names that the batch system gave them."""

    number: int
    engine: str
    parts: int
    job: str
    merge_job: str = ""  # empty if that was refused
    time: str = ""

    @property
    def jobs(self) -> list[str]:
        """All of them that there are."""
        return [job for job in (self.job, self.merge_job) if job]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Submission:
        """ValueError or TypeError if it is none."""
        found = cls(**value)
        texts = (found.engine, found.job, found.merge_job)
        if found.engine not in BATCH_SYSTEMS or not all(isinstance(text, str) for text in texts):
            raise ValueError("there is no such batch system, or no job")
        return found


@dataclass(frozen=True)
class QueuedJobs:
    """The jobs of a run folder that are not over, or may not be."""

    engine: str
    states: Mapping[str, Mapping[str, int]]  # of each job: how many parts are pending, running
    reasons: Mapping[str, str] = field(default_factory=dict)  # why parts of a job are pending
    is_answered: bool = True  # else nobody says which of them are over

    def __str__(self) -> str:
        """`Slurm job 17: 12 pending (Priority), 3 running; job 18: 1 pending (Dependency)`."""
        title = BATCH_SYSTEMS[self.engine].title
        if not self.is_answered:
            them = "job" if len(self.states) == 1 else "jobs"
            jobs = ", ".join(self.states) or "that it was given"
            return f"{title} does not answer: {them} {jobs} may still run"
        texts = [f"job {job}: {self._counts_text(job)}" for job in self.states]
        return f"{title} {'; '.join(texts)}"

    def _counts_text(self, job: str) -> str:
        why = {"pending": f" ({self.reasons[job]})"} if self.reasons.get(job) else {}
        counts = sorted(self.states[job].items())
        return ", ".join(f"{count:,} {state}{why.get(state, '')}" for state, count in counts)

    @property
    def cancel_command(self) -> str:
        """What a user types to end them."""
        return BATCH_SYSTEMS[self.engine].cancel_command(list(self.states))


def script_paths(folder: RunFolder, number: int) -> tuple[Path, Path]:
    """Where the script of the parts lies, and that of the merge."""
    return folder.submit_path / f"{number}.sh", folder.submit_path / f"{number}.merge.sh"


def next_number(folder: RunFolder) -> int:
    """A number that no submission has had, not even one that was refused."""
    found = (re.match(r"[0-9]+", path.name) for path in _submitted_files(folder))
    return max((int(match[0]) for match in found if match), default=0) + 1


def note_submission(folder: RunFolder, submission: Submission) -> None:
    """Write down which jobs there are, durably."""
    path = folder.submit_path / f"{submission.number}.json"
    durable.replace_text(path, json.dumps(asdict(submission)) + "\n")


def read_submissions(folder: RunFolder) -> list[Submission]:
    """Every submission that became jobs, in order; a note that cannot be read is left out."""
    found = []
    for path in _submitted_files(folder):
        if path.suffix == ".json":
            with suppress(ValueError, TypeError):
                found.append(Submission.from_json(parse_json(read_file(path) or b"")))
    return sorted(found, key=lambda one: one.number)


def _submitted_files(folder: RunFolder) -> list[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return list(folder.submit_path.iterdir())
    return []


def queued_jobs(
    folder: RunFolder, *, within_s: float = ANSWER_S, known_for_s: float = 0.0
) -> QueuedJobs | None:
    """What is not over of all that was submitted; None if nothing is.

    Jobs count that are noted, and those with a script of the folder, whoever submitted it. An
    answer may be as old as `known_for_s`: a batch system has better things to do.
    """
    asked_at, answer = _answers.get(folder.submit_path, (0.0, None))
    if asked_at and time.monotonic() - asked_at < known_for_s:
        return answer
    if not (scripts := [path for path in _submitted_files(folder) if path.suffix == ".sh"]):
        return None
    submissions = read_submissions(folder)
    engine = submissions[-1].engine if submissions else next(iter(BATCH_SYSTEMS))
    ours = [one for one in submissions if one.engine == engine]
    jobs = [job for one in ours for job in one.jobs]
    found = BATCH_SYSTEMS[engine].queued(jobs, scripts, within_s)
    if found is None:
        # Those of earlier submissions were over when the last was made.
        last = [job for one in ours if one.number == next_number(folder) - 1 for job in one.jobs]
        answer = QueuedJobs(engine, {job: {} for job in last}, is_answered=False)
    else:
        answer = _summed_up(engine, jobs, found)
    _answers[folder.submit_path] = time.monotonic(), answer
    return answer


def _summed_up(engine: str, noted: Sequence[str], found: Sequence[QueuedPart]) -> QueuedJobs | None:
    states: dict[str, Counter[str]] = {}
    reasons: dict[str, set[str]] = {}
    for part in found:
        states.setdefault(part.job, Counter())[part.state] += 1
        if part.state == "pending" and part.reason:
            reasons.setdefault(part.job, set()).add(part.reason)
    in_order = {job: states[job] for job in dict.fromkeys([*noted, *states]) if job in states}
    whys = {job: ", ".join(sorted(reasons[job])) for job in in_order if job in reasons}
    return QueuedJobs(engine, in_order, whys) if in_order else None


_answers: dict[Path, tuple[float, QueuedJobs | None]] = {}
