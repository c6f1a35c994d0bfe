"""The settings of a run: workers, limits, retries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UsageError
from ..runfolder.records import RecordKind

WORKER_VARIABLE = "H5SWEEP_WORKER"  # in which each worker finds its number
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


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
    env: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # dealt round the workers

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


def parse_envs(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The variables of several options; UsageError if one is said twice."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in map(parse_env, texts):
        if name in found:
            raise UsageError(f"--env {name} is said twice: write all of its values in one option")
        found[name] = values
    return found


def parse_env(text: str) -> tuple[str, tuple[str, ...]]:
    """`CUDA_VISIBLE_DEVICES=0,1,2,3`; with a semicolon, values may have commas: `0,1;2,3`."""
    name, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} deals no values: write NAME=0,1,2,3")
    return name, dealt_values(name, values.split(";" if ";" in values else ","))


def dealt_values(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """The values of a variable that is dealt round workers, as texts."""
    if isinstance(values, str) or not values or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise UsageError(
            f"env: {name!r} needs a name, and a list of its values: NAME=0,1,2,3 in a command, "
            'env={"NAME": [0, 1, 2, 3]} in Python'
        )
    if name == WORKER_VARIABLE:
        raise UsageError(f"env: {name} is the number of each worker: choose another variable")
    return tuple(map(str, values))
