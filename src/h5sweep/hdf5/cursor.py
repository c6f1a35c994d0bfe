"""Read a structure that is already in memory, field by field."""

from __future__ import annotations

from typing import NamedTuple

from .errors import Damaged

UINT_CODES = {2: "H", 4: "I", 8: "Q"}  # how `struct` calls integers of so many bytes


class Widths(NamedTuple):
    """How many bytes an address and a length take in a file."""

    offset: int = 8
    length: int = 8


class Cursor:
    """A place in some bytes; whatever would be read behind their end is Damaged."""

    __slots__ = ("data", "position", "widths")

    def __init__(self, data: bytes, widths: Widths, position: int = 0) -> None:
        self.data = data
        self.widths = widths
        self.position = position

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data) or size < 0:
            raise Damaged(f"a structure of {len(self.data):,} bytes ends in the middle of a field")
        found = self.data[self.position : end]
        self.position = end
        return found

    def skip(self, size: int) -> None:
        self.take(size)

    def uint(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def address(self) -> int | None:
        """An address, or None where it says that there is nothing."""
        field = self.take(self.widths.offset)
        return None if field.count(0xFF) == len(field) else int.from_bytes(field, "little")

    def needed_address(self, what: str) -> int:
        address = self.address()
        if address is None:
            raise Damaged(f"{what} has no address")
        return address

    def length(self) -> int:
        return int.from_bytes(self.take(self.widths.length), "little")

    def text(self, *, padded_to: int = 1, most: int | None = None) -> str:
        """A text that ends with a zero byte, and the padding behind it."""
        start = self.position
        end = self.data.find(b"\0", start, None if most is None else start + most)
        if end < 0:
            raise Damaged("a name has no end")
        size = end + 1 - start
        self.take(size + -size % padded_to)
        return decoded(self.data[start:end])


def decoded(name: bytes) -> str:
    """A name as text; bytes that are no UTF-8 stay recognisable."""
    return name.decode("utf-8", "backslashreplace")


def bytes_for(largest: int) -> int:
    """How many bytes the format takes for a number up to `largest`."""
    return (largest.bit_length() - 1) // 8 + 1 if largest > 0 else 1
