"""What is known about one task: as data, in words, and as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..base.plan import Key, key_text, plain_key
from ..base.safe_text import json_text
from ..base.units import duration_text, near_path
from ..base.values import Array, plain_array

SCHEMA = "h5sweep.show/1"
DONE = "done"
_MOST_ELEMENTS = 24  # of an array that are shown; of a larger one, its corners
_LONGEST_PRINTED = 20_000  # characters of a log
_NEW_LINE = "\n"


@dataclass(frozen=True)
class Ending:
    """How one attempt ended; `error` to `traceback` are empty if it ended well."""

    outcome: str  # done, raised, died, timed out, over memory
    finished_at: float
    duration_s: float
    error: str = ""
    message: str = ""
    where: str = ""
    traceback: str = ""  # or the stack of where it was when it was stopped, or crashed
    host: str = ""  # empty if only the output is there, which does not say
    code: int = 0  # the version; 0 if that is not known
    record_file: str = ""
    is_taken: bool = False  # out of a file of another program, whose time it has

    @property
    def words(self) -> str:
        """What went wrong, in a line."""
        where = f" at {self.where}" if self.where else ""
        return f"{self.outcome}: {self.error}{where}: {' '.join(self.message.split())}"


@dataclass(frozen=True)
class TaskResult:
    """The result that counts, where it lies, and how the attempt ended that gave it."""

    values: Mapping[str, Array] = field(repr=False, compare=False)
    units: Mapping[str, str]
    ending: Ending
    path: Path


@dataclass(frozen=True)
class TaskLines:
    """What a task printed into one log."""

    path: Path
    text: str


@dataclass(frozen=True)
class TaskReport:
    """One task: `state` is done, or why it is to be run; endings are in the order of their times.

    A task that is to be run again may have a result, and so may one that has failed since.
    """

    output: Path
    task: int
    key: Key
    state: str
    detail: str
    result: TaskResult | None
    endings: tuple[Ending, ...]
    log: tuple[TaskLines, ...]
    running_since: float | None = None

    def __str__(self) -> str:
        return task_text(self)

    def as_json(self) -> dict[str, Any]:
        """As strict JSON; NaN is null, infinity a text."""
        return {
            "schema": SCHEMA,
            "output": str(self.output),
            "task": self.task,
            "key": plain_key(self.key),
            "state": str(self.state),
            "detail": self.detail,
            "running_since": self.running_since,
            "result": None if self.result is None else _result_json(self.result),
            "attempts": [asdict(ending) for ending in self.endings],
            "log": [{"path": str(lines.path), "text": lines.text} for lines in self.log],
        }


def task_text(report: TaskReport) -> str:
    """A task as people read it."""
    return "\n".join(_lines(report))


def task_json(report: TaskReport) -> str:
    return json_text(report.as_json(), indent=1)


def _lines(report: TaskReport) -> Iterator[str]:
    yield f"{key_text(report.key)}: {_state_text(report)}"
    if report.result is not None:
        yield from _result_lines(report.result)
    failed = [ending for ending in report.endings if ending.outcome != DONE]
    if failed or len(report.endings) > 1:
        yield from _ending_lines(report.endings)
    if failed and failed[-1].traceback:
        yield "how it failed last:"
        yield from _indented(failed[-1].traceback)
    for lines in report.log:
        yield f"printed into {near_path(lines.path)}:"
        if len(lines.text) > _LONGEST_PRINTED:
            yield f"  | … {len(lines.text) - _LONGEST_PRINTED:,} characters before this"
        yield from _indented(lines.text[-_LONGEST_PRINTED:])


def _state_text(report: TaskReport) -> str:
    since = report.running_since
    lasting = f" for {duration_text(max(0.0, time.time() - since))}" if since else ""
    detail = " ".join(report.detail.split())
    return f"{report.state}{lasting}{detail and f' ({detail})'}"


def _result_lines(result: TaskResult) -> Iterator[str]:
    width = max(map(len, result.values), default=0)
    for name, values in result.values.items():
        unit = result.units.get(name, "")
        first, *others = _value_text(values).splitlines() or [""]
        yield f"  {name:<{width}}  {first}{f' {unit}' if unit and not others else ''}"
        yield from (f"  {'':<{width}}  {line}" for line in others)
        if unit and others:
            yield f"  {'':<{width}}  in {unit}"
    ending = result.ending
    yield _when_text(ending)
    code = f"of code {ending.code}" if ending.code else "its code is not known"
    yield f"{code}; read from {near_path(result.path)}"


def _when_text(ending: Ending) -> str:
    """A duration of 0 is what a record has if nobody took the time."""
    at = _time_text(ending.finished_at)
    if ending.is_taken:
        return f"from a file that was written {at}; when it ended is not known"
    took = f"took {_seconds_text(ending.duration_s)}, " if ending.duration_s else ""
    return f"{took}ended {at}{f' on {ending.host}' if ending.host else ''}"


def _value_text(values: Array) -> str:
    if not values.ndim:
        return str(values[()])
    text = np.array2string(values, threshold=_MOST_ELEMENTS, edgeitems=2, max_line_width=60)
    dtype = "text" if values.dtype == object else str(values.dtype)
    shape = " × ".join(map(str, values.shape))
    return f"{shape} {dtype}{' ' if values.ndim == 1 else _NEW_LINE}{text}"


def _ending_lines(endings: tuple[Ending, ...]) -> Iterator[str]:
    yield "attempts:"
    for number, ending in enumerate(endings, 1):
        host = f" on {ending.host}" if ending.host else ""
        code = f", code {ending.code}" if ending.code else ""
        after = f", after {_seconds_text(ending.duration_s)}" if ending.duration_s else ""
        took = f"{_time_text(ending.finished_at)}{host}{after}"
        if ending.outcome == DONE:
            yield f"  {number}  {took}{code}: {DONE}"
        else:
            yield f"  {number}  {took}{code}"
            yield f"     {ending.words}"


def _indented(text: str) -> Iterator[str]:
    return (f"  | {line}" for line in text.rstrip().splitlines())


def _seconds_text(seconds: float) -> str:
    if seconds < 0.001:
        return "under 1 ms"
    return f"{seconds:.3g} s" if seconds < 90 else duration_text(seconds)


def _time_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _result_json(result: TaskResult) -> dict[str, Any]:
    values = {
        name: {
            "dtype": "text" if array.dtype == object else str(array.dtype),
            "shape": list(array.shape),
            "units": result.units.get(name),
            "value": plain_array(array),
        }
        for name, array in result.values.items()
    }
    return {"values": values, "path": str(result.path), **asdict(result.ending)}
