"""Whether the rows of an output are still as they were written, by their checksums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np

from ..base.crc32_combine import Words, of_concatenation
from ..base.values import Array
from .reader import OutputReader, StoredColumn
from .record_rows import BLOCK_BYTES

CHECK_BYTES = 1 << 20  # of rows at a time: what a core has in its own cache is read faster


def verify_rows(path: Path) -> list[int]:
    """Recompute the checksum of every row; return the numbers of the tasks where it fails.

    Needs nothing but the output. Only compares: nothing on disk changes.
    """
    with OutputReader(path) as reader:
        failed: list[int] = reader.tasks[damaged_rows(reader)].tolist()
        return failed


def damaged_rows(reader: OutputReader) -> Array:
    """Where the checksum of a row does not hold, as positions of rows."""
    expected, columns = reader.whole("row_crc32"), reader.columns()
    holds = np.ones(len(expected), bool)
    row_bytes = reader.path.stat().st_size // max(len(expected), 1)
    step = max(BLOCK_BYTES // row_bytes, 1)
    for first in range(0, len(expected), step):
        last = min(first + step, len(expected))
        holds[first:last] = stored_checksums(columns, first, last) == expected[first:last]
    return np.flatnonzero(~holds)


def stored_checksums(columns: Sequence[StoredColumn], first: int, last: int) -> Array:
    """The checksums of the rows from `first` to before `last`, as they are now."""
    checksums = RowChecksums(last - first)
    for column in columns:
        checksums.add(column.read(first, last), column.counts(first, last))
    return checksums.values()


def rows_hold(columns: Sequence[StoredColumn], first: int, checksums: Words) -> bool:
    """Whether the rows from `first` on have these checksums; for columns of numbers, all FIXED.

    The rows are read and laid out as their checksums take them in, so that one checksum over many
    of them proves each.
    """
    layout = np.dtype([(c.name, f"V{math.prod(c.inner) * c.itemsize}") for c in columns])
    step = max(CHECK_BYTES // layout.itemsize, 1)
    checksum = 0
    for start in range(0, len(checksums), step):
        count = min(step, len(checksums) - start)
        rows: Array = np.empty(count, layout)
        for column in columns:
            stored = column.read(first + start, first + start + count)
            rows[column.name] = stored.view(layout[column.name])
        checksum = crc32(rows.view(np.uint8).data, checksum)
    return checksum == of_concatenation(checksums, layout.itemsize)


class RowChecksums:
    """The CRC-32 of each row of a block, built up column by column."""

    def __init__(self, rows: int) -> None:
        self._values = [0] * rows

    def add(self, stored: Array, counts: Array) -> None:
        """Take in the elements of one column; `counts` says how many belong to each row."""
        ends = np.cumsum(counts)
        if stored.dtype == object:
            self._add_text(stored, ends.tolist())
            return
        data = np.ascontiguousarray(stored).view(np.uint8).data
        start = 0
        for row, end in enumerate((ends * stored.itemsize).tolist()):
            self._values[row] = crc32(data[start:end], self._values[row])
            start = end

    def _add_text(self, texts: Array, ends: list[int]) -> None:
        start = 0
        for row, end in enumerate(ends):
            for text in texts[start:end]:
                prefixed = len(text).to_bytes(4, "little") + text
                self._values[row] = crc32(prefixed, self._values[row])
            start = end

    def values(self) -> Array:
        return np.array(self._values, np.uint32)
