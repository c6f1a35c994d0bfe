"""Report rows of different files that may be one task; without a key, decide nothing.

The integer and text columns of a table, all together, stand for the key if they tell the rows of
every file apart. They are read from the merged file, and no other column is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...base.units import count_text
from ...base.values import Array, value_text
from ...worker_files.inputs import Input
from .pieces import TablesFile
from .schema import MergedTable

MOST_ROWS = 4_000_000  # sorting more may take longer than to copy them
MOST_VALUES_PER_ROW = 16  # that are counted; it takes a byte for each
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_name = attrgetter("name")


@dataclass(frozen=True)
class RowsLookedAt:
    """What was found out about the rows of one table."""

    names: tuple[str, ...] = ()  # the columns that were looked at
    shared: int = 0  # rows of which another file has one with equal values there
    example: str = ""  # two of them
    why_not: str = ""  # why nothing can be said

    @property
    def are_unique(self) -> bool:
        return bool(self.names) and not self.shared and not self.why_not


def look_at_rows(
    output: TablesFile, table: MergedTable, inputs: Sequence[Input], *, copied: int = 0
) -> RowsLookedAt | None:
    """Look for rows of several files that are alike; None if only one file has rows.

    `copied`: how many rows are known to be there twice.
    """
    if np.count_nonzero(table.counts) < 2:
        return None
    if table.rows > MOST_ROWS:
        return RowsLookedAt(why_not=f"there are more than {MOST_ROWS:,} rows")
    keys = list(_keys(output, table))
    if not keys:
        return RowsLookedAt(why_not="no integer or text column tells rows apart")
    numbers, texts = ([key for key in keys if key.is_text is it] for it in (False, True))
    parts = [part for key in numbers for part in _parts(key)]
    codes, shared = _codes(parts, table.rows)
    if texts and shared:  # they take longer
        parts += [part for key in texts for part in _parts(key)]
        codes, shared = _codes(parts, table.rows)
    names = tuple(sorted(key.name for key in keys))
    if shared <= copied:
        return RowsLookedAt(names, copied)
    return _compare(table, inputs, keys, codes, RowsLookedAt(names, shared))


def notes_on_rows(looked: Sequence[RowsLookedAt]) -> Iterator[str]:
    """What a user has to know about rows that may be there twice, and the next step."""
    for one in looked:
        if one.example:
            yield (
                f"{count_text(one.shared, 'row')} may occur twice: {one.example}; all are kept. "
                "If these are the same tasks, "
                f"--key {','.join(one.names)} with another -o takes each once"
            )
    if why := next((one.why_not for one in looked if one.why_not), None):
        yield (
            f"no search for duplicates: {why}. --key NAMES with another -o takes each task "
            "once, by the columns that you name"
        )


class _KeyPart(NamedTuple):
    """A column, or a field of one, that may be part of a key."""

    name: str
    is_text: bool
    values: Any  # what h5py reads it by


def _keys(output: TablesFile, table: MergedTable) -> Iterator[_KeyPart]:
    for column in (column for column in table.columns if not column.inner):
        dataset, name = output.datasets[column], column.path.rpartition("/")[2]
        fields = dataset.dtype.fields or {}
        for field, (dtype, *_) in fields.items():
            if (is_text := _is_text(dtype)) is not None:
                yield _KeyPart(field, is_text, dataset.fields(field))
        if not fields and (is_text := _is_text(dataset.dtype)) is not None:
            yield _KeyPart(name, is_text, dataset)


def _is_text(dtype: np.dtype[Any]) -> bool | None:
    """Whether values are texts or integers; None if they are neither."""
    about: Mapping[str, Any] = dtype.base.metadata or {}
    if dtype.base.kind in "iu" and "enum" not in about:
        return False
    return True if dtype.kind == "S" or about.get("vlen") in (str, bytes) else None


def _parts(key: _KeyPart) -> Iterator[Array]:
    """The values of a column as integers; of a field that has several in each row, one by one."""
    values = key.values[:]
    if key.is_text:
        yield np.fromiter(map(hash, values.tolist()), np.int64, len(values))
    else:
        yield from np.ascontiguousarray(values.astype(np.int64).reshape(len(values), -1).T)


def _codes(parts: Sequence[Array], rows: int) -> tuple[Array, int]:
    """A number for each row, and how many rows have that of a row before.

    Rows with different values have different numbers. If there are more possible values than can
    be counted, that holds with a chance of 10^6 to 1 for all rows that there can be.
    """
    codes, size = np.zeros(rows, np.int64), 1
    for part in parts:
        low, high = int(part.min()), int(part.max())
        size *= high - low + 1
        if size > MOST_VALUES_PER_ROW * rows:
            return _hashed(parts, rows)
        codes = codes * (high - low + 1) + (part - low)
    seen = np.zeros(size, bool)
    seen[codes] = True
    return codes, rows - int(np.count_nonzero(seen))


def _hashed(parts: Sequence[Array], rows: int) -> tuple[Array, int]:
    codes = np.zeros(rows, np.uint64)
    for part in parts:
        codes = (codes ^ part.view(np.uint64)) * _ODD
        codes ^= codes >> _SHIFT
    in_order = np.sort(codes)
    return codes, int(np.count_nonzero(in_order[1:] == in_order[:-1]))


def _compare(
    table: MergedTable,
    inputs: Sequence[Input],
    keys: Sequence[_KeyPart],
    codes: Array,
    found: RowsLookedAt,
) -> RowsLookedAt:
    """Find out whether rows that are alike are of one file or of several."""
    order = np.argsort(codes, kind="stable")
    places = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    first, second = order[places], order[places + 1]
    files = [np.searchsorted(table.starts, rows, "right") - 1 for rows in (first, second)]
    within = np.flatnonzero(files[0] == files[1])
    if len(within):
        name = inputs[int(files[0][within[0]])].path
        does = "does" if len(found.names) == 1 else "do"
        why = f"{' and '.join(found.names)} {does} not tell the rows of {name} apart"
        return RowsLookedAt(found.names, why_not=why)
    row = int(first.min())
    one, other = (inputs[int(rows[first.argmin()])].path for rows in files)
    values = [f"{key.name}={_text(key.values[row])}" for key in sorted(keys, key=_name)]
    return replace(found, example=f"{', '.join(values)} is in {one} and in {other}")


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value_text(value)
