"""Elements of HDF5 datasets and attributes as NumPy arrays, from their bytes and datatype.

Numbers come in the byte order of this machine, texts of either kind as `str`, h5py's truth values
as bool, a pair (r, i) as complex. What our results cannot hold is `Unsupported`, with the reason;
damage is `Damaged`.
"""

from __future__ import annotations

import math
import struct
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.values import Array
from ..hdf5.cursor import UINT_CODES
from ..hdf5.datatypes import Class, CompoundMember, Datatype, is_complex
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.heaps import read_global_heap

_MOST_HEAP_BYTES = 4 << 20
_OBJECT_BYTES = 128  # about what Python takes for an object besides its bytes
_NUMBERS = {
    Class.INTEGER: (1, 2, 4, 8),
    Class.ENUM: (1, 2, 4, 8),
    Class.FLOAT: (2, 4, 8),
    Class.COMPLEX: (8, 16),
}


class Elements:
    """The elements of one file, with the heaps that its texts lie in."""

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._heaps: OrderedDict[int, dict[int, bytes]] = OrderedDict()
        self._heap_bytes = 0  # of the objects in those that are kept

    def decode(self, datatype: Datatype, data: bytes, shape: tuple[int, ...]) -> dict[str, Array]:
        """The elements as arrays of `shape`, by the names of a compound's members; else by ""."""
        if len(data) != math.prod(shape) * datatype.size:
            raise Damaged(f"{len(data):,} bytes for elements of {datatype.size:,} bytes")
        base = datatype.base
        if datatype.type is Class.ARRAY and base is not None:
            return self.decode(base, data, (*shape, *datatype.dims))
        if datatype.type is Class.COMPOUND and not is_complex(datatype):
            return self._members(datatype, data, shape)
        if datatype.is_text:
            return {"": self._texts(datatype, data, shape)}
        if datatype.type is Class.VARIABLE and shape == () and base is not None:
            ((length, found),) = self.lists(datatype, data)
            return self.decode(base, found, (length,))
        dtype, is_truth = _number_kind(datatype)
        values: Array = np.ndarray(shape, dtype, data)  # one object: there may be very many
        if is_truth:
            return {"": _truths(values)}
        return {"": values.astype(values.dtype.newbyteorder("="), copy=False)}

    def lists(self, datatype: Datatype, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The length and the bytes of each text or list that `data` points to."""
        assert datatype.base is not None
        element_bytes = 1 if datatype.is_text else datatype.base.size
        nowhere = 0, (1 << 8 * self._file.widths.offset) - 1
        last, heap = 0, dict[int, bytes]()
        for length, address, number in self._pointers(datatype, data):
            if not length or address in nowhere:
                yield 0, b""
                continue
            if address != last:
                last, heap = address, self._heap(address)
            found = heap.get(number)
            if found is None:
                raise Damaged(f"no object {number} in the global heap at {address:,}")
            if length * element_bytes > len(found):
                raise Damaged(f"a list of {length:,} elements in {len(found):,} bytes")
            yield length, found[: length * element_bytes]

    def resolved(self, datatype: Datatype, data: bytes) -> bytes:
        """The elements as bytes that mean the same in every file.

        What they point to is in its place, and what lies between the members of a compound is not
        there: nobody wrote it.
        """
        if _is_plain(datatype):
            return data
        if datatype.type is Class.COMPOUND:
            parts = _member_bytes(datatype, data)
            return b"".join(self.resolved(member.type, part) for member, part in parts)
        if datatype.base is None or datatype.type is Class.REFERENCE:
            raise Unsupported("values that refer to other objects")
        if datatype.type is not Class.VARIABLE:
            return self.resolved(datatype.base, data)
        found = bytearray()
        for length, stored in self.lists(datatype, data):
            found += length.to_bytes(8, "little") + self.resolved(datatype.base, stored)
        return bytes(found)

    def until_zero(self, data: bytes) -> bytes:
        """A text of any length as far as it goes."""
        return data.partition(b"\0")[0]

    def text(self, data: bytes) -> str:
        """The text in some bytes."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Unsupported(f"a text that is not UTF-8 ({error})") from error

    def _members(self, datatype: Datatype, data: bytes, shape: tuple[int, ...]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for member, part in _member_bytes(datatype, data):
            for name, array in self.decode(member.type, part, shape).items():
                full = f"{member.name}_{name}" if name else member.name
                if full in found:
                    raise Unsupported(f"two members that would be called {full}")
                found[full] = array
        return found

    def _texts(self, datatype: Datatype, data: bytes, shape: tuple[int, ...]) -> Array:
        stored = self._stored_texts(datatype, data, math.prod(shape))
        return np.array([self.text(found) for found in stored], str).reshape(shape)

    def _stored_texts(self, datatype: Datatype, data: bytes, count: int) -> Iterator[bytes]:
        """The bytes of each text, without what ends it or fills its room."""
        if datatype.type is Class.VARIABLE:
            yield from (self.until_zero(found) for _, found in self.lists(datatype, data))
            return
        size, padding = datatype.size, datatype.bits & 0xF
        for place in range(count):
            found = data[place * size : (place + 1) * size]
            if padding:
                yield found.rstrip(b"\0" if padding == 1 else b" ")
            else:
                yield found.partition(b"\0")[0]

    def _pointers(self, datatype: Datatype, data: bytes) -> Iterator[tuple[int, int, int]]:
        """The length, the heap's address and the number there of each text or list."""
        width = self._file.widths.offset
        if datatype.size < 8 + width or len(data) % datatype.size:
            raise Damaged(f"lists of any length, of {datatype.size} bytes, in {len(data):,} bytes")
        form = f"<I{UINT_CODES[width]}I{datatype.size - 8 - width}x"
        return struct.iter_unpack(form, data)

    def _heap(self, address: int) -> dict[int, bytes]:
        heap = self._heaps.get(address)
        if heap is None:
            heap = self._heaps[address] = read_global_heap(self._file, address)
            self._heap_bytes += _size(heap)
            while self._heap_bytes > _MOST_HEAP_BYTES:
                self._heap_bytes -= _size(self._heaps.popitem(last=False)[1])
        return heap


class DoubtfulElements(Elements):
    """The same of a damaged file: a text that nobody can have meant is Damaged."""

    def until_zero(self, data: bytes) -> bytes:
        if b"\0" in data:
            raise Damaged("a text with zeros in it")
        return data

    def text(self, data: bytes) -> str:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Damaged("a text of other characters") from error
        if not all(letter.isprintable() or letter in "\r\n\t" for letter in text):
            raise Damaged("a text of other characters")
        return text


def _member_bytes(datatype: Datatype, data: bytes) -> Iterator[tuple[CompoundMember, bytes]]:
    """The members of a compound, each with its bytes of all elements."""
    rows = np.frombuffer(data, np.uint8).reshape(-1, datatype.size)
    for member in datatype.members:
        yield member, rows[:, member.offset : member.offset + member.type.size].tobytes()


@lru_cache(256)  # asked for every value
def _is_plain(datatype: Datatype) -> bool:
    """Whether all bytes of an element are values, and none are places in the file."""
    if datatype.type in (Class.VARIABLE, Class.REFERENCE):
        return False
    if datatype.type is Class.COMPOUND:
        is_full = sum(member.type.size for member in datatype.members) == datatype.size
        return is_full and all(_is_plain(member.type) for member in datatype.members)
    return datatype.base is None or _is_plain(datatype.base)


def _size(heap: dict[int, bytes]) -> int:
    return sum(len(found) + _OBJECT_BYTES for found in heap.values()) + _OBJECT_BYTES


def points_simply(datatype: Datatype) -> bool:
    """Whether it is a text or list of any length, of elements that point nowhere."""
    base = datatype.base
    return datatype.type is Class.VARIABLE and base is not None and not base.points_elsewhere


def has_lists(datatype: Datatype) -> bool:
    """Whether elements are or hold lists of any length, of which no two rows are alike."""
    parts = (*(member.type for member in datatype.members), datatype.base)
    is_list = datatype.type is Class.VARIABLE and not datatype.is_text
    return is_list or any(has_lists(part) for part in parts if part is not None)


def require_no_lists(datatype: Datatype) -> None:
    """Raise Unsupported if elements are or hold lists of any length: these are no rows."""
    if datatype.type is Class.VARIABLE and not datatype.is_text:
        raise _unsupported(datatype)
    for part in (*(member.type for member in datatype.members), datatype.base):
        if part is not None:
            require_no_lists(part)


@lru_cache(256)  # asked for every value of every row
def _number_kind(datatype: Datatype) -> tuple[np.dtype[Any], bool]:
    """The dtype of a number, and whether it is a truth value."""
    return _number_dtype(datatype), _is_truth(datatype)


def _number_dtype(datatype: Datatype) -> np.dtype[Any]:
    """The dtype of a number as it lies in the file; Unsupported if NumPy has none for it."""
    if is_complex(datatype):
        order = _order(datatype.members[0].type)
        return np.dtype(f"{order}c{datatype.size}")
    if datatype.size not in _NUMBERS.get(datatype.type, ()) or not datatype.is_usual:
        raise _unsupported(datatype)
    if datatype.type is Class.COMPLEX:
        real = datatype.base
        is_pair = real is not None and real.type is Class.FLOAT and real.is_usual
        if real is None or not is_pair or 2 * real.size != datatype.size:
            raise _unsupported(datatype)
        return np.dtype(f"{_order(real)}c{datatype.size}")
    kind = "f" if datatype.type is Class.FLOAT else "i" if datatype.is_signed else "u"
    return np.dtype(f"{_order(datatype)}{kind}{datatype.size}")


def _order(datatype: Datatype) -> str:
    return ">" if datatype.is_big_endian else "<"


def _unsupported(datatype: Datatype) -> Unsupported:
    words = f"{datatype.type.name.lower()} of {datatype.size} bytes"
    words += "" if datatype.is_usual else ", of unusual bits"
    words = "lists of any length" if datatype.type is Class.VARIABLE else words
    return Unsupported(f"values of a kind that results cannot have ({words})")


def _is_truth(datatype: Datatype) -> bool:
    """Whether it is what h5py makes of a bool: an enumeration of FALSE and TRUE."""
    names = [(member.name, member.offset) for member in datatype.members]
    return datatype.type is Class.ENUM and sorted(names) == [("FALSE", 0), ("TRUE", 1)]


def _truths(values: Array) -> Array:
    if not np.isin(values, (0, 1)).all():
        raise Damaged("a truth value that is neither true nor false")
    return values.astype(bool)
