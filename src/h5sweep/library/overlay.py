"""A file that was not closed, as the HDF5 library takes it: with another superblock.

The library reads it through a file object that shows it other first bytes. Nothing is copied, and
nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..disk.h5py_loader import h5py
from ..hdf5.errors import Damaged
from ..hdf5.source import OpenSource
from ..hdf5.superblock import find_superblock, mended, read_superblock


@contextmanager
def opened_as_closed(path: str) -> Iterator[Any]:
    """The file, open for reading, as if its writer had closed it; Damaged if none can be."""
    with OpenSource(Path(path)) as source:
        start = find_superblock(source)
        if start is None:
            raise Damaged("it has no superblock")
        new = mended(source, read_superblock(source, start))
        overlaid = _Overlaid(source.descriptor, start, new)
        with h5py.File(path, "r", driver="fileobj", fileobj=overlaid) as file:
            yield file


class _Overlaid:
    """An open file of which some bytes are others than on disk."""

    def __init__(self, descriptor: int, start: int, new: bytes) -> None:
        self._descriptor, self._start, self._new = descriptor, start, new
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        end = os.fstat(self._descriptor).st_size if whence == os.SEEK_END else 0
        self._position = end + offset

    def tell(self) -> int:
        return self._position

    def readinto(self, target: Any) -> None:
        into, place, done = memoryview(target), self._position, 0
        while count := os.preadv(self._descriptor, [into[done:]], place + done):
            done += count
        into[done:] = bytes(len(into) - done)  # what lies behind the end
        low, high = max(self._start, place), min(self._start + len(self._new), place + done)
        if low < high:
            into[low - place : high - place] = self._new[low - self._start : high - self._start]

    def flush(self) -> None:
        """Nothing is ever written."""
