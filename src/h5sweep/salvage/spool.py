"""Hold results in a temporary file, as records, to save memory."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import compress
from types import TracebackType
from typing import IO

from xxhash import xxh3_128

from ..base.key_rule import KeyRule
from ..base.plan import key_json
from ..base.values import Array, ResultEncoder, result_header
from ..errors import UnsupportedValueError
from ..runfolder.records import NO_TASK, RecordKind, pack_record
from ..worker_files.file_view import NEVER_WRITTEN, FoundRows, FoundTask, Gap, Proof, is_blank
from .trust_labels import Candidate, Form, Way, proof_of, shared

_PIECE_BYTES = 1 << 20


class Spool:
    """A temporary file with the record of every result that was found."""

    def __init__(self, finished_at: float) -> None:
        self.mark = os.urandom(4)  # of the file that some of these records will be in
        self._finished_at = finished_at
        self._file: IO[bytes] = tempfile.TemporaryFile(buffering=_PIECE_BYTES)  # noqa: SIM115 (closed by __exit__)
        self._end = 0
        self._encoder = ResultEncoder()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add_found(self, found: FoundTask, way: Way, rule: KeyRule) -> Candidate | None:
        """Keep a task that is whole; of one that is not, its losses say why it is not kept."""
        if found.key is None or found.lost or not found.cells:
            return None
        cells = dict(sorted(found.cells.items()))
        try:
            schema, data = self._encoder.encode({n: cell.value for n, cell in cells.items()})
        except UnsupportedValueError as error:
            found.lost[""] = str(error)
            return None
        doubt = found.doubt or next((c.doubt for c in cells.values() if c.doubt), "")
        is_rescued = any(cell.is_rescued for cell in cells.values())
        candidate = Candidate(
            found.key,
            found.place,
            Way.GZIP if is_rescued else way,
            form_of(schema),
            b"",
            Proof.DOUBT if doubt else proof_of(found),
            doubt,
            shared(name for name, cell in cells.items() if cell.is_fill),
            shared(found.key_gaps | {n for n, cell in cells.items() if cell.gap is Gap.MAYBE}),
            tuple((n, cell.runs) for n, cell in cells.items() if cell.gap is Gap.INSIDE),
            shared(found.key_odd | {n for n, cell in cells.items() if cell.gap is Gap.ODD}),
            tuple((n, cell.offset) for n, cell in cells.items() if cell.offset is not None),
            key_fills=shared(found.key_fills),
            order=found.order,
            is_row=found.is_row and not found.is_proven,
            is_expected=rule.is_expected(found.key),
        )
        return self.add(candidate, schema, data)

    def add_rows(self, found: FoundRows, way: Way, rule: KeyRule) -> list[Candidate | None]:
        """The same for rows that were read at once; None for a row that is not kept.

        UnsupportedValueError, and nothing is kept, if a value cannot be in a result.
        """
        cells = dict(sorted(found.cells.items()))
        columns = {name: cell.values for name, cell in cells.items()}
        (schema, *_), every = self._encoder.encode_rows(columns)
        doubt = found.doubt or next((c.doubt for c in cells.values() if c.doubt), "")
        is_rescued = any(cell.is_rescued for cell in cells.values())
        proof = min((found.key_proof, *(cell.proof for cell in cells.values())))
        fills = _names_by_row({name: cell.fills for name, cell in cells.items()}, len(every))
        key_fills = _names_by_row(found.key_fills, len(every))
        candidates: list[Candidate | None] = []
        for number, (key, is_unwritten) in enumerate(
            zip(found.keys, found.unwritten.tolist(), strict=True)
        ):
            if key is None or (is_unwritten and is_blank(key)):
                candidates.append(None)
                continue
            why = doubt or (NEVER_WRITTEN if is_unwritten else "")
            candidate = Candidate(
                key,
                found.place(number),
                Way.GZIP if is_rescued else way,
                form_of(schema),
                b"",
                Proof.DOUBT if why else proof,
                why,
                fills[number],
                key_fills=key_fills[number],
                is_row=True,
                is_expected=rule.is_expected(key),
            )
            candidates.append(self.add(candidate, schema, every[number]))
        return candidates

    def add(self, candidate: Candidate, schema: bytes, data: bytes) -> Candidate:
        """Keep the data of a result; what is known of it gets their place and digest."""
        header = result_header(schema, key_json(candidate.key).encode())
        candidate.digest, candidate.offset = digest_of(schema, data), self._end
        self._end += self._file.write(
            pack_record(self.mark, RecordKind.DONE, NO_TASK, header, data, self._finished_at, 0.0)
        )
        candidate.end = self._end
        return candidate

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


def _names_by_row(marked: Mapping[str, Array], rows: int) -> list[frozenset[str]]:
    """Under which names each row is marked; rows that are alike share one set."""
    if not any(marks.any() for marks in marked.values()):
        return [shared(())] * rows
    by_row = zip(*(marks.tolist() for marks in marked.values()), strict=True)
    return [shared(compress(marked, marks)) for marks in by_row]


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
