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
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from . import durable
from .confined import parse_json
from .errors import DamagedError
from .processes import ProcessId, this_process

MAGIC = b"\xabh5r"
FORMAT = "h5sweep.records/1"
NO_TASK = 2**64 - 1

FRAME = struct.Struct("<4sIQB3xIQdd4sI4xI")
FRAME_BYTES = FRAME.size
TASK, KIND, FINISHED_AT, DURATION_S = 2, 3, 6, 7  # places in the tuple that FRAME unpacks
_FIELDS = struct.Struct("<QB3xIQdd4sI4x")  # a frame between its two checksums
_FIELDS_START = 8
_FIELDS_END = _FIELDS_START + _FIELDS.size
_CHECKSUM = struct.Struct("<I")
_HEADER_STEP = 64


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


_LAST_KIND = max(Kind)
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
    end: int = 0  # where the torn tail begins, and where to go on once the file has grown


_WRITE_BYTES = 1 << 20  # at least, of many results


class RecordWriter:
    """Appends records to a new record file of this process.

    A record is on disk as far as SIGKILL is concerned when `append` returns, and durable with the
    next sync. `append` writes once, so a kill leaves whole records and at most one torn tail.
    """

    def __init__(self, path: Path, *, about: dict[str, Any] | None = None) -> None:
        self.path = path
        self._mark = os.urandom(4)
        self._file = durable.Appender(path)
        header = {"format": FORMAT, "process": this_process().as_json(), **(about or {})}
        header["is_locked"] = self._file.has_lock
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

    def append_results(self, results: Iterable[tuple[bytes, bytes]], *, finished_at: float) -> None:
        """Add results, each a header and data, by as few writes as may be."""
        waiting, size = [], 0
        for header, data in results:
            packed = pack_record(self._mark, Kind.DONE, NO_TASK, header, data, finished_at, 0.0)
            waiting.append(packed)
            size += len(packed)
            if size >= _WRITE_BYTES:
                self._file.append(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            self._file.append(b"".join(waiting))

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
    # Spaces: records of one kind then have one size, and a reader can take many at a time.
    header = header.ljust(len(header) + -len(header) % _HEADER_STEP)
    fields = _FIELDS.pack(
        task, kind, len(header), len(data), finished_at, duration_s, mark, crc32(data)
    )
    checked = b"".join((fields, _CHECKSUM.pack(crc32(fields)), header, data))
    return b"".join((MAGIC, _CHECKSUM.pack(crc32(checked)), checked, _PADDING[-len(data) % 8]))


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

    def scan(
        self, found: Scan, *, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield `(offset, frame)` of every sound record that begins from `start` to `stop`.

        `frame` is the tuple that FRAME unpacks: magic, checksum of the record, task, kind, header
        bytes, data bytes, finished_at, duration_s, mark, checksum of the data, checksum of the
        frame. Damage and a torn tail go into `found`; the records behind damage are yielded all
        the same. Tuples, not objects, because `status` passes a million of them.
        """
        buffer, unpack, mark = self.buffer, FRAME.unpack_from, self.mark
        magic, last_kind, check, fields_start = MAGIC, _LAST_KIND, crc32, _FIELDS_START
        position, end = start, self.size_bytes
        stop = min(end - FRAME_BYTES + 1, end if stop is None else stop)
        forget_at = position + _FORGET_BYTES
        header_bytes = data_bytes = -1
        while position < stop:
            frame = unpack(buffer, position)
            if frame[4] != header_bytes or frame[5] != data_bytes:
                # Data, and the next record, begin at multiples of 8: rounding up skips padding.
                header_bytes, data_bytes = frame[4], frame[5]
                content_bytes = (FRAME_BYTES + header_bytes + 7 & -8) + data_bytes
                record_bytes = content_bytes + 7 & -8
            if (
                frame[0] == magic
                and frame[8] == mark
                and position + record_bytes <= end
                and check(buffer[position + fields_start : position + content_bytes]) == frame[1]
                and frame[3] <= last_kind
            ):
                yield position, frame
                position += record_bytes
            elif (following := self._skip_damage(position, found)) is not None:
                position = following
            else:
                break
            if position > forget_at:
                self.forget_pages()
                forget_at = position + _FORGET_BYTES
        found.torn_bytes = max(end - position, 0)
        found.end = min(position, end)

    def header(self, offset: int, frame: tuple[Any, ...]) -> dict[str, Any]:
        """Parse the JSON header of a record that `scan` yielded; DamagedError if it is none."""
        start = offset + FRAME_BYTES
        try:
            header: dict[str, Any] = parse_json(bytes(self.buffer[start : start + frame[4]]))
            _check_header(frame[KIND], header)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"{self.path} holds a record, at byte {offset:,}, that no h5sweep wrote "
                f"({error}): move the file away"
            ) from error
        return header

    def about(self) -> dict[str, Any] | None:
        """What the file says of itself in its first record, or None if that is unreadable."""
        for offset, frame in self.scan(Scan()):
            with suppress(DamagedError):
                return self.header(offset, frame) if frame[3] == Kind.FILE else None
            break
        return None

    def owner(self) -> ProcessId | None:
        """The process that writes, or wrote, this file."""
        about = self.about()
        return ProcessId.from_json(about["process"]) if about else None

    def forget_pages(self) -> None:
        """Give back the memory of what was read, or a large file would all count as ours."""
        if isinstance(self._map, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    @cached_property
    def mark(self) -> bytes:
        """The four random bytes in every frame of this file, taken from its first sound frame.

        They keep a record that somebody stored as data inside a record from being taken for one.
        """
        position = self._find_frame(0, None)
        return b"" if position is None else bytes(FRAME.unpack_from(self.buffer, position)[8])

    def _find_frame(self, start: int, mark: bytes | None) -> int | None:
        """The offset of the first sound frame at or after `start`."""
        position = self._map.find(MAGIC, start)
        while position >= 0:
            if self._is_sound_frame(position, mark):
                return position
            position = self._map.find(MAGIC, position + 1)
        return None

    def _is_sound_frame(self, position: int, mark: bytes | None) -> bool:
        if position + FRAME_BYTES > self.size_bytes:
            return False
        frame = FRAME.unpack_from(self.buffer, position)
        if frame[0] != MAGIC or (mark and frame[8] != mark) or frame[3] > _LAST_KIND:
            return False
        fields = self.buffer[position + _FIELDS_START : position + _FIELDS_END]
        return crc32(fields) == int(frame[10])

    def _skip_damage(self, position: int, found: Scan) -> int | None:
        """Note what is wrong at `position`; return where to go on, None at a torn tail."""
        if not self._is_sound_frame(position, self.mark):
            return self._skip_to_frame(position, found)
        frame = FRAME.unpack_from(self.buffer, position)
        following = self._find_frame(position + FRAME_BYTES, self.mark)
        end = position + ((FRAME_BYTES + frame[4] + 7 & -8) + frame[5] + 7 & -8)
        if end > self.size_bytes and following is None:
            return None
        # A record that was torn in the middle of the file claims part of the next one.
        end = min(int(end), following or end)
        task = frame[2] if frame[2] != NO_TASK and frame[3] != Kind.STARTED else None
        self._note(found, position, end, task, "content")
        return end

    def _skip_to_frame(self, position: int, found: Scan) -> int | None:
        following = self._find_frame(position + 1, self.mark)
        if following is None and not bytes(self.buffer[position:]).strip(b"\0"):
            # A power cut, or a refused append, can leave zeros behind what was written.
            return None
        end = self.size_bytes if following is None else following
        self._note(found, position, end, None, "frame")
        return end

    def _note(self, found: Scan, start: int, end: int, task: int | None, what: str) -> None:
        found.damages.append(Damage(self.path, start, end - start, task, what))


def _check_header(kind: int, header: dict[str, Any]) -> None:
    """Raise an error if a header lacks what readers take from it; checksums do not tell that."""
    if kind == Kind.FILE:
        ProcessId.from_json(header["process"])
        _require(isinstance(header.get("plan", ""), str), "plan")
    elif kind == Kind.STARTED:
        _require(all(type(task) is int and task >= 0 for task in header["tasks"]), "tasks")
    else:
        values = (header.get("key") or {}).values()
        _require(all(isinstance(value, str | int | float) for value in values), "key")
    if kind == Kind.DONE:
        for name, dtype, shape in header["data"]:
            is_array = all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
            _require(isinstance(name, str) and isinstance(dtype, str) and is_array, "data")
    elif kind in FAILURES:
        _require(all(isinstance(text, str) for text in header["error"].values()), "error")


def _require(is_so: bool, what: str) -> None:
    if not is_so:
        raise ValueError(f"its {what}")


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


def read_data(file: RecordFile, offset: int, frame: tuple[Any, ...]) -> bytes:
    """The data of a record that `scan` yielded."""
    start = record_of(offset, frame).data_offset
    return bytes(file.buffer[start : start + frame[5]])


def json_bytes(value: dict[str, Any]) -> bytes:
    """Encode a header; strict JSON, so that any reader can parse it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _padded(size_bytes: int) -> int:
    return size_bytes + -size_bytes % 8


_FORGET_BYTES = 64 << 20
_PADDING = [b"\0" * size for size in range(8)]
