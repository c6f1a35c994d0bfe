"""Bytes of a file that may be growing, cut short, or unreadable in places."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Self
from zlib import crc32

from ..errors import UnreadableError, naming

WINDOW_BYTES = 2 << 20  # of a file, at most, that are kept in memory while it is scanned


class FileWindow:
    """A file open for reading that keeps what it last read: whoever asks goes mostly forwards.

    Read with `pread`, and not mapped: a bad sector, or a file that is cut short, gives an error
    where a mapping would kill the process. `view` shows zeros there; all else raises
    UnreadableError. Only `read_into` and `checksum` are for several threads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with naming(path):
            self.size_bytes = os.fstat(self._descriptor).st_size
        self._window, self._window_start = b"", 0
        self._next_window_bytes = _FIRST_WINDOW_BYTES
        self._refused: dict[int, str] = {}  # pages that cannot be read, and why

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._window = b""  # whoever still refers to the file needs no bytes of it
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):  # or it could not be opened
            self.close()

    def read(self, start: int, size: int) -> bytes:
        """Exactly these bytes."""
        place = start - self._window_start
        is_there = place >= 0 and place + size <= len(self._window)
        if is_there and not self.refusal(start, start + size):
            return self._window[place : place + size]
        return self._read(start, size)

    def _read(self, start: int, size: int) -> bytes:
        try:
            content = os.pread(self._descriptor, size, start)
        except OSError as error:
            raise UnreadableError(self.path, start, error.strerror or str(error)) from error
        if len(content) == size:
            return content
        rest = bytearray(size - len(content))  # of over 2 GiB, or of a file that was cut
        self.read_into(memoryview(rest), start + len(content))
        return content + rest

    def read_into(self, target: memoryview, start: int) -> None:
        """Fill `target` with the bytes at `start`."""
        while target:
            try:
                size = os.preadv(self._descriptor, [target], start)
            except OSError as error:
                raise UnreadableError(self.path, start, error.strerror or str(error)) from error
            if not size:
                raise UnreadableError(self.path, start, "the file is shorter than it was")
            target, start = target[size:], start + size

    def checksum(self, start: int, size: int) -> int:
        """The CRC-32 of these bytes, of which there may be more than memory has room for."""
        checksum = 0
        for piece in range(start, start + size, WINDOW_BYTES):
            content = self._read(piece, min(WINDOW_BYTES, start + size - piece))
            checksum = crc32(content, checksum)
        return checksum

    def view(self, start: int, size: int) -> memoryview:
        """What lies from `start` on: `size` bytes if the file has them, or more.

        There are zeros for what cannot be read; `scan` takes it for damage.
        """
        place = start - self._window_start
        if place < 0 or place + size > len(self._window):
            wanted = max(size, self._next_window_bytes)
            self._window = self._read_what_can_be(start, min(wanted, self.size_bytes - start))
            self._window_start, place = start, 0
            self._next_window_bytes = min(2 * self._next_window_bytes, WINDOW_BYTES)
        return memoryview(self._window)[place:]

    def _read_what_can_be(self, start: int, size: int) -> bytes:
        try:
            return self._read(start, size)
        except UnreadableError:
            end = start + size
            cuts = [start, *range(start - start % _PAGE_BYTES + _PAGE_BYTES, end, _PAGE_BYTES), end]
            return b"".join(self._read_page(*extent) for extent in pairwise(cuts))

    def _read_page(self, start: int, end: int) -> bytes:
        """A page or part of it; zeros if it cannot be read, or if too many could not."""
        number = start // _PAGE_BYTES
        # Each refusal may take a failing disk seconds.
        if number not in self._refused and len(self._refused) < _MOST_REFUSED:
            try:
                return self._read(start, end - start)
            except UnreadableError as error:
                self._refused[number] = error.refusal
        self._refused.setdefault(number, next(reversed(self._refused.values()), ""))
        return bytes(end - start)

    def refusal(self, start: int, end: int) -> str:
        """Why some of these bytes cannot be read; empty if all can."""
        first, last = start // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
        return next((why for page, why in self._refused.items() if first <= page <= last), "")


_FIRST_WINDOW_BYTES = 64 << 10
_PAGE_BYTES = 4096
_MOST_REFUSED = 64
