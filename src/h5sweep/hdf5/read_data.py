"""Read elements from compact, contiguous and chunked data, through the common filters."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence

from .checksum import fletcher32
from .chunks import Chunk
from .cursor import Cursor, decoded
from .datatypes import Class, Datatype, Scalar, scalar_of
from .errors import Damaged, DamageKind, Unsupported
from .file import Hdf5File
from .heaps import read_global_heap_object
from .lzf import unpack_lzf
from .messages import DEFLATE, FLETCHER32, SHUFFLE, Filter, Storage
from .tree import Dataset

MOST_CHUNK_BYTES = 64 << 20
_PROOF_BYTES = 4 << 20
LZF = 32000
BytesLike = bytes | memoryview


def read_row(file: Hdf5File, dataset: Dataset, row: int) -> Iterator[bytes]:
    """The bytes of one step along the first axis, in pieces; the fill value where nothing is.

    A piece of a chunk may reach beyond the data, where chunks hold the fill value.
    """
    require_here(dataset)
    if dataset.space.dims is None:
        raise Unsupported("data without a shape")
    row_bytes = math.prod(dataset.space.dims[1:]) * dataset.type.size
    if row_bytes > MOST_CHUNK_BYTES:
        raise Unsupported(f"rows of {row_bytes:,} bytes")
    if dataset.layout.storage is Storage.CHUNKED:
        yield from _chunked_row(file, dataset, row, row_bytes)
    elif (start := start_of(dataset)) is None:
        yield fill_bytes(dataset, row_bytes)
    else:
        yield file.read(start + row * row_bytes, row_bytes)


def require_here(dataset: Dataset) -> None:
    """Raise Unsupported if the data are in other files, of which none is ever opened."""
    if dataset.is_external or dataset.layout.storage is Storage.VIRTUAL:
        how = "external storage" if dataset.is_external else "a virtual dataset"
        raise Unsupported(f"its data are in another file, which was not read ({how})")


def start_of(dataset: Dataset) -> int | None:
    """The address of data in one piece; None if none were written."""
    is_compact = dataset.layout.storage is Storage.COMPACT
    return dataset.compact_at if is_compact else dataset.layout.address


def _chunked_row(file: Hdf5File, dataset: Dataset, row: int, row_bytes: int) -> Iterator[bytes]:
    side = dataset.layout.chunk[0]
    piece_bytes = math.prod(dataset.layout.chunk[1:]) * dataset.type.size
    found = False
    for chunk in dataset.chunks:
        if chunk.start[0] <= row < chunk.start[0] + side:
            found = True
            start = (row - chunk.start[0]) * piece_bytes
            yield read_chunk(file, dataset, chunk)[start : start + piece_bytes]
    if not found:
        yield fill_bytes(dataset, row_bytes)


def fill_bytes(dataset: Dataset, size: int) -> bytes:
    """`size` bytes of the fill value."""
    one = dataset.fill or bytes(dataset.type.size)
    return one * (size // max(len(one), 1))


def is_fill(dataset: Dataset, data: bytes) -> bool:
    """Whether these bytes are the fill value again and again."""
    return data == fill_bytes(dataset, len(data))


def rows_of_fill(file: Hdf5File, dataset: Dataset) -> int:
    """How many rows at the end of chunked data are fill values; as far as chunks are read."""
    bands: dict[int, list[Chunk]] = {}
    for chunk in dataset.chunks:
        bands.setdefault(chunk.start[0], []).append(chunk)
    rows = end = dataset.rows or 0
    bytes_read = 0
    for start in sorted((start for start in bands if start < rows), reverse=True):
        if bytes_read > MOST_CHUNK_BYTES:
            return rows - end
        chunks = [read_chunk(file, dataset, chunk) for chunk in bands[start]]
        bytes_read += sum(map(len, chunks))
        end = start + max(_rows_written(dataset, data, rows - start) for data in chunks)
        if end > start:
            return rows - end
    return rows


def _rows_written(dataset: Dataset, data: bytes, most: int) -> int:
    """How many rows of a chunk come before those at its end that are fill values."""
    side = dataset.layout.chunk[0]
    row_bytes = len(data) // side
    data = data[: min(side, most) * row_bytes]
    if dataset.fill is None or not any(dataset.fill):
        return -(-len(data.rstrip(b"\0")) // row_bytes)
    fill = fill_bytes(dataset, row_bytes)
    rows = range(len(data) // row_bytes, 0, -1)
    return next((n for n in rows if data[(n - 1) * row_bytes : n * row_bytes] != fill), 0)


def read_chunk(file: Hdf5File, dataset: Dataset, chunk: Chunk) -> bytes:
    """The elements of one chunk, through its filters."""
    size = chunk_bytes(dataset)
    if max(size, chunk.size) > MOST_CHUNK_BYTES:
        raise Unsupported(f"chunks of {size:,} bytes")
    data: BytesLike = file.read(chunk.address, chunk.size)
    for place, step in reversed(list(enumerate(dataset.filters))):
        if not chunk.mask >> place & 1:
            data = undo_filter(step, data, dataset.type.size, size)
    _require_size(len(data), size)
    return bytes(data)


def prove_chunk(dataset: Dataset, data: BytesLike, mask: int) -> None:
    """Raise Damaged unless these bytes are a chunk that can be read; Unsupported if that cannot be
    known, because of its filters. Little memory is needed, whatever size the chunk has."""
    prove_filtered(dataset.filters, data, mask, dataset.type.size, chunk_bytes(dataset))


def prove_filtered(
    filters: Sequence[Filter], data: BytesLike, mask: int, element_bytes: int, size: int
) -> None:
    """The same of a chunk of which this much is known; `size` is how long it is unpacked."""
    steps = [s for place, s in enumerate(filters) if not mask >> place & 1]
    while steps and steps[0].number == SHUFFLE:
        del steps[0]  # bytes in another order: nothing can be wrong with that
    for step in reversed(steps[1:]):
        data = undo_filter(step, data, element_bytes, size)
    if steps and steps[0].number == DEFLATE:
        found = _inflated_size(data, size)
    else:
        found = len(undo_filter(steps[0], data, element_bytes, size) if steps else data)
    _require_size(found, size)


def _inflated_size(data: BytesLike, most: int) -> int:
    """How long a gzip stream is unpacked."""
    try:
        found, unpacker = _inflated(data, most)
    except zlib.error as error:
        raise _not_inflated(error) from error
    if not unpacker.eof and found <= most:
        raise Damaged("a compressed chunk that has no end", DamageKind.CHECKSUM)
    return found


def _inflated(data: BytesLike, most: int) -> tuple[int, zlib._Decompress]:
    """The same, and what has unpacked it; it holds no more of it than one step at a time."""
    unpacker, found = zlib.decompressobj(), 0
    while not unpacker.eof and found <= most:
        step = unpacker.decompress(data, _PROOF_BYTES)
        if not step and not unpacker.eof:
            break
        found, data = found + len(step), unpacker.unconsumed_tail
    return found, unpacker


def chunk_bytes(dataset: Dataset) -> int:
    """How long a chunk is once it is unpacked."""
    return math.prod(dataset.layout.chunk) * dataset.type.size


def _require_size(found: int, size: int) -> None:
    if found != size:
        raise Damaged(f"a chunk of {found:,} bytes where {size:,} should be")


def _not_inflated(error: zlib.error) -> Damaged:
    why = str(error).rpartition(": ")[2]  # behind zlib's number and what it was doing
    return Damaged(f"a chunk that cannot be inflated ({why})", DamageKind.CHECKSUM)


def fate_of_chunk(data: bytes, filters: Sequence[int], mask: int, chunk: tuple[int, int]) -> str:
    """What became of a chunk that cannot be read: `stale`, `moved`, or `filter`.

    `data` begins where the chunk does and goes on behind it; `chunk` is how long its index says it
    is, and how long it is unpacked.
    """
    stored, size = chunk
    if not filters or filters[-1] != DEFLATE or mask:
        return "filter"
    try:
        found, unpacker = _inflated(data, size + 64)
    except zlib.error:
        looks_packed = data[:1] == b"\x78" and int.from_bytes(data[:2], "big") % 31 == 0
        return "filter" if looks_packed else "moved"
    is_whole = unpacker.eof and found == size + 4 * (FLETCHER32 in filters)
    is_stale = is_whole and len(data) - len(unpacker.unused_data) > stored
    return "stale" if is_stale else "filter"


def overlap(
    chunk: tuple[int, ...], side: tuple[int, ...], dims: tuple[int, ...], rows: range
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a chunk that begins at `chunk` goes among some rows, and which part of it that is."""
    places, parts = [], []
    for start, length, wanted in zip(chunk, side, (rows, *map(range, dims[1:])), strict=True):
        low = max(start, wanted.start)
        high = max(min(start + length, wanted.stop), low)
        places.append(slice(low - wanted.start, high - wanted.start))
        parts.append(slice(low - start, high - start))
    return tuple(places), tuple(parts)


