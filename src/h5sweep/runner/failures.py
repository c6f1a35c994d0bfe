"""Failures by their cause, and as text. Prints nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..base.plan import Key, Plan, key_text
from ..base.safe_text import printable
from ..base.units import count_text
from ..runfolder.records import RecordKind
from ..state.record_place import Failure
from ..state.state import FolderState

Cause = tuple[str, str, str, str]
MOST_READ = 5000  # failures, to say what their causes are

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?")


@dataclass(frozen=True)
class FailureCause:
    """Tasks that failed in the same way, and one of them."""

    tasks: int
    example: Key
    failure: Failure

    def __str__(self) -> str:
        """`12 tasks raised: ValueError at study.py:7: no layout fits`."""
        failed = self.failure
        where = f" at {failed.where}" if failed.where else ""
        count, message = count_text(self.tasks, "task"), " ".join(failed.message.split())
        return f"{count} {failed.kind.words}: {failed.error}{where}: {message}"


def failure_causes(state: FolderState) -> list[FailureCause]:
    """The causes of what has failed, the commonest first; of a sample if there are very many."""
    tasks = sorted(state.failures)
    return _causes(state.plan, state.read_failures(tasks[:: len(tasks) // MOST_READ + 1]))


def _causes(plan: Plan, failures: dict[int, Failure]) -> list[FailureCause]:
    causes = []
    for group in group_failures(failures):
        task, failure = next(iter(group.items()))
        causes.append(FailureCause(len(group), plan.key(task), failure))
    return causes


def group_failures(failures: dict[int, Failure]) -> list[dict[int, Failure]]:
    """Failures by cause, the commonest first: one error at one place, or in the same words."""
    groups: dict[Cause, dict[int, Failure]] = {}
    for task, failure in failures.items():
        cause = cause_of(failure.kind, failure.error, failure.where, failure.message)
        groups.setdefault(cause, {})[task] = failure
    return sorted(groups.values(), key=lambda group: -len(group))


def cause_of(kind: RecordKind, error: str, where: str, message: str) -> Cause:
    """What makes failures the same: one error at one place, or in the same words."""
    return kind.words, error, where, "" if where else _shape(message)


def _shape(message: str) -> str:
    """A message without what differs from task to task: numbers, and what stands in quotes."""
    return _NUMBERS.sub("0", _QUOTED.sub("''", message))


def failures_text(plan: Plan, failures: dict[int, Failure]) -> str:
    """What failed, one paragraph for each cause, with one traceback each."""
    lines = (line for cause in _causes(plan, failures) for line in _cause_lines(cause))
    return "\n".join(printable(line, breaks="\t") for line in lines)


def _cause_lines(cause: FailureCause) -> Iterator[str]:
    yield str(cause)
    yield f"  for example {key_text(cause.example)}"
    yield from (f"  | {line}" for line in cause.failure.traceback.rstrip().splitlines())
    yield ""
