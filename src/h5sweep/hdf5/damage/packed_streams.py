"""Chunks behind a stale index: a packed stream marks its own end and proves that it is whole.

A compressed chunk that grows is written before its index is, often in another place. Killed in
between, the index has a size or an address that no longer holds. A gzip stream has a checksum; of
lzf, what is unpacked must give the same stream when it is packed again.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..checksum import fletcher32
from ..chunks import Chunk
from ..errors import Damaged, DamageKind, Unsupported
from ..file import Hdf5File
from ..lzf import pack_lzf, unpack_lzf
from ..messages import DEFLATE, FLETCHER32, SHUFFLE, Filter
from ..read_data import LZF, MOST_CHUNK_BYTES, chunk_bytes, inflate, undo_filter
from ..source import Source
from ..tree import Dataset
from .carve import STEP_BYTES, find_offsets

_STREAM = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_PROBE_BYTES = 4096
_LZF_START_BYTES = 36


@dataclass(frozen=True, slots=True)
class Stored:
    """A chunk as it lies in the file: its elements, its size there, and whether it is proven."""

    data: bytes
    size: int
    is_checked: bool


def packing_of(steps: Sequence[Filter]) -> int | None:
    """Which of the filters makes streams that can be found again: gzip, lzf, or none."""
    return next((step.number for step in steps if step.number in (DEFLATE, LZF)), None)


def read_stored(file: Hdf5File, dataset: Dataset, chunk: Chunk) -> Stored:
    """The chunk at the address that its index gives; of gzip, however long it is there."""
    size = chunk_bytes(dataset)
    if max(size, chunk.size) > MOST_CHUNK_BYTES:
        raise Unsupported(f"chunks of {size:,} bytes")
    if packing_of(steps := steps_of(dataset, chunk)) == DEFLATE:
        return read_stream(file, dataset, chunk)
    data = file.read(chunk.address, chunk.size)
    return _undone(steps, data, chunk.size, dataset, is_checked=False)


def read_stream(file: Hdf5File, dataset: Dataset, chunk: Chunk) -> Stored:
    """The same, however long it is there; Damaged if it is packed and no whole stream."""
    if packing_of(steps := steps_of(dataset, chunk)) is None:
        return read_stored(file, dataset, chunk)
    return unpack_stream(file.source, file.superblock.start + chunk.address, steps, dataset)


def steps_of(dataset: Dataset, chunk: Chunk) -> list[Filter]:
    """The filters that a chunk went through."""
    return [step for place, step in enumerate(dataset.filters) if not chunk.mask >> place & 1]


def unpack_stream(source: Source, start: int, steps: list[Filter], dataset: Dataset) -> Stored:
    """The chunk whose stream begins at `start`; Damaged unless it is whole."""
    size = chunk_bytes(dataset)
    place = next(n for n, step in enumerate(steps) if step.number in (DEFLATE, LZF))
    if any(step.number != FLETCHER32 for step in steps[place + 1 :]):
        raise Unsupported("a filter behind the packing")
    if start >= source.size:
        raise Damaged(f"a chunk at {start:,}, beyond the end of the file", DamageKind.BEYOND_END)
    raw = source.read(start, min(source.size - start, size + size // 500 + 128))
    is_gzip = steps[place].number == DEFLATE
    data, used = inflate(raw, size) if is_gzip else _unpacked_lzf(raw, size)
    for _ in steps[place + 1 :]:
        if fletcher32(raw[:used]) != int.from_bytes(raw[used : used + 4], "little"):
            raise Damaged("wrong checksum of a chunk", DamageKind.CHECKSUM)
        used += 4
    is_checked = is_gzip or place + 1 < len(steps)
    return _undone(steps[:place], data, used, dataset, is_checked=is_checked)


def _unpacked_lzf(raw: bytes, size: int) -> tuple[bytes, int]:
    """What a whole stream at the beginning of `raw` holds, and how long it is.

    One that is not shorter than the chunk was never written: the chunk is, as it is.
    """
    data, used = unpack_lzf(raw, size)
    if len(data) != size or used > size or pack_lzf(data) != raw[:used]:
        raise Damaged("a compressed chunk that is no whole stream", DamageKind.CHECKSUM)
    return data, used


def pack_chunk(data: bytes, dataset: Dataset) -> bytes:
    """What gzip or lzf and other filters make of these elements."""
    for step in dataset.filters:
        if step.number == SHUFFLE:
            width = step.values[0] if step.values else dataset.type.size
            end = len(data) // width * width
            data = b"".join(data[place:end:width] for place in range(width)) + data[end:]
        elif step.number == DEFLATE:
            data = zlib.compress(data, step.values[0] if step.values else -1)
        elif step.number == LZF:
            data = pack_lzf(data)
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
    source: Source, dataset: Dataset, taken: list[tuple[int, int]]
) -> Iterator[tuple[int, Stored]]:
    """Streams that can be a chunk of this dataset, outside of what is taken: offset, content."""
    is_gzip = packing_of(dataset.filters) == DEFLATE
    for offset in (_gzip_offsets if is_gzip else _lzf_offsets)(source, dataset, sorted(taken)):
        with suppress(Damaged, Unsupported):
            yield offset, unpack_stream(source, offset, list(dataset.filters), dataset)


def _gzip_offsets(source: Source, dataset: Dataset, taken: list[tuple[int, int]]) -> Iterator[int]:
    """Where streams begin that inflate to a chunk, or to one with a checksum behind it."""
    size = chunk_bytes(dataset)
    starts = [start for start, _ in taken]
    for offset in find_offsets(source, _STREAM, 2):
        place = bisect_right(starts, offset) - 1
        if place >= 0 and offset < taken[place][1]:
            continue
        data = _inflated(source, offset, size + 4)
        if data is not None and len(data) in (size, size + 4):
            yield offset


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


def _lzf_offsets(source: Source, dataset: Dataset, taken: list[tuple[int, int]]) -> Iterator[int]:
    """Where streams may begin: with literals, and if there are less than 32, a match in them."""
    at = 0
    for start, end in (*taken, (source.size, source.size)):
        for first in range(at, start, STEP_BYTES):
            count = min(start - first, STEP_BYTES)
            raw = source.read(first, min(count + _LZF_START_BYTES, source.size - first))
            data = np.frombuffer(raw.ljust(count + _LZF_START_BYTES, b"\0"), np.uint8)
            starts = np.flatnonzero(data[:count] < 32)
            literals = data[starts].astype(np.int64)
            behind = starts + literals + 2
            control = data[behind]
            back = data[behind + 1 + (control >= 224)]
            is_match = (control >= 32) & (control & 31 == 0) & (back < literals)
            is_more = (literals == 31) & (control < 32)
            yield from (first + starts[is_match | is_more]).tolist()
        at = max(at, end)
