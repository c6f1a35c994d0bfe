"""The HDF5 library as a second reader, in a child process that a file may crash or hang."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def question_of(
    path: str,
    source: Source,
    block: Superblock,
    names: Sequence[str],
    pattern: str,
    wanted: Any,
    skip: Iterable[str] = (),
) -> Question:
    """How the library can be brought to open a file: as it is, as SWMR, or closed in memory."""
    asked = (tuple(names), pattern, tuple(wanted), tuple(skip), source.size)
    is_shut = not block.is_being_written and block.end == source.size and block.checksum_is_right
    if is_shut:
        return Question(path, "plain", *asked)
    if block.is_being_written_swmr and block.end <= source.size and block.checksum_is_right:
        return Question(path, "swmr", *asked)
    return Question(path, "overlaid", *asked)


class SecondReader:
    """One child, replaced when a file has ended it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._child: Child | None = None
        self._is_absent = False  # no child can be started, whatever the file is

    def __enter__(self) -> SecondReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()

    def ask(self, question: Question) -> Iterator[tuple[dict[str, Any], bytes]]:
        """What the library finds, a task at a time; the last message has `end` in it.

        In all it gets the time limit for one file, which begins when the child is ready.
        """
        for answer in self._answers(question):
            if answer.is_last:
                self._is_absent = bool(answer.absent)
                yield {"end": True, "errors": [_reason(answer)], "is_dead": True}, b""
            else:
                yield answer.said, answer.data
            if answer.is_last or "end" in answer.said:
                return

    def _answers(self, question: Question) -> Iterator[Answer]:
        if self._is_absent:
            yield Answer(absent="as before")
            return
        try:
            if self._child is None or not self._child.is_alive:
                self._child = Child("h5sweep.salvage.library_child", self._limits.memory_bytes)
        except OSError as error:  # no more processes, or no more memory
            yield Answer(absent=str(error))
            return
        limit_s = self._limits.timeout_s + SECONDS_PER_MB * question.size_bytes / 1e6
        self._child.ask(question.__dict__, limit_s)
        while True:
            yield self._child.wait()


def _reason(answer: Answer) -> str:
    if answer.absent:
        return "the HDF5 library could not be started"
    if answer.timeout_s is not None:
        return "the HDF5 library did not finish reading it within --timeout"
    return "it kills the HDF5 library"
