"""Data and attributes of other programs' files as NumPy arrays, by our own reader.

Numbers keep their dtype, byte order included; texts of either kind become `str`. What our results
cannot hold is `Unsupported`, with the reason; damage is `Damaged`. No link, no virtual and no
external data are ever followed out of the file.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from .hdf5.cursor import Cursor
from .hdf5.data import LZF, fill_bytes, read_chunk
from .hdf5.datatypes import Class, Datatype
from .hdf5.errors import Damaged, Unsupported
from .hdf5.file import Hdf5File
from .hdf5.heaps import read_global_heap
from .hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE, Attribute, Dataspace, Storage
from .hdf5.tree import Dataset
from .values import Array

MOST_VALUE_BYTES = 512 << 20  # what one task may hold at most; more would not fit into memory
_MOST_HEAPS = 64
_NUMBERS = {Class.INTEGER: "iu", Class.ENUM: "iu"}
_TEXT_END = {0: b"\0", 1: b"\0", 2: b" "}


def numpy_dtype(datatype: Datatype) -> np.dtype[Any]:
    """The dtype of an element as it lies in the file; Unsupported if NumPy has none for it."""
    order = ">" if datatype.is_big_endian else "<"
    kind, size = datatype.type, datatype.size
    if kind in (Class.INTEGER, Class.ENUM) and datatype.is_usual and size in (1, 2, 4, 8):
        return np.dtype(f"{order}{'i' if datatype.is_signed else 'u'}{size}")
    if kind is Class.FLOAT and datatype.is_usual:
        return np.dtype(f"{order}f{size}")
    if kind is Class.STRING:
        return np.dtype(f"S{size}")
    if kind is Class.COMPLEX and datatype.base is not None:
        return np.dtype(f"{numpy_dtype(datatype.base).byteorder}c{size}")
    if kind is Class.ARRAY and datatype.base is not None:
        return np.dtype((numpy_dtype(datatype.base), datatype.dims))
    if kind is Class.COMPOUND:
        return _compound_dtype(datatype)
    raise Unsupported(f"values of a kind that results cannot have ({_words(datatype)})")


def _compound_dtype(datatype: Datatype) -> np.dtype[Any]:
    members = datatype.members
    if [member.name for member in members] == ["r", "i"]:
        real, imaginary = (numpy_dtype(member.type) for member in members)
        offsets = [member.offset for member in members]
        is_pair = real == imaginary and offsets == [0, real.itemsize]
        if is_pair and real.str[1:] in ("f4", "f8") and datatype.size == 2 * real.itemsize:
            return np.dtype(f"{real.str[0]}c{datatype.size}")
    return np.dtype(
        {
            "names": [member.name for member in members],
            "formats": [numpy_dtype(member.type) for member in members],
            "offsets": [member.offset for member in members],
            "itemsize": datatype.size,
        }
    )


def _words(datatype: Datatype) -> str:
    if datatype.type is Class.VARIABLE:
        return "lists of any length"
    usual = "" if datatype.is_usual else ", of unusual bits"
    return f"{datatype.type.name.lower()} of {datatype.size} bytes{usual}"


def points_simply(datatype: Datatype) -> bool:
    """Whether it is a text or list of any length, of elements that point nowhere."""
    base = datatype.base
    return datatype.type is Class.VARIABLE and base is not None and not base.points_elsewhere


def is_truth(datatype: Datatype) -> bool:
    """Whether it is what h5py makes of a bool: an enumeration of FALSE and TRUE."""
    names = [(member.name, member.offset) for member in datatype.members]
    return datatype.type is Class.ENUM and sorted(names) == [("FALSE", 0), ("TRUE", 1)]


class Values:
    """The values of one file."""

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._heaps: OrderedDict[int, dict[int, bytes]] = OrderedDict()

    def of_attribute(self, attribute: Attribute) -> Array | None:
        """The value of an attribute; None if it has none."""
        return self._converted(attribute.value, attribute.type, attribute.space)

    def of_dataset(self, dataset: Dataset) -> Array | None:
        """All of a dataset; None if it holds nothing (a null dataspace)."""
        if dataset.space.dims is None:
            return None
        rows = dataset.space.dims[0] if dataset.space.dims else 1
        data = self._read(dataset, 0, rows)
        return self._converted(data, dataset.type, dataset.space)

    def of_rows(self, dataset: Dataset, first: int, last: int) -> Array:
        """The rows from `first` to before `last` of a dataset with at least one axis."""
        assert dataset.space.dims
        data = self._read(dataset, first, last)
        space = Dataspace((last - first, *dataset.space.dims[1:]))
        found = self._converted(data, dataset.type, space)
        assert found is not None
        return found

    def converted_rows(self, data: bytes, datatype: Datatype, shape: tuple[int, ...]) -> Array:
        """The elements in `data`, which somebody has read already."""
        found = self._converted(data, datatype, Dataspace(shape))
        assert found is not None
        return found

    def raw_rows(self, dataset: Dataset, first: int, last: int) -> bytes:
        """The bytes of some rows behind the filters or, of a filter not known here, before them."""
        known = {DEFLATE, SHUFFLE, FLETCHER32, LZF}
        if any(step.number not in known for step in dataset.filters):
            return self._raw_chunks(dataset, first, last)
        return self._read(dataset, first, last)

    def _raw_chunks(self, dataset: Dataset, first: int, last: int) -> bytes:
        """Chunks as they are stored; equal bytes under equal filters are equal data."""
        _require_here(dataset)
        side, parts = dataset.layout.chunk[0], [repr(dataset.filters).encode()]
        for chunk in sorted(dataset.chunks, key=lambda it: it.start):
            if first <= chunk.start[0] < last or chunk.start[0] < first < chunk.start[0] + side:
                stored = self._file.read(chunk.address, chunk.size)
                parts += [repr((chunk.start, chunk.mask, chunk.size)).encode(), stored]
        return b"".join(parts)

    def resolved(self, data: bytes, datatype: Datatype) -> bytes:
        """Elements with what they point to in their place, so that they can be compared."""
        if not points_simply(datatype):
            raise Unsupported("values within which there are places in the file")
        parts = [
            length.to_bytes(8, "little") + found for length, found in self.lists(data, datatype)
        ]
        return b"".join(parts)

    def lists(self, data: bytes, datatype: Datatype) -> Iterator[tuple[int, bytes]]:
        """The length and the bytes of each text or list that `data` points to."""
        assert datatype.base is not None
        element_bytes = 1 if datatype.is_text else datatype.base.size
        width = self._file.widths.offset
        for start in range(0, len(data), datatype.size):
            length = int.from_bytes(data[start : start + 4], "little")
            address = int.from_bytes(data[start + 4 : start + 4 + width], "little")
            number = int.from_bytes(data[start + 4 + width : start + 8 + width], "little")
            found = self._heap(address).get(number) if length and address else b""
            if found is None:
                raise Damaged(f"no object {number} in the global heap at {address:,}")
            yield length, found[: length * element_bytes]

    def _read(self, dataset: Dataset, first: int, last: int) -> bytes:
        """The bytes of some rows, through the filters, which are verified where they can be."""
        _require_here(dataset)
        dims = dataset.space.dims or (1,)
        row_bytes = math.prod(dims[1:]) * dataset.type.size
        size = (last - first) * row_bytes
        if size > MOST_VALUE_BYTES:
            raise Unsupported(f"{size:,} bytes at once")
        layout = dataset.layout
        if layout.storage is Storage.CHUNKED:
            return self._read_chunked(dataset, first, last)
        is_compact = layout.storage is Storage.COMPACT
        start = dataset.compact_at if is_compact else layout.address
        if start is None:
            return fill_bytes(dataset, size)
        offset = self._file.superblock.start + start + first * row_bytes
        return self._file.source.read(offset, size)

    def _read_chunked(self, dataset: Dataset, first: int, last: int) -> bytes:
        dims = dataset.space.dims or ()
        element = np.dtype(f"V{dataset.type.size}")
        shape = (last - first, *dims[1:])
        fill = np.frombuffer(fill_bytes(dataset, dataset.type.size), element)
        found: Array = np.empty(shape, element)
        found[...] = fill[0]
        side = dataset.layout.chunk
        for chunk in dataset.chunks:
            if chunk.start[0] >= last or chunk.start[0] + side[0] <= first:
                continue
            data = read_chunk(self._file, dataset, chunk)
            place, part = _overlap(chunk.start, side, dims, first, last)
            found[place] = np.frombuffer(data, element).reshape(side)[part]
        return found.tobytes()

    def _converted(self, data: bytes, datatype: Datatype, space: Dataspace) -> Array | None:
        if space.dims is None:
            return None
        if datatype.type is Class.VARIABLE and datatype.is_text:
            return self._texts(data, datatype.size, space.dims)
        dtype = numpy_dtype(datatype)
        values = np.frombuffer(data, dtype, space.count).reshape(
            space.dims + (dtype.shape if dtype.subdtype else ())
        )
        if datatype.type is Class.STRING:
            return _fixed_texts(values, datatype)
        return values.astype(bool) if is_truth(datatype) else values

    def _texts(self, data: bytes, size: int, shape: tuple[int, ...]) -> Array:
        found = np.empty(math.prod(shape), object)
        for place in range(len(found)):
            cursor = Cursor(data[place * size : (place + 1) * size], self._file.widths)
            length, address, number = cursor.uint(4), cursor.address(), cursor.uint(4)
            text = self._heap(address).get(number) if length and address else b""
            if text is None:
                raise Damaged(f"no object {number} in the global heap at {address:,}")
            found[place] = _decoded(text[:length].split(b"\0")[0])
        return found.reshape(shape)

    def _heap(self, address: int) -> dict[int, bytes]:
        heap = self._heaps.get(address)
        if heap is None:
            heap = self._heaps[address] = read_global_heap(self._file, address)
            if len(self._heaps) > _MOST_HEAPS:
                self._heaps.popitem(last=False)
        return heap


def _require_here(dataset: Dataset) -> None:
    if dataset.is_external:
        raise Unsupported("its data are in another file (external storage)")
    if dataset.layout.storage is Storage.VIRTUAL:
        raise Unsupported("its data are in other files (a virtual dataset)")


def _overlap(
    start: tuple[int, ...], side: tuple[int, ...], dims: tuple[int, ...], first: int, last: int
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Which part of a chunk is wanted, and where it belongs among the rows wanted."""
    lows = [max(start[0], first), *start[1:]]
    ends = [min(start[0] + side[0], last), *dims[1:]]
    places, parts = [], []
    for axis, (low, end) in enumerate(zip(lows, ends, strict=True)):
        high = min(start[axis] + side[axis], end)
        shift = first if axis == 0 else 0
        places.append(slice(low - shift, max(high, low) - shift))
        parts.append(slice(low - start[axis], max(high, low) - start[axis]))
    return tuple(places), tuple(parts)


def _fixed_texts(values: Array, datatype: Datatype) -> Array:
    end, is_terminated = _TEXT_END[datatype.bits & 0xF], not datatype.bits & 0xF
    size = max(datatype.size, 1)
    data = values.tobytes()
    found = np.empty(values.size, object)
    for place in range(values.size):
        text = data[place * size : (place + 1) * size]
        text = text.split(end)[0] if is_terminated else text.rstrip(end)
        found[place] = _decoded(text)
    return found.reshape(values.shape)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise Unsupported(f"a text that is no UTF-8 ({error})") from error


def fields_of(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """A value under its name; of a compound each field under `name_field`."""
    if values.dtype.names is None:
        yield name, values
        return
    for field in values.dtype.names:
        yield from fields_of(f"{name}_{field}", values[field])
