"""Hold results in a temporary file, as records, to save memory."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import IO

from xxhash import xxh3_128

from ..base.plan import key_json
from ..base.values import result_header
from ..runfolder.records import NO_TASK, RecordKind, pack_record
from .trust_labels import Candidate, Form

_PIECE_BYTES = 1 << 20


class Spool:
    """A temporary file with the record of every result that was found, if these are wanted."""

    def __init__(self, finished_at: float, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self.mark = os.urandom(4)  # of the file that some of these records will be in
        self._finished_at = finished_at
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=_PIECE_BYTES)  # noqa: SIM115 (closed by __exit__)
        self._end = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def write(self, candidate: Candidate, schema: bytes, data: bytes) -> None:
        """Keep a result, if anybody wants it, and note where it is."""
        if not self._is_wanted:
            return
        header, candidate.offset = (
            result_header(schema, key_json(candidate.key).encode()),
            self._end,
        )
        self._end += self._file.write(
            pack_record(self.mark, RecordKind.DONE, NO_TASK, header, data, self._finished_at, 0.0)
        )
        candidate.end = self._end

    def read(self, candidates: Iterable[Candidate]) -> Iterator[bytes]:
        """The records of these results one behind the other, in pieces that are not too large."""
        self._file.flush()
        for start, end in _runs(candidates):
            for place in range(start, end, _PIECE_BYTES):
                yield os.pread(self._file.fileno(), min(_PIECE_BYTES, end - place), place)


def _runs(candidates: Iterable[Candidate]) -> Iterator[tuple[int, int]]:
    """From where to where records lie without a gap."""
    start = end = 0
    for candidate in candidates:
        if candidate.offset != end:
            yield start, end
            start = candidate.offset
        end = candidate.end
    yield start, end


@lru_cache(1024)
def form_of(schema: bytes) -> Form:
    """What a schema says; results of one schema share one form."""
    return tuple((name, dtype, tuple(shape)) for name, dtype, shape in json.loads(schema))


def digest_of(schema: bytes, data: bytes) -> bytes:
    """By which two results are the same."""
    digest = xxh3_128(schema + b"\0")
    digest.update(data)
    return digest.digest()


def schema_of(header: Mapping[str, object]) -> bytes:
    """The JSON of the schema in a record's header, as the encoder writes it."""
    return json.dumps(header["data"], separators=(",", ":"), ensure_ascii=False).encode()
