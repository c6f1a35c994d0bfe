"""Object headers of both versions, as lists of messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .cursor import Cursor
from .errors import Damaged, Unsupported
from .file import Hdf5File

DATASPACE, LINK_INFO, DATATYPE, OLD_FILL, FILL, LINK = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
EXTERNAL, LAYOUT, GROUP_INFO, FILTERS, ATTRIBUTE = 0x07, 0x08, 0x0A, 0x0B, 0x0C
CONTINUATION, SYMBOL_TABLE = 0x10, 0x11
NOTHING, MODIFIED = 0x00, 0x12
ATTRIBUTE_INFO, REFERENCE_COUNT, CACHE_IMAGE = 0x15, 0x16, 0x18
LAST_KNOWN = 0x18
IS_SHARED = 0x02
_FAIL_IF_UNKNOWN = 0x80
_MODIFIED_BYTES = 8
_HAS_TIMES, _TIMES_BYTES = 0x20, 16
_MOST_BLOCKS = 10_000
_MOST_MESSAGES = 0xFFFF  # they are counted in two bytes


class Message(NamedTuple):
    """One message: its type, its bytes, and where these lie in the file."""

    type: int
    flags: int
    data: bytes
    address: int

    @property
    def is_shared(self) -> bool:
        return bool(self.flags & IS_SHARED)


@dataclass(slots=True)
class Header:
    """An object header: what kind of object it is, is in its messages."""

    address: int
    version: int
    messages: list[Message] = field(default_factory=list)
    references: int = 1  # how many links lead to it, as it says itself

    def first(self, type_number: int) -> Message | None:
        return next((m for m in self.messages if m.type == type_number), None)

    def all(self, type_number: int) -> list[Message]:
        return [m for m in self.messages if m.type == type_number]


def read_header(file: Hdf5File, address: int) -> Header:
    """Read the object header at `address` with all its continuations."""
    head = file.read(address, 4)
    if head == b"OHDR":
        return _read_new(file, address)
    if head[0] == 1:
        return _read_old(file, address)
    raise Damaged(f"no object header at {address:,}")


def _read_old(file: Hdf5File, address: int) -> Header:
    cursor = Cursor(file.read(address, 16), file.widths)
    if cursor.uint(2) != 1:
        raise Damaged(f"no object header at {address:,}")
    count, references, size = cursor.uint(2), cursor.uint(4), cursor.uint(4)
    file.note_structure(address, 16 + size)
    header = Header(address, 1, references=references)
    blocks = [(address + 16, size)]
    for start, length in _each_once(blocks):
        try:
            for message in _old_messages(file, start, length):
                _take(file, header, message, blocks)
        except Damaged as error:
            file.pass_over(error)
    if len(header.messages) != count:
        found = f"{len(header.messages):,} messages where it claims {count:,}"
        file.note_fault(Damaged(f"the header at {address:,} has {found}"))
    return header


def _each_once(blocks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The blocks of a header, which may grow meanwhile; none may come twice."""
    seen: set[int] = set()
    for block in blocks:
        if block[0] in seen or len(seen) > _MOST_BLOCKS:
            raise Damaged(f"an object header continues in a circle at {block[0]:,}")
        seen.add(block[0])
        yield block


def _old_messages(file: Hdf5File, start: int, length: int) -> Iterator[Message]:
    cursor = Cursor(file.read(start, length), file.widths)
    while cursor.left >= 8:
        type_number, size, flags = cursor.uint(2), cursor.uint(2), cursor.uint(1)
        cursor.skip(3)
        address = start + cursor.position
        if size % 8:
            raise Damaged(f"a header message at {address:,} has an odd size")
        yield Message(type_number, flags, cursor.take(size), address)


def _take(file: Hdf5File, header: Header, message: Message, blocks: list[tuple[int, int]]) -> None:
    header.messages.append(message)
    if len(header.messages) > _MOST_MESSAGES:
        raise Damaged(f"the header at {header.address:,} has more than {_MOST_MESSAGES:,} messages")
    if message.type == CONTINUATION:
        cursor = Cursor(message.data, file.widths)
        address, length = cursor.needed_address("a continuation"), cursor.length()
        file.note_structure(address, length)
        blocks.append((address, length))
    elif message.type == NOTHING:
        file.free.append((message.address, len(message.data)))
    elif message.type == MODIFIED and len(message.data) >= _MODIFIED_BYTES:
        file.free.append((message.address + 4, 4))  # behind its version
    elif message.type == REFERENCE_COUNT and header.version == 1:
        raise Damaged(f"the header at {header.address:,} has a message of another version")
    elif message.type == REFERENCE_COUNT:
        header.references = int.from_bytes(message.data[1:5], "little")
    elif message.type > LAST_KNOWN and message.flags & _FAIL_IF_UNKNOWN:
        raise Unsupported(f"a header message of type {message.type}, which must be understood")


def _read_new(file: Hdf5File, address: int) -> Header:
    prefix = Cursor(file.read(address, 6), file.widths, 4)
    version, flags = prefix.uint(1), prefix.uint(1)
    if version != 2:
        raise Damaged(f"object header of version {version} at {address:,}")
    size_bytes = 1 << (flags & 3)
    start = 6 + _TIMES_BYTES * bool(flags & _HAS_TIMES) + 4 * bool(flags & 0x10)
    size = int.from_bytes(file.read(address + start, size_bytes), "little")
    start += size_bytes
    data = file.read_checked(address, start + size + 4, "object header")
    if flags & _HAS_TIMES:
        file.free.append((address + 6, _TIMES_BYTES))
    header, blocks = Header(address, 2), [(address, start + size + 4)]
    for block, length in _each_once(blocks):
        if block != address:
            start = 4
            try:
                data = file.read_checked(block, length, "object header", b"OCHK")
            except Damaged as error:
                file.pass_over(error)
                continue
        cursor = Cursor(data[start:-4], file.widths)
        for message in _new_messages(cursor, block + start, has_order=bool(flags & 4)):
            _take(file, header, message, blocks)
    return header


def _new_messages(cursor: Cursor, start: int, *, has_order: bool) -> Iterator[Message]:
    while cursor.left >= 4 + 2 * has_order:
        type_number, size, flags = cursor.uint(1), cursor.uint(2), cursor.uint(1)
        cursor.skip(2 * has_order)
        address = start + cursor.position
        yield Message(type_number, flags, cursor.take(size), address)
