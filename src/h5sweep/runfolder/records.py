"""The record format: write, read, scan. `docs/format.md` specifies every byte.

A record file belongs to one process and is only ever appended to. It is a sequence of records, the
first of which describes the file. A record is a 64-byte frame, a JSON header and raw data; the
frame has a checksum of its own, so a reader that met damage finds the next record by itself.

Nothing here needs NumPy or h5py: `status` reads a million frames with the standard library.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from ..base.process_id import ProcessId, this_process
from ..base.relabels import MARK, Relabels
from ..disk import durable
from ..disk.inside_folder import parse_json
from ..errors import DamagedError, UnreadableError
from .file_window import WINDOW_BYTES, FileWindow

MAGIC = b"\xabh5r"
FORMAT = "h5sweep.records/1"
NO_TASK = 2**64 - 1
TAKEN_ROLES = ("foreign", "salvage")  # their records have the time of the file they were taken from

FRAME = struct.Struct("<4sIQB3xIQdd4sI4xI")
FRAME_BYTES = FRAME.size
TASK, KIND, FINISHED_AT, DURATION_S = 2, 3, 6, 7  # places in the tuple that FRAME unpacks
_FIELDS = struct.Struct("<QB3xIQdd4sI4x")  # a frame between its two checksums
_FIELDS_START = 8
_FIELDS_END = _FIELDS_START + _FIELDS.size
_CHECKSUM = struct.Struct("<I")
_HEADER_STEP = 64


class RecordKind(IntEnum):
    """What a record is about: a file, a start, one of the five outcomes of a task, or what is to
    be said of the result behind it.
    """

    FILE = 0
    STARTED = 1
    DONE = 2
    RAISED = 3
    DIED = 4
    TIMED_OUT = 5
    OVER_MEMORY = 6
    NOTE = 7

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


_LAST_KIND = max(RecordKind)
FAILURES = frozenset(
    {RecordKind.RAISED, RecordKind.DIED, RecordKind.TIMED_OUT, RecordKind.OVER_MEMORY}
)
OUTCOMES = FAILURES | {RecordKind.DONE}


@dataclass(frozen=True, slots=True)
class Record:
    """One sound record and where it lies in its file; header and data are read on demand."""

    offset: int
    kind: RecordKind
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
    refusal: str = ""  # what the system said, if it was that the bytes cannot be read


@dataclass
class Scan:
    """What `RecordFile.scan` met besides sound records."""

    damages: list[Damage] = field(default_factory=list)
    torn_bytes: int = 0
    end: int = 0  # where the torn tail begins, and where to go on once the file has grown


class RecordWriter:
    """Appends records to a new record file of this process.

    A record is on disk as far as SIGKILL is concerned when `append` returns, and durable with the
    next sync. `append` writes once, so a kill leaves whole records and at most one torn tail.
    """

    def __init__(
        self, path: Path, *, about: dict[str, Any] | None = None, mark: bytes | None = None
    ) -> None:
        self.path = path
        self._mark = os.urandom(4) if mark is None else mark
        self._file = durable.Appender(path)
        header = {"format": FORMAT, "process": this_process().as_json(), **(about or {})}
        header["is_locked"] = self._file.has_lock
        self.append(RecordKind.FILE, NO_TASK, json_bytes(header), finished_at=time.time())

    def append(
        self,
        kind: RecordKind,
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

    def append_packed(self, records: bytes) -> None:
        """Add what `pack_record` has laid out with the mark of this file."""
        self._file.append(records)

    def append_started(self, tasks: list[int]) -> None:
        """Say that this process now works through `tasks`, in that order."""
        self.append(
            RecordKind.STARTED, tasks[0], json_bytes({"tasks": tasks}), finished_at=time.time()
        )

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


class RecordFile(FileWindow):
    """A record file open for reading; it may be growing, damaged, unreadable in places, or garbage.

    `scan` takes what cannot be read for damage and goes on; all else raises UnreadableError. With
    the relabels of its run folder, headers have the names of today.
    """

    def __init__(self, path: Path, relabels: Relabels | None = None) -> None:
        super().__init__(path)
        self.relabels = Relabels()
        if relabels:
            self.relabels = relabels.unknown_to(self.about())

    def scan(
        self, found: Scan, *, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield `(offset, frame)` of every sound record that begins from `start` to `stop`.

        `frame` is the tuple that FRAME unpacks: magic, checksum of the record, task, kind, header
        bytes, data bytes, finished_at, duration_s, mark, checksum of the data, checksum of the
        frame. Damage and a torn tail go into `found`; the records behind damage are yielded all
        the same. Tuples, not objects, because `status` passes a million of them.
        """
        unpack, mark = FRAME.unpack_from, self.mark
        magic, last_kind, check, fields_start = MAGIC, _LAST_KIND, crc32, _FIELDS_START
        position, end = start, self.size_bytes
        stop = min(end - FRAME_BYTES + 1, end if stop is None else stop)
        header_bytes = data_bytes = -1
        needed_bytes = FRAME_BYTES
        while position < stop:
            base, window = position, self.view(position, needed_bytes)
            window_bytes = len(window)
            within, needed_bytes = min(stop, base + window_bytes - FRAME_BYTES + 1), FRAME_BYTES
            while position < within:
                place = position - base
                frame = unpack(window, place)
                if frame[4] != header_bytes or frame[5] != data_bytes:
                    # Data, and the next record, begin at multiples of 8: rounding up skips padding.
                    header_bytes, data_bytes = frame[4], frame[5]
                    content_bytes = (FRAME_BYTES + header_bytes + 7 & -8) + data_bytes
                    record_bytes = content_bytes + 7 & -8
                is_sound = frame[0] == magic and frame[8] == mark and frame[3] <= last_kind
                if is_sound and place + record_bytes <= window_bytes:
                    content = window[place + fields_start : place + content_bytes]
                    is_sound = check(content) == frame[1]
                elif is_sound and record_bytes <= min(WINDOW_BYTES, end - position):
                    needed_bytes = record_bytes
                    break
                elif is_sound and record_bytes <= end - position:
                    is_sound = self._is_sound_large(position, content_bytes, frame[1])
                else:
                    is_sound = False
                if is_sound:
                    yield position, frame
                    position += record_bytes
                elif (following := self._skip_damage(position, found)) is not None:
                    position = following
                else:
                    stop = position
                    break
        found.torn_bytes = max(end - position, 0)
        found.end = min(position, end)

    def header(self, offset: int, frame: tuple[Any, ...]) -> dict[str, Any]:
        """Parse the JSON header of a record that `scan` yielded; DamagedError if it is none."""
        try:
            header: dict[str, Any] = parse_json(self.read(offset + FRAME_BYTES, frame[4]))
            _check_header(frame[KIND], header)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"{self.path} holds a record, at byte {offset:,}, that h5sweep did not write "
                f"({error}): move the file away"
            ) from error
        is_named = self.relabels and frame[KIND] >= RecordKind.DONE
        return self.relabels.header(header) if is_named else header

    def frame(self, offset: int) -> tuple[Any, ...]:
        """The frame of a record that `scan` yielded, once more."""
        return FRAME.unpack(self.read(offset, FRAME_BYTES))

    def about(self) -> dict[str, Any] | None:
        """What the file says of itself in its first record, or None if that is unreadable."""
        for offset, frame in self.scan(Scan()):
            with suppress(DamagedError):
                return self.header(offset, frame) if frame[3] == RecordKind.FILE else None
            break
        return None

    def owner(self) -> ProcessId | None:
        """The process that writes, or wrote, this file."""
        about = self.about()
        return ProcessId.from_json(about["process"]) if about else None

    @cached_property
    def mark(self) -> bytes:
        """The four random bytes in every frame of this file, taken from its first sound frame.

        They keep a record that somebody stored as data inside a record from being taken for one.
        """
        position = self._find_frame(0, None)
        return b"" if position is None else bytes(self.frame(position)[8])

    def _find_frame(self, start: int, mark: bytes | None) -> int | None:
        """The offset of the first sound frame at or after `start`."""
        while start + FRAME_BYTES <= self.size_bytes:
            self.view(start, FRAME_BYTES)
            place = self._window.find(MAGIC, start - self._window_start)
            if place < 0:
                start = self._window_start + len(self._window) - len(MAGIC) + 1
            elif self._is_sound_frame(start := self._window_start + place, mark):
                return start
            else:
                start += 1
        return None

    def _is_sound_frame(self, position: int, mark: bytes | None) -> bool:
        if position + FRAME_BYTES > self.size_bytes:
            return False
        view = self.view(position, FRAME_BYTES)
        frame = FRAME.unpack_from(view)
        if frame[0] != MAGIC or (mark and frame[8] != mark) or frame[3] > _LAST_KIND:
            return False
        return crc32(view[_FIELDS_START:_FIELDS_END]) == int(frame[10])

    def _is_sound_large(self, position: int, content_bytes: int, checksum: int) -> bool:
        """Whether a record that is larger than the window has its checksum."""
        try:
            size = content_bytes - _FIELDS_START
            return self.checksum(position + _FIELDS_START, size) == checksum
        except UnreadableError:
            return False

    def _skip_damage(self, position: int, found: Scan) -> int | None:
        """Note what is wrong at `position`; return where to go on, None at a torn tail."""
        if not self._is_sound_frame(position, self.mark):
            return self._skip_to_frame(position, found)
        frame = FRAME.unpack_from(self.view(position, FRAME_BYTES))
        following = self._find_frame(position + FRAME_BYTES, self.mark)
        end = position + ((FRAME_BYTES + frame[4] + 7 & -8) + frame[5] + 7 & -8)
        if end > self.size_bytes and following is None:
            return None
        # A record that was torn in the middle of the file claims part of the next one.
        end = min(int(end), following or end)
        task = frame[2] if frame[2] != NO_TASK and frame[3] != RecordKind.STARTED else None
        self._note(found, position, end, task, "content")
        return end

    def _skip_to_frame(self, position: int, found: Scan) -> int | None:
        following = self._find_frame(position + 1, self.mark)
        if following is None and self._is_zero_from(position):
            # A power cut, or a refused append, can leave zeros behind what was written.
            return None
        end = self.size_bytes if following is None else following
        self._note(found, position, end, None, "frame")
        return end

    def _is_zero_from(self, start: int) -> bool:
        """Whether there are zeros up to the end of the file, and not for want of a sound disk."""
        place = start
        while place < self.size_bytes:
            view = self.view(place, 1)
            if bytes(view).strip(b"\0"):
                return False
            place += len(view)
        return not self.refusal(start, self.size_bytes)

    def _note(self, found: Scan, start: int, end: int, task: int | None, what: str) -> None:
        refusal = self.refusal(start, end)
        found.damages.append(Damage(self.path, start, end - start, task, what, refusal))


