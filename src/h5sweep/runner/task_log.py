"""Where the output of tasks goes: one file per worker, tagged by key.

Standard output and standard error of the whole process lead there, so that what C code and other
programs print is kept too. Python's own streams pass through `TaskLog`, which knows the key at that
moment and writes it above; what others wrote past it gets its tag below, when the task has ended.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from ..base.plan import Key, key_text
from ..base.safe_text import printable
from ..disk.durable import storage_error
from .crash_stacks import write_stacks_to


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
        size_bytes = self._size_bytes()
        if size_bytes != self._end:
            if not self._tagged:
                os.write(self._file, f"--- printed by {self._name()}\n".encode())
            self._end = self._size_bytes()

    def write(self, data: bytes) -> int:
        """Write what Python code prints; above the first of it, whose it is."""
        if not self._tagged:
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
        return printable(name, breaks="")


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
