"""Every byte of a dataset, read in the child: plainly where nothing is to be verified, else
through the library, chunk by chunk. Says of a chunk that fails what became of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..disk.h5py_loader import h5py, is_elsewhere
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import Filter
from ..hdf5.read_data import fate_of_chunk, prove_filtered

STEP_BYTES = 8 << 20
MOST_CHUNK_BYTES = 256 << 20
MOST_FAULTS = 20
# Before, the library gave the addresses of chunks without the user block in front of the file.
_COUNTS_USER_BLOCK = h5py.version.hdf5_version_tuple >= (1, 14, 4)


def read_dataset(dataset: Any) -> Iterator[dict[str, Any]]:
    """Read all data; yield what is wrong, or could not be looked at."""
    if dataset.id.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        return
    settings = dataset.id.get_create_plist()
    if is_elsewhere(dataset):
        yield {"note": "its data are in other files, which were not read"}
        return
    filters = [settings.get_filter(number)[0] for number in range(settings.get_nfilters())]
    missing = [number for number in filters if not h5py.h5z.filter_avail(number)]
    if missing:
        yield {"filter": missing[0]}
        return
    if dataset.chunks is None:
        yield from _read_whole(dataset)
    else:
        yield from _Chunks(dataset, filters).read()


def _read_whole(dataset: Any) -> Iterator[dict[str, Any]]:
    offset, size = dataset.id.get_offset(), dataset.id.get_storage_size()
    if offset is not None and size:
        yield from _read_plain(_descriptor(dataset), offset, size)
    if offset is not None and not _is_plain(dataset):
        _read_slabs(dataset)


def _is_plain(dataset: Any) -> bool:
    """Whether an element is its bytes, or a reference, which it proves nothing to follow."""
    datatype = dataset.id.get_type()
    if datatype.detect_class(h5py.h5t.REFERENCE):
        return True
    return not dataset.dtype.hasobject


def _descriptor(dataset: Any) -> int:
    """The file as the library has it open: no other can be opened here (`sealed`)."""
    descriptor: int = dataset.file.id.get_vfd_handle()
    return descriptor


def _read_plain(descriptor: int, offset: int, size: int) -> Iterator[dict[str, Any]]:
    """Read bytes that have no checksum: only the disk, or the end of the file, can be wrong."""
    done = 0
    buffer = bytearray(min(STEP_BYTES, size))
    while done < size:
        view = memoryview(buffer)[: size - done]
        count = os.preadv(descriptor, [view], offset + done)
        if not count:
            yield {"kind": "beyond", "missing": size - done}
            return
        done += count


def _read_slabs(dataset: Any) -> None:
    """Read elements that point elsewhere, some at a time; raises what the library raises."""
    if dataset.shape == ():
        dataset[()]
        return
    row = max(math.prod(dataset.shape[1:]), 1)
    step = max(65536 // row, 1)
    for first in range(0, dataset.shape[0], step):
        dataset[first : first + step]


class _Chunks:
    """The chunks of one dataset."""

    def __init__(self, dataset: Any, filters: list[int]) -> None:
        self.descriptor = _descriptor(dataset)
        self.dataset = dataset
        self.filters = filters
        self.file_size = os.fstat(self.descriptor).st_size
        self.chunk_bytes = math.prod(dataset.chunks) * dataset.id.get_type().get_size()

    def read(self) -> Iterator[dict[str, Any]]:
        chunks: list[Any] = []
        self.dataset.id.chunk_iter(chunks.append)
        base = 0 if _COUNTS_USER_BLOCK else self.dataset.file.userblock_size
        beyond = [c for c in chunks if base + c.byte_offset + c.size > self.file_size]
        if beyond:
            first = min(c.byte_offset for c in beyond)
            yield {"kind": "chunk-beyond", "address": first, "count": len(beyond)}
            return
        if self.chunk_bytes > MOST_CHUNK_BYTES:
            yield {"note": f"chunks of {self.chunk_bytes:,} bytes were not read"}
            return
        plain = _is_plain(self.dataset)
        if not self.filters and plain:
            for start, size in _joined(chunks):
                yield from _read_plain(self.descriptor, base + start, size)
        elif not plain:
            _read_slabs(self.dataset)
        else:
            yield from self.read_filtered(chunks, base)

    def read_filtered(self, chunks: list[Any], base: int) -> Iterator[dict[str, Any]]:
        """Through the library, at the places where it says that chunks are."""
        faults = 0
        buffer = np.empty(self.dataset.chunks, self.dataset.dtype)
        for chunk in chunks:
            ends = zip(chunk.chunk_offset, self.dataset.chunks, self.dataset.shape, strict=True)
            shape = tuple(min(side, length - start) for start, side, length in ends)
            if faults >= MOST_FAULTS or min(shape) <= 0:
                continue
            try:
                self._read_into(buffer, chunk.chunk_offset, shape)
            except OSError as error:
                faults += 1
                yield self._explain(chunk, base, error)

    def _read_into(self, buffer: Any, start: Any, shape: Any) -> None:
        space = self.dataset.id.get_space()
        space.select_hyperslab(start, shape)
        memory = h5py.h5s.create_simple(buffer.shape)
        memory.select_hyperslab((0,) * len(shape), shape)
        self.dataset.id.read(memory, space, buffer)

    def _explain(self, chunk: Any, base: int, error: OSError) -> dict[str, Any]:
        """What became of a chunk that the library cannot read."""
        data = self._raw(base + chunk.byte_offset, self.chunk_bytes + (1 << 16))
        sizes = chunk.size, self.chunk_bytes
        kind = fate_of_chunk(data, self.filters, chunk.filter_mask, sizes)
        why = self._own_words(data[: chunk.size], chunk.filter_mask) or str(error)
        return {"address": chunk.byte_offset, "size": chunk.size, "why": why, "kind": kind}

    def _own_words(self, data: bytes, mask: int) -> str:
        """What our own reader says of a chunk, so that `check` and a merge say the same."""
        steps = [Filter(number, is_optional=False) for number in self.filters]
        try:
            prove_filtered(steps, data, mask, self.dataset.dtype.itemsize, self.chunk_bytes)
        except (Damaged, Unsupported) as error:
            return str(error) if isinstance(error, Damaged) else ""
        return ""

    def _raw(self, offset: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, offset)


def _joined(chunks: list[Any]) -> Iterator[tuple[int, int]]:
    """Stretches of chunks that lie one behind the other."""
    start = end = -1
    for chunk in sorted(chunks, key=lambda chunk: int(chunk.byte_offset)):
        if chunk.byte_offset == end:
            end += chunk.size
            continue
        if start >= 0:
            yield start, end - start
        start, end = chunk.byte_offset, chunk.byte_offset + chunk.size
    if start >= 0:
        yield start, end - start