def undo_filter(step: Filter, data: BytesLike, element_bytes: int, size: int) -> BytesLike:
    """What there was before one filter; Damaged if it cannot be, or fails its checksum."""
    if step.number == DEFLATE:
        return inflate(data, size)[0]
    if step.number == SHUFFLE:
        return _unshuffle(data, step.values[0] if step.values else element_bytes)
    if step.number == FLETCHER32:
        if fletcher32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Damaged("wrong checksum of a chunk", DamageKind.CHECKSUM)
        return data[:-4]
    if step.number == LZF:
        return unpack_lzf(data, size + 64)[0]  # and, as behind gzip, perhaps a checksum
    raise Unsupported(f"filter {step.number}")


def inflate(data: BytesLike, size: int) -> tuple[bytes, int]:
    """What a gzip stream at the beginning of `data` holds, and how long it is."""
    # What stands behind it may be a checksum, so there may be a little more than the chunk.
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(data, size + 64)
    except zlib.error as error:
        raise _not_inflated(error) from error
    if not unpacker.eof:
        raise Damaged("a compressed chunk that has no end", DamageKind.CHECKSUM)
    return found, len(data) - len(unpacker.unused_data)


def _unshuffle(data: BytesLike, element_bytes: int) -> BytesLike:
    if not 2 <= element_bytes <= len(data):
        return data
    count = len(data) // element_bytes
    found = bytearray(data)
    for place in range(element_bytes):
        found[place : count * element_bytes : element_bytes] = data[
            place * count : (place + 1) * count
        ]
    return bytes(found)


