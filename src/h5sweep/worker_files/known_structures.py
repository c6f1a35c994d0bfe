"""Structures known to be sound: a file equal to one outside its data is as sound.

What small files of such a structure have each for itself is kept, so that these are read once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from struct import Struct

import numpy as np

from ..base.values import Array
from ..hdf5.read_data import fill_bytes
from ..hdf5.tree import Dataset
from .layouts import Contents, FileLayout
from .same_structure import Family

MOST_ROW_BYTES = 64 << 10


class KeptData:
    """What files of one structure have each for itself, one behind the other."""

    def __init__(self, file_bytes: int) -> None:
        self.file_bytes, self._data = file_bytes, bytearray()

    def add(self, data: bytes) -> int:
        """Keep the data of some more files; return the number of the first."""
        number = len(self._data) // self.file_bytes
        self._data += data
        return number

    def files(self, numbers: list[int]) -> Array:
        """The bytes of these files, in a row each."""
        rows: Array = np.frombuffer(self._data, np.uint8).reshape(-1, self.file_bytes)
        return rows.take(numbers, axis=0)


class KnownStructure:
    """A structure in which nothing was wrong, and the data of small files that have it.

    A file that equals it outside its data is as sound, unless the last row of a table is unwritten:
    of each table one piece of that row is looked at.
    """

    def __init__(
        self, family: Family, contents: Contents, layout: FileLayout, size_bytes: int
    ) -> None:
        self.family, self.contents, self.size_bytes = family, contents, size_bytes
        gaps = list(family.gaps(size_bytes))
        self.kept = KeptData(sum(end - start for start, end in gaps))
        self._last_rows = tuple(_last_rows(layout))
        self._fixed = tuple(family.fixed)
        # In turn what all have and what each has for itself: a file begins with its superblock.
        places = sorted([*family.spans, *gaps])
        self._parts = Struct("".join(f"{end - start}s" for start, end in places))

    def data_in(self, content: bytes) -> bytes | None:
        """What a file of the same size has for itself; None if it must be looked at closer."""
        parts = self._parts.unpack(content)
        if parts[::2] != self._fixed:
            return None
        for start, fill in self._last_rows:
            if content[start : start + len(fill)] == fill:
                return None
        return b"".join(parts[1::2])

    def is_like(self, descriptor: int) -> bool:
        """Whether a file of the same size need not be looked at closer."""
        for (start, end), data in zip(self.family.spans, self._fixed, strict=True):
            if os.pread(descriptor, end - start, start) != data:
                return False
        return all(os.pread(descriptor, len(fill), at) != fill for at, fill in self._last_rows)


def _last_rows(layout: FileLayout) -> Iterator[tuple[int, bytes]]:
    """Of every table that can grow, where one piece of its last row lies, and what fills it.

    The piece is the smallest that is in the file.
    """
    start = layout.tree.file.superblock.start
    for table in layout.tables():
        pieces = [
            (len(fill), start + at, fill)
            for dataset in table.columns.values()
            for at, fill in _last_row(dataset)
        ]
        if pieces:
            _, at, fill = min(pieces)
            yield at, fill
        elif len(table.columns) > 1 and table.rows > 1:
            yield 0, b""  # equal to anything: each such file is looked at by itself


def _last_row(dataset: Dataset) -> Iterator[tuple[int, bytes]]:
    row = (dataset.rows or 0) - 1
    row_bytes = math.prod(dataset.layout.chunk[1:]) * dataset.type.size
    if dataset.filters or dataset.type.points_elsewhere or row_bytes > MOST_ROW_BYTES:
        return
    for chunk in dataset.chunks:
        within = row - chunk.start[0]
        if 0 <= within < dataset.layout.chunk[0]:
            yield chunk.address + within * row_bytes, fill_bytes(dataset, row_bytes)
