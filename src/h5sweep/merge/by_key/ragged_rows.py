"""Arrays of tasks that were read at once, though their lengths differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...base.values import Array, ResultEncoder, encode_text
from ...errors import UnmergeableError, UnsupportedValueError
from .row_tasks import encode_rows


@dataclass(frozen=True, eq=False)
class RaggedRows:
    """One array for each task, of any shape, one behind the other."""

    elements: Array  # of all tasks
    shapes: Array  # one row a task

    def rows(self) -> Iterator[Array]:
        """The array of each task, flat."""
        ends = np.cumsum(self.shapes.prod(axis=1)).tolist()
        for start, end in zip([0, *ends], ends, strict=False):
            yield self.elements[start:end]


def encode_ragged(
    encoder: ResultEncoder, columns: Mapping[str, Array | RaggedRows], rows: int, where: str
) -> tuple[list[bytes], list[bytes]]:
    """The schema of each row, and its data."""
    ragged = {name: found for name, found in columns.items() if isinstance(found, RaggedRows)}
    if not ragged:
        schema, data = encode_rows(encoder, dict[str, Array](columns), rows, where)  # type: ignore[arg-type]
        return [schema] * rows, data
    try:
        return _schemas(encoder, columns, ragged), _data(columns)
    except UnsupportedValueError as error:
        raise UnmergeableError(f"{where}: {error}") from error


def _schemas(
    encoder: ResultEncoder,
    columns: Mapping[str, Array | RaggedRows],
    ragged: Mapping[str, RaggedRows],
) -> list[bytes]:
    """Made once for all tasks whose arrays are of the same shapes."""
    known: dict[tuple[int, ...], bytes] = {}
    found = []
    shapes = np.concatenate([one.shapes for one in ragged.values()], axis=1)
    for number, lengths in enumerate(map(tuple, shapes.tolist())):
        if lengths not in known:
            empty = {name: _like(values, number) for name, values in columns.items()}
            known[lengths], _ = encoder.encode(empty)
        found.append(known[lengths])
    return found


def _like(values: Array | RaggedRows, number: int) -> Array:
    """An array of the type and shape that the values of one task have."""
    if isinstance(values, RaggedRows):
        shape = (*values.shapes[number].tolist(), *values.elements.shape[1:])
        return np.zeros(shape, values.elements.dtype)
    return np.asarray(values[number])


def _data(columns: Mapping[str, Array | RaggedRows]) -> list[bytes]:
    parts = []
    for name, values in columns.items():
        rows = values.rows() if isinstance(values, RaggedRows) else values
        kind = values.elements if isinstance(values, RaggedRows) else values
        if kind.dtype.kind == "U":
            parts.append([encode_text(row.reshape(-1).tolist(), name) for row in rows])
        else:
            little = kind.dtype.newbyteorder("<")
            parts.append([np.asarray(row, little).tobytes() for row in rows])
    return [b"".join(row) for row in zip(*parts, strict=True)]
