"""The record files for tasks taken from other files: one for each version of the code."""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

from ...base.key_rule import KeyRow
from ...base.plan import Value, value_json
from ...base.process_id import this_process
from ...base.values import result_header
from ...disk import durable
from ...runfolder.layout import RunFolder
from ...runfolder.records import FORMAT, NO_TASK, RecordFile, RecordKind, json_bytes, pack_record
from .own_files import read_result
from .tasks_of_file import Result

ROLE = "foreign"
WRITE_BYTES = 2 << 20


class NewRecordFiles:
    """New record files, of which the records have numbers in one order; see `NewRecordFile`."""

    def __init__(self, folder: RunFolder, names: Sequence[str], stack: ExitStack) -> None:
        self.plan_id = os.urandom(8).hex()  # of the plan that their tasks are numbered by
        self._new = partial(NewRecordFile, folder, names, stack, self.plan_id)
        self._files: list[NewRecordFile] = []
        self._places: dict[str, int] = {}  # among these, by the code that made the results
        self._file_of, self._number_in_file = array("H"), array("q")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Those with anything in them."""
        return tuple(file.path for file in self._files if file.path is not None)

    @property
    def codes(self) -> set[str]:
        """The ids of the versions of which there are results."""
        return set(self._places)

    def append(self, task: int, row: KeyRow, result: Result, finished_at: float) -> int:
        """Add one record; return its number."""
        place = self._places.setdefault(result.code, len(self._files))
        if place == len(self._files):
            self._files.append(self._new(result.code))
        self._file_of.append(place)
        in_file = self._files[place].append(task, row, result, finished_at)
        self._number_in_file.append(in_file)
        return len(self._file_of) - 1

    def read(self, number: int) -> tuple[bytes, bytes]:
        """Schema and data of the record with this number."""
        return self._files[self._file_of[number]].read(self._number_in_file[number])

    def finish(self, plan_id: str) -> None:
        """Hand over all records to the system; `plan_id` says which plan their tasks are of."""
        for file in self._files:
            file.finish(plan_id)


class NewRecordFile:
    """A new record file of a run folder, which appears whole as `stack` closes.

    It is begun with its first record: without any there is no file, and `path` is None.
    """

    def __init__(
        self, folder: RunFolder, names: Sequence[str], stack: ExitStack, plan_id: str, code: str
    ) -> None:
        self.path: Path | None = None
        self.plan_id = plan_id
        self._folder, self._stack = folder, stack
        # What is merged now counts as new.
        self._about = folder.about_records() | ({"code": code} if code else {})
        self._mark = os.urandom(4)
        self._file: IO[bytes] | None = None
        self._end = 0
        self._offsets = array("q")  # of all records, by their numbers
        self._waiting: dict[tuple[bytes, int, int], list[tuple[int, bytes]]] = {}
        self._waiting_bytes = 0
        self._key_texts = _KeyTexts(names)

    def append(self, task: int, row: KeyRow, result: Result, finished_at: float) -> int:
        """Add one record; return its number."""
        header = result_header(result.schema, self._key_texts(row), result.labels)
        record = pack_record(
            self._mark, RecordKind.DONE, task, header, result.data, finished_at, result.duration_s
        )
        number = len(self._offsets)
        self._offsets.append(-1)
        sizes = len(record), len(result.data)
        self._waiting.setdefault((result.schema, *sizes), []).append((number, record))
        self._waiting_bytes += len(record)
        if self._waiting_bytes > WRITE_BYTES:
            self._write_waiting()
        return number

    def _write_waiting(self) -> None:
        """Write records of one size together: readers take many of these at a time."""
        if self._waiting and self._file is None:
            self._file = self._begin()
        for records in self._waiting.values():
            assert self._file is not None
            self._file.write(b"".join([record for _, record in records]))
            for number, record in records:
                self._offsets[number] = self._end
                self._end += len(record)
        self._waiting, self._waiting_bytes = {}, 0

    def read(self, number: int) -> tuple[bytes, bytes]:
        """Schema and data of the record with this number."""
        self._write_waiting()
        assert self._file is not None
        self._file.flush()
        with RecordFile(Path(self._file.name)) as file:
            schema, data, _, _ = read_result(file, self._offsets[number])
        return schema, data

    def finish(self, plan_id: str) -> None:
        """Hand over all records to the system; `plan_id` says which plan their tasks are of."""
        self._write_waiting()
        if self._file is not None:
            if plan_id != self.plan_id:
                # No new task: the numbers are those of the plan that there was.
                self._file.seek(0)
                self._file.write(self._head(plan_id))
            self._file.flush()

    def _begin(self) -> IO[bytes]:
        self.path = self._folder.new_record_path(ROLE)
        temporary = self._stack.enter_context(durable.replacing(self.path))
        file = self._stack.enter_context(temporary.open("wb"))
        head = self._head(self.plan_id)
        file.write(head)
        self._end = len(head)
        return file

    def _head(self, plan_id: str) -> bytes:
        about = {"format": FORMAT, "process": this_process().as_json(), "role": ROLE}
        header = json_bytes({**about, **self._about, "plan": plan_id})
        return pack_record(self._mark, RecordKind.FILE, NO_TASK, header, b"", time.time(), 0.0)


class _KeyTexts:
    """Keys as they stand in records; the text of a value is made once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._form = "{" + ", ".join(f'"{name}": %s' for name in names) + "}"
        self._texts: dict[tuple[type, Value], str] = {}

    def __call__(self, row: KeyRow) -> bytes:
        texts = tuple([str(v) if type(v) is int else self._text(v) for v in row])
        return (self._form % texts).encode()

    def _text(self, value: Value) -> str:
        known = (type(value), value)
        text = self._texts.get(known)
        if text is None:
            if len(self._texts) > 100_000:
                self._texts.clear()
            text = self._texts[known] = value_json(value)
        return text
