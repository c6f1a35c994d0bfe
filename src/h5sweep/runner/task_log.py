"""Where the output of tasks goes: one file per worker, tagged by key.

Standard output and standard error of the whole process lead there, so that what C code and other
programs print is kept too. Python's own streams pass through `TaskLog`, which knows the key at that
moment and writes it above; what others wrote past it gets its tag below, when the task has ended.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from ..base.plan import Key, key_text
from ..base.safe_text import printable
from ..disk.durable import storage_error
from .crash_stacks import write_stacks_to

_MOST_READ = 1 << 28  # bytes at the end of a log


class TaskLog:
    """The log of one worker; from its making on, nothing of this process is printed elsewhere."""

    _stream: TextIO

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise storage_error(path, error) from error
        for standard in (1, 2):
            os.dup2(self._file, standard)
        self._open_stream()
        write_stacks_to(self._file)
        self._key: Key | None = None
        self._end = 0
        self._tagged = False

    def begin(self, key: Key) -> None:
        """From here on, what is printed belongs to `key`."""
        self._key = key
        self._tagged = False
        if self._stream.closed:
            # The last task has closed what is not its own.
            self._open_stream()

    def end(self) -> None:
        """Tag what C code printed past us, now that we see it."""
        if self._size_bytes() != self._end:
            if not self._tagged:
                self._tag_what_is_above()
            self._end = self._size_bytes()

    def _tag_what_is_above(self) -> None:
        """Say whose it is, and how much: what is above that may be of another task."""
        if size_bytes := self._size_bytes() - self._end:
            tag = f"--- printed by {self._name()}: the {size_bytes} bytes above\n"
            os.write(self._file, tag.encode())

    def write(self, data: bytes) -> int:
        """Write what Python code prints; above the first of it, whose it is."""
        if not self._tagged:
            self._tag_what_is_above()
            self._tagged = True
            os.write(self._file, f"--- {self._name()}\n".encode())
        return os.write(self._file, data)

    def close(self) -> None:
        """Leave no empty file behind."""
        if self._size_bytes() == 0:
            self._path.unlink(missing_ok=True)

    def _size_bytes(self) -> int:
        # Cheaper than fstat, and asked after every task; every write goes to the end anyway.
        return os.lseek(self._file, 0, os.SEEK_END)

    def _open_stream(self) -> None:
        sys.stdout = sys.stderr = io.TextIOWrapper(
            _TaggingFile(self), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        self._stream = sys.stdout

    def _name(self) -> str:
        name = "importing the study" if self._key is None else key_text(self._key)
        return _tag_name(name)


class _TaggingFile(io.RawIOBase):
    """What Python's standard streams write to."""

    def __init__(self, log: TaskLog) -> None:
        self._log = log

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._log.write(bytes(data))

    def fileno(self) -> int:
        return 1


def read_task_log(log: Path, key: Key) -> str:
    """What the task of that key has printed into a log, in all its attempts there."""
    own = _tag_name(key_text(key)).encode()
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_READ))
        content = file.read()
    if b" " + own not in content:
        return ""
    found = (content[start:end] for start, end in _stretches(content, own, next(iter(key))))
    return b"".join(found).decode(errors="replace")


def _stretches(content: bytes, own: bytes, parameter: str) -> Iterator[tuple[int, int]]:
    """Where what `own` has printed lies: below its tag, or above one that says how much."""
    # A line of dashes is a tag if it names the first parameter.
    name = rb"(?:%b=[^\n]*|importing the study)" % re.escape(parameter.encode())
    tags = rb"--- (?:printed by (%b): the (\d+) bytes above|(%b))\n" % (name, name)
    start = None
    for tag in re.finditer(tags, content):
        end = tag.start() - int(tag[2] or 0)
        if start is not None:
            yield start, end
        if tag[1] == own:
            yield end, tag.start()
        start = tag.end() if tag[3] == own else None
    if start is not None:
        yield start, len(content)


def _tag_name(name: str) -> str:
    return printable(name, breaks="")
