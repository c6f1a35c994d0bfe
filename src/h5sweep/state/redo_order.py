"""Which of several results counts when tasks were asked to be run again: no clock decides that.

Record files are read newest first, by the number of the last request that each knew. Once a file
is older than a request, what it says of the tasks of that request is outdated. Such a task counts
as done while older files are read, so that the way which a million records take stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..base.plan import Plan
from ..runfolder.records import FINISHED_AT, RecordFile, RecordKind
from ..runfolder.redo_requests import Requests
from .record_place import RecordPlace


class RedoOrder:
    """The order in which record files are read, and what is outdated from a file on."""

    def __init__(self, requests: Requests, plan: Plan, paths: list[Path]) -> None:
        self._plan = plan
        self._requests = requests.newest_first()
        self._numbers = list(map(redo_number, paths)) if self._requests else [0] * len(paths)
        order = sorted(range(len(paths)), key=lambda place: -self._numbers[place])
        self.paths = [paths[place] for place in order]
        self._numbers = [self._numbers[place] for place in order]
        self._ahead = self._requests[:]
        self.outdated: set[int] = set()  # what is read from here on is older than their request
        self._waiting: set[int] = set()  # those that no newer file has a result of
        self.old: dict[int, RecordPlace] = {}  # the latest outdated result of each

    def begin(self, kinds: bytearray) -> None:
        """Let rows of the output not hide how tasks ended that were run again."""
        for request in self._requests:
            for task in request.numbers(self._plan):
                kinds[task] = 0

    def keep_old(self, task: int, place: RecordPlace) -> None:
        """Remember an outdated result, in case there is no other."""
        known = self.old.get(task)
        if known is None or place.is_later_than(known.file, known.frame[FINISHED_AT]):
            self.old[task] = place

    def reach_file(self, file_number: int, kinds: bytearray) -> None:
        """Say that this file is read next."""
        self._reach(self._numbers[file_number], kinds)

    def reach_end(self, kinds: bytearray) -> None:
        """Say that all files were read."""
        self._reach(-1, kinds)

    def _reach(self, number: int, kinds: bytearray) -> None:
        while self._ahead and self._ahead[0].number > number:
            for task in self._ahead.pop(0).numbers(self._plan):
                if task not in self.outdated:
                    self.outdated.add(task)
                    if kinds[task] != RecordKind.DONE:
                        self._waiting.add(task)
                        kinds[task] = RecordKind.DONE

    def last_requests(self) -> Iterator[tuple[int, bool, bool]]:
        """Every task that was asked for: whether it has a new result, and is its request open."""
        seen: set[int] = set()
        for request in self._requests:
            for task in request.numbers(self._plan):
                if task not in seen:
                    seen.add(task)
                    yield task, task not in self._waiting, request.is_open


def redo_number(path: Path) -> int:
    """The last request that the writer of a record file knew; 0 if there was none."""
    with suppress(FileNotFoundError), RecordFile(path) as file:
        return int((file.about() or {}).get("redo", 0))
    return 0
