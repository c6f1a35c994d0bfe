"""Chunks behind a stale index: a gzip stream marks its own end and proves its contents.

A compressed chunk that grows is written before its index is, often in another place. Killed in
between, the index has a size or an address that no longer holds.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..checksum import fletcher32
from ..chunks import Chunk
from ..errors import Damaged, DamageKind, Unsupported
from ..file import Hdf5File
from ..messages import DEFLATE, FLETCHER32, SHUFFLE, Filter
from ..read_data import MOST_CHUNK_BYTES, chunk_bytes, inflate, undo_filter
from ..source import Source
from ..tree import Dataset
from .carve import find_offsets

_STREAM = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """A chunk as it lies in the file: its elements, its size there, and whether it is proven."""

    data: bytes
    size: int
    is_checked: bool


def read_stored(file: Hdf5File, dataset: Dataset, chunk: Chunk) -> Stored:
    """The chunk at the address that its index gives, however long it is there."""
    size = chunk_bytes(dataset)
    if max(size, chunk.size) > MOST_CHUNK_BYTES:
        raise Unsupported(f"chunks of {size:,} bytes")
    steps = [f for place, f in enumerate(dataset.filters) if not chunk.mask >> place & 1]
    if not any(step.number == DEFLATE for step in steps):
        data = file.read(chunk.address, chunk.size)
        return _undone(steps, data, chunk.size, dataset, is_checked=False)
    start = file.superblock.start + chunk.address
    return unpack_stream(file.source, start, steps, dataset)


def unpack_stream(source: Source, start: int, steps: list[Filter], dataset: Dataset) -> Stored:
    """The chunk whose stream begins at `start`; Damaged unless all its checksums are right."""
    size = chunk_bytes(dataset)
    place = next(n for n, step in enumerate(steps) if step.number == DEFLATE)
    if any(step.number != FLETCHER32 for step in steps[place + 1 :]):
        raise Unsupported("a filter behind gzip")
    if start >= source.size:
        raise Damaged(f"a chunk at {start:,}, beyond the end of the file", DamageKind.BEYOND_END)
    raw = source.read(start, min(source.size - start, size + size // 500 + 128))
    data, used = inflate(raw, size)
    for _ in steps[place + 1 :]:
        if fletcher32(raw[:used]) != int.from_bytes(raw[used : used + 4], "little"):
            raise Damaged("wrong checksum of a chunk", DamageKind.CHECKSUM)
        used += 4
    return _undone(steps[:place], data, used, dataset, is_checked=True)


def pack_chunk(data: bytes, dataset: Dataset) -> bytes:
    """What zlib and other filters make of these elements."""
    for step in dataset.filters:
        if step.number == SHUFFLE:
            width = step.values[0] if step.values else dataset.type.size
            end = len(data) // width * width
            data = b"".join(data[place:end:width] for place in range(width)) + data[end:]
        elif step.number == DEFLATE:
            data = zlib.compress(data, step.values[0] if step.values else -1)
        elif step.number == FLETCHER32:
            data += fletcher32(data).to_bytes(4, "little")
    return data


def _undone(
    steps: list[Filter], data: bytes, used: int, dataset: Dataset, *, is_checked: bool
) -> Stored:
    size = chunk_bytes(dataset)
    for step in reversed(steps):
        data = bytes(undo_filter(step, data, dataset.type.size, size))
        is_checked = is_checked or step.number == FLETCHER32
    if len(data) != size:
        raise Damaged(f"a chunk of {len(data):,} bytes where {size:,} should be")
    return Stored(data, used, is_checked)


def find_streams(
    source: Source, sizes: set[int], taken: list[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """Streams that inflate to exactly one of `sizes`, outside of what is taken: offset, content."""
    most = max(sizes)
    taken = sorted(taken)
    starts = [start for start, _ in taken]
    for offset in find_offsets(source, _STREAM, 2):
        place = bisect_right(starts, offset) - 1
        if place >= 0 and offset < taken[place][1]:
            continue
        data = _inflated(source, offset, most)
        if data is not None and len(data) in sizes:
            yield offset, data


def _inflated(source: Source, offset: int, most: int) -> bytes | None:
    """What a stream holds; None if there is none. Its beginning is tried first."""
    for limit in (_PROBE_BYTES, most + most // 500 + 128):
        raw = source.read(offset, min(limit, source.size - offset))
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(raw, most + 64)
        except zlib.error:
            return None
        if unpacker.eof:
            return data
    return None
