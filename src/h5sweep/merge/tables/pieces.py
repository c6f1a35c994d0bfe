"""Write rows of columns in pieces, and read each back: nothing else writes into the datasets.

A piece is bytes of a column that lies in one stretch, a chunk, or rows that the HDF5 library
writes. Its checksum (XXH3, which costs less than the reading) is taken when it is written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ...base.values import Array
from ...disk import durable
from ...disk.h5py_loader import h5py
from ...errors import naming
from ...hdf5.errors import Damaged
from .pack_chunks import ChunkPacker, can_be_packed, unpacked
from .rows import library_rows
from .schema import MergedColumn, Mode
from .types import holds_objects

BLOCK_BYTES = 1 << 20
_of_thread = threading.local()


@dataclass(frozen=True, slots=True)
class Piece:
    """What was written at once into a column."""

    column: MergedColumn
    place: int | tuple[int, ...] | range  # bytes of its rows before it; its chunk; its rows
    size_bytes: int
    checksum: int  # of the elements; of chunks that were not packed here, as they are packed
    mask: int = 0  # which filters of a chunk were left out


class TablesFile:
    """The datasets of the open output."""

    def __init__(
        self,
        file: Any,
        descriptor: int,
        columns: Iterable[MergedColumn],
        require_written: Callable[[], None] = lambda: None,
        executor: ThreadPoolExecutor | None = None,
    ) -> None:
        """`require_written` raises what the disk has refused of what the library wrote.

        `executor` packs chunks; without it nothing is to be written.
        """
        self._descriptor, self._require_written = descriptor, require_written
        self._packers: dict[MergedColumn, ChunkPacker] = {}
        self.datasets: dict[MergedColumn, Any] = {c: file[c.path] for c in columns}
        self._offsets: dict[MergedColumn, int] = {}
        self._chunks: dict[MergedColumn, dict[tuple[int, ...], tuple[int, int, int]]] = {}
        for column, dataset in self.datasets.items():
            if column.mode is Mode.BYTES:
                offset = dataset.id.get_offset()
                self._offsets[column] = -1 if offset is None else offset
            elif executor is not None and can_be_packed(column):
                self._packers[column] = ChunkPacker(column, executor)

    def write_bytes(self, column: MergedColumn, place: int, data: memoryview) -> Piece:
        """Write what comes behind `place` bytes of the rows of a column."""
        durable.write_all(self._descriptor, data, self._offsets[column] + place)
        return Piece(column, place, len(data), xxh3_64_intdigest(data))

    def write_chunk(
        self,
        column: MergedColumn,
        place: tuple[int, ...],
        data: bytes | memoryview,
        checksum: int,
        mask: int = 0,
    ) -> Piece:
        """Write a chunk as it is packed."""
        self.datasets[column].id.write_direct_chunk(place, data, mask)
        self._require_written()
        return Piece(column, place, len(data), checksum, mask)

    def write_rows(self, column: MergedColumn, first: int, data: Array) -> Iterator[Piece]:
        """Write elements, given as bytes or as objects, from the row `first` on.

        Rows that are packed here have to come in order, and some of them are only written when it
        is finished.
        """
        if column in self._packers:
            for place, packed, checksum in self._packers[column].add(data):
                yield self.write_chunk(column, place, packed, checksum)
        elif column.mode is Mode.BYTES:
            yield self.write_bytes(
                column, first * column.row_bytes, np.ascontiguousarray(data).data
            )
        else:
            yield self._write_by_library(column, first, np.ascontiguousarray(data))

    def finish(self) -> Iterator[Piece]:
        """Write the rows that wait."""
        for column, packer in self._packers.items():
            for place, packed, checksum in packer.finish():
                yield self.write_chunk(column, place, packed, checksum)

    def _write_by_library(self, column: MergedColumn, first: int, data: Array) -> Piece:
        if holds_objects(column.type):
            values = as_objects(data, column.type)
            memory_type = h5py.h5t.py_create(values.dtype)
        else:
            values, memory_type = data.view(f"V{column.type.get_size()}"), column.type
        values = values.reshape(-1, *column.inner)
        dataset = self.datasets[column].id
        space = dataset.get_space()
        space.select_hyperslab((first, *(0 for _ in column.inner)), values.shape)
        dataset.write(h5py.h5s.create_simple(values.shape), space, values, memory_type)
        self._require_written()
        rows = range(first, first + len(values))
        return Piece(column, rows, len(values) * column.row_bytes, elements_checksum(data))

    def holds(self, piece: Piece) -> bool:
        """Whether a piece reads back as it was written."""
        column, place = piece.column, piece.place
        if isinstance(place, range):
            found = library_rows(self.datasets[column], place)
            return elements_checksum(found) == piece.checksum
        if isinstance(place, int):
            offset = self._offsets[column] + place
        else:
            offset, *about = self._chunks_of(column).get(place, (0, -1, 0))
            if about != [piece.size_bytes, piece.mask]:
                return False
        data = buffer_of_thread(piece.size_bytes)
        with naming(self._descriptor):
            if not read_into(self._descriptor, data, offset):
                return False
        try:
            elements = unpacked(column, data) if column.mode is Mode.RECODED else data
        except Damaged:
            return False
        return xxh3_64_intdigest(elements) == piece.checksum

    def has_all_chunks(self, column: MergedColumn) -> bool:
        """Whether there is no chunk more and none less than the rows take.

        To be asked while no thread runs: what it finds out is kept for these.
        """
        return len(self._chunks_of(column)) == column.chunk_count

    def _chunks_of(self, column: MergedColumn) -> dict[tuple[int, ...], tuple[int, int, int]]:
        """The address, size and filter mask of each chunk."""
        if column not in self._chunks:
            found = self._chunks[column] = {}

            def take(chunk: Any) -> None:
                found[chunk.chunk_offset] = (chunk.byte_offset, chunk.size, chunk.filter_mask)

            self.datasets[column].id.chunk_iter(take)
        return self._chunks[column]


def as_objects(data: Array, type_: Any) -> Array:
    """Objects with what h5py has to know of them."""
    found = np.empty(data.shape, type_.dtype)
    found[...] = data
    return found


def elements_checksum(data: Array) -> int:
    """Of elements as bytes; of texts and sequences, with their lengths."""
    if data.dtype != object:
        return xxh3_64_intdigest(np.ascontiguousarray(data).data)
    parts = [one if isinstance(one, bytes) else np.asarray(one).tobytes() for one in data.tolist()]
    found = xxh3_64(np.fromiter(map(len, parts), "<u8", len(parts)).tobytes())
    found.update(b"".join(parts))
    return found.intdigest()


def buffer_of_thread(size: int) -> memoryview:
    """Memory of this thread's own, used again and again: fresh memory has to be mapped first."""
    found: memoryview | None = getattr(_of_thread, "buffer", None)
    if found is None or len(found) < size:
        found = _of_thread.buffer = np.empty(max(size, BLOCK_BYTES), np.uint8).data
    return found[:size]


def read_into(descriptor: int, view: memoryview, offset: int) -> bool:
    """Fill `view` with what lies there; False if the file ends before."""
    while view:
        count = os.preadv(descriptor, [view], offset)
        if not count:
            return False
        view, offset = view[count:], offset + count
    return True
