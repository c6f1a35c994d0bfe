"""Where an HDF5 file begins, how wide its addresses are, where its root group is."""

from __future__ import annotations

from typing import NamedTuple

from .checksum import lookup3
from .cursor import Cursor, Widths
from .errors import Damaged, DamageKind
from .source import Source

SIGNATURE = b"\x89HDF\r\n\x1a\n"
WRITING, WRITING_SWMR = 0x01, 0x04  # bits of the flags, which mean something from version 3 on
_FIRST_USER_BLOCK = 512
_MOST_BYTES = 2 * 8 + 16 + 8 * 32  # no superblock is longer, whatever its widths
_WIDTHS = (2, 4, 8)


class Superblock(NamedTuple):
    """What the first bytes of a file say of the rest."""

    start: int  # where it lies; what is before it is the user's
    size: int
    version: int
    widths: Widths
    flags: int
    base: int
    end: int  # the end of the file as it was last noted, counted from the file's first byte
    root: int
    extension: int | None = None
    driver: int | None = None
    leaf_k: int = 4
    checksum_is_right: bool = True

    @property
    def is_by_early_library(self) -> bool:
        """Whether a library before 1.8 wrote it: those set two flags for good."""
        return self.version < 2 and self.flags == 3

    @property
    def is_being_written(self) -> bool:
        return self.version >= 3 and bool(self.flags & WRITING)

    @property
    def is_being_written_swmr(self) -> bool:
        return self.version >= 3 and bool(self.flags & WRITING_SWMR)


def find_superblock(source: Source) -> int | None:
    """The offset of the signature: 0, 512, 1024, 2048, …; None if there is none."""
    offset = 0
    while offset + len(SIGNATURE) <= source.size:
        if source.read(offset, len(SIGNATURE)) == SIGNATURE:
            return offset
        offset = max(2 * offset, _FIRST_USER_BLOCK)
    return None


def read_superblock(source: Source, start: int) -> Superblock:
    """Read the superblock at `start`; Damaged if its fields cannot be right."""
    head = source.read(start, min(_MOST_BYTES, source.size - start))
    if len(head) < 9:
        raise Damaged("the file ends within its superblock", DamageKind.BEYOND_END)
    version = head[8]
    if version > 3:
        raise Damaged(f"superblock of version {version}; there are 0 to 3")
    block = _read_old(head, start, version) if version < 2 else _read_new(head, start, version)
    _check_plausible(block, source.size)
    return block


def _read_old(head: bytes, start: int, version: int) -> Superblock:
    if len(head) < 24:
        raise Damaged("the file ends within its superblock", DamageKind.BEYOND_END)
    if head[9] or head[10] or head[12]:
        raise Damaged("a version number in the superblock is not 0")
    cursor = Cursor(head, _widths(head[13], head[14]), 16)
    leaf_k, node_k = cursor.uint(2), cursor.uint(2)
    if not leaf_k or not node_k:
        raise Damaged("a group may have no entries, says the superblock")
    flags = cursor.uint(4)
    if version == 1:
        cursor.skip(4)
    base = cursor.length() if cursor.widths.length == cursor.widths.offset else _base(cursor)
    cursor.address()
    end, driver = cursor.needed_address("the end of the file"), cursor.address()
    cursor.address()
    root, cached = cursor.needed_address("the root group"), cursor.uint(4)
    if cached > 2:
        raise Damaged(f"the root group's entry is of kind {cached}; there are 0 to 2")
    cursor.skip(4 + 16)  # what is cached stands in the group's header too
    return Superblock(
        start,
        cursor.position,
        version,
        cursor.widths,
        flags,
        base,
        end + start - base,
        root,
        driver=driver,
        leaf_k=leaf_k,
    )


def _base(cursor: Cursor) -> int:
    return cursor.uint(cursor.widths.offset)


def _read_new(head: bytes, start: int, version: int) -> Superblock:
    if len(head) < 12:
        raise Damaged("the file ends within its superblock", DamageKind.BEYOND_END)
    cursor = Cursor(head, _widths(head[9], head[10]), 12)
    base, extension = _base(cursor), cursor.address()
    end, root = cursor.needed_address("the end of the file"), cursor.address()
    checked = head[: cursor.position]
    return Superblock(
        start,
        cursor.position + 4,
        version,
        cursor.widths,
        head[11],
        base,
        end + start - base,
        -1 if root is None else root,
        extension,
        checksum_is_right=cursor.uint(4) == lookup3(checked),
    )


def _widths(offset: int, length: int) -> Widths:
    if offset not in _WIDTHS or length not in _WIDTHS:
        raise Damaged(f"addresses of {offset} and lengths of {length} bytes")
    return Widths(offset, length)


def _check_plausible(block: Superblock, file_size: int) -> None:
    if block.base > file_size:
        raise Damaged(f"the base address is {block.base:,}, beyond the end of the file")
    if block.end <= block.start:
        raise Damaged(f"the end of the file is at {block.end:,}, before its beginning")
    if block.root < 0 or block.start + block.root >= max(block.end, file_size):
        raise Damaged("the root group lies beyond the end of the file")


def mended(source: Source, block: Superblock) -> bytes:
    """The bytes of a superblock with which the library opens the file: closed, of its true size.

    Nothing is written: the caller lays these bytes over the file's at `block.start`.
    """
    head = bytearray(source.read(block.start, block.size))
    width = block.widths.offset
    end = (source.size - block.start + block.base).to_bytes(8, "little")[:width]
    if block.version < 2:
        place = 24 + 4 * block.version + 2 * width
        head[place : place + width] = end
        return bytes(head)
    head[11] = 0
    head[12 + 2 * width : 12 + 3 * width] = end
    checked = 12 + 4 * width
    head[checked : checked + 4] = lookup3(bytes(head[:checked])).to_bytes(4, "little")
    return bytes(head)
