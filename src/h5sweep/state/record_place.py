"""Where a record lies, which of two counts, and what one says of a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runfolder.records import DURATION_S, FINISHED_AT, KIND, RecordFile, RecordKind


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record lies: which of `FolderState.paths`, and its offset there."""

    file: int
    offset: int
    frame: tuple[Any, ...]

    def is_later_than(self, file: int, finished_at: float) -> bool:
        """Whether it counts in place of one that was read before it.

        In one file it does, whatever the clock said: it was written later. Of two files, clocks
        decide.
        """
        return self.file == file or bool(self.frame[FINISHED_AT] >= finished_at)


@dataclass(frozen=True, slots=True)
class Failure:
    """How a task ended that did not end well."""

    kind: RecordKind
    error: str
    message: str
    where: str
    traceback: str
    finished_at: float
    duration_s: float


def read_failure(file: RecordFile, place: RecordPlace) -> Failure:
    """The failure whose record lies there."""
    error = file.header(place.offset, place.frame)["error"]
    return Failure(
        RecordKind(place.frame[KIND]),
        error.get("type", ""),
        error.get("message", ""),
        error.get("where", ""),
        error.get("traceback", ""),
        place.frame[FINISHED_AT],
        place.frame[DURATION_S],
    )
