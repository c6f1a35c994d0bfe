"""Where the chunks of a dataset lie, for every kind of index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from operator import mod
from struct import Struct
from typing import NamedTuple

from .btrees import CHUNK_NODE, CHUNKS, FILTERED_CHUNKS, read_records, read_tree
from .cursor import Cursor
from .errors import Damaged
from .file import Hdf5File
from .messages import Dataspace, Index, StorageLayout

_MOST_BITS = 64


class Chunk(NamedTuple):
    """One chunk: the element it begins with, where its bytes lie, which filters were left out."""

    start: tuple[int, ...]
    address: int
    size: int
    mask: int = 0


def read_chunks(
    file: Hdf5File, layout: StorageLayout, space: Dataspace, *, is_filtered: bool
) -> Iterator[Chunk]:
    """Every chunk that has bytes in the file."""
    if layout.address is None or space.dims is None:
        return
    if len(layout.chunk) != len(space.dims):
        raise Damaged(f"chunks of {len(layout.chunk)} dimensions, data of {len(space.dims)}")
    reader = _Reader(file, layout, space, is_filtered)
    starts: set[tuple[int, ...]] = set()
    for chunk in _READERS[layout.index](reader, layout.address):
        if not chunk.address:
            file.pass_over(Damaged(f"chunk {chunk.start} lies at 0, where the superblock is"))
            continue
        if not is_filtered and chunk.size != reader.chunk_bytes:
            file.pass_over(Damaged(f"a chunk of {chunk.size:,} bytes, not {reader.chunk_bytes:,}"))
            continue
        if chunk.start in starts:
            file.pass_over(Damaged(f"two chunks begin at {chunk.start}"))
        starts.add(chunk.start)
        yield chunk


class _Reader(NamedTuple):
    """What all indexes need to know of their dataset."""

    file: Hdf5File
    layout: StorageLayout
    space: Dataspace
    is_filtered: bool

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.layout.chunk) * self.layout.element_size

    @property
    def size_bytes(self) -> int:
        """How many bytes an index takes for the size of a filtered chunk."""
        if self.layout.version > 4:
            return self.file.widths.length
        return min((self.chunk_bytes.bit_length() - 1 + 8) // 8 + 1, 8)

    @property
    def element_bytes(self) -> int:
        filtered = self.size_bytes + 4 if self.is_filtered else 0
        return self.file.widths.offset + filtered

    def grid(self) -> tuple[int, ...]:
        """How many chunks there may be along each dimension; 0 where there is no limit."""
        limits = self.space.limits
        return tuple(
            0 if limit is None else -(-limit // side)
            for limit, side in zip(limits, self.layout.chunk, strict=True)
        )

    def element(self, cursor: Cursor, start: tuple[int, ...]) -> Chunk | None:
        """An element of an array of chunks; None if there is no chunk."""
        address = cursor.address()
        size, mask = self.chunk_bytes, 0
        if self.is_filtered:
            size, mask = cursor.uint(self.size_bytes), cursor.uint(4)
        return None if address is None else Chunk(start, address, size, mask)


def _read_version_1(reader: _Reader, address: int) -> Iterator[Chunk]:
    sides = reader.layout.chunk
    key = Struct(f"<II{len(sides) + 1}Q")
    last: list[int] = []
    for entry in read_tree(reader.file, address, CHUNK_NODE, key.size):
        size, mask, *start, _ = key.unpack(entry.key)
        if start < last:
            reader.file.pass_over(Damaged(f"a chunk that begins at {start}, listed after {last}"))
        last = start
        if any(map(mod, start, sides)):
            reader.file.pass_over(Damaged(f"a chunk that begins at {start}, within another"))
            continue
        yield Chunk(tuple(start), entry.child, size, mask)


def _read_single(reader: _Reader, address: int) -> Iterator[Chunk]:
    size = reader.layout.single_size
    start = (0,) * len(reader.layout.chunk)
    size = reader.chunk_bytes if size is None else size
    yield Chunk(start, address, size, reader.layout.single_mask)


def _read_implicit(reader: _Reader, address: int) -> Iterator[Chunk]:
    size = reader.chunk_bytes
    count = math.prod(reader.grid())
    if count * size > reader.file.size:
        raise Damaged(f"{count:,} chunks of {size:,} bytes, more than the file has")
    for number in range(count):
        yield Chunk(_start_of(reader, number), address + number * size, size)


def _start_of(reader: _Reader, number: int) -> tuple[int, ...]:
    """The first element of the chunk that is the `number`th of all there may be."""
    place = []
    for count in reversed(reader.grid()):
        number, along = divmod(number, count)
        place.append(along)
    return _scaled(reader, reversed(place))


def _scaled(reader: _Reader, place: Iterable[int]) -> tuple[int, ...]:
    return tuple(along * side for along, side in zip(place, reader.layout.chunk, strict=True))


def _read_fixed_array(reader: _Reader, address: int) -> Iterator[Chunk]:
    file, widths = reader.file, reader.file.widths
    head = file.checked_cursor(address, 12 + widths.length + widths.offset, "array", b"FAHD")
    _check_array(reader, head, address)
    page_bits, count = head.uint(1), head.length()
    block = head.address()
    if block is None:
        return
    if count * reader.element_bytes > file.size or page_bits > _MOST_BITS:
        raise Damaged(f"an array of {count:,} chunks at {address:,}")
    if count != math.prod(reader.grid()):
        raise Damaged(f"an array of {count:,} chunks for {math.prod(reader.grid()):,}")
    for number, cursor in _fixed_elements(reader, block, count, 1 << page_bits):
        chunk = reader.element(cursor, _start_of(reader, number))
        if chunk is not None:
            yield chunk


def _check_array(reader: _Reader, cursor: Cursor, address: int) -> None:
    version, client, element_bytes = cursor.uint(1), cursor.uint(1), cursor.uint(1)
    if version or client != int(reader.is_filtered) or element_bytes != reader.element_bytes:
        raise Damaged(f"an array of something else than these chunks at {address:,}")


def _fixed_elements(
    reader: _Reader, block: int, count: int, page_count: int
) -> Iterator[tuple[int, Cursor]]:
    file, element_bytes = reader.file, reader.element_bytes
    prefix = 6 + file.widths.offset
    if count <= page_count:
        size = prefix + count * element_bytes + 4
        cursor = file.checked_cursor(block, size, "array block", b"FADB")
        cursor.position = prefix
        yield from ((number, cursor) for number in range(count))
        return
    pages = -(-count // page_count)
    bitmap_bytes = (pages + 7) // 8
    head = file.checked_cursor(block, prefix + bitmap_bytes + 4, "array block", b"FADB")
    head.position = prefix
    bitmap = head.take(bitmap_bytes)
    start = block + prefix + bitmap_bytes + 4
    for page in range(pages):
        here = min(page_count, count - page * page_count)
        if bitmap[page // 8] & 0x80 >> page % 8:
            try:
                data = file.read_checked(start, here * element_bytes + 4, "array page")
                cursor = Cursor(data[:-4], file.widths)
                yield from ((page * page_count + number, cursor) for number in range(here))
            except Damaged as error:
                file.pass_over(error)
        start += page_count * element_bytes + 4


class _Extensible(NamedTuple):
    """How an extensible array is laid out."""

    reader: _Reader
    header: int
    bits: int
    in_index: int
    least_elements: int
    least_pointers: int
    page_count: int

    @property
    def offset_bytes(self) -> int:
        return (self.bits + 7) // 8

    def block_sizes(self, group: int) -> tuple[int, int]:
        """How many data blocks the `group`th super block stands for, and their elements."""
        return 1 << group // 2, self.least_elements << (group + 1) // 2


def _read_extensible_array(reader: _Reader, address: int) -> Iterator[Chunk]:
    file, widths = reader.file, reader.file.widths
    size = 12 + 6 * widths.length + widths.offset + 4
    head = file.checked_cursor(address, size, "array", b"EAHD")
    _check_array(reader, head, address)
    bits, in_index, least_elements, least_pointers, page_bits = head.take(5)
    head.skip(4 * widths.length)
    used = head.length()
    head.skip(widths.length)
    block = head.address()
    if block is None or not used:
        return
    if not least_elements or not least_pointers or bits > _MOST_BITS or page_bits > bits:
        raise Damaged(f"an array at {address:,} whose blocks have no size")
    array = _Extensible(
        reader, address, bits, in_index, least_elements, least_pointers, 1 << page_bits
    )
    for number, cursor in _extensible_elements(array, block, used):
        chunk = reader.element(cursor, _extensible_start(reader, number))
        if chunk is not None:
            yield chunk


def _extensible_start(reader: _Reader, number: int) -> tuple[int, ...]:
    """The same as `_start_of`, where the one dimension without limit counts slowest."""
    grid = list(reader.grid())
    growing = grid.index(0) if 0 in grid else 0
    order = [growing, *(axis for axis in range(len(grid)) if axis != growing)]
    place = [0] * len(grid)
    for axis in reversed(order[1:]):
        number, place[axis] = divmod(number, max(grid[axis], 1))
    place[growing] = number
    return _scaled(reader, place)


def _extensible_elements(
    array: _Extensible, address: int, used: int
) -> Iterator[tuple[int, Cursor]]:
    """Each element that was ever used, with a cursor that stands before it."""
    reader = array.reader
    file, widths = reader.file, reader.file.widths
    first_group = 2 * (array.least_pointers.bit_length() - 1)
    groups = 1 + array.bits - (array.least_elements.bit_length() - 1)
    direct = 2 * (array.least_pointers - 1)
    size = 6 + widths.offset + array.in_index * reader.element_bytes
    size += (direct + max(groups - first_group, 0)) * widths.offset + 4
    cursor = file.checked_cursor(address, size, "array block", b"EAIB")
    cursor.position = 6 + widths.offset
    yield from ((number, cursor) for number in range(array.in_index))
    number = array.in_index
    for group in range(groups):
        blocks, elements = array.block_sizes(group)
        if number >= used:
            return
        if group < first_group:
            addresses = [cursor.address() for _ in range(blocks)]
            bitmaps = [b""] * blocks
        elif (super_block := cursor.address()) is not None:
            addresses, bitmaps = _super_block(array, super_block, blocks, elements)
        else:
            number += blocks * elements
            continue
        for block, bitmap in zip(addresses, bitmaps, strict=True):
            if block is not None and number < used:
                try:
                    yield from _data_block(array, block, number, elements, bitmap)
                except Damaged as error:
                    file.pass_over(error)
            number += elements


def _super_block(
    array: _Extensible, address: int, blocks: int, elements: int
) -> tuple[list[int | None], list[bytes]]:
    """The addresses of a super block's data blocks, and which of their pages are in use."""
    nothing: tuple[list[int | None], list[bytes]] = [None] * blocks, [b""] * blocks
    file, widths = array.reader.file, array.reader.file.widths
    prefix = 6 + widths.offset + array.offset_bytes
    pages = elements // array.page_count if elements > array.page_count else 0
    bitmap_bytes = (pages + 7) // 8
    size = prefix + blocks * (bitmap_bytes + widths.offset) + 4
    try:
        cursor = file.checked_cursor(address, size, "array block", b"EASB")
    except Damaged as error:
        file.pass_over(error)
        return nothing
    cursor.position = prefix
    bitmaps = [cursor.take(bitmap_bytes) for _ in range(blocks)]
    return [cursor.address() for _ in range(blocks)], bitmaps


