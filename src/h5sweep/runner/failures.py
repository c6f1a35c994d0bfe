"""Failures by their cause, and as text. Prints nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.plan import Plan, key_text
from ..base.safe_text import printable
from ..base.units import count_text
from ..runfolder.records import RecordKind
from ..state.record_place import Failure

Cause = tuple[str, str, str, str]

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?([eE][-+]?\d+)?")


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
    lines = (line for group in group_failures(failures) for line in _group_lines(plan, group))
    return "\n".join(printable(line, breaks="\t") for line in lines)


def _group_lines(plan: Plan, group: dict[int, Failure]) -> Iterator[str]:
    task, example = next(iter(group.items()))
    where = f" at {example.where}" if example.where else ""
    count, message = count_text(len(group), "task"), " ".join(example.message.split())
    yield f"{count} {example.kind.words}: {example.error}{where}: {message}"
    yield f"  for example {key_text(plan.key(task))}"
    yield from (f"  | {line}" for line in example.traceback.rstrip().splitlines())
    yield ""
