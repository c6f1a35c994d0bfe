"""Rows that are packed again: cut into chunks, packed in threads, written as they are packed.

zlib lets go of the interpreter's lock, and the HDF5 library does not pack two chunks at a time.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product

import numpy as np
from xxhash import xxh3_64_intdigest

from ...base.values import Array
from ...hdf5.checksum import fletcher32
from ...hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE
from ...hdf5.read_data import overlap, undo_filter
from .schema import MergedColumn, Mode

THREADS = min(4, len(os.sched_getaffinity(0)))
WAITING_BYTES = 32 << 20
MOST_BAND_BYTES = 16 << 20
PackedChunk = tuple[tuple[int, ...], bytes, int]  # its place, and the checksum of its elements


def can_be_packed(column: MergedColumn) -> bool:
    """Whether we pack it; on one core the library is faster."""
    if column.mode is not Mode.RECODED or THREADS < 2:
        return False
    is_known = {step.number for step in column.filters} <= {DEFLATE, SHUFFLE, FLETCHER32}
    return is_known and column.chunk[0] * column.row_bytes <= MOST_BAND_BYTES


def unpacked(column: MergedColumn, data: bytes | memoryview) -> bytes | memoryview:
    """The elements of a chunk that was packed so; Damaged if it cannot be read."""
    element_bytes = int(column.type.get_size())
    for step in reversed(column.filters):
        own = step._replace(values=())  # of the input, whose elements may be shorter
        data = undo_filter(own, data, element_bytes, math.prod(column.chunk) * element_bytes)
    return data


class ChunkPacker:
    """Takes the rows of one column, in order, and gives its chunks."""

    def __init__(self, column: MergedColumn, executor: ThreadPoolExecutor) -> None:
        self._column, self._executor = column, executor
        self._element = np.dtype(f"V{column.type.get_size()}")
        self._fill = np.frombuffer(column.fill or bytes(self._element.itemsize), self._element)[0]
        self._band = np.empty(column.chunk[0] * math.prod(column.inner), self._element)
        self._filled = self._first = 0
        fitting = WAITING_BYTES // max(self._band.nbytes, 1)
        self._most_waiting = min(max(fitting, THREADS), 8 * THREADS)
        self._waiting: deque[Future[list[PackedChunk]]] = deque()

    def add(self, data: Array) -> Iterator[PackedChunk]:
        """Take the elements of the next rows, as bytes; yield chunks that have waited longest."""
        elements = np.ascontiguousarray(data).view(self._element)
        while len(elements):
            some = elements[: len(self._band) - self._filled]
            self._band[self._filled : self._filled + len(some)] = some
            self._filled, elements = self._filled + len(some), elements[len(some) :]
            if self._filled == len(self._band):
                if len(self._waiting) >= self._most_waiting:
                    yield from self._waiting.popleft().result()
                self._submit()

    def finish(self) -> Iterator[PackedChunk]:
        """Yield what is left."""
        if self._filled:
            self._band[self._filled :] = self._fill
            self._submit()
        while self._waiting:
            yield from self._waiting.popleft().result()

    def _submit(self) -> None:
        band, self._band = self._band, np.empty_like(self._band)
        self._waiting.append(self._executor.submit(self._pack, band, self._first))
        self._first, self._filled = self._first + self._column.chunk[0], 0

    def _pack(self, band: Array, first: int) -> list[PackedChunk]:
        blocks = self._blocks(band.reshape(-1, *self._column.inner), first)
        return [(place, self._packed(data), xxh3_64_intdigest(data)) for place, data in blocks]

    def _blocks(self, rows: Array, first: int) -> Iterator[tuple[tuple[int, ...], memoryview]]:
        """The chunks of some rows: where each begins, and its elements as bytes."""
        sides, inner = self._column.chunk, self._column.inner
        starts = (range(0, dim, side) for dim, side in zip(inner, sides[1:], strict=True))
        for start in product(*starts):
            block = rows
            if sides[1:] != inner:
                block = np.full(sides, self._fill, self._element)
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
