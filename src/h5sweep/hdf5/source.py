"""Bytes of a file, read on demand and never beyond its end.

Read with `pread` and not mapped: a file that is cut short, or a disk that fails, while it is being
looked at gives an error that can be caught, where a mapping would kill the process.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from ..errors import naming
from .errors import Damaged, DamageKind

BLOCK_BYTES = 64 << 10
MOST_BLOCKS = 64


class Source:
    """Bytes that are all in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = bytes(content)
        self.size = len(content)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes; Damaged if the file does not have them."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(beyond_text(offset, size, self.size), DamageKind.BEYOND_END)
        return self._read(offset, size)

    def _read(self, offset: int, size: int) -> bytes:
        return self.content[offset : offset + size]


class FileSource(Source):
    """An open file, of which a few megabytes at most are kept in memory."""

    def __init__(self, descriptor: int, size: int | None = None) -> None:
        super().__init__(b"")
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size if size is None else size
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def _read(self, offset: int, size: int) -> bytes:
        first, last = offset // BLOCK_BYTES, (offset + size - 1) // BLOCK_BYTES
        if first == last:
            start = offset - first * BLOCK_BYTES
            found = self._block(first)[start : start + size]
        else:
            with naming(self.descriptor):
                found = os.pread(self.descriptor, size, offset)
        return found if len(found) == size else self._read_alone(offset, size)

    def _read_alone(self, offset: int, size: int) -> bytes:
        """The same by itself: a read that meets a bad sector ends before it, and says so next."""
        content = bytearray(size)
        self.read_into(memoryview(content), offset)
        return bytes(content)

    def read_into(self, target: memoryview, offset: int) -> None:
        """Fill `target` with what lies at `offset`, past the blocks that are kept."""
        while target:
            with naming(self.descriptor):
                size = os.preadv(self.descriptor, [target], offset)
            if not size:
                raise _shortened()
            target, offset = target[size:], offset + size

    def _block(self, number: int) -> bytes:
        block = self._blocks.get(number)
        if block is None:
            with naming(self.descriptor):
                block = os.pread(self.descriptor, BLOCK_BYTES, number * BLOCK_BYTES)
            self._blocks[number] = block
            if len(self._blocks) > MOST_BLOCKS:
                self._blocks.popitem(last=False)
        return block


class OpenSource(FileSource):
    """A file that is opened here, for reading only, and closed at the end of `with`."""

    def __init__(self, path: Path) -> None:
        super().__init__(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def __enter__(self) -> OpenSource:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
        self._blocks.clear()  # what was read may be held for longer, by what refers to it


def _shortened() -> Damaged:
    return Damaged("the file became shorter while it was read", DamageKind.BEYOND_END)


def beyond_text(offset: int, size: int, file_size: int) -> str:
    return f"{size:,} bytes at {offset:,}, beyond the end of the file at {file_size:,}"
