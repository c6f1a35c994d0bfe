"""What a record looks like: write, read, scan. `docs/format.md` says every byte.

A record file belongs to one process and is only ever appended to. It is a sequence of records, the
first of which describes the file. A record is a 64-byte frame, a JSON header and raw data; the
frame has a checksum of its own, so a reader that met damage finds the next record by itself.

Nothing here needs NumPy or h5py: `status` reads a million frames with the standard library.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any
from zlib import crc32

from . import durable
from .errors import DamagedError
from .processes import ProcessId, this_process

MAGIC = b"\xabh5r"
FORMAT = "h5sweep.records/1"
NO_TASK = 2**64 - 1

FRAME = struct.Struct("<4s4sQB3xIQddII4xI")
FRAME_BYTES = FRAME.size
_CHECKED_BYTES = FRAME_BYTES - 4
_CHECKSUM = struct.Struct("<I")


class Kind(IntEnum):
    """What a record is about: a file, a start, or one of the five outcomes of a task."""

    FILE = 0
    STARTED = 1
    DONE = 2
    RAISED = 3
    DIED = 4
    TIMED_OUT = 5
    OVER_MEMORY = 6

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


FAILURES = frozenset({Kind.RAISED, Kind.DIED, Kind.TIMED_OUT, Kind.OVER_MEMORY})


@dataclass(frozen=True, slots=True)
class Record:
    """One sound record and where it lies in its file; header and data are read on demand."""

    offset: int
    kind: Kind
    task: int
    header_bytes: int
    data_bytes: int
    finished_at: float
    duration_s: float
    data_crc32: int

    @property
    def data_offset(self) -> int:
        return self.offset + FRAME_BYTES + _padded(self.header_bytes)


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of a record file that is not what was written, and the task that it cost."""

    path: Path
    offset: int
    size_bytes: int
    task: int | None
    what: str


@dataclass
class Scan:
    """What `RecordFile.scan` met besides sound records."""

    damages: list[Damage] = field(default_factory=list)
    torn_bytes: int = 0
    end: int = 0