def read_column(file: Hdf5File, dataset: Dataset, rows: range | None = None) -> Iterator[Scalar]:
    """The values of a dataset of one dimension; Unsupported unless they are numbers or texts."""
    for data in _elements(file, dataset, rows):
        yield _scalar(file, dataset.type, data)


def _elements(file: Hdf5File, dataset: Dataset, rows: range | None) -> Iterator[bytes]:
    if dataset.space.dims is None or len(dataset.space.dims) != 1:
        raise Unsupported("data of several dimensions")
    element = _chunked_elements(file, dataset) if dataset.chunks else _plain_elements(file, dataset)
    yield from map(element, range(dataset.space.dims[0]) if rows is None else rows)


def _scalar(file: Hdf5File, datatype: Datatype, data: bytes) -> Scalar:
    value = value_of(file, datatype, data)
    if value is None:
        raise Unsupported("values that are neither numbers nor texts")
    return value


def _plain_elements(file: Hdf5File, dataset: Dataset) -> Callable[[int], bytes]:
    return lambda row: b"".join(read_row(file, dataset, row))


def _chunked_elements(file: Hdf5File, dataset: Dataset) -> Callable[[int], bytes]:
    side, size = dataset.layout.chunk[0], dataset.type.size
    chunks = {chunk.start[0]: chunk for chunk in dataset.chunks}
    last: tuple[int, bytes] = (-1, b"")  # the chunk that was read last, as rows come in order

    def element(row: int) -> bytes:
        nonlocal last
        first = row // side * side
        if first not in chunks:
            return fill_bytes(dataset, size)
        if last[0] != first:
            last = first, read_chunk(file, dataset, chunks[first])
        start = (row - first) * size
        return last[1][start : start + size]

    return element


def value_of(file: Hdf5File, datatype: Datatype, data: bytes) -> Scalar | None:
    """One value; a text of any length is looked up in its heap."""
    if datatype.type is not Class.VARIABLE or not datatype.is_text:
        return scalar_of(data, datatype)
    cursor = Cursor(data, file.widths)
    length, address, number = cursor.uint(4), cursor.address(), cursor.uint(4)
    if not length or not address:
        return ""
    return decoded(read_global_heap_object(file, address, number)[:length])
