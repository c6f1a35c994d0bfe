"""Read records of one size many at a time, with NumPy: the fast way through a record file.

A CRC-32 is linear: from the checksums of pieces follows the checksum of their concatenation. So a
stretch of thousands of records is proven sound by one checksum over all its bytes, compared with
the one that its records' own checksums imply. Where they differ, halves are tried, and what remains
goes through `RecordFile.scan`, record by record.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np

from ..base.crc32_combine import LinearMap, Words, after, of_concatenation, shift_by
from ..base.values import Array
from .file_window import WINDOW_BYTES
from .records import FRAME, FRAME_BYTES, MAGIC, RecordFile, RecordKind, Scan

LEAST_RECORDS = 32
LARGEST_RECORD_BYTES = 1 << 16
MOST_BYTES = WINDOW_BYTES
MOST_SINGLY_BYTES = 1 << 16
KEY_FOLLOWS = b',"key":'  # behind the schema, which is the same for many records

# The fields of records.FRAME that are needed here and by a merge; a test compares the two.
FRAME_DTYPE = np.dtype(
    {
        "names": [
            "magic",
            "crc32",
            "task",
            "kind",
            "header_bytes",
            "data_bytes",
            "finished_at",
            "duration_s",
            "mark",
            "data_crc32",
        ],
        "formats": ["S4", "<u4", "<u8", "u1", "<u4", "<u8", "<f8", "<f8", "<u4", "<u4"],
        "offsets": [0, 4, 8, 16, 20, 24, 32, 40, 48, 52],
        "itemsize": FRAME_BYTES,
    }
)


class ByTask(Protocol):
    """What is known of each task, by its number: its state, and where its record is."""

    kinds: bytearray
    files: array[int]
    offsets: array[int]
    finished_at: array[float]


@dataclass(frozen=True)
class RecordRun:
    """Results of one size, one behind the other; arrays have one element a record."""

    file: RecordFile
    offset: int
    record_bytes: int
    tasks: Array
    finished_at: Array

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def offsets(self) -> Array:
        return self.offset + self.record_bytes * np.arange(len(self))

    def take_new(self, state: ByTask, file_number: int, size: int) -> Iterator[tuple[Any, ...]]:
        """Take over results of tasks that had none; yield the others, and the last, singly."""
        tasks, offsets = self.tasks, self.offsets
        kinds = np.frombuffer(state.kinds, np.uint8)
        is_new = (tasks >= 0) & (tasks < size)
        is_new[is_new] = kinds[tasks[is_new]] != RecordKind.DONE
        is_ascending = bool((tasks[1:] > tasks[:-1]).all())
        if not is_ascending and len(np.unique(tasks)) < len(tasks):
            is_new[:] = False
        is_new[-1] = False
        new = tasks[is_new]
        kinds[new] = RecordKind.DONE
        np.frombuffer(state.files, np.int32)[new] = file_number
        np.frombuffer(state.offsets, np.int64)[new] = offsets[is_new]
        np.frombuffer(state.finished_at, np.float64)[new] = self.finished_at[is_new]
        for offset in offsets[~is_new].tolist():
            yield offset, self.file.frame(offset)


def scan_stretches(file: RecordFile, found: Scan) -> Iterator[RecordRun | tuple[Any, ...]]:
    """Yield every sound record of a file, as `RecordFile.scan` does, or in stretches."""
    position = 0
    singly_bytes = 1
    while position < file.size_bytes:
        stretch = _stretch_at(file, position)
        if stretch is not None:
            yield stretch
            position += stretch.record_bytes * len(stretch)
            singly_bytes = 1
        else:
            yield from file.scan(found, start=position, stop=position + singly_bytes)
            if found.end == position:
                break
            position = found.end
            # The longer there was no stretch, the rarer one is looked for.
            singly_bytes = min(2 * singly_bytes, MOST_SINGLY_BYTES)
    found.end, found.torn_bytes = position, file.size_bytes - position


def _stretch_at(file: RecordFile, offset: int) -> RecordRun | None:
    """The longest sound stretch of results that begins at `offset`, if it is worth it."""
    if offset + FRAME_BYTES > file.size_bytes:
        return None
    first = FRAME.unpack_from(file.view(offset, FRAME_BYTES))
    sizes = _Sizes.of(first)
    is_result = first[0] == MAGIC and first[8] == file.mark and first[3] == RecordKind.DONE
    if not is_result or sizes.record > LARGEST_RECORD_BYTES:
        return None
    count = min(file.size_bytes - offset, MOST_BYTES) // sizes.record
    if count < LEAST_RECORDS or not _are_alike(file, offset, offset + sizes.record):
        return None
    records = _records(file, offset, sizes, count)
    frames = np.ascontiguousarray(records[:, :FRAME_BYTES]).view(FRAME_DTYPE)[:, 0]
    count = _count_alike(frames, first)
    while count >= LEAST_RECORDS and not _are_sound(frames[:count], sizes, records[:count]):
        count //= 2
    if count < LEAST_RECORDS:
        return None
    return RecordRun(
        file,
        offset,
        sizes.record,
        frames["task"][:count].astype(np.int64),
        frames["finished_at"][:count].copy(),
    )


class _Sizes(NamedTuple):
    """Of what a record consists, in bytes: frame and header, data, zeros up to its end."""

    head: int
    data: int
    record: int

    @classmethod
    def of(cls, frame: tuple[Any, ...]) -> _Sizes:
        head, data = FRAME_BYTES + frame[4] + 7 & -8, frame[5]
        return cls(head, data, head + data + 7 & -8)


def _are_alike(file: RecordFile, offset: int, following: int) -> bool:
    """Whether a record is of the size of the one behind it: a cheap look before a dear one."""
    sizes = slice(20, 32)  # header bytes and data bytes
    view = file.view(offset, following + FRAME_BYTES - offset)
    return view[sizes] == view[following - offset :][sizes]


def _records(file: RecordFile, offset: int, sizes: _Sizes, count: int) -> Array:
    """Records of one size as they lie in the file, one row a record."""
    size_bytes = sizes.record * count
    view = file.view(offset, size_bytes)
    return np.frombuffer(view, np.uint8, size_bytes).reshape(count, sizes.record)


def _count_alike(frames: Array, like: tuple[Any, ...]) -> int:
    """How many frames, from the first on, are of the kind, sizes and file of one."""
    alike = frames["magic"].view("<u4") == int.from_bytes(MAGIC, "little")
    alike &= frames["mark"] == int.from_bytes(like[8], "little")
    for name, value in zip(("kind", "header_bytes", "data_bytes"), like[3:6], strict=True):
        alike &= frames[name] == value
    return len(frames) if alike.all() else int(np.argmin(alike))


def _are_sound(frames: Array, sizes: _Sizes, records: Array) -> bool:
    """Whether the checksum of all bytes of the records is what their own imply."""
    zeros = sizes.record - sizes.head - sizes.data
    contents = _of_contents(sizes.head + sizes.data)(frames["crc32"])
    whole = shift_by(zeros)(contents) ^ np.uint32(crc32(bytes(zeros)))
    return crc32(records.data) == of_concatenation(whole, sizes.record)


@lru_cache(64)
def _of_contents(size_bytes: int) -> Callable[[Words], Words]:
    """The checksums of records without the zeros at their ends, from those that they state.

    Such a record is its magic and checksum, and the content that the checksum is of.
    """

    def checksum(stated: int) -> int:
        return after(crc32(MAGIC + stated.to_bytes(4, "little")), size_bytes - 8) ^ stated

    constant = checksum(0)
    linear = LinearMap.of(lambda stated: checksum(stated) ^ constant)
    return lambda stated: linear(stated) ^ np.uint32(constant)
