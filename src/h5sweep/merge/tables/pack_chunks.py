"""Rows that are packed again: cut into chunks, packed in threads, written as they are packed.

zlib lets go of the interpreter's lock, and the HDF5 library does not pack two chunks at a time.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
from xxhash import xxh3_64_intdigest

from ...base.values import Array
from ...hdf5.checksum import fletcher32
from ...hdf5.errors import Damaged
from ...hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE
from ...hdf5.read_data import overlap, undo_filter
from .copy import read_back
from .create import TablesFile
from .schema import MergedColumn, Mode

THREADS = min(4, len(os.sched_getaffinity(0)))
WAITING_BYTES = 32 << 20
MOST_BAND_BYTES = 16 << 20


@dataclass(frozen=True)
class PackedChunk:
    """A chunk that was written, and the checksum of its elements before they were packed."""

    column: MergedColumn
    place: tuple[int, ...]
    checksum: int

    def holds(self, output: TablesFile) -> bool:
        """Whether the chunk is in the output, and these elements in it."""
        column = self.column
        offset, size, mask = output.chunks_of(column.path).get(self.place, (0, 0, 1))
        if mask:
            return False
        data = read_back(output.descriptor, memoryview(bytearray(size)), offset, column)
        try:
            return xxh3_64_intdigest(_unpacked(column, data)) == self.checksum
        except Damaged:
            return False


def _unpacked(column: MergedColumn, data: bytes | memoryview) -> bytes | memoryview:
    element_bytes = int(column.type.get_size())
    for step in reversed(column.filters):
        own = step._replace(values=())  # of the input, whose elements may be shorter
        data = undo_filter(own, data, element_bytes, math.prod(column.chunk) * element_bytes)
    return data


def can_be_packed(column: MergedColumn) -> bool:
    """Whether we pack it; on one core the library is faster."""
    if column.mode is not Mode.RECODED or THREADS < 2:
        return False
    is_known = {step.number for step in column.filters} <= {DEFLATE, SHUFFLE, FLETCHER32}
    return is_known and column.chunk[0] * column.row_bytes <= MOST_BAND_BYTES


@contextmanager
def chunk_packers(
    output: TablesFile, columns: Iterable[MergedColumn]
) -> Iterator[dict[MergedColumn, ChunkPacker]]:
    """What packs the columns that we pack, each of which has to be finished."""
    with ThreadPoolExecutor(THREADS) as executor:
        yield {c: ChunkPacker(output, c, executor) for c in columns if can_be_packed(c)}


class ChunkPacker:
    """Takes the rows of one column, in order, and writes them."""

    def __init__(
        self, output: TablesFile, column: MergedColumn, executor: ThreadPoolExecutor
    ) -> None:
        self._output, self._column, self._executor = output, column, executor
        self._element = np.dtype(f"V{column.type.get_size()}")
        self._rows = np.empty(column.chunk[0] * math.prod(column.inner), self._element)
        self._filled = self._first = 0
        fitting = WAITING_BYTES // max(self._rows.nbytes, 1)
        self._most_waiting = min(max(fitting, THREADS), 8 * THREADS)
        self._waiting: deque[Future[list[tuple[tuple[int, ...], int, bytes]]]] = deque()
        self._written: list[PackedChunk] = []

    def add(self, data: Array) -> None:
        """Take the elements of the next rows, as bytes."""
        elements = np.ascontiguousarray(data).view(self._element)
        while len(elements):
            some = elements[: len(self._rows) - self._filled]
            self._rows[self._filled : self._filled + len(some)] = some
            self._filled, elements = self._filled + len(some), elements[len(some) :]
            if self._filled == len(self._rows):
                self._submit()

    def finish(self) -> list[PackedChunk]:
        """Write what is left; return what was written."""
        if self._filled:
            self._rows[self._filled :] = self._fill
            self._submit()
        while self._waiting:
            self._write_first()
        return self._written

    @property
    def _fill(self) -> np.void:
        raw = self._column.fill or bytes(self._element.itemsize)
        found: np.void = np.frombuffer(raw, self._element)[0]
        return found

    def _submit(self) -> None:
        if len(self._waiting) >= self._most_waiting:
            self._write_first()
        rows, self._rows = self._rows, np.empty_like(self._rows)
        self._waiting.append(self._executor.submit(self._pack, rows, self._first))
        self._first, self._filled = self._first + self._column.chunk[0], 0

    def _write_first(self) -> None:
        dataset = self._output.datasets[self._column.path].id
        for place, checksum, packed in self._waiting.popleft().result():
            dataset.write_direct_chunk(place, packed)
            self._output.require_written()
            self._written.append(PackedChunk(self._column, place, checksum))

    def _pack(self, rows: Array, first: int) -> list[tuple[tuple[int, ...], int, bytes]]:
        return [(p, xxh3_64_intdigest(b), self._packed(b)) for p, b in self._blocks(rows, first)]

    def _blocks(self, rows: Array, first: int) -> Iterator[tuple[tuple[int, ...], memoryview]]:
        """The chunks of some rows: where each begins, and its elements as bytes."""
        sides, inner = self._column.chunk, self._column.inner
        rows = rows.reshape(sides[0], *inner)
        starts = (range(0, dim, side) for dim, side in zip(inner, sides[1:], strict=True))
        for start in product(*starts):
            block = np.full(sides, self._fill, self._element) if sides[1:] != inner else rows
            if block is not rows:
                place, part = overlap((0, *start), sides, rows.shape, range(sides[0]))
                block[part] = rows[place]
            yield (first, *start), block.reshape(-1).view(np.uint8).data

    def _packed(self, block: memoryview) -> bytes:
        data: bytes | memoryview = block
        for step in self._column.filters:
            if step.number == DEFLATE:
                data = zlib.compress(data, step.values[0])
            elif step.number == SHUFFLE:
                octets = np.frombuffer(data, np.uint8).reshape(-1, self._element.itemsize)
                data = octets.T.tobytes()
            else:
                data = bytes(data) + fletcher32(data).to_bytes(4, "little")
        return bytes(data)
