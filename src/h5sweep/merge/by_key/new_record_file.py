"""The record file for tasks taken from other files."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
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
WRITE_BYTES = 1 << 20


class NewRecordFile:
    """A new record file of a run folder, which appears whole as `stack` closes.

    It is begun with its first record: without any there is no file, and `path` is None.
    """

    def __init__(self, folder: RunFolder, names: Sequence[str], stack: ExitStack) -> None:
        self.path: Path | None = None
        self.plan_id = os.urandom(8).hex()  # of the plan that its tasks are numbered by
        self._folder, self._stack = folder, stack
        self._mark = os.urandom(4)
        self._file: IO[bytes] | None = None
        self._end = 0
        self._key_texts = _KeyTexts(names)

    def append(self, task: int, row: KeyRow, result: Result, finished_at: float) -> int:
        """Write one record; return where it lies."""
        if self._file is None:
            self._file = self._begin()
        header = result_header(result.schema, self._key_texts(row))
        record = pack_record(
            self._mark, RecordKind.DONE, task, header, result.data, finished_at, result.duration_s
        )
        offset = self._end
        self._file.write(record)
        self._end += len(record)
        return offset

    def read(self, offset: int) -> tuple[bytes, bytes]:
        """Schema and data of the record at `offset`."""
        assert self._file is not None
        self._file.flush()
        with RecordFile(Path(self._file.name)) as file:
            schema, data, _, _ = read_result(file, offset)
        return schema, data

    def finish(self, plan_id: str) -> None:
        """Hand over all records to the system; `plan_id` says which plan their tasks are of."""
        if self._file is not None:
            if plan_id != self.plan_id:
                # No new task: the numbers are those of the plan that there was.
                self._file.seek(0)
                self._file.write(self._head(plan_id))
            self._file.flush()

    def _begin(self) -> IO[bytes]:
        self.path = self._folder.new_record_path(ROLE)
        temporary = self._stack.enter_context(durable.replacing(self.path))
        file = self._stack.enter_context(temporary.open("wb", WRITE_BYTES))
        head = self._head(self.plan_id)
        file.write(head)
        self._end = len(head)
        return file

    def _head(self, plan_id: str) -> bytes:
        about = {"format": FORMAT, "process": this_process().as_json(), "role": ROLE}
        header = json_bytes({**about, "plan": plan_id})
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
