"""Tasks that a reader found → results that may be taken, with what there is to judge them by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress

from ..base.key_rule import KeyRule
from ..base.values import Array, ResultEncoder
from ..errors import UnsupportedValueError
from ..worker_files.file_view import NEVER_WRITTEN, FoundRows, FoundTask, Gap, Proof, is_blank
from .spool import form_of
from .trust_labels import Candidate, Way, proof_of, shared

Encoded = tuple[Candidate, bytes, bytes]  # with the schema and the data of its record


def candidate_of(found: FoundTask, rule: KeyRule, encoder: ResultEncoder) -> Encoded | None:
    """A task that is whole; of one that is not, its losses say why it is none."""
    if found.key is None or found.lost or not found.cells:
        return None
    cells = dict(sorted(found.cells.items()))
    try:
        schema, data = encoder.encode({name: cell.value for name, cell in cells.items()})
    except UnsupportedValueError as error:
        found.lost[""] = str(error)
        return None
    doubt = found.doubt or next((c.doubt for c in cells.values() if c.doubt), "")
    is_rescued = any(cell.is_rescued for cell in cells.values())
    candidate = Candidate(
        found.key,
        found.place,
        Way.STREAM if is_rescued else Way.CARVED,
        form_of(schema),
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
    return candidate, schema, data


def candidates_of(
    found: FoundRows, rule: KeyRule, encoder: ResultEncoder
) -> Iterator[Encoded | None]:
    """The same for rows that were read at once; None for one that is no task.

    UnsupportedValueError, before the first, if a value cannot be in a result.
    """
    cells = dict(sorted(found.cells.items()))
    (schema, *_), every = encoder.encode_rows({name: cell.values for name, cell in cells.items()})
    doubt = found.doubt or next((c.doubt for c in cells.values() if c.doubt), "")
    is_rescued = any(cell.is_rescued for cell in cells.values())
    proof = min((found.key_proof, *(cell.proof for cell in cells.values())))
    fills = _names_by_row({name: cell.fills for name, cell in cells.items()}, len(every))
    key_fills = _names_by_row(found.key_fills, len(every))
    for number, (key, is_unwritten) in enumerate(
        zip(found.keys, found.unwritten.tolist(), strict=True)
    ):
        if key is None or (is_unwritten and is_blank(key)):
            yield None
            continue
        why = doubt or (NEVER_WRITTEN if is_unwritten else "")
        candidate = Candidate(
            key,
            found.place(number),
            Way.STREAM if is_rescued else Way.CARVED,
            form_of(schema),
            Proof.DOUBT if why else proof,
            why,
            fills[number],
            key_fills=key_fills[number],
            is_row=True,
            is_expected=rule.is_expected(key),
        )
        yield candidate, schema, every[number]


def _names_by_row(marked: Mapping[str, Array], rows: int) -> list[frozenset[str]]:
    """Under which names each row is marked; rows that are alike share one set."""
    if not any(marks.any() for marks in marked.values()):
        return [shared(())] * rows
    by_row = zip(*(marks.tolist() for marks in marked.values()), strict=True)
    return [shared(compress(marked, marks)) for marks in by_row]