def _check_header(kind: int, header: dict[str, Any]) -> None:
    """Raise an error if a header lacks what readers take from it; checksums do not tell that."""
    if kind == RecordKind.FILE:
        ProcessId.from_json(header["process"])
        _require(isinstance(header.get("plan", ""), str), "plan")
        _require(type(header.get("redo", 0)) is int, "redo")
        _require(isinstance(header.get(MARK, ""), str), MARK)
    elif kind == RecordKind.STARTED:
        _require(all(type(task) is int and task >= 0 for task in header["tasks"]), "tasks")
    else:
        values = (header.get("key") or {}).values()
        _require(all(isinstance(value, str | int | float) for value in values), "key")
    if kind == RecordKind.DONE:
        for name, dtype, shape in header["data"]:
            is_array = all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
            _require(isinstance(name, str) and isinstance(dtype, str) and is_array, "data")
        for labels in header.get("labels", ()):
            _check_labels(labels)
    elif kind == RecordKind.NOTE:
        _require(isinstance(header["not_stored"], str), "note")
    elif kind in FAILURES:
        _require(all(isinstance(text, str) for text in header["error"].values()), "error")


def _check_labels(labels: Any) -> None:
    """Nothing, or the names of axes, and pairs of an attribute's name and value."""
    if labels:
        dims, pairs = labels
        names = [*dims, *(name for name, _ in pairs)]
        _require(all(isinstance(name, str) for name in names), "labels")


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
        offset, RecordKind(kind), task, header_bytes, data_bytes, finished_at, duration_s, data_crc
    )


def read_data(file: RecordFile, offset: int, frame: tuple[Any, ...]) -> bytes:
    """The data of a record that `scan` yielded."""
    return file.read(record_of(offset, frame).data_offset, frame[5])


def json_bytes(value: dict[str, Any]) -> bytes:
    """Encode a header; strict JSON, so that any reader can parse it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _padded(size_bytes: int) -> int:
    return size_bytes + -size_bytes % 8


_PADDING = [b"\0" * size for size in range(8)]
