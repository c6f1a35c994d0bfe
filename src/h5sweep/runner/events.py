"""The events that a pool reports while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from ..runfolder.records import RecordKind


@dataclass(frozen=True, slots=True)
class Ended:
    """So many tasks of a batch ended as done."""

    tasks_done: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A task did not end well. `recorded` says whether its worker left a record of that."""

    task: int
    kind: RecordKind
    error: dict[str, str]
    duration_s: float
    will_retry: bool
    recorded: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """A task was running when the pool was told to stop; `where` it was, if it said so."""

    task: int
    running_s: float
    where: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should hear once."""

    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing happened for a moment: time to redraw."""


Event = Ended | Failed | Stopped | Note | Tick
