"""Write what salvage found: the results of each source as records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

from ..base.plan import key_text
from ..disk import durable
from ..disk.find_files import RECORDS_SUFFIX
from ..runfolder.records import (
    NO_TASK,
    RecordFile,
    RecordKind,
    RecordWriter,
    Scan,
    json_bytes,
    read_data,
)
from .spool import Spool, digest_of, schema_of
from .trust_labels import Candidate


def write_records(
    folder: Path, source: Path, stage: Spool, taken: list[Candidate], finished_at: float
) -> Path:
    """Make the record file of one source, durably: whole or as it was, killed at any moment.

    Results that an earlier call got out of the same source stay in it, unless their keys had other
    names: a merge could not tell which of both are meant.
    """
    name = f"salvage_{source.stem}_{crc32(os.fsencode(source.absolute())):08x}{RECORDS_SUFFIX}"
    path = folder / name
    with ExitStack() as stack:
        earlier = _EarlierRecords.open(path, stack)
        if earlier.holds(taken):
            return path  # the same again
        temporary = stack.enter_context(durable.replacing(path))
        about = {"role": "salvage", "source": str(source.absolute())}
        writer = RecordWriter(temporary, about=about, mark=stage.mark)
        for header, data in earlier.others(taken):
            writer.append(RecordKind.DONE, NO_TASK, header, data, finished_at=finished_at)
        for records in stage.read(taken):
            writer.append_packed(records)
        writer.close()
    return path


class _EarlierRecords:
    """The records that an earlier call has written for the same source."""

    def __init__(self, file: RecordFile | None) -> None:
        self._file = file
        self._records = (
            [] if file is None else [r for r in file.scan(Scan()) if r[1][3] == RecordKind.DONE]
        )

    @classmethod
    def open(cls, path: Path, stack: ExitStack) -> _EarlierRecords:
        return cls(stack.enter_context(RecordFile(path)) if path.exists() else None)

    def _parsed(self, record: tuple[Any, ...]) -> tuple[dict[str, Any], bytes]:
        assert self._file is not None
        return self._file.header(*record), read_data(self._file, *record)

    def holds(self, taken: Sequence[Candidate]) -> bool:
        """Whether these results are there under these keys, and nothing else."""
        if not self._records:
            return False
        parsed = map(self._parsed, self._records)
        mine = {(key_text(h["key"]), digest_of(schema_of(h), data)) for h, data in parsed}
        return mine == {(key_text(c.key), c.digest) for c in taken}

    def others(self, taken: Sequence[Candidate]) -> Iterator[tuple[bytes, bytes]]:
        """Header and data of the records of other tasks, under keys of the same names."""
        if not self._records:
            return
        known = {key_text(c.key) for c in taken}
        names = {frozenset(c.key) for c in taken}
        for record in self._records:
            header, data = self._parsed(record)
            if key_text(header["key"]) not in known and frozenset(header["key"]) in names:
                yield json_bytes(header), data
