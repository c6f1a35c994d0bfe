"""Whether two results are the same: names and values, in any order and width."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np

from ...base.compare import are_same
from ...base.values import STR, ResultSchema, decode_result, schema_from_header
from .own_files import EncodedCells
from .tasks_of_file import Result

EncodedCell = tuple[str, tuple[int, ...], bytes]


def are_equal(schema: bytes, data: bytes, other_schema: bytes, other_data: bytes) -> bool:
    """Whether two results have the same names and values, in whatever order and width."""
    if schema == other_schema:
        return data == other_data
    mine, theirs = cells_of(schema, data), cells_of(other_schema, other_data)
    return mine.keys() == theirs.keys() and all(
        _is_equal_cell(mine[name], theirs[name]) for name in mine
    )


def cells_of(schema: bytes, data: bytes) -> EncodedCells:
    """The values of a record, each with its dtype and shape."""
    parsed = _parsed_schema(schema)
    arrays = decode_result(parsed, data)
    found: EncodedCells = {}
    for cell in parsed:
        values = arrays[cell.name]
        if cell.dtype == STR:
            texts = [text.encode() for text in values.reshape(-1)]
            raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        else:
            raw = values.tobytes()
        found[cell.name] = cell.dtype, cell.shape, raw
    return found


@lru_cache(64)
def _parsed_schema(schema: bytes) -> ResultSchema:
    return schema_from_header({"data": json.loads(schema)})


def _is_equal_cell(mine: EncodedCell, theirs: EncodedCell) -> bool:
    """Whether two values are the same, in whatever dtypes."""
    if mine[:2] == theirs[:2]:
        return mine[2] == theirs[2]
    if mine[1] != theirs[1] or STR in (mine[0], theirs[0]):
        return False
    values, others = (np.frombuffer(raw, dtype) for dtype, _, raw in (mine, theirs))
    return bool(are_same(values, others).all())


def are_in_cells(result: Result, cells: EncodedCells) -> bool:
    mine = cells_of(result.schema, result.data)
    return all(n in cells and _is_equal_cell(mine[n], cells[n]) for n in mine)
