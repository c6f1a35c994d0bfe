"""The HDF5 library as a second reader, in a child process that a file may crash or hang."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from ..hdf5.source import Source
from ..hdf5.superblock import Superblock, mended
from ..library.child_host import SECONDS_PER_MB, START_S, Limits

_FRAME_BYTES = 12
MOST_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class Question:
    """One file, how it is opened, and what is asked of it."""

    path: str
    how: str = "plain"
    start: int = 0
    new: str = ""
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
        return Question(path, "plain", 0, "", *asked)
    if block.is_being_written_swmr and block.end <= source.size and block.checksum_is_right:
        return Question(path, "swmr", 0, "", *asked)
    return Question(path, "overlaid", block.start, mended(source, block).hex(), *asked)


class SecondReader:
    """One child, replaced when a file has ended it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()

    def __enter__(self) -> SecondReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, question: Question) -> Iterator[tuple[dict[str, Any], bytes]]:
        """What the library finds, a task at a time; the last message has `end` in it.

        In all it gets the time limit for one file, which begins when the child is ready.
        """
        process = self._running()
        if process is None:
            yield _ended("the HDF5 library could not be started")
            return
        limit_s = self._limits.timeout_s + SECONDS_PER_MB * question.size_bytes / 1e6
        deadline = time.monotonic() + limit_s
        with suppress(OSError):  # if it is dead, reading will say so
            assert process.stdin is not None
            process.stdin.write(_line(question))
            process.stdin.flush()
        while True:
            message = self._message(process, deadline)
            if isinstance(message, str):
                self._end()
                yield _ended(message)
                return
            yield message
            if "end" in message[0]:
                return

    def _running(self) -> subprocess.Popen[bytes] | None:
        """The child, once it is ready; None if it cannot start, whatever the file is."""
        if self._process is None:
            self._buffer.clear()
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "h5sweep.salvage.library_child",
                    str(self._limits.memory_bytes),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            if isinstance(self._message(self._process, time.monotonic() + START_S), str):
                self._end()
        return self._process

    def _message(
        self, process: subprocess.Popen[bytes], deadline: float
    ) -> tuple[dict[str, Any], bytes] | str:
        """The next message, or why there is none."""
        head = self._take(process, _FRAME_BYTES, deadline)
        if isinstance(head, str):
            return head
        header_bytes = int.from_bytes(head[:4], "little")
        data_bytes = int.from_bytes(head[4:], "little")
        if header_bytes > MOST_HEADER_BYTES or data_bytes > self._limits.memory_bytes:
            return "it misled the HDF5 library"
        body = self._take(process, header_bytes + data_bytes, deadline)
        if isinstance(body, str):
            return body
        return json.loads(body[:header_bytes]), body[header_bytes:]

    def _take(self, process: subprocess.Popen[bytes], size: int, deadline: float) -> bytes | str:
        assert process.stdout is not None
        while len(self._buffer) < size:
            if not _has_more(process.stdout, deadline):
                return "the HDF5 library did not finish reading it within --timeout"
            data = os.read(process.stdout.fileno(), 1 << 20)
            if not data:
                return "it kills the HDF5 library"
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process = None
        self._buffer.clear()


def _has_more(stream: IO[bytes], deadline: float) -> bool:
    """Wait until there is something to read, or the end of it; False if it takes too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(max(deadline - time.monotonic(), 0.0)))


def _ended(why: str) -> tuple[dict[str, Any], bytes]:
    return {"end": True, "errors": [why], "is_dead": True}, b""


def _line(question: Question) -> bytes:
    return json.dumps(question.__dict__).encode() + b"\n"
