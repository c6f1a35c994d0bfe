"""Data and attributes of other programs' files as NumPy arrays, read by our own reader.

No link, no virtual and no external data are ever followed out of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from ..base.values import Array, value_text
from ..hdf5.chunks import Chunk
from ..hdf5.datatypes import Datatype
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE, Attribute, Storage
from ..hdf5.read_data import LZF, fill_bytes, overlap, read_chunk, require_here, start_of
from ..hdf5.tree import Dataset, Object
from .decode_elements import Elements, require_no_lists

MOST_VALUE_BYTES = 512 << 20  # what one task may hold at most; more would not fit into memory


class Values:
    """The values of one file."""

    def __init__(self, file: Hdf5File) -> None:
        self._file = file
        self._elements = Elements(file)

    def of_attribute(self, attribute: Attribute) -> dict[str, Array]:
        """The value of an attribute; nothing if it has none."""
        if attribute.space.dims is None:
            return {}
        return self.decoded(attribute.value, attribute.type, attribute.space.dims)

    def text_of(self, attribute: Attribute) -> str:
        """The value of an attribute for people."""
        values = self.of_attribute(attribute)
        if values.keys() <= {""}:
            return value_text(values.get(""))
        return ", ".join(f"{name}: {value_text(found)}" for name, found in values.items())

    def texts_of(self, objects: Iterable[Object]) -> dict[str, str]:
        """The values of datasets for people, and of their attributes, by their places."""
        found = {}
        for one in objects:
            values = self.of_dataset(one.dataset) if one.dataset is not None else {}
            found[one.path] = value_text(values.get(""))
            for name, attribute in one.attributes.items():
                found[f"{one.path}@{name}"] = self.text_of(attribute)
        return found

    def of_dataset(self, dataset: Dataset) -> dict[str, Array]:
        """All of a dataset; nothing if it holds nothing (a null dataspace)."""
        dims = dataset.space.dims
        if dims is None:
            return {}
        return self.decoded(self._read(dataset, 0, dims[0] if dims else 1), dataset.type, dims)

    def of_rows(self, dataset: Dataset, first: int, last: int) -> dict[str, Array]:
        """The rows from `first` to before `last` of a dataset with at least one axis."""
        assert dataset.space.dims
        shape = (last - first, *dataset.space.dims[1:])
        return self.decoded(self._read(dataset, first, last), dataset.type, shape)

    def decoded(self, data: bytes, datatype: Datatype, shape: tuple[int, ...]) -> dict[str, Array]:
        """The elements in `data`, by the names of a compound's members; else by ""."""
        require_no_lists(datatype)
        return self._elements.decode(datatype, data, shape)

    def raw_rows(self, dataset: Dataset, first: int, last: int) -> bytes:
        """The bytes of some rows behind the filters or, of a filter not known here, before them."""
        known = {DEFLATE, SHUFFLE, FLETCHER32, LZF}
        if any(step.number not in known for step in dataset.filters):
            return self._raw_chunks(dataset, first, last)
        return self._read(dataset, first, last)

    def _raw_chunks(self, dataset: Dataset, first: int, last: int) -> bytes:
        """Chunks as they are stored; equal bytes under equal filters are equal data."""
        require_here(dataset)
        side, parts = dataset.layout.chunk[0], [repr(dataset.filters).encode()]
        for chunk in sorted(dataset.chunks, key=lambda it: it.start):
            if first <= chunk.start[0] < last or chunk.start[0] < first < chunk.start[0] + side:
                stored = self._file.read(chunk.address, chunk.size)
                parts += [repr((chunk.start, chunk.mask, chunk.size)).encode(), stored]
        return b"".join(parts)

    def resolved(self, data: bytes, datatype: Datatype) -> bytes:
        """Elements with what they point to in their place, so that they can be compared."""
        return self._elements.resolved(datatype, data)

    def portable(self, data: bytes, datatype: Datatype) -> bytes:
        """Elements of any type as bytes that mean the same in every file, as far as can be."""
        try:
            return self.resolved(data, datatype)
        except (Damaged, Unsupported):
            return data

    def lists(self, data: bytes, datatype: Datatype) -> Iterator[tuple[int, bytes]]:
        """The length and the bytes of each text or list that `data` points to."""
        return self._elements.lists(datatype, data)

    def _read(self, dataset: Dataset, first: int, last: int) -> bytes:
        """The bytes of some rows, through the filters, which are verified where they can be."""
        require_here(dataset)
        dims = dataset.space.dims or (1,)
        row_bytes = math.prod(dims[1:]) * dataset.type.size
        size = (last - first) * row_bytes
        if size > MOST_VALUE_BYTES:
            raise Unsupported(f"{size:,} bytes at once")
        return read_rows(self._file, dataset, range(first, last)).tobytes()


def read_rows(
    file: Hdf5File, dataset: Dataset, rows: range, chunks: Iterable[Chunk] | None = None
) -> Array:
    """The bytes of some rows; `chunks` are all that may have any of them, unless all may."""
    inner = (dataset.space.dims or ())[1:]
    row_bytes = math.prod(inner) * dataset.type.size
    if dataset.layout.storage is Storage.CHUNKED:
        return _read_chunked(file, dataset, rows, dataset.chunks if chunks is None else chunks)
    if (start := start_of(dataset)) is None:
        return np.frombuffer(fill_bytes(dataset, len(rows) * row_bytes), np.uint8)
    data = file.read(start + rows.start * row_bytes, len(rows) * row_bytes)
    return np.frombuffer(data, np.uint8)


def _read_chunked(file: Hdf5File, dataset: Dataset, rows: range, chunks: Iterable[Chunk]) -> Array:
    dims, sides, size = dataset.space.dims or (), dataset.layout.chunk, dataset.type.size
    there = [c for c in chunks if c.start[0] < rows.stop and c.start[0] + sides[0] > rows.start]
    found: Array = np.empty((len(rows), *dims[1:], size), np.uint8)
    if len({chunk.start for chunk in there}) < _chunks_of(rows, dims, sides):
        found[...] = np.frombuffer(fill_bytes(dataset, size), np.uint8)
    for chunk in there:
        block = np.frombuffer(read_chunk(file, dataset, chunk), np.uint8).reshape(*sides, size)
        place, part = overlap(chunk.start, sides, dims, rows)
        found[place] = block[part]
    return found.reshape(-1)


def _chunks_of(rows: range, dims: tuple[int, ...], sides: tuple[int, ...]) -> int:
    """How many chunks some rows are in."""
    bands = -(-rows.stop // sides[0]) - rows.start // sides[0]
    return bands * math.prod(-(-dim // side) for dim, side in zip(dims[1:], sides[1:], strict=True))