class RecordWriter:
    """Appends records to a new record file of this process.

    A record is on disk as far as SIGKILL is concerned when `append` returns, and durable with the
    next sync. `append` writes once, so a kill leaves whole records and at most one torn tail.
    """

    def __init__(self, path: Path, *, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self._mark = secrets.token_bytes(4)
        self._file = durable.Appender(path)
        header = {"format": FORMAT, "process": this_process().as_json(), **(about or {})}
        self.append(Kind.FILE, NO_TASK, json_bytes(header), finished_at=time.time())

    def append(
        self,
        kind: Kind,
        task: int,
        header: bytes,
        data: bytes = b"",
        *,
        finished_at: float,
        duration_s: float = 0.0,
    ) -> None:
        """Add one record by one write."""
        self._file.append(
            pack_record(self._mark, kind, task, header, data, finished_at, duration_s)
        )

    def append_started(self, tasks: list[int]) -> None:
        """Say that this process now works through `tasks`, in that order."""
        self.append(Kind.STARTED, tasks[0], json_bytes({"tasks": tasks}), finished_at=time.time())

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        self._file.abandon()


def pack_record(
    mark: bytes,
    kind: int,
    task: int,
    header: bytes,
    data: bytes,
    finished_at: float,
    duration_s: float,
) -> bytes:
    """Lay one record out as bytes."""
    frame = FRAME.pack(
        MAGIC,
        mark,
        task,
        kind,
        len(header),
        len(data),
        finished_at,
        duration_s,
        crc32(header),
        crc32(data),
        0,
    )[:_CHECKED_BYTES]
    parts = (
        frame,
        _CHECKSUM.pack(crc32(frame)),
        header,
        _PADDING[-len(header) % 8],
        data,
        _PADDING[-len(data) % 8],
    )
    return b"".join(parts)


class RecordFile:
    """A record file mapped for reading; it may be growing, damaged, or garbage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self.size_bytes = os.fstat(file.fileno()).st_size
            self._map = (
                mmap.mmap(file.fileno(), self.size_bytes, prot=mmap.PROT_READ)
                if self.size_bytes
                else b""
            )
        self.buffer = memoryview(self._map)

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.buffer.release()
        if isinstance(self._map, mmap.mmap):
            self._map.close()

    def scan(self, found: Scan, *, start: int = 0) -> Iterator[tuple[Any, ...]]:
        """Yield `(offset, frame)` of every sound record from `start` on.

        `frame` is the tuple that FRAME unpacks: magic, mark, task, kind, header bytes, data bytes,
        finished_at, duration_s, header checksum, data checksum, frame checksum. Damage and a torn
        tail go into `found`; the records behind damage are yielded all the same. Tuples, not
        objects, because a million of them have to pass in a second.
        """
        buffer, unpack = self.buffer, FRAME.unpack_from
        position, end = start, self.size_bytes
        mark = self._mark()
        while position + FRAME_BYTES <= end:
            frame = unpack(buffer, position)
            if (
                frame[0] != MAGIC
                or frame[1] != mark
                or crc32(buffer[position : position + _CHECKED_BYTES]) != frame[10]
            ):
                position = self._skip_damage(position, mark, found)
                continue
            header_start = position + FRAME_BYTES
            header_end = header_start + frame[4]
            data_start = header_end + -frame[4] % 8
            data_end = data_start + frame[5]
            next_position = data_end + -frame[5] % 8
            if next_position > end:
                next_position = self._cut_short(position, mark, found)
            elif (
                crc32(buffer[header_start:header_end]) != frame[8]
                or crc32(buffer[data_start:data_end]) != frame[9]
            ):
                task = frame[2] if frame[2] != NO_TASK and frame[3] != Kind.STARTED else None
                self._note(found, position, next_position, task, "content")
            else:
                yield position, frame
            position = next_position
        found.torn_bytes += max(end - position, 0)
        found.end = min(position, end)

    def header(self, offset: int, frame: tuple[Any, ...]) -> dict[str, Any]:
        """Parse the JSON header of a record that `scan` yielded."""
        start = offset + FRAME_BYTES
        header: dict[str, Any] = json.loads(bytes(self.buffer[start : start + frame[4]]))
        return header

    def about(self) -> dict[str, Any] | None:
        """What the file says of itself in its first record, or None if that is unreadable."""
        for offset, frame in self.scan(Scan()):
            return self.header(offset, frame) if frame[3] == Kind.FILE else None
        return None

    def owner(self) -> ProcessId | None:
        """The process that writes, or wrote, this file."""
        about = self.about()
        return ProcessId.from_json(about["process"]) if about else None

    def _mark(self) -> bytes:
        """The four random bytes in every frame of this file, taken from its first sound frame.

        They keep a record that somebody stored as data inside a record from being taken for one.
        """
        position = self._find_frame(0, None)
        return bytes(self.buffer[position + 4 : position + 8]) if position is not None else b""

    def _find_frame(self, start: int, mark: bytes | None) -> int | None:
        """The offset of the first sound frame at or after `start`."""
        target = MAGIC + (mark or b"")
        position = start
        while True:
            position = self._find(target, position)
            if position < 0 or position + FRAME_BYTES > self.size_bytes:
                return None
            checksum = _CHECKSUM.unpack_from(self.buffer, position + _CHECKED_BYTES)[0]
            if crc32(self.buffer[position : position + _CHECKED_BYTES]) == checksum:
                return position
            position += 1

    def _find(self, target: bytes, start: int) -> int:
        return self._map.find(target, start)

    def _skip_damage(self, position: int, mark: bytes, found: Scan) -> int:
        """Note what lies between `position` and the next sound frame; return where that is."""
        following = self._find_frame(position + 1, mark)
        if following is None and not bytes(self.buffer[position:]).strip(b"\0"):
            # A power cut can leave a file longer than what was written, filled with zeros.
            found.torn_bytes += self.size_bytes - position
            return self.size_bytes
        end = self.size_bytes if following is None else following
        self._note(found, position, end, None, "frame")
        return end

    def _cut_short(self, position: int, mark: bytes, found: Scan) -> int:
        """Handle a record that reaches beyond the end: a torn tail, unless records follow."""
        following = self._find_frame(position + 1, mark)
        if following is not None:
            self._note(found, position, following, None, "length")
            return following
        found.torn_bytes += self.size_bytes - position
        return self.size_bytes

    def _note(self, found: Scan, start: int, end: int, task: int | None, what: str) -> None:
        found.damages.append(Damage(self.path, start, end - start, task, what))


def read_records(path: Path) -> tuple[list[Record], Scan]:
    """Read every sound record of a file, and what else is in it."""
    found = Scan()
    with RecordFile(path) as file:
        return [record_of(offset, frame) for offset, frame in file.scan(found)], found


def record_of(offset: int, frame: tuple[Any, ...]) -> Record:
    """Name the fields of one frame that `scan` yielded."""
    _, _, task, kind, header_bytes, data_bytes, finished_at, duration_s, _, data_crc, _ = frame
    return Record(
        offset, Kind(kind), task, header_bytes, data_bytes, finished_at, duration_s, data_crc
    )


def require_records(path: Path) -> None:
    """Raise DamagedError unless `path` holds at least one sound record."""
    with RecordFile(path) as file:
        if not any(True for _ in file.scan(Scan())):
            raise DamagedError(f"{path} holds no record of h5sweep")


def json_bytes(value: dict[str, Any]) -> bytes:
    """Encode a header; strict JSON, so that any reader can parse it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _padded(size_bytes: int) -> int:
    return size_bytes + -size_bytes % 8


_PADDING = [b"\0" * size for size in range(8)]
