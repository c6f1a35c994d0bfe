"""Copy the rows of inputs into the output: as the bytes that they are, or converted.

Each file is read once, from start to end, and its checksum is taken on the way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from operator import lt
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ...base.values import Array
from ...errors import naming
from ...hdf5.chunks import Chunk
from ...hdf5.errors import Damaged
from ...hdf5.messages import Storage
from ...hdf5.read_data import prove_chunk, start_of
from ...hdf5.tree import Dataset
from ...worker_files import findings
from ...worker_files.inputs import Input, changed, require_unchanged
from ...worker_files.layouts import FileLayout
from ...worker_files.read_file import DamagedFileError, can_be_proven
from .input_structure import InputStructure
from .pieces import BLOCK_BYTES, Piece, TablesFile, buffer_of_thread, read_into
from .rows import RowReader
from .schema import MergedColumn, Mode
from .types import convert, fill_element, type_of

FILL_BYTES = 4 << 20


class Stretch(NamedTuple):
    """Bytes of a file: a chunk of a column, or what comes behind `place` bytes of its rows."""

    start: int
    size: int
    column: MergedColumn | None = None  # None if they are not copied
    place: int = 0
    chunk: Chunk | None = None

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(eq=False)
class Route:
    """How files of one structure are copied: `blocks` cover a file, `odd` columns are converted."""

    structure: InputStructure
    stretches: list[Stretch] = field(default_factory=list)
    odd: list[MergedColumn] = field(default_factory=list)
    blocks: list[list[Stretch]] = field(default_factory=list)  # that are read at once

    @cached_property
    def is_in_memory(self) -> bool:
        """Whether all that is copied is what is kept in memory of small files that are alike."""
        family = self.structure.example.family
        return not self.odd and all(
            s.chunk is None and family is not None and family.kept_at(s.start, s.size) is not None
            for s in self.stretches
        )


def plan_route(structure: InputStructure, columns: Sequence[MergedColumn]) -> Route:
    """Decide how the files of one structure are copied."""
    route = Route(structure)
    for column in columns:
        if (part := structure.tables.get(column.table.name)) is None:
            continue
        dataset = structure.columns.get(column.path)
        is_whole = dataset is not None and not part.first
        found = _stretches(dataset, column, structure.start) if dataset and is_whole else None
        if found is not None:
            route.stretches += found
        elif part.rows:
            route.odd.append(column)
    route.stretches.sort(key=lambda stretch: stretch.start)
    if any(a.end > b.start for a, b in pairwise(route.stretches)):
        # Two of them share bytes, which only a damaged file has: each is read by itself.
        tables = {name for name, part in structure.tables.items() if part.rows}
        route.stretches, route.odd = [], [c for c in columns if c.table.name in tables]
    route.blocks = list(_blocks(_cut(route.stretches, structure.example.size_bytes)))
    return route


def _stretches(dataset: Dataset, column: MergedColumn, start: int) -> list[Stretch] | None:
    """The bytes of a column in the file; None if they cannot be taken as they are."""
    dims = dataset.space.dims or ()
    chunks = [chunk for chunk in dataset.chunks if all(map(lt, chunk.start, dims))]
    if column.mode is Mode.CHUNKS:
        return [Stretch(start + c.address, c.size, column, chunk=c) for c in chunks]
    if column.mode is not Mode.BYTES or dataset.filters or type_of(dataset.type) != column.type:
        return None
    size = (dataset.rows or 0) * column.row_bytes
    if dataset.layout.storage is Storage.CHUNKED:
        return _chunk_stretches(dataset, column, start, chunks, size)
    if not size:
        return []
    at = start_of(dataset)
    return None if at is None else [Stretch(start + at, size, column)]


def _chunk_stretches(
    dataset: Dataset, column: MergedColumn, start: int, chunks: Sequence[Chunk], size: int
) -> list[Stretch] | None:
    side = dataset.layout.chunk[0]
    is_covered = len({c.start for c in chunks}) == len(chunks) == -(-(dataset.rows or 0) // side)
    if dataset.layout.chunk[1:] != column.inner or not is_covered:
        return None
    places = [(chunk, chunk.start[0] * column.row_bytes) for chunk in chunks]
    most = side * column.row_bytes
    return [Stretch(start + c.address, min(most, size - at), column, at) for c, at in places]


def _cut(stretches: Sequence[Stretch], size: int) -> Iterator[Stretch]:
    """A whole file: its stretches and what is between them; only chunks are longer than a block."""
    position = 0
    for stretch in (*stretches, Stretch(size, 0)):
        for some in (Stretch(position, stretch.start - position), stretch):
            if some.chunk is not None:
                yield some
                continue
            for at in range(0, some.size, BLOCK_BYTES):
                count = min(BLOCK_BYTES, some.size - at)
                yield some._replace(start=some.start + at, size=count, place=some.place + at)
        position = stretch.end


def _blocks(stretches: Iterator[Stretch]) -> Iterator[list[Stretch]]:
    """Stretches that are read at once."""
    block: list[Stretch] = []
    for stretch in stretches:
        if block and stretch.end - block[0].start > BLOCK_BYTES:
            yield block
            block = []
        block.append(stretch)
    if block:
        yield block


# Copying -----------------------------------------------------------------------------------------


def copy_file(
    one: Input, number: int, route: Route, output: TablesFile, tick: Callable[[int], None]
) -> tuple[int, list[Piece]]:
    """Copy one file, the input of this number; return its checksum, and what was written.

    Chunks are copied as they are, and unpacked to prove that they can be: DamagedFileError if not.
    """
    whole, written = xxh3_64(), []
    descriptor = os.open(one.name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        require_unchanged(one, descriptor)
        for block in route.blocks:
            start, end = block[0].start, block[-1].end
            data = buffer_of_thread(end - start)
            with naming(one.path):
                if not read_into(descriptor, data, start):
                    raise changed(one)
            whole.update(data)
            for stretch in block:
                if (column := stretch.column) is None:
                    continue
                some = data[stretch.start - start : stretch.end - start]
                first = int(column.table.starts[number])
                if (chunk := stretch.chunk) is None:
                    at = first * column.row_bytes + stretch.place
                    written.append(output.write_bytes(column, at, some))
                else:
                    _prove(one, route.structure.columns[column.path], stretch, some)
                    place = (chunk.start[0] + first, *chunk.start[1:])
                    checksum = xxh3_64_intdigest(some)
                    written.append(output.write_chunk(column, place, some, checksum, chunk.mask))
            tick(end - start)
        require_unchanged(one, descriptor)
    finally:
        os.close(descriptor)
    return whole.intdigest(), written


def _prove(one: Input, dataset: Dataset, stretch: Stretch, data: memoryview) -> None:
    """Raise DamagedFileError if a chunk cannot be unpacked, as far as we know its filters."""
    assert stretch.column is not None and stretch.chunk is not None
    try:
        if can_be_proven(dataset):
            prove_chunk(dataset, data, stretch.chunk.mask)
    except Damaged as error:
        where = stretch.column.path
        found = findings.CHUNK_FILTER.finding(where=where, address=stretch.start, why=error)
        raise DamagedFileError(one.name, found) from error


def copy_alike(
    inputs: Sequence[Input], number: int, route: Route, output: TablesFile
) -> list[Piece]:
    """Copy files of one structure that are kept in memory, as one; `number` is the first's."""
    family = route.structure.example.family
    assert family is not None and {one.family for one in inputs} == {family}
    files = family.kept_rows([one.kept_as for one in inputs])
    by_column: dict[MergedColumn, list[Stretch]] = {}
    for stretch in route.stretches:
        if stretch.column is not None:
            by_column.setdefault(stretch.column, []).append(stretch)
    written = []
    for column, stretches in by_column.items():
        rows = np.empty((len(inputs), sum(s.size for s in stretches)), np.uint8)
        for s in stretches:
            start = family.kept_at(s.start, s.size)
            assert start is not None
            rows[:, s.place : s.place + s.size] = files[:, start : start + s.size]
        place = int(column.table.starts[number]) * column.row_bytes
        written.append(output.write_bytes(column, place, rows.reshape(-1).data))
    return written


def convert_rows(
    one: Input, layout: FileLayout, structure: InputStructure, column: MergedColumn
) -> Iterator[tuple[int, Array]]:
    """The rows of an open input as elements of a column, a few at a time, and where these begin."""
    part = structure.tables[column.table.name]
    dataset = part.columns.get(column.path)
    if dataset is None:
        yield from _filled(column, part.rows)
        return
    reader, old = RowReader(one, layout, column.path, dataset), type_of(dataset.type)
    for step in reader.steps(part.first):
        yield step.start - part.first, convert(reader.read(step), old, column.type)


def _filled(column: MergedColumn, rows: int) -> Iterator[tuple[int, Array]]:
    """Rows for files that lack the column."""
    element = fill_element(column.type, column.fill)
    step = max(FILL_BYTES // max(column.row_bytes, 1), 1)
    for first in range(0, rows, step):
        count = min(step, rows - first) * math.prod(column.inner)
        yield first, np.tile(element, count)
