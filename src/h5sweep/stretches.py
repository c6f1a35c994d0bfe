"""Records of one size taken many at a time, with NumPy: the fast way through a record file.

A CRC-32 is linear: from the checksums of pieces follows the checksum of their concatenation. So a
stretch of thousands of records is proven sound by one checksum over all its bytes, compared with
the one that its records' own checksums imply. Where they differ, halves are tried, and what
remains goes through `RecordFile.scan`, record by record.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from .linear_crc32 import LinearMap, Words, after, of_concatenation
from .records import FRAME, FRAME_BYTES, MAGIC, Kind, RecordFile, Scan
from .state import FolderState

LEAST_RECORDS = 32
LARGEST_RECORD_BYTES = 1 << 16
MOST_BYTES = 32 << 20
MOST_SINGLY_BYTES = 1 << 16

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


@dataclass(frozen=True)
class Stretch:
    """Sound results of one size, one behind the other; `frames` has one element a record."""

    file: RecordFile
    offset: int
    record_bytes: int
    frames: npt.NDArray[np.void]

    def take_new(
        self, state: FolderState, file_number: int, size: int
    ) -> Iterator[tuple[Any, ...]]:
        """Take over results of tasks that had none; yield the others, and the last, singly."""
        tasks = self.frames["task"].astype(np.int64)
        offsets = self.offset + self.record_bytes * np.arange(len(tasks))
        kinds = np.frombuffer(state.kinds, np.uint8)
        is_new = (tasks >= 0) & (tasks < size)
        is_new[is_new] = kinds[tasks[is_new]] != Kind.DONE
        is_ascending = bool((tasks[1:] > tasks[:-1]).all())
        if not is_ascending and len(np.unique(tasks)) < len(tasks):
            is_new[:] = False
        is_new[-1] = False
        new = tasks[is_new]
        kinds[new] = Kind.DONE
        np.frombuffer(state.files, np.int32)[new] = file_number
        np.frombuffer(state.offsets, np.int64)[new] = offsets[is_new]
        np.frombuffer(state.finished_at, np.float64)[new] = self.frames["finished_at"][is_new]
        for offset in offsets[~is_new].tolist():
            yield offset, FRAME.unpack_from(self.file.buffer, offset)


def scan_stretches(file: RecordFile, found: Scan) -> Iterator[Stretch | tuple[Any, ...]]:
    """Yield every sound record of a file, as `RecordFile.scan` does, or in stretches.

    Checksums and copies let go of the interpreter's lock: two threads are twice as fast.
    """
    with ThreadPoolExecutor(2, "h5sweep-scan") as threads:
        yield from _scan(file, found, threads)


def _scan(file: RecordFile, found: Scan, threads: Executor) -> Iterator[Stretch | tuple[Any, ...]]:
    position = forgotten = 0
    singly_bytes = 1
    while position < file.size_bytes:
        stretch = _stretch_at(file, position, threads)
        if stretch is not None:
            yield stretch
            position += stretch.record_bytes * len(stretch.frames)
            singly_bytes = 1
        else:
            yield from file.scan(found, start=position, stop=position + singly_bytes)
            if found.end == position:
                break
            position = found.end
            # The longer there was no stretch, the rarer one is looked for.
            singly_bytes = min(2 * singly_bytes, MOST_SINGLY_BYTES)
        if position - forgotten >= MOST_BYTES:
            file.forget_pages()
            forgotten = position
    found.end, found.torn_bytes = position, file.size_bytes - position


def _stretch_at(file: RecordFile, offset: int, threads: Executor) -> Stretch | None:
    """The longest sound stretch of results that begins at `offset`, if it is worth it."""
    if offset + FRAME_BYTES > file.size_bytes:
        return None
    frame = FRAME.unpack_from(file.buffer, offset)
    content_bytes = (FRAME_BYTES + frame[4] + 7 & -8) + frame[5]
    record_bytes = content_bytes + 7 & -8
    is_result = frame[0] == MAGIC and frame[8] == file.mark and frame[3] == Kind.DONE
    if not is_result or record_bytes > LARGEST_RECORD_BYTES:
        return None
    count = min(file.size_bytes - offset, MOST_BYTES) // record_bytes
    if count < LEAST_RECORDS or not _are_alike(file, offset, offset + record_bytes):
        return None
    half = count // 2
    spans = [(offset, half), (offset + record_bytes * half, count - half)]
    sound = partial(_sound_frames, file, frame, content_bytes)
    first, second = threads.map(sound, spans)
    frames = np.concatenate([first, second]) if len(first) == half else first
    if len(frames) < LEAST_RECORDS:
        return None
    return Stretch(file, offset, record_bytes, frames)


def _are_alike(file: RecordFile, offset: int, following: int) -> bool:
    """Whether a record is of the size of the one behind it: a cheap look before a dear one."""
    sizes = slice(20, 32)  # header bytes and data bytes
    first, second = file.buffer[offset:following], file.buffer[following : following + FRAME_BYTES]
    return bytes(first[sizes]) == bytes(second[sizes])


def _sound_frames(
    file: RecordFile, like: tuple[Any, ...], content_bytes: int, span: tuple[int, int]
) -> npt.NDArray[np.void]:
    """The frames of the sound records like one that a span (offset, count) begins with."""
    offset, count = span
    record_bytes = content_bytes + 7 & -8
    frames = _frames(file, offset, record_bytes, count)
    frames = frames[: _count_alike(frames, like)]
    while len(frames):
        stretch = file.buffer[offset : offset + record_bytes * len(frames)]
        if crc32(stretch) == _implied_crc32(frames["crc32"], content_bytes, record_bytes):
            break
        frames = frames[: len(frames) // 2]
    return frames


def _frames(file: RecordFile, offset: int, record_bytes: int, count: int) -> npt.NDArray[np.void]:
    strides = (record_bytes, 1)
    rows: npt.NDArray[np.uint8] = np.ndarray(
        (count, FRAME_BYTES), np.uint8, file.buffer, offset, strides
    )
    return np.ascontiguousarray(rows).view(FRAME_DTYPE)[:, 0]


def _count_alike(frames: npt.NDArray[np.void], like: tuple[Any, ...]) -> int:
    """How many frames, from the first on, are of the kind, sizes and file of one."""
    alike = (frames["magic"] == MAGIC) & (frames["mark"] == int.from_bytes(like[8], "little"))
    for name, value in zip(("kind", "header_bytes", "data_bytes"), like[3:6], strict=True):
        alike &= frames[name] == value
    return len(frames) if alike.all() else int(np.argmin(alike))


def _implied_crc32(stated: Words, content_bytes: int, record_bytes: int) -> int:
    """The checksum that a stretch has if each record's content has the checksum it states."""
    linear, constant = _of_record(content_bytes, record_bytes)
    return of_concatenation(linear(stated) ^ np.uint32(constant), record_bytes)


@lru_cache(64)
def _of_record(content_bytes: int, record_bytes: int) -> tuple[LinearMap, int]:
    """What the checksum that a record states says of the checksum of all its bytes.

    A record is its magic and checksum, the content that the checksum is of, and zeros.
    """
    padding_bytes = record_bytes - content_bytes

    def checksum(stated: int) -> int:
        head = crc32(MAGIC + stated.to_bytes(4, "little"))
        content = after(head, content_bytes - 8) ^ stated
        return after(content, padding_bytes) ^ crc32(bytes(padding_bytes))

    constant = checksum(0)
    return LinearMap.of(lambda stated: checksum(stated) ^ constant), constant
