"""What one element of a dataset or an attribute is."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple

from .cursor import Cursor, Widths, decoded
from .errors import Damaged

_MOST_DEPTH = 32
_MOST_DIMENSIONS = 32
_LAST_VERSION = 5
# For each size: the fields that follow a datatype of IEEE 754, and where its sign is.
_IEEE = {
    2: (0, 16, 10, 5, 0, 10, 15, 15),
    4: (0, 32, 23, 8, 0, 23, 127, 31),
    8: (0, 64, 52, 11, 0, 52, 1023, 63),
}


class Class(IntEnum):
    """The classes of datatypes."""

    INTEGER = 0
    FLOAT = 1
    TIME = 2
    STRING = 3
    BITS = 4
    OPAQUE = 5
    COMPOUND = 6
    REFERENCE = 7
    ENUM = 8
    VARIABLE = 9
    ARRAY = 10
    COMPLEX = 11


@dataclass(frozen=True, slots=True)
class Datatype:
    """An element: its class, its size, and what it is made of."""

    type: Class
    size: int
    bits: int = 0  # the class's own 24 bits
    members: tuple[
        CompoundMember, ...
    ] = ()  # fields of a compound; names and numbers of an enumeration
    base: Datatype | None = None
    version: int = 1
    dims: tuple[int, ...] = ()  # of an array
    is_usual: bool = True  # a number as processors have it: all its bits, or IEEE 754
    encoded: bytes = field(default=b"", compare=False, repr=False)  # as it stands in the file

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of an enumeration's values."""
        return tuple(m.name for m in self.members) if self.type is Class.ENUM else ()

    @property
    def has_first_array(self) -> bool:
        """Whether there is an array type of version 1 in it, which the format does not have."""
        inner = [member.type for member in self.members] + ([self.base] if self.base else [])
        is_one = self.type is Class.ARRAY and self.version == 1
        return is_one or any(part.has_first_array for part in inner)

    @property
    def member_names(self) -> set[str]:
        return {member.name for member in self.members}

    @property
    def is_big_endian(self) -> bool:
        return bool(self.bits & 1)

    @property
    def is_signed(self) -> bool:
        return bool(self.bits & 8)

    @property
    def is_text(self) -> bool:
        is_variable_text = self.type is Class.VARIABLE and self.bits & 0xF == 1
        return self.type is Class.STRING or is_variable_text

    @property
    def points_elsewhere(self) -> bool:
        """Whether the bytes of an element are, or hold, places in the file."""
        if self.type in (Class.VARIABLE, Class.REFERENCE):
            return True
        inner = [member.type for member in self.members] + ([self.base] if self.base else [])
        return any(part.points_elsewhere for part in inner)


class CompoundMember(NamedTuple):
    """A field of a compound, or a name of an enumeration with its number for the offset."""

    name: str
    offset: int
    type: Datatype


def field_places(datatype: Datatype) -> dict[str, tuple[int, int]]:
    """Where the fields of an element lie, inner ones as `outer_inner`: offset and size."""
    found: dict[str, tuple[int, int]] = {}
    if datatype.type is Class.COMPOUND and not is_complex(datatype):
        for member in datatype.members:
            for name, (at, size) in field_places(member.type).items():
                full = f"{member.name}_{name}" if name else member.name
                found[full] = member.offset + at, size
        return found
    has_parts = datatype.type in (Class.ARRAY, Class.VARIABLE) and not datatype.is_text
    parts = field_places(datatype.base) if has_parts and datatype.base is not None else {"": ()}
    return dict.fromkeys(parts, (0, datatype.size))


def is_complex(datatype: Datatype) -> bool:
    """Whether it is how h5py keeps a complex number: two floats, named r and i."""
    if datatype.type is not Class.COMPOUND or len(datatype.members) != 2:
        return False
    first, second = datatype.members
    real, half = first.type, datatype.size // 2
    is_float = real.type is Class.FLOAT and real.is_usual and real.size in (4, 8)
    places = (first.name, first.offset, second.name, second.offset)
    is_pair = real == second.type and places == ("r", 0, "i", half)
    return is_float and is_pair and 2 * real.size == datatype.size


@lru_cache(256)
def read_datatype(data: bytes) -> Datatype:
    """The datatype that these bytes begin with; most in a file are alike, and one object then."""
    cursor = Cursor(data, Widths())
    return replace(_read_type(cursor, 0), encoded=data[: cursor.position])


def _read_type(cursor: Cursor, depth: int) -> Datatype:
    """Read one datatype and all that it is made of."""
    if depth > _MOST_DEPTH:
        raise Damaged("datatypes within datatypes without an end")
    first = cursor.uint(1)
    version, number = first >> 4, first & 0xF
    bits, size = cursor.uint(3), cursor.uint(4)
    if not 1 <= version <= _LAST_VERSION:
        raise Damaged(f"datatype of version {version}")
    if number > max(Class):
        raise Damaged(f"datatype of class {number}")
    if not size and number != Class.STRING:
        raise Damaged("a datatype of 0 bytes")
    return _READERS[Class(number)](cursor, version, bits, size, depth)


