"""Local, fractal and global heaps, which hold names, links and texts of any length."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from .checksum import lookup3
from .cursor import UINT_CODES, Cursor, bytes_for
from .errors import Damaged, DamageKind, Unsupported
from .file import Hdf5File

_NO_FREE_BLOCK = 1
_MOST_ROWS = 128
_MANAGED, _HUGE, _TINY = 0, 1, 2


class LocalHeap(NamedTuple):
    """The names of one group."""

    data: bytes
    address: int  # where `data` lies

    def name(self, offset: int) -> bytes:
        """The name at `offset`; Damaged if there can be none."""
        end = self.data.find(b"\0", offset) if offset < len(self.data) else -1
        if end < 0:
            raise Damaged(f"a name at {offset:,} in a heap of {len(self.data):,} bytes")
        if end == offset:
            raise Damaged("a link without a name")
        return self.data[offset:end]


def read_local_heap(file: Hdf5File, address: int) -> LocalHeap:
    widths = file.widths
    cursor = file.cursor(address, 8 + 2 * widths.length + widths.offset, b"HEAP")
    if version := cursor.uint(1):
        raise Damaged(f"local heap of version {version} at {address:,}")
    cursor.skip(3)
    size, free = cursor.length(), cursor.length()
    start = cursor.needed_address("the data of a local heap")
    data = file.read(start, size)
    file.note_structure(address, cursor.position)
    file.note_structure(start, size)
    try:
        _check_free_blocks(Cursor(data, widths), free, size)
    except Damaged as error:
        # A flush that was interrupted leaves this, and every name can still be read.
        file.note_fault(error)
    return LocalHeap(data, start)


def _check_free_blocks(cursor: Cursor, free: int, size: int) -> None:
    """Follow the list of free blocks; each must lie in the heap, and none may come twice."""
    seen: set[int] = set()
    undefined = (1 << 8 * cursor.widths.length) - 1
    while free not in (_NO_FREE_BLOCK, undefined):
        if free >= size or free in seen:
            raise Damaged("bad list of free blocks in a local heap")
        seen.add(free)
        cursor.position = free
        free, block_bytes = cursor.length(), cursor.length()
        if not block_bytes or cursor.position - 2 * cursor.widths.length + block_bytes > size:
            raise Damaged("bad free block in a local heap")


class _HeapBlock(NamedTuple):
    """A direct block of a fractal heap: which part of the heap it holds, and where it lies."""

    offset: int
    size: int
    address: int


@dataclass
class FractalHeap:
    """Many objects of any size, each found by an identifier."""

    file: Hdf5File
    address: int
    id_bytes: int
    has_checksums: bool
    width: int
    first_bytes: int
    direct_bytes: int
    offset_bytes: int
    length_bytes: int
    blocks: list[_HeapBlock] = field(default_factory=list)
    _content: dict[int, bytes] = field(default_factory=dict)

    def get(self, identifier: bytes) -> bytes:
        """The object with this identifier."""
        if not identifier:
            raise Damaged("a heap identifier of no bytes")
        kind = identifier[0] >> 4 & 3
        if identifier[0] >> 6:
            raise Damaged("a heap identifier of an unknown version")
        if kind == _TINY:
            return identifier[1 : 2 + (identifier[0] & 0xF)]
        if kind == _HUGE:
            raise Unsupported("an object that is kept outside its heap")
        if kind != _MANAGED:
            raise Damaged("a heap identifier of an unknown kind")
        cursor = Cursor(identifier, self.file.widths, 1)
        offset, length = cursor.uint(self.offset_bytes), cursor.uint(self.length_bytes)
        place = bisect_right(self.blocks, offset, key=lambda block: block.offset) - 1
        block = self.blocks[place] if place >= 0 else None
        if block is not None and offset + length <= block.offset + block.size:
            start = offset - block.offset
            return self._read(block)[start : start + length]
        raise Damaged(f"an object at {offset:,} of a heap that has no block there")

    def _read(self, block: _HeapBlock) -> bytes:
        if block.address not in self._content:
            self._content[block.address] = self._read_direct(block)
        return self._content[block.address]

    def _read_direct(self, block: _HeapBlock) -> bytes:
        data = self.file.read(block.address, block.size)
        cursor = Cursor(data, self.file.widths, 5)
        if data[:5] != b"FHDB\0" or cursor.address() != self.address:
            raise Damaged(f"no block of its heap at {block.address:,}")
        if cursor.uint(self.offset_bytes) != block.offset:
            raise Damaged(f"a block of another part of its heap at {block.address:,}")
        if self.has_checksums:
            _check_within(block, data, cursor.position)
        self.file.note_structure(block.address, block.size)
        return data


def _check_within(block: _HeapBlock, data: bytes, place: int) -> None:
    """Verify a checksum that lies within what it covers, and counts as zero there."""
    covered = data[:place] + bytes(4) + data[place + 4 :]
    if lookup3(covered) != int.from_bytes(data[place : place + 4], "little"):
        what = f"wrong checksum of the heap block at {block.address:,}"
        raise Damaged(what, DamageKind.CHECKSUM)


def read_fractal_heap(file: Hdf5File, address: int) -> FractalHeap:
    widths = file.widths
    fixed = 5 + 2 + 2 + 1 + 4 + 12 * widths.length + 3 * widths.offset + 8 + 4
    filter_bytes = int.from_bytes(file.read(address + 7, 2), "little")
    if filter_bytes:
        raise Unsupported("a heap behind filters")
    cursor = file.checked_cursor(address, fixed, "fractal heap", b"FRHP")
    if version := cursor.uint(1):
        raise Damaged(f"fractal heap of version {version} at {address:,}")
    id_bytes = cursor.uint(2)
    cursor.skip(2)
    flags, managed_bytes = cursor.uint(1), cursor.uint(4)
    cursor.skip(10 * widths.length + 2 * widths.offset)
    width, first, direct, bits = cursor.uint(2), cursor.length(), cursor.length(), cursor.uint(2)
    cursor.skip(2)
    root, rows = cursor.address(), cursor.uint(2)
    if not width or not first or first & first - 1 or direct < first or bits > 64:
        raise Damaged(f"fractal heap at {address:,} with blocks of no size")
    heap = FractalHeap(
        file,
        address,
        id_bytes,
        bool(flags & 2),
        width,
        first,
        direct,
        (bits + 7) // 8,
        min(bytes_for(direct), bytes_for(managed_bytes)),
    )
    if root is not None and not rows:
        heap.blocks.append(_HeapBlock(0, first, root))
    elif root is not None:
        _read_indirect(heap, root, rows, 0)
    return heap


def _read_indirect(heap: FractalHeap, address: int, rows: int, offset: int) -> None:
    """Take the direct blocks below an indirect one."""
    if rows > _MOST_ROWS:
        raise Damaged(f"a heap block of {rows:,} rows at {address:,}")
    direct_rows = _direct_rows(heap)
    widths = heap.file.widths
    prefix = 5 + widths.offset + heap.offset_bytes
    size = prefix + rows * heap.width * widths.offset + 4
    cursor = heap.file.checked_cursor(address, size, "heap block", b"FHIB")
    cursor.skip(1)
    if cursor.address() != heap.address or cursor.uint(heap.offset_bytes) != offset:
        raise Damaged(f"no block of its heap at {address:,}")
    for row in range(rows):
        block_bytes = heap.first_bytes << max(row - 1, 0)
        for _ in range(heap.width):
            child = cursor.address()
            if child is not None and row < direct_rows:
                heap.blocks.append(_HeapBlock(offset, block_bytes, child))
            elif child is not None:
                _read_indirect(heap, child, _rows_of(heap, block_bytes), offset)
            offset += block_bytes


def _direct_rows(heap: FractalHeap) -> int:
    return (heap.direct_bytes // heap.first_bytes).bit_length() + 1


def _rows_of(heap: FractalHeap, block_bytes: int) -> int:
    """How many rows an indirect block has that stands for `block_bytes` of the heap."""
    return (block_bytes // (heap.first_bytes * heap.width)).bit_length()


def read_global_heap_object(file: Hdf5File, address: int, number: int) -> bytes:
    """One object of a global heap collection: the text behind a variable-length string."""
    for found, data in _global_objects(file, address):
        if found == number:
            return data
    raise Damaged(f"no object {number} in the global heap at {address:,}")


def read_global_heap(file: Hdf5File, address: int) -> dict[int, bytes]:
    """All objects of a global heap collection."""
    return dict(_global_objects(file, address))


def _global_objects(file: Hdf5File, address: int) -> Iterator[tuple[int, bytes]]:
    cursor = file.cursor(address, 16, b"GCOL")
    if (version := cursor.uint(1)) != 1:
        raise Damaged(f"global heap of version {version} at {address:,}")
    cursor.skip(3)
    data = file.read(address, cursor.length())
    # Whatever a length takes, the object begins behind 16 bytes and the next at an eighth byte.
    unpack = Struct(f"<H6x{UINT_CODES[file.widths.length]}").unpack_from
    place, last = 16, len(data) - 16
    while place <= last:
        number, object_bytes = unpack(data, place)
        if not number:
            break
        start, place = place + 16, place + 16 + object_bytes
        if place > len(data):
            raise Damaged(f"an object that ends behind the global heap at {address:,}")
        yield number, data[start:place]
        place += -object_bytes % 8
