"""Copy the bytes of many files into one: each file is read once, from start to end.

Its checksum (XXH3, which costs less than the reading) is taken on the way, and that of each piece
that is copied: reading the piece back from the output must give the same.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import lt
from typing import Any

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ...disk import durable
from ...errors import naming
from ...hdf5.errors import Damaged
from ...hdf5.messages import Storage
from ...hdf5.read_data import prove_chunk
from ...hdf5.tree import Dataset
from ...worker_files import findings
from ...worker_files.inputs import Input, changed, require_unchanged
from ...worker_files.read_file import DamagedFileError, can_be_proven
from .create import ChunkPlaces, TablesFile, not_as_written
from .input_structure import InputStructure
from .schema import MergedColumn, Mode
from .types import type_of

BLOCK_BYTES = 1 << 20
GAP = -1
_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class CopyStretch:
    """Bytes of a file that go into a column: behind `place` bytes of its rows, or as a chunk."""

    start: int
    size: int
    column: int
    place: int = 0
    chunk: tuple[int, ...] | None = None
    mask: int = 0


# Where it begins and ends in a block; which column; the Stretch of a chunk, or how many bytes of
# the column's rows are before it.
CopyPiece = tuple[int, int, int, Any]
CopyBlock = tuple[int, int, list[CopyPiece]]  # where it begins in the file, its size, its pieces


@dataclass(eq=False)
class Route:
    """How files of one structure are copied: `blocks` cover a file, `odd` columns go elsewhere."""

    blocks: list[CopyBlock]
    columns: list[MergedColumn]
    stretches: list[CopyStretch]
    odd: list[MergedColumn] = field(default_factory=list)
    packed: dict[int, Dataset] = field(default_factory=dict)  # columns whose chunks we can unpack
    kept_at: dict[int, int] = field(
        default_factory=dict
    )  # of a stretch, within what is kept of a file

    @property
    def largest_block(self) -> int:
        return max((size for _, size, _ in self.blocks), default=0)

    @property
    def is_plain(self) -> bool:
        """Whether all is bytes that stay as they are, so that many files can be copied at once."""
        are_bytes = all(stretch.chunk is None for stretch in self.stretches)
        return not self.odd and are_bytes and len(self.kept_at) == len(self.stretches)


def plan_route(
    structure: InputStructure, columns: Sequence[MergedColumn], start: int, size: int
) -> Route:
    """Find the way for files of `size` bytes whose addresses count from `start`."""
    stretches: list[CopyStretch] = []
    odd = []
    for number, column in enumerate(columns):
        dataset = structure.columns.get(column.path)
        part = structure.tables.get(column.table)
        is_whole = dataset is not None and part is not None and not part.first
        found = _stretches(dataset, column, number, start) if dataset and is_whole else None
        if found is not None:
            stretches += found
        elif part is not None and part.rows:
            odd.append(column)
    stretches.sort(key=lambda stretch: stretch.start)
    if any(a.start + a.size > b.start for a, b in pairwise(stretches)):
        # Two of them share bytes, which only a damaged file has: each is read by itself.
        odd, stretches = _with_rows(structure, columns), []
    kept_at = dict(_kept_places(structure.example, stretches))
    packed = dict(_packed(structure, columns))
    return Route(_blocks(stretches, size), list(columns), stretches, odd, packed, kept_at)


def _packed(
    structure: InputStructure, columns: Sequence[MergedColumn]
) -> Iterator[tuple[int, Dataset]]:
    for number, column in enumerate(columns):
        dataset = structure.columns.get(column.path)
        if column.mode is Mode.CHUNKS and dataset is not None and can_be_proven(dataset):
            yield number, dataset


def _kept_places(one: Input, stretches: Sequence[CopyStretch]) -> Iterator[tuple[int, int]]:
    """Where stretches lie in what is kept of a file, if anything is."""
    if one.family is None or not one.is_kept:
        return
    for stretch in stretches:
        if (at := one.family.kept_at(stretch.start, stretch.size)) is not None:
            yield stretch.start, at


def _with_rows(structure: InputStructure, columns: Sequence[MergedColumn]) -> list[MergedColumn]:
    tables = structure.tables
    return [c for c in columns if c.table in tables and tables[c.table].rows]


def _stretches(
    dataset: Dataset, column: MergedColumn, number: int, start: int
) -> list[CopyStretch] | None:
    """The bytes of a column in the file; None if they cannot be taken as they are."""
    if dataset.type.encoded != column.encoded and type_of(dataset.type) != column.type:
        return None
    if column.mode is Mode.CHUNKS:
        dims = dataset.space.dims or ()
        return [
            CopyStretch(start + c.address, c.size, number, 0, c.start, c.mask)
            for c in dataset.chunks
            if all(map(lt, c.start, dims))
        ]
    if column.mode is not Mode.BYTES or dataset.filters:
        return None
    rows, row_bytes = dataset.rows or 0, column.row_bytes
    if dataset.layout.storage is Storage.CHUNKED:
        return _chunk_stretches(dataset, column, number, start)
    is_compact = dataset.layout.storage is Storage.COMPACT
    address = dataset.compact_at if is_compact else dataset.layout.address
    if not rows * row_bytes:
        return []
    return None if address is None else [CopyStretch(start + address, rows * row_bytes, number)]


def _chunk_stretches(
    dataset: Dataset, column: MergedColumn, number: int, start: int
) -> list[CopyStretch] | None:
    rows, row_bytes, side = dataset.rows or 0, column.row_bytes, dataset.layout.chunk[0]
    if dataset.layout.chunk[1:] != column.inner:
        return None
    found = [
        CopyStretch(
            start + chunk.address,
            min(side, rows - chunk.start[0]) * row_bytes,
            number,
            chunk.start[0] * row_bytes,
        )
        for chunk in dataset.chunks
        if chunk.start[0] < rows
    ]
    is_covered = len({stretch.place for stretch in found}) == len(found) == -(-rows // side)
    return found if is_covered else None


def _blocks(stretches: Sequence[CopyStretch], size: int) -> list[CopyBlock]:
    """Cut a file into blocks; chunks stay in one piece, all else is cut where a block is full."""
    maker = _BlockMaker()
    position = 0
    for stretch in stretches:
        maker.add(position, stretch.start, GAP, 0)
        if stretch.chunk is not None:
            maker.add_whole(stretch)
        else:
            maker.add(stretch.start, stretch.start + stretch.size, stretch.column, stretch.place)
        position = stretch.start + stretch.size
    maker.add(position, size, GAP, 0)
    maker.close()
    return maker.blocks


class _BlockMaker:
    def __init__(self) -> None:
        self.blocks: list[CopyBlock] = []
        self._start = self._end = 0
        self._pieces: list[CopyPiece] = []

    def add(self, start: int, end: int, column: int, place: int) -> None:
        while start < end:
            stop = min(end, self._start + BLOCK_BYTES)
            if stop <= start:
                self.close()
                continue
            self._pieces.append((start - self._start, stop - self._start, column, place))
            place += stop - start
            self._end = start = stop

    def add_whole(self, stretch: CopyStretch) -> None:
        if self._pieces and stretch.start + stretch.size > self._start + BLOCK_BYTES:
            self.close()
        start, end = stretch.start - self._start, stretch.start + stretch.size - self._start
        self._pieces.append((start, end, stretch.column, stretch))
        self._end = stretch.start + stretch.size

    def close(self) -> None:
        if self._pieces:
            self.blocks.append((self._start, self._end - self._start, self._pieces))
        self._start, self._pieces = self._end, []


# Copying -----------------------------------------------------------------------------------------

Firsts = Sequence[int]  # for each column, the row of the output at which an input begins


def copy_file(
    one: Input, route: Route, firsts: Firsts, output: TablesFile, tick: Callable[[int], None]
) -> tuple[int, array[int]]:
    """Copy one file; return its checksum, and that of every piece.

    Chunks are copied as they are, and unpacked to prove that they can be: DamagedFileError if not.
    """
    writers = [
        _writer(output, column, first) for column, first in zip(route.columns, firsts, strict=True)
    ]
    buffer = _buffer(route.largest_block)
    whole, copied = xxh3_64(), array("Q")
    descriptor = os.open(one.name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        require_unchanged(one, descriptor)
        for start, size, pieces in route.blocks:
            _read_into(descriptor, buffer[:size], start, one)
            whole.update(buffer[:size])
            for begin, end, column, place in pieces:
                if column != GAP:
                    data = buffer[begin:end]
                    if column in route.packed:
                        _prove(one, route, column, place, data)
                    copied.append(xxh3_64_intdigest(data))
                    writers[column](data, place)
            tick(size)
        require_unchanged(one, descriptor)
    finally:
        os.close(descriptor)
    return whole.intdigest(), copied


def _prove(one: Input, route: Route, column: int, stretch: CopyStretch, data: memoryview) -> None:
    try:
        prove_chunk(route.packed[column], data, stretch.mask)
    except Damaged as error:
        where = route.columns[column].path
        found = findings.CHUNK_FILTER.finding(where=where, address=stretch.start, why=error)
        raise DamagedFileError(one.name, found) from error


def _writer(
    output: TablesFile, column: MergedColumn, first: int
) -> Callable[[memoryview, Any], None]:
    """How a piece of a column is written, in files that begin at the row `first`."""
    if column.mode is Mode.CHUNKS:
        dataset = output.datasets[column.path].id

        def write_chunk(data: memoryview, stretch: CopyStretch) -> None:
            assert stretch.chunk is not None
            place = (stretch.chunk[0] + first, *stretch.chunk[1:])
            dataset.write_direct_chunk(place, data, stretch.mask)
            output.require_written()

        return write_chunk
    base = output.offsets.get(column.path, -1) + first * column.row_bytes

    def write_bytes(data: memoryview, place: int) -> None:
        durable.write_all(output.descriptor, data, base + place)

    return write_bytes


def copy_alike(
    inputs: Sequence[Input], route: Route, firsts: Firsts, output: TablesFile
) -> tuple[list[int], list[int]]:
    """Copy files of one structure whose data are known, as one.

    Returns their checksums, and those of what was written into each column.
    """
    family = inputs[0].family
    assert family is not None and {one.family for one in inputs} == {family}
    files = family.kept_rows([one.kept_as for one in inputs])
    written = []
    for column, first, stretches in _by_column(route, firsts):
        size = sum(stretch.size for stretch in stretches)
        rows = np.empty((len(inputs), size), np.uint8)
        for s in stretches:
            start = route.kept_at[s.start]
            rows[:, s.place : s.place + s.size] = files[:, start : start + s.size]
        data = rows.reshape(-1).data
        written.append(xxh3_64_intdigest(data))
        durable.write_all(
            output.descriptor, data, output.offsets[column.path] + first * column.row_bytes
        )
    return [one.xxh3 for one in inputs], written


def _by_column(route: Route, firsts: Firsts) -> list[tuple[MergedColumn, int, list[CopyStretch]]]:
    """The columns that have bytes in a file, and these."""
    found: dict[int, list[CopyStretch]] = {}
    for stretch in route.stretches:
        found.setdefault(stretch.column, []).append(stretch)
    return [(route.columns[n], firsts[n], stretches) for n, stretches in sorted(found.items())]


def _buffer(size: int) -> memoryview:
    """Memory of this thread's own, used again and again: fresh memory has to be mapped first."""
    found: memoryview | None = getattr(_of_thread, "buffer", None)
    if found is None or len(found) < size:
        found = _of_thread.buffer = np.empty(max(size, BLOCK_BYTES), np.uint8).data
    return found


