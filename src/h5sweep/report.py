"""A state shown as text or JSON. Pure: returns strings, prints nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .plan import Key, key_text
from .state import Failure, FolderState, Missing
from .units import duration_text

STATUS_SCHEMA = "h5sweep.status/1"
MISSING_SCHEMA = "h5sweep.missing/1"
MOST_VALUES = 12
MOST_VALUES_COUNTED = 50
RECENT_S = 600.0


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one cause: the same error at the same place."""

    kind: str
    error: str
    where: str
    message: str
    traceback: str
    tasks: tuple[int, ...]


@dataclass(frozen=True)
class Status:
    """What `status` answers."""

    output: str
    output_exists: bool
    tasks: int
    done: int
    failed: int
    running: tuple[Missing, ...]
    damaged_records: int
    unreadable_files: int
    beyond_plan: int
    per_hour: float | None
    columns: dict[str, list[tuple[object, int, int]]]

    @property
    def missing(self) -> int:
        return self.tasks - self.done


def status_of(
    state: FolderState, output: str, output_exists: bool, *, most_values: int | None = None
) -> Status:
    """Sum a state up; key columns of more than `most_values` values are left out."""
    running = tuple(m for m in state.missing_of(sorted(state.running)))
    return Status(
        output=output,
        output_exists=output_exists,
        tasks=state.tasks_total + len(state.beyond_plan),
        done=state.tasks_done + len(state.beyond_plan),
        failed=state.tasks_failed,
        running=running,
        damaged_records=len(state.damages),
        unreadable_files=len(state.unreadable),
        beyond_plan=len(state.beyond_plan),
        per_hour=_recent_rate(state),
        columns=state.counts_by_column(most_values),
    )


def status_text(status: Status) -> str:
    """`status` for people."""
    return "\n".join(_status_lines(status)) + "\n"


def _status_lines(status: Status) -> Iterator[str]:
    share = 100 * status.done / max(status.tasks, 1)
    yield f"{status.output}: {status.done:,} of {status.tasks:,} done ({share:.1f} %)"
    parts = []
    if status.failed:
        parts.append(f"{status.failed:,} failed")
    if status.running:
        parts.append(f"{len(status.running):,} running")
    waiting = status.missing - status.failed - len(status.running)
    if waiting > 0:
        parts.append(f"{waiting:,} waiting")
    if parts:
        yield "  " + ", ".join(parts)
    if status.per_hour and status.missing and status.running:
        left = duration_text(3600 * status.missing / status.per_hour)
        yield f"  {status.per_hour:,.0f} an hour, {left} left"
    if status.damaged_records and status.missing:
        yield f"  {status.damaged_records:,} damaged records: `run` runs their tasks again"
    if status.unreadable_files:
        yield f"  {status.unreadable_files:,} record files whose beginning cannot be read"
    if status.beyond_plan:
        yield f"  {status.beyond_plan:,} results are under keys that are in no plan yet"
    yield from _column_lines(status)
    yield from (f"  running  {key_text(m.key)}  ({m.detail})" for m in status.running[:MOST_VALUES])
    yield _next_step(status)


def _column_lines(status: Status) -> Iterator[str]:
    for name, counts in status.columns.items():
        if len(counts) < 2:
            continue
        yield f"  {name}"
        shown = sorted(counts, key=lambda c: c[1] / c[2])[:MOST_VALUES]
        order = {id(c): i for i, c in enumerate(counts)}
        for value, done, total in sorted(shown, key=lambda c: order[id(c)]):
            yield f"    {value!s:>16}  {done:>9,} of {total:<9,} {_bar(done, total)}"
        if len(counts) > MOST_VALUES:
            yield f"    {'…':>16}  {len(counts) - MOST_VALUES} more, with a larger share done"


def _bar(done: int, total: int, width: int = 20) -> str:
    filled = width * done // max(total, 1)
    return "█" * filled + "·" * (width - filled)


def _next_step(status: Status) -> str:
    if status.missing:
        return f"next: h5sweep missing {status.output} lists what is missing, and why"
    if not status.output_exists:
        return f"next: h5sweep merge {status.output} makes the output"
    return "complete"


def status_json(status: Status) -> str:
    """`status` for programs."""
    value = {
        "schema": STATUS_SCHEMA,
        "output": status.output,
        "output_exists": status.output_exists,
        "tasks": status.tasks,
        "done": status.done,
        "failed": status.failed,
        "running": [{"task": m.task, "key": _plain_key(m.key)} for m in status.running],
        "missing": status.missing,
        "damaged_records": status.damaged_records,
        "unreadable_files": status.unreadable_files,
        "results_beyond_plan": status.beyond_plan,
        "per_hour": status.per_hour,
        "columns": {
            name: [{"value": _plain(v), "done": done, "tasks": total} for v, done, total in counts]
            for name, counts in status.columns.items()
        },
    }
    return json.dumps(value, ensure_ascii=False) + "\n"


def missing_lines(missing: Iterable[Missing]) -> Iterator[str]:
    """`missing` for people: a line a task."""
    for task in missing:
        detail = f": {' '.join(task.detail.split())}" if task.detail else ""
        yield f"{key_text(task.key)}  {task.reason}{detail}\n"


def missing_json(missing: Iterable[Missing], output: str) -> str:
    """`missing` for programs."""
    tasks = [
        {
            "task": m.task,
            "key": _plain_key(m.key),
            "reason": m.reason.value,
            "detail": m.detail,
        }
        for m in missing
    ]
    value = {"schema": MISSING_SCHEMA, "output": output, "missing": tasks}
    return json.dumps(value, ensure_ascii=False) + "\n"


def group_failures(failures: dict[int, Failure]) -> list[FailureGroup]:
    """Failures by cause, the commonest first."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for task, failure in failures.items():
        cause = (failure.kind.words, failure.error, failure.where)
        groups.setdefault(cause, []).append(task)
    found = []
    for (kind, error, where), tasks in groups.items():
        example = failures[tasks[0]]
        found.append(
            FailureGroup(kind, error, where, example.message, example.traceback, tuple(tasks))
        )
    return sorted(found, key=lambda group: -len(group.tasks))


def failures_text(state: FolderState, groups: list[FailureGroup]) -> str:
    """What failed, a paragraph a cause, with one traceback each."""
    return "\n".join(line for group in groups for line in _group_lines(state, group))


def _group_lines(state: FolderState, group: FailureGroup) -> Iterator[str]:
    where = f" at {group.where}" if group.where else ""
    count = f"{len(group.tasks):,} task" + ("s" if len(group.tasks) > 1 else "")
    yield f"{count} {group.kind}: {group.error}{where}: {group.message}"
    yield f"  for example {key_text(state.plan.key(group.tasks[0]))}"
    yield from (f"  | {line}" for line in group.traceback.rstrip().splitlines())
    yield ""


def _recent_rate(state: FolderState) -> float | None:
    """Results an hour, over the last ten minutes in which any came."""
    last = max(state.finished_at, default=0.0)
    if not last or time.time() - last > RECENT_S:
        return None
    recent = [t for t in state.finished_at if t > last - RECENT_S]
    span_s = last - min(recent)
    return 3600 * (len(recent) - 1) / span_s if span_s > 0 else None


def _plain_key(key: Key) -> dict[str, Any]:
    return {name: _plain(value) for name, value in key.items()}


def _plain(value: object) -> Any:
    return str(value) if isinstance(value, float) and math.isinf(value) else value
