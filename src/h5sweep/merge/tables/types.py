"""The element types of merged columns: HDF5's own types, kept or converted.

A type stands in the HDF5 library as it stood in the file, so that texts keep their padding, enums
their names and opaque data their tags. Two types have a common one only if every value of both
survives in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...base.compare import cast_and_back
from ...base.values import Array, value_text
from ...disk.h5py_loader import h5py
from ...hdf5.datatypes import Class, Datatype
from ...hdf5.errors import Unsupported
from ...worker_files.decode_elements import Elements, points_simply

TypeID = Any  # h5py has no types of its own for type checkers
_MESSAGE = b"\x03\x00"  # what the library writes before the bytes of a type that it encodes
_h5t = h5py.h5t


@dataclass(frozen=True)
class CommonType:
    """The type of two; `is_certain` if no value can be lost, else each has to be looked at."""

    type: TypeID
    is_certain: bool = True


def type_of(datatype: Datatype) -> TypeID:
    """The type as the HDF5 library has it; Unsupported if it does not know it."""
    return _decoded(datatype.encoded)


@lru_cache(256)  # asked for every attribute of every structure
def _decoded(encoded: bytes) -> TypeID:
    try:
        return _as_old(_h5t.decode(_MESSAGE + encoded))
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unsupported(f"a type that the HDF5 library does not take ({error})") from error


def _as_old(type_: TypeID) -> TypeID:
    """The same type in the oldest words that there are for it, which older programs read too."""
    if type_.get_class() == _h5t.STRING:
        made = _text_type(type_.get_cset(), type_.get_size(), type_.get_strpad())
        if type_.is_variable_str():
            made = _text_type(type_.get_cset(), _h5t.VARIABLE, type_.get_strpad())
    else:
        try:
            made = _h5t.py_create(type_.dtype, logical=True)
        except TypeError:  # NumPy does not have it
            return type_
    return made if made == type_ else type_


def _text_type(character_set: int, size: int, padding: int) -> TypeID:
    made = _h5t.C_S1.copy()
    made.set_size(size)
    made.set_cset(character_set)
    made.set_strpad(padding)
    return made


def is_kept_elsewhere(datatype: Datatype) -> bool:
    """Whether elements are texts or sequences of any length, which lie in heaps."""
    return datatype.type is Class.VARIABLE


def holds_objects(type_: TypeID) -> bool:
    """The same, of a type as the library has it."""
    is_text = type_.get_class() == _h5t.STRING
    return type_.get_class() == _h5t.VLEN or (is_text and bool(type_.is_variable_str()))


def may_be_copied(datatype: Datatype) -> bool:
    """Whether elements mean something outside their file."""
    return points_simply(datatype) or not datatype.points_elsewhere


def type_text(type_: TypeID) -> str:
    """A type in words, as NumPy has them."""
    if type_.get_class() == _h5t.STRING:
        return "text of any length" if type_.is_variable_str() else f"text of {type_.get_size()}"
    if type_.get_class() == _h5t.ENUM and type_.dtype != np.bool_:
        names = (type_.get_member_name(n).decode() for n in range(type_.get_nmembers()))
        return f"enum of {', '.join(names)}"
    try:
        return str(type_.dtype)
    except TypeError:
        return f"a type of {type_.get_size()} bytes that NumPy does not have"


# Two types become one ----------------------------------------------------------------------------


def common_type(first: TypeID, second: TypeID) -> CommonType | None:
    """The type that holds the values of both; None if there is none."""
    if first == second:
        return CommonType(first)
    kinds = {first.get_class(), second.get_class()}
    if kinds == {_h5t.STRING}:
        return _common_text(first, second)
    try:
        dtypes = first.dtype, second.dtype
    except TypeError:
        return None
    if kinds <= {_h5t.INTEGER, _h5t.FLOAT} or {d.kind for d in dtypes} == {"c"}:
        return _common_number(*dtypes)
    if kinds == {_h5t.COMPOUND}:
        return _common_compound(*dtypes)
    return None


def _common_text(first: TypeID, second: TypeID) -> CommonType | None:
    character_set = max(first.get_cset(), second.get_cset())
    pads = {first.get_strpad(), second.get_strpad()}
    if first.is_variable_str() or second.is_variable_str():
        return CommonType(_text_type(character_set, _h5t.VARIABLE, _h5t.STR_NULLTERM))
    if len(pads) > 1 and _h5t.STR_SPACEPAD in pads:
        return None
    size = max(first.get_size(), second.get_size())
    return CommonType(
        _text_type(character_set, size, min(pads) if len(pads) == 1 else _h5t.STR_NULLPAD)
    )


def _common_number(first: np.dtype[Any], second: np.dtype[Any]) -> CommonType:
    common = np.promote_types(first, second)
    integers = [dtype for dtype in (first, second) if dtype.kind in "iu"]
    if len(integers) == 2 and common.kind == "f":
        return CommonType(_h5t.py_create(np.dtype("<i8")), is_certain=False)
    # NumPy calls the way from 64-bit integers to floats safe, which it is up to 2**53 only.
    is_certain = common.kind in "iu" or all(dtype.itemsize <= 4 for dtype in integers)
    return CommonType(_h5t.py_create(common), is_certain)


def _common_compound(first: np.dtype[Any], second: np.dtype[Any]) -> CommonType | None:
    """Compounds with the same fields in the same order, each of a common type."""
    if not first.names or first.names != second.names:
        return None
    fields, is_certain = [], True
    for name in first.names:
        parts = first[name], second[name]
        if parts[0] != parts[1] and not all(part.kind in "iufc" for part in parts):
            return None
        if parts[0] == parts[1]:
            fields.append((name, parts[0]))
            continue
        one = _common_number(*parts)
        fields.append((name, one.type.dtype))
        is_certain = is_certain and one.is_certain
    return CommonType(_h5t.py_create(np.dtype(fields), logical=True), is_certain)


# Elements ----------------------------------------------------------------------------------------


def convert(data: Array, old: TypeID, new: TypeID) -> Array:
    """Elements of one type as elements of another; both arrays are of bytes, or of objects.

    Nothing is said about values that do not fit: `survives` is asked before.
    """
    if old == new:
        return data
    if new.get_class() != _h5t.STRING:
        values = data.view(old.dtype)
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(values.astype(new.dtype)).view(np.uint8)
    if new.is_variable_str():
        return data if old.is_variable_str() else _texts(data, old)
    width = old.get_size()
    pad = ord(" ") if new.get_strpad() == _h5t.STR_SPACEPAD else 0
    found = np.full((data.size // width, new.get_size()), pad, np.uint8)
    found[:, :width] = data.reshape(-1, width)
    return found.reshape(-1)


def _texts(data: Array, type_: TypeID) -> Array:
    """Texts of fixed size as bytes objects without their padding."""
    raw, width = data.tobytes(), type_.get_size()
    parts = [raw[start : start + width] for start in range(0, len(raw), width)]
    if type_.get_strpad() == _h5t.STR_NULLTERM:
        parts = [part.split(b"\0", 1)[0] for part in parts]
    else:
        pad = b" " if type_.get_strpad() == _h5t.STR_SPACEPAD else b"\0"
        parts = [part.rstrip(pad) for part in parts]
    return objects(parts)


def survives(data: Array, old: TypeID, new: TypeID) -> bool:
    """Whether elements mean the same after they were converted."""
    if old == new or _h5t.STRING in (old.get_class(), new.get_class()):
        return True  # texts are only ever given more room
    return _survives(data.view(old.dtype), new.dtype)


def _survives(values: Array, dtype: np.dtype[Any]) -> bool:
    if names := values.dtype.names:
        return all(_survives(values[name], dtype[name].base) for name in names)
    return values.dtype == dtype or bool(cast_and_back(values, dtype)[1].all())


def fill_element(type_: TypeID, fill: bytes | None) -> Array:
    """What stands where a file lacks a column: NaN, or else the fill value, 0 or no text."""
    kind = type_.get_class()
    if holds_objects(type_):
        return objects([b"" if kind == _h5t.STRING else np.empty(0, type_.get_super().dtype)])
    if kind == _h5t.FLOAT or (fill is None and kind in (_h5t.COMPOUND, _h5t.ARRAY)):
        with suppress(TypeError):  # NumPy does not have it
            return np.frombuffer(_nan(type_.dtype).tobytes(), np.uint8)
    return np.frombuffer(fill or bytes(type_.get_size()), np.uint8)


def converted_fill(fill: bytes | None, old: TypeID, new: TypeID) -> bytes | None:
    """A fill value as an element of another type; None if it has no meaning there."""
    if fill is None or old == new:
        return fill
    data = np.frombuffer(fill, np.uint8)
    if holds_objects(old) or holds_objects(new) or not survives(data, old, new):
        return None
    return convert(data, old, new).tobytes()


def fill_text(type_: TypeID, fill: bytes | None) -> str:
    """What stands where a file lacks a column, for people."""
    element = fill_element(type_, fill)
    if holds_objects(type_):
        return "empty texts" if type_.get_class() == _h5t.STRING else "nothing"
    try:
        return value_text(element.view(type_.dtype).reshape(1)[0]) or "empty texts"
    except TypeError:  # NumPy does not have it
        return "zeros"


def _nan(dtype: np.dtype[Any]) -> Array:
    """One element in which every float is NaN."""
    found = np.zeros(1, dtype)
    if dtype.names:
        for name in dtype.names:
            found[name] = _nan(dtype[name])
    elif dtype.base.kind in "fc":
        found[...] = np.nan
    return found


def objects(parts: Sequence[Any]) -> Array:
    found = np.empty(len(parts), object)
    found[:] = parts
    return found


def read_elsewhere(elements: Elements, datatype: Datatype, data: bytes) -> Array:
    """The texts, as bytes, or sequences behind references to heaps."""
    return objects_of(datatype, read_heap_parts(elements, datatype, data))


def objects_of(datatype: Datatype, parts: Sequence[bytes]) -> Array:
    """Texts, as bytes, or sequences, out of what heaps have of them."""
    if not datatype.is_text:
        dtype = type_of(datatype).get_super().dtype
        return objects([np.frombuffer(part, dtype) for part in parts])
    if b"\0" in b"".join(parts):
        return objects([part.partition(b"\0")[0] for part in parts])
    return objects(parts)


def read_heap_parts(elements: Elements, datatype: Datatype, data: bytes) -> list[bytes]:
    """The bytes of every text or sequence; Damaged if the heaps do not have them."""
    return [part for _, part in elements.lists(datatype, data)]