def _read_into(descriptor: int, view: memoryview, offset: int, one: Input) -> None:
    while view:
        with naming(one.path):
            count = os.preadv(descriptor, [view], offset)
        if not count:
            raise changed(one)
        view, offset = view[count:], offset + count


# Reading back ------------------------------------------------------------------------------------


def verify_file(
    route: Route,
    firsts: Firsts,
    copied: Sequence[int],
    output: TablesFile,
    tick: Callable[[int], None],
) -> None:
    """Read back every piece of one file; DamagedError if one is not what was copied."""
    buffer = _buffer(route.largest_block)
    checksums = iter(copied)
    for _, _, pieces in route.blocks:
        for begin, end, column, place in pieces:
            if column == GAP:
                continue
            what, size = route.columns[column], end - begin
            if isinstance(place, CopyStretch):
                offset = _chunk_offset(output.chunks_of(what.path), what, place, firsts[column])
            else:
                offset = output.offsets[what.path] + firsts[column] * what.row_bytes + place
            data = read_back(output.descriptor, buffer[:size], offset, what)
            if xxh3_64_intdigest(data) != next(checksums):
                raise not_as_written(what.path)
            tick(size)


def _chunk_offset(
    places: ChunkPlaces, column: MergedColumn, stretch: CopyStretch, first: int
) -> int:
    assert stretch.chunk is not None
    place = (stretch.chunk[0] + first, *stretch.chunk[1:])
    offset, size, mask = places.get(place, (0, -1, 0))
    if (size, mask) != (stretch.size, stretch.mask):
        raise not_as_written(column.path)
    return offset


def verify_alike(
    count: int, route: Route, firsts: Firsts, written: Sequence[int], output: TablesFile
) -> None:
    """The same for `count` files that were copied as one."""
    for (column, first, stretches), expected in zip(
        _by_column(route, firsts), written, strict=True
    ):
        size = count * sum(stretch.size for stretch in stretches)
        offset = output.offsets[column.path] + first * column.row_bytes
        data = read_back(output.descriptor, _buffer(size)[:size], offset, column)
        if xxh3_64_intdigest(data) != expected:
            raise not_as_written(column.path)


def read_back(descriptor: int, view: memoryview, offset: int, column: MergedColumn) -> memoryview:
    rest = view
    while rest:
        with naming(descriptor):
            count = os.preadv(descriptor, [rest], offset)
        if not count:
            raise not_as_written(column.path)
        rest, offset = rest[count:], offset + count
    return view
