"""An output as a table of plain values, a block of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from ..base.values import STR, Array, plain_array
from .reader import OutputReader, OutputSource
from .record_rows import BlockCells

_ROWS_AT_ONCE = 4096


def csv_rows(reader: OutputReader) -> Iterator[list[object]]:
    """The names of the columns, then each row: key, results, code, how long it took, its end.

    Arrays are JSON, times ISO 8601. A cell is empty where there is no value, and where it is NaN.
    """
    keys = reader.keys()
    names = list(dict.fromkeys(column.source_name for column in reader.columns()))
    yield [*keys.columns, *names, "code", "duration_s", "finished_at"]
    source, all_keys = OutputSource(reader), keys.rows()
    codes, durations_s = reader.codes(), reader.whole("duration_s")
    ends = _times(reader.whole("finished_at"))
    for first in range(0, len(codes), _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, len(codes)))
        cells: dict[str, list[object]] = {name: [""] * len(rows) for name in names}
        for part in source.parts(rows - first, rows):
            for row, cell in zip(part.rows.tolist(), _cells(part), strict=True):
                cells[part.name][row] = cell
        about = zip(
            codes[rows].tolist(), durations_s[rows].tolist(), ends[rows].tolist(), strict=True
        )
        for result, more in zip(zip(*cells.values(), strict=True), about, strict=True):
            yield [*next(all_keys).values(), *result, *more]


def _cells(part: BlockCells) -> Iterator[object]:
    values = part.load()
    if part.dtype == STR:
        texts, values = [text.decode() for text in values], np.empty(len(values), object)
        values[:] = texts
    if not part.axes.shape[1]:
        for value in plain_array(values):
            yield "" if value is None or value == "NaT" else _cell(value)
        return
    ends = np.cumsum(part.counts)
    for start, end, shape in zip(ends - part.counts, ends, part.axes, strict=True):
        yield json.dumps(plain_array(values[start:end].reshape(shape)))


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, list) else value


def _times(seconds: Array) -> Array:
    times = (seconds * 1e6).astype(np.int64).astype("datetime64[us]")
    return np.array([f"{time}Z" for time in times.astype(str).tolist()], object)
