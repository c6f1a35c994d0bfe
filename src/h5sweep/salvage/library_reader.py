"""The HDF5 library as a second reader, in a child process that a file may crash or hang."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..hdf5.source import Source
from ..hdf5.superblock import Superblock
from ..library.child_host import SECONDS_PER_MB, Limits
from ..library.child_process import Answer, Child


@dataclass(frozen=True)
class Question:
    """One file, how it is opened, and what is asked of it."""

    path: str
    how: str = "plain"
    names: tuple[str, ...] = ()
    pattern: str = ""
    wanted: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    size_bytes: int = field(default=0, compare=False)


def how_to_open(source: Source, block: Superblock) -> str:
    """How the library can be brought to open a file: as it is, as SWMR, or as if it were closed."""
    is_right = block.checksum_is_right
    if not block.is_being_written and block.end == source.size and is_right:
        return "plain"
    if block.is_being_written_swmr and block.end <= source.size and is_right:
        return "swmr"
    return "overlaid"


class SecondReader:
    """One child, replaced when a file has ended it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._child: Child | None = None

    def __enter__(self) -> SecondReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()

    def ask(self, question: Question) -> Iterator[tuple[dict[str, Any], bytes]]:
        """What the library finds, a task at a time; the last message has `end` in it.

        In all it gets the time limit for one file, which begins when the child is ready.
        """
        if self._child is None or not self._child.is_alive:
            self._child = Child("h5sweep.salvage.library_child", self._limits.memory_bytes)
        limit_s = self._limits.timeout_s + SECONDS_PER_MB * question.size_bytes / 1e6
        self._child.ask(question.__dict__, limit_s)
        said: dict[str, Any] = {}
        while "end" not in said:
            answer = self._child.wait()
            said = answer.said
            if answer.is_last:
                said = {"end": True, "errors": [_reason(answer)], "is_dead": True}
            yield said, answer.data


def _reason(answer: Answer) -> str:
    if answer.absent:
        return "the HDF5 library could not be started"
    if answer.timeout_s is not None:
        return "the HDF5 library did not finish reading it within --timeout"
    return "it kills the HDF5 library"
