"""Elements of HDF5 datasets and attributes as NumPy arrays, from their bytes and datatype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .hdf5.cursor import Cursor
from .hdf5.data import value_of
from .hdf5.datatypes import Class, Datatype
from .hdf5.errors import Damaged, Unsupported
from .hdf5.file import Hdf5File
from .hdf5.heaps import read_global_heap_object
from .values import Array

_NUMBERS = {Class.INTEGER: "iu", Class.ENUM: "iu", Class.FLOAT: "ff"}
_TRUTHS = {("FALSE", "TRUE"), ("TRUE", "FALSE")}


def decode_elements(
    file: Hdf5File, datatype: Datatype, data: bytes, shape: tuple[int, ...]
) -> dict[str, Array]:
    """The elements as arrays of `shape`, by the names of a compound's members; else by "".

    Text becomes str, h5py's truth values bool, a pair (r, i) complex. Unsupported for what no
    result can hold.
    """
    if datatype.type is Class.COMPOUND and not _is_complex(datatype):
        return dict(_members(file, datatype, data, shape))
    return {"": _decode(file, datatype, data, shape)}


def _members(
    file: Hdf5File, datatype: Datatype, data: bytes, shape: tuple[int, ...]
) -> Iterator[tuple[str, Array]]:
    rows = np.frombuffer(data, np.uint8).reshape(-1, datatype.size)
    for member in datatype.members:
        part = rows[:, member.offset : member.offset + member.type.size].tobytes()
        for name, array in decode_elements(file, member.type, part, shape).items():
            yield f"{member.name}_{name}" if name else member.name, array


def _decode(file: Hdf5File, datatype: Datatype, data: bytes, shape: tuple[int, ...]) -> Array:
    if datatype.type is Class.ARRAY and datatype.base is not None:
        return _decode(file, datatype.base, data, (*shape, *datatype.dims))
    if datatype.is_text:
        return _decode_texts(file, datatype, data, shape)
    if datatype.type is Class.VARIABLE and shape == () and datatype.base is not None:
        return _decode_sequence(file, datatype.base, data)
    values = np.frombuffer(data, _dtype(datatype)).reshape(shape)
    if datatype.type is Class.ENUM and datatype.size == 1 and datatype.labels in _TRUTHS:
        if values.size and values.max(initial=0) > 1:
            raise Damaged("a truth value that is neither true nor false")
        return values.astype(bool)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _dtype(datatype: Datatype) -> np.dtype[np.generic]:
    order = ">" if datatype.is_big_endian else "<"
    if _is_complex(datatype):
        order = ">" if datatype.members[0].type.is_big_endian else "<"
        return np.dtype(f"{order}c{datatype.size}")
    if datatype.type not in _NUMBERS or not datatype.is_usual or datatype.size > 8:
        raise Unsupported(f"values of the class {datatype.type.name.lower()}")
    kind = _NUMBERS[datatype.type][0 if datatype.is_signed or datatype.type is Class.FLOAT else 1]
    return np.dtype(f"{order}{kind}{datatype.size}")


def _is_complex(datatype: Datatype) -> bool:
    """Whether it is how h5py keeps a complex number: two floats, named r and i."""
    if datatype.type is not Class.COMPOUND or len(datatype.members) != 2:
        return False
    first, second = datatype.members
    are_floats = {first.type.type, second.type.type} == {Class.FLOAT}
    half = datatype.size // 2
    places = (first.name, first.offset, second.name, second.offset)
    return are_floats and first.type == second.type and places == ("r", 0, "i", half)


def _decode_texts(file: Hdf5File, datatype: Datatype, data: bytes, shape: tuple[int, ...]) -> Array:
    size = datatype.size
    texts = np.empty(len(data) // max(size, 1), object)
    for place in range(len(texts)):
        text = value_of(file, datatype, data[place * size : (place + 1) * size])
        if not isinstance(text, str) or not _is_text(text):
            raise Damaged("a text of other characters")
        texts[place] = text
    return texts.astype(str).reshape(shape)


def _is_text(text: str) -> bool:
    """Whether somebody can have meant it; bytes that are no UTF-8 show as backslashes."""
    return "\\x" not in text and all(letter.isprintable() or letter in "\r\n\t" for letter in text)


def _decode_sequence(file: Hdf5File, base: Datatype, data: bytes) -> Array:
    """One sequence of any length, which lies in a global heap."""
    cursor = Cursor(data, file.widths)
    length, address, number = cursor.uint(4), cursor.address(), cursor.uint(4)
    if not length or not address:
        return np.empty(0, _dtype(base))
    found = read_global_heap_object(file, address, number)
    if length * base.size > len(found):
        raise Damaged(f"a sequence of {length:,} elements in {len(found):,} bytes")
    return _decode(file, base, found[: length * base.size], (length,))