def _data_block(
    array: _Extensible, address: int, first: int, elements: int, bitmap: bytes
) -> Iterator[tuple[int, Cursor]]:
    file, element_bytes = array.reader.file, array.reader.element_bytes
    prefix = 6 + file.widths.offset + array.offset_bytes
    if elements <= array.page_count:
        size = prefix + elements * element_bytes + 4
        cursor = file.checked_cursor(address, size, "array block", b"EADB")
        cursor.position = prefix
        yield from ((first + number, cursor) for number in range(elements))
        return
    if not bitmap:
        raise Damaged(
            f"an array block of {elements:,} chunks at {address:,} that should have pages"
        )
    file.checked_cursor(address, prefix + 4, "array block", b"EADB")
    start = address + prefix + 4
    page_bytes = array.page_count * element_bytes + 4
    for page in range(elements // array.page_count):
        if bitmap[page // 8] & 0x80 >> page % 8:
            here = first + page * array.page_count
            try:
                data = file.read_checked(start + page * page_bytes, page_bytes, "array page")
                cursor = Cursor(data[:-4], file.widths)
                yield from ((here + number, cursor) for number in range(array.page_count))
            except Damaged as error:
                file.pass_over(error)


def _read_version_2(reader: _Reader, address: int) -> Iterator[Chunk]:
    tree_type = FILTERED_CHUNKS if reader.is_filtered else CHUNKS
    rank = len(reader.layout.chunk)
    for record in read_records(reader.file, address, tree_type):
        cursor = Cursor(record, reader.file.widths)
        address = cursor.needed_address("a chunk")
        size, mask = reader.chunk_bytes, 0
        if reader.is_filtered:
            size, mask = cursor.uint(reader.size_bytes), cursor.uint(4)
        yield Chunk(_scaled(reader, [cursor.uint(8) for _ in range(rank)]), address, size, mask)


_READERS = {
    Index.TREE: _read_version_1,
    Index.SINGLE: _read_single,
    Index.IMPLICIT: _read_implicit,
    Index.FIXED_ARRAY: _read_fixed_array,
    Index.EXTENSIBLE_ARRAY: _read_extensible_array,
    Index.TREE_V2: _read_version_2,
}
