"""What every kind of file provides: the keys and results of its tasks, and what else is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...base.key_rule import KeyRow
from ...base.relabels import Relabels
from .column_attributes import DatasetAttributes


class Result(NamedTuple):
    """The values of one task as a record has them; `number` counts the tasks of its file."""

    number: int
    schema: bytes
    data: bytes
    finished_at: float
    duration_s: float = 0.0
    code: str = ""  # the id of the version that made it; empty if that is not known
    labels: bytes = b""  # what the task has said of these values, as its record has it


class KnownVersion(NamedTuple):
    """A version of the code as a file of ours has it, and what its labels have become there."""

    number: int
    id: str
    text: str
    since: Relabels


class TasksOfFile(Protocol):
    """The tasks of one file; `keys` are known at once, results are read as they are asked for."""

    keys: list[KeyRow]
    about: About

    def place(self, number: int) -> str:
        """Where a task lies in its file, for people."""

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        """The results of all tasks, in order or from the last to the first."""


@dataclass
class About:
    """What the user should know of a file besides its tasks."""

    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    described: DatasetAttributes = field(default_factory=DatasetAttributes)
    datasets: dict[str, None] = field(default_factory=dict)  # names, in order
    attributes: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # attributes no output has, as texts
    versions: list[KnownVersion] = field(default_factory=list)  # that results are of
    content: bytes | None = None  # of the whole file, if that is in memory already

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def leave_out_groups(about: About, groups: list[str]) -> None:
    """Say of groups without a dataset, among others that have some, that they are no results."""
    if groups:
        about.skipped += groups
        about.note(f"groups without data left out: {len(groups):,}, first {groups[0]}")
