"""Rows that cannot be copied as bytes: unpacked, converted or filled, written and read back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ...base.values import Array
from ...disk import durable
from ...disk.h5py_loader import h5py
from ...hdf5.tree import Dataset
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout
from .copy import (
    read_back,
)
from .create import TablesFile, as_objects
from .input_structure import TablePart
from .rows import RowReader, read_objects, read_raw
from .schema import MergedColumn, Mode, sound_path
from .types import convert, fill_element, holds_objects, type_of

FILL_BYTES = 4 << 20


@dataclass(frozen=True)
class ConvertedRows:
    """Rows that were not copied as bytes, and the checksum of what they became."""

    column: MergedColumn
    first: int
    count: int
    checksum: int

    def holds(self, output: TablesFile) -> bool:
        """Whether the rows are in the output as they were written."""
        column, rows = self.column, range(self.first, self.first + self.count)
        dataset = output.datasets[column.path]
        if column.mode is Mode.BYTES:
            buffer = memoryview(bytearray(self.count * column.row_bytes))
            offset = output.offsets[column.path] + self.first * column.row_bytes
            found = xxh3_64_intdigest(read_back(output.descriptor, buffer, offset, column))
        elif holds_objects(column.type):
            found = objects_checksum(read_objects(dataset, rows))
        else:
            found = xxh3_64_intdigest(read_raw(dataset, rows).data)
        return found == self.checksum


def convert_rows(
    one: Input, layout: FileLayout, part: TablePart, column: MergedColumn
) -> Iterator[tuple[int, Array]]:
    """The rows of one input as elements of a column of the output, a few at a time."""
    dataset = part.columns.get(column.path)
    if dataset is None:
        yield from _filled(column, part.rows)
        return
    reader, old = row_reader(one, layout, column.path, dataset), type_of(dataset.type)
    for step in reader.steps(part.first):
        yield step.start - part.first, convert(reader.read(step), old, column.type)


def row_reader(one: Input, layout: FileLayout, path: str, dataset: Dataset) -> RowReader:
    return RowReader(layout.tree.file, path, dataset, sound_path(one))


def _filled(column: MergedColumn, rows: int) -> Iterator[tuple[int, Array]]:
    """Rows for files that lack the column."""
    element = fill_element(column.type, column.fill)
    per_row = math.prod(column.inner)
    step = max(FILL_BYTES // max(column.row_bytes, 1), 1)
    for first in range(0, rows, step):
        count = min(step, rows - first) * per_row
        yield first, np.tile(element, count) if element.dtype != object else element.repeat(count)


def write_rows(output: TablesFile, column: MergedColumn, first: int, data: Array) -> ConvertedRows:
    per_row = math.prod(column.inner)
    if holds_objects(column.type):
        count = len(data) // max(per_row, 1)
        _write_objects(output, column, first, count, data)
        return ConvertedRows(column, first, count, objects_checksum(data))
    count = data.size // max(column.row_bytes, 1)
    if column.mode is Mode.BYTES:
        offset = output.offsets[column.path] + first * column.row_bytes
        durable.write_all(output.descriptor, np.ascontiguousarray(data).data, offset)
    else:
        shape = (count, *column.inner)
        values = np.ascontiguousarray(data).view(f"V{column.type.get_size()}").reshape(shape)
        dataset = output.datasets[column.path].id
        memory, space = _selection(dataset, first, shape)
        dataset.write(memory, space, values, column.type)
        output.require_written()
    return ConvertedRows(column, first, count, xxh3_64_intdigest(np.ascontiguousarray(data).data))


def _write_objects(
    output: TablesFile, column: MergedColumn, first: int, count: int, data: Array
) -> None:
    dataset, shape = output.datasets[column.path].id, (count, *column.inner)
    values = as_objects(data, column.type).reshape(shape)
    memory, space = _selection(dataset, first, shape)
    dataset.write(memory, space, values, h5py.h5t.py_create(values.dtype))
    output.require_written()


def _selection(dataset: object, first: int, shape: tuple[int, ...]) -> tuple[object, object]:
    space = dataset.get_space()  # type: ignore[attr-defined]  # h5py has no types
    space.select_hyperslab((first, *(0 for _ in shape[1:])), shape)
    return h5py.h5s.create_simple(shape), space


def objects_checksum(data: Array) -> int:
    """Of texts and sequences, with their lengths."""
    parts = [one if isinstance(one, bytes) else np.asarray(one).tobytes() for one in data.tolist()]
    found = xxh3_64(np.fromiter(map(len, parts), "<u8", len(parts)).tobytes())
    found.update(b"".join(parts))
    return found.intdigest()