def _read_number(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    offset, precision = cursor.uint(2), cursor.uint(2)
    _check_bits(offset, precision, size)
    return Datatype(Class.INTEGER, size, bits, is_usual=precision == 8 * size)


def _read_bits(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    offset, precision = cursor.uint(2), cursor.uint(2)
    _check_bits(offset, precision, size)
    return Datatype(Class.BITS, size, bits)


def _read_float(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    offset, precision = cursor.uint(2), cursor.uint(2)
    _check_bits(offset, precision, size)
    exponent_at, exponent, mantissa_at, mantissa = cursor.take(4)
    bias = cursor.uint(4)
    if (
        not exponent
        or not mantissa
        or max(exponent_at + exponent, mantissa_at + mantissa) > (offset + precision)
    ):
        raise Damaged("a floating-point type whose parts lie outside it")
    parts = (offset, precision, exponent_at, exponent, mantissa_at, mantissa, bias)
    # One bit says that it is big-endian; the others how VAXes did it, and what pads it.
    is_usual = _IEEE.get(size) == (*parts, bits >> 8 & 0xFF) and bits & 0x7E == 0x20
    return Datatype(Class.FLOAT, size, bits, is_usual=is_usual)


def _check_bits(offset: int, precision: int, size: int) -> None:
    if not precision or offset + precision > 8 * size:
        raise Damaged(f"a number of {precision} bits at {offset} in {size} bytes")


def _read_time(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    cursor.skip(2)
    return Datatype(Class.TIME, size, bits)


def _read_string(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    if bits & 0xF > 2 or bits >> 4 & 0xF > 1:
        raise Damaged("a text of an unknown padding or character set")
    return Datatype(Class.STRING, size, bits)


def _read_opaque(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    cursor.skip(bits & 0xFF)
    return Datatype(Class.OPAQUE, size, bits)


def _read_reference(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    if bits & 0xF > 4:
        raise Damaged(f"a reference of kind {bits & 0xF}")
    return Datatype(Class.REFERENCE, size, bits)


def _read_compound(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    count = bits & 0xFFFF
    if not count:
        raise Damaged("a compound without members")
    members = []
    for _ in range(count):
        name = cursor.text(padded_to=8 if version < 3 else 1)
        offset = cursor.uint(_bytes_up_to(size) if version >= 3 else 4)
        dims: tuple[int, ...] = ()
        if version == 1:
            rank = cursor.uint(1)
            cursor.skip(11)
            dims = struct.unpack("<4I", cursor.take(16))[:rank]
            if rank > 4:
                raise Damaged(f"a member of {rank} dimensions")
        member = _read_type(cursor, depth + 1)
        size_bytes = member.size
        for dim in dims:
            size_bytes *= dim
        if offset + size_bytes > size:
            raise Damaged(f"member {name!r} lies outside its compound")
        if dims:
            member = Datatype(Class.ARRAY, size_bytes, base=member, version=2, dims=dims)
        members.append(CompoundMember(name, offset, member))
    return Datatype(Class.COMPOUND, size, bits, tuple(members))


def _bytes_up_to(size: int) -> int:
    return max((size.bit_length() + 7) // 8, 1)


def _read_enum(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    base = _read_type(cursor, depth + 1)
    if base.size != size or base.type is not Class.INTEGER:
        raise Damaged("an enumeration that is no integer of its size")
    count = bits & 0xFFFF
    names = [cursor.text(padded_to=8 if version < 3 else 1) for _ in range(count)]
    numbers = [_number_of(cursor.take(size), base) for _ in range(count)]
    members = tuple(CompoundMember(*pair, base) for pair in zip(names, numbers, strict=True))
    return Datatype(Class.ENUM, size, base.bits, members, base, is_usual=base.is_usual)


def _number_of(data: bytes, datatype: Datatype) -> int:
    order: Literal["big", "little"] = "big" if datatype.is_big_endian else "little"
    return int.from_bytes(data, order, signed=datatype.is_signed)


def _read_variable(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    if bits & 0xF > 1:
        raise Damaged("a variable-length type of an unknown kind")
    return Datatype(Class.VARIABLE, size, bits, base=_read_type(cursor, depth + 1))


def _read_array(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    rank = cursor.uint(1)
    if rank > _MOST_DIMENSIONS:
        raise Damaged(f"an array type of {rank} dimensions")
    cursor.skip(3 if version < 3 else 0)
    dims = tuple(cursor.uint(4) for _ in range(rank))
    count = math.prod(dims)
    cursor.skip(4 * rank if version < 3 else 0)
    base = _read_type(cursor, depth + 1)
    if count * base.size != size:
        raise Damaged(f"an array type of {size:,} bytes with elements of {count * base.size:,}")
    return Datatype(Class.ARRAY, size, bits, base=base, version=version, dims=dims)


def _read_complex(cursor: Cursor, version: int, bits: int, size: int, depth: int) -> Datatype:
    return Datatype(Class.COMPLEX, size, bits, base=_read_type(cursor, depth + 1))


_READERS = {
    Class.INTEGER: _read_number,
    Class.FLOAT: _read_float,
    Class.TIME: _read_time,
    Class.STRING: _read_string,
    Class.BITS: _read_bits,
    Class.OPAQUE: _read_opaque,
    Class.COMPOUND: _read_compound,
    Class.REFERENCE: _read_reference,
    Class.ENUM: _read_enum,
    Class.VARIABLE: _read_variable,
    Class.ARRAY: _read_array,
    Class.COMPLEX: _read_complex,
}

Scalar = int | float | str


def scalar_of(data: bytes, datatype: Datatype) -> Scalar | None:
    """The value of one element, if it is a number or a text of fixed size; else None."""
    if datatype.type in (Class.INTEGER, Class.ENUM) and datatype.size <= 8:
        return _number_of(data, datatype)
    order = ">" if datatype.is_big_endian else "<"
    if datatype.type is Class.FLOAT and datatype.size in (2, 4, 8):
        (value,) = struct.unpack(order + {2: "e", 4: "f", 8: "d"}[datatype.size], data)
        return float(value)
    if datatype.type is Class.STRING:
        return decoded(data.split(b"\0")[0]).rstrip(" " if datatype.bits & 0xF == 2 else "")
    return None
