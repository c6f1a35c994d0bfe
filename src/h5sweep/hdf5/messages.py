"""What the messages of an object header say: shape, layout, filters, links, attributes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from .cursor import Cursor, Widths, decoded
from .datatypes import Datatype, read_datatype
from .errors import Damaged, Unsupported
from .headers import DATASPACE, DATATYPE

MOST_DIMENSIONS = 32
_UNLIMITED = 0xFF


@dataclass(frozen=True, slots=True)
class Dataspace:
    """A shape; `limits` has None where it may grow without end; `dims` is None if there is none."""

    dims: tuple[int, ...] | None
    limits: tuple[int | None, ...] = ()

    @property
    def count(self) -> int:
        return 0 if self.dims is None else math.prod(self.dims)


@lru_cache(256)
def read_dataspace(data: bytes, widths: Widths) -> Dataspace:
    """The shape that a message states; most in a file are alike, and one object then."""
    cursor = Cursor(data, widths)
    version, rank, flags = cursor.uint(1), cursor.uint(1), cursor.uint(1)
    if version not in (1, 2):
        raise Damaged(f"dataspace of version {version}")
    if rank > MOST_DIMENSIONS:
        raise Damaged(f"a dataspace of {rank} dimensions")
    kind = cursor.uint(1) if version == 2 else (1 if rank else 0)
    if kind > 2 or (version == 2 and kind != 1 and rank):
        raise Damaged("a dataspace of an unknown kind")
    cursor.skip(5 if version == 1 else 0)
    dims = tuple(cursor.length() for _ in range(rank))
    limits: tuple[int | None, ...] = dims
    if flags & 1:
        limits = tuple(_limit(cursor) for _ in range(rank))
    for dim, limit in zip(dims, limits, strict=True):
        if limit is not None and limit < dim:
            raise Damaged(f"a dimension of {dim:,} that may be {limit:,} at most")
    return Dataspace(None if kind == 2 else dims, limits)


def _limit(cursor: Cursor) -> int | None:
    field = cursor.take(cursor.widths.length)
    return None if field.count(_UNLIMITED) == len(field) else int.from_bytes(field, "little")


class Storage(IntEnum):
    """How the data of a dataset are kept."""

    COMPACT = 0
    CONTIGUOUS = 1
    CHUNKED = 2
    VIRTUAL = 3


class Index(IntEnum):
    """How the chunks of a dataset are found."""

    TREE = 0
    SINGLE = 1
    IMPLICIT = 2
    FIXED_ARRAY = 3
    EXTENSIBLE_ARRAY = 4
    TREE_V2 = 5


@dataclass(frozen=True, slots=True)
class StorageLayout:
    """Where the data of a dataset lie."""

    storage: Storage
    version: int
    address: int | None = None
    size: int | None = None  # of contiguous and compact data; None where the message does not say
    data_offset: int = 0  # of compact data, within the message
    chunk: tuple[int, ...] = ()
    element_size: int = 0
    index: Index = Index.TREE
    single_size: int | None = None  # of a single filtered chunk
    single_mask: int = 0


def read_layout(data: bytes, widths: Widths) -> StorageLayout:
    cursor = Cursor(data, widths)
    version = cursor.uint(1)
    if version in (1, 2):
        return _read_old_layout(cursor, version)
    if version not in (3, 4, 5):
        raise Damaged(f"layout of version {version}")
    number = cursor.uint(1)
    if number > 3 or (number == 3 and version == 3):
        raise Damaged(f"layout of class {number}")
    storage = Storage(number)
    if storage is Storage.COMPACT:
        size = cursor.uint(2)
        layout = StorageLayout(storage, version, size=size, data_offset=cursor.position)
        cursor.skip(size)
        return layout
    if storage is Storage.CONTIGUOUS:
        address, size = cursor.address(), cursor.length()
        if address == 0 and size:
            raise Damaged("its data lie at 0, where the superblock is")
        return StorageLayout(storage, version, address, size)
    if storage is Storage.VIRTUAL:
        return StorageLayout(storage, version, cursor.address())
    return _read_chunked(cursor, version) if version == 3 else _read_indexed(cursor, version)


def _read_old_layout(cursor: Cursor, version: int) -> StorageLayout:
    rank, number = cursor.uint(1), cursor.uint(1)
    if not 1 <= rank <= MOST_DIMENSIONS + 1:
        raise Damaged(f"a layout of {rank} dimensions")
    if number > 2:
        raise Damaged(f"layout of class {number}")
    cursor.skip(5)
    storage = Storage(number)
    address = None if storage is Storage.COMPACT else cursor.address()
    dims = tuple(cursor.uint(4) for _ in range(rank))
    if storage is Storage.CHUNKED:
        if rank < 2:
            raise Damaged("chunks without dimensions")
        # The last of these is the element's size, as later versions have it.
        return _chunked(version, address, dims)
    if storage is Storage.COMPACT:
        size = cursor.uint(4)
        layout = StorageLayout(storage, version, size=size, data_offset=cursor.position)
        cursor.skip(size)
        return layout
    return StorageLayout(storage, version, address)


def _read_chunked(cursor: Cursor, version: int) -> StorageLayout:
    rank = cursor.uint(1)
    if not 2 <= rank <= MOST_DIMENSIONS + 1:
        raise Damaged(f"chunks of {rank - 1} dimensions")
    address = cursor.address()
    return _chunked(version, address, tuple(cursor.uint(4) for _ in range(rank)))


def _chunked(version: int, address: int | None, dims: tuple[int, ...]) -> StorageLayout:
    if not all(dims):
        raise Damaged("chunks of no size")
    return StorageLayout(Storage.CHUNKED, version, address, chunk=dims[:-1], element_size=dims[-1])


def _read_indexed(cursor: Cursor, version: int) -> StorageLayout:
    flags, rank, width = cursor.uint(1), cursor.uint(1), cursor.uint(1)
    if not 2 <= rank <= MOST_DIMENSIONS + 1 or not 1 <= width <= 8:
        raise Damaged(f"chunks of {rank - 1} dimensions, each of {width} bytes")
    dims = tuple(cursor.uint(width) for _ in range(rank))
    if not all(dims):
        raise Damaged("chunks of no size")
    number = cursor.uint(1)
    if not 1 <= number <= max(Index):
        raise Damaged(f"a chunk index of kind {number}")
    index = Index(number)
    size, mask = None, 0
    if index is Index.SINGLE and flags & 2:
        size, mask = cursor.length(), cursor.uint(4)
    cursor.skip(_PARAMETER_BYTES.get(index, 0))
    return StorageLayout(
        Storage.CHUNKED,
        version,
        cursor.address(),
        chunk=dims[:-1],
        element_size=dims[-1],
        index=index,
        single_size=size,
        single_mask=mask,
    )


_PARAMETER_BYTES = {Index.FIXED_ARRAY: 1, Index.EXTENSIBLE_ARRAY: 5, Index.TREE_V2: 6}

DEFLATE, SHUFFLE, FLETCHER32, SZIP, NBIT, SCALE_OFFSET = 1, 2, 3, 4, 5, 6


class Filter(NamedTuple):
    """One step between an element and its bytes on disk."""

    number: int
    is_optional: bool
    values: tuple[int, ...] = ()
    name: str = ""


def read_filters(data: bytes, widths: Widths) -> tuple[Filter, ...]:
    cursor = Cursor(data, widths)
    version, count = cursor.uint(1), cursor.uint(1)
    if version not in (1, 2):
        raise Damaged(f"filters of version {version}")
    if count > 32:
        raise Damaged(f"{count} filters")
    cursor.skip(6 if version == 1 else 0)
    return tuple(_read_filter(cursor, version) for _ in range(count))


def _read_filter(cursor: Cursor, version: int) -> Filter:
    number = cursor.uint(2)
    name_bytes = cursor.uint(2) if version == 1 or number >= 256 else 0
    flags, count = cursor.uint(2), cursor.uint(2)
    if version == 1:
        name_bytes += -name_bytes % 8
    name = decoded(cursor.take(name_bytes).split(b"\0")[0])
    values = tuple(cursor.uint(4) for _ in range(count))
    cursor.skip(4 if version == 1 and count % 2 else 0)
    return Filter(number, bool(flags & 1), values, name)


def read_fill(data: bytes, widths: Widths) -> bytes | None:
    """The fill value; None where it is zero."""
    cursor = Cursor(data, widths)
    version = cursor.uint(1)
    if version in (1, 2):
        cursor.skip(2)
        is_defined = cursor.uint(1)
        if version == 2 and not is_defined:
            return None
    elif version == 3:
        flags = cursor.uint(1)
        if flags & 0x10 and flags & 0x20:
            raise Damaged("a fill value that is both defined and not")
        if not flags & 0x20:
            return None
    else:
        raise Damaged(f"fill value of version {version}")
    return _fill(cursor)


def read_old_fill(data: bytes, widths: Widths) -> bytes | None:
    return _fill(Cursor(data, widths))


def _fill(cursor: Cursor) -> bytes | None:
    size = cursor.uint(4)
    if size >= 1 << 31:
        return None  # a negative size stands for "not defined"
    return cursor.take(size) if size else None


def _refuse(reference: bytes, type_number: int) -> bytes:
    raise Unsupported("a part that is kept elsewhere")


class Attribute(NamedTuple):
    """A name and a value; `address` says where the value lies, unless that is in a heap."""

    name: str
    type: Datatype
    space: Dataspace
    value: bytes
    address: int | None


def read_attribute(
    data: bytes,
    widths: Widths,
    resolve: Callable[[bytes, int], bytes] = _refuse,
    *,
    address: int | None = None,
) -> Attribute:
    """Read an attribute; `resolve` finds what stands in it only by reference, by its type.

    `address`: where `data` lie in the file.
    """
    cursor = Cursor(data, widths)
    version, flags = cursor.uint(1), cursor.uint(1)
    if version not in (1, 2, 3):
        raise Damaged(f"attribute of version {version}")
    name_bytes, type_bytes, space_bytes = cursor.uint(2), cursor.uint(2), cursor.uint(2)
    cursor.skip(1 if version == 3 else 0)
    step = 8 if version == 1 else 1
    name = sys.intern(_name(cursor.take(name_bytes + -name_bytes % step)))
    type_data = cursor.take(type_bytes + -type_bytes % step)[:type_bytes]
    space_data = cursor.take(space_bytes + -space_bytes % step)[:space_bytes]
    if version > 1 and flags & 1:
        type_data = resolve(type_data, DATATYPE)
    if version > 1 and flags & 2:
        space_data = resolve(space_data, DATASPACE)
    datatype = read_datatype(type_data)
    space = read_dataspace(space_data, widths)
    size = space.count * datatype.size
    if size > cursor.left:
        raise Damaged(f"attribute {name!r} of {size:,} bytes in {cursor.left:,}")
    address = None if address is None else address + cursor.position
    return Attribute(name, datatype, space, cursor.take(size), address)


def _name(data: bytes) -> str:
    if b"\0" not in data:
        raise Damaged("a name has no end")
    return decoded(data.split(b"\0")[0])


class Link(NamedTuple):
    """A name in a group; `address` is None for a link that leads elsewhere by name.

    `target` is the path that a soft link names, where that can be read.
    """

    name: str
    address: int | None
    is_external: bool = False
    target: str | None = None


def read_link(data: bytes, widths: Widths) -> Link:
    cursor = Cursor(data, widths)
    version, flags = cursor.uint(1), cursor.uint(1)
    if version != 1:
        raise Damaged(f"link of version {version}")
    if flags & 0xE0:
        raise Damaged("a link with unknown flags")
    kind = cursor.uint(1) if flags & 8 else 0
    cursor.skip(8 if flags & 4 else 0)
    cursor.skip(1 if flags & 16 else 0)
    size = cursor.uint(1 << (flags & 3))
    if not size:
        raise Damaged("a link without a name")
    name = decoded(cursor.take(size))
    if kind == 0:
        return Link(name, cursor.needed_address(f"link {name!r}"))
    if kind == 1:
        return Link(name, None, target=decoded(cursor.take(cursor.uint(2))))
    if kind < 64:
        raise Damaged(f"link {name!r} of kind {kind}")
    cursor.skip(cursor.uint(2))
    return Link(name, None, is_external=True)


class Dense(NamedTuple):
    """Where links or attributes are kept once they are many."""

    heap: int | None
    tree: int | None


def read_link_info(data: bytes, widths: Widths) -> Dense:
    return _read_dense(Cursor(data, widths), 8, "link info")


def read_attribute_info(data: bytes, widths: Widths) -> Dense:
    return _read_dense(Cursor(data, widths), 2, "attribute info")


def _read_dense(cursor: Cursor, order_bytes: int, what: str) -> Dense:
    version, flags = cursor.uint(1), cursor.uint(1)
    if version:
        raise Damaged(f"{what} of version {version}")
    cursor.skip(order_bytes if flags & 1 else 0)
    heap, tree = cursor.address(), cursor.address()
    if (heap is None) != (tree is None):
        raise Damaged(f"{what} with a heap or a tree only")
    return Dense(heap, tree)


def check_group_info(data: bytes, widths: Widths) -> None:
    """Damaged if this cannot be a group info message."""
    cursor = Cursor(data, widths)
    version, flags = cursor.uint(1), cursor.uint(1)
    if version or flags & ~3:
        raise Damaged(f"group info of version {version}")
    cursor.skip(4 * (flags & 1) + 2 * (flags & 2))


def read_symbol_table(data: bytes, widths: Widths) -> tuple[int, int]:
    """The addresses of a group's tree and of the heap with its names."""
    cursor = Cursor(data, widths)
    return cursor.needed_address("a group's tree"), cursor.needed_address("a group's heap")


def shared_address(data: bytes, widths: Widths) -> int:
    """Where the object is whose message stands here by reference."""
    cursor = Cursor(data, widths)
    version, kind = cursor.uint(1), cursor.uint(1)
    if version == 1:
        cursor.skip(6 + widths.length)
    elif version == 3 and kind == 1:
        raise Unsupported("messages that are shared through a table")
    elif version not in (2, 3):
        raise Damaged(f"a shared message of version {version}")
    return cursor.needed_address("a shared message")
