"""Rows of a dataset in any storage: unpacked, put together, filled where nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...base.values import Array
from ...disk.h5py_loader import h5py
from ...hdf5.chunks import Chunk
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.file import Hdf5File
from ...hdf5.read_data import MOST_CHUNK_BYTES
from ...hdf5.tree import Dataset
from ...worker_files.read_file import can_be_proven
from ...worker_files.read_values import read_rows
from .types import is_kept_elsewhere, read_elsewhere

STEP_BYTES = 4 << 20


class RowReader:
    """Reads rows of one dataset of an open file.

    Filters that our own reader does not know are left to the HDF5 library, which is given `sound`,
    the path of the file, only if nothing was found wrong with it.
    """

    def __init__(
        self, file: Hdf5File, path: str, dataset: Dataset, sound: Path | None = None
    ) -> None:
        self._file, self._path, self._dataset = file, path, dataset
        self.row_bytes = math.prod((dataset.space.dims or ())[1:]) * dataset.type.size
        self._chunks: dict[int, list[Chunk]] = {}
        for chunk in dataset.chunks:
            self._chunks.setdefault(chunk.start[0], []).append(chunk)
        self._sound = sound
        self._needs_library = not can_be_proven(dataset, slowly=sound is None)

    def steps(self, start: int = 0, stop: int | None = None) -> Iterator[range]:
        """All rows, or those from `start` to `stop`, a few megabytes at a time, in whole chunks."""
        rows = (self._dataset.rows or 0) if stop is None else stop
        side = self._dataset.layout.chunk[0] if self._dataset.layout.chunk else 1
        step = max(STEP_BYTES // max(self.row_bytes, 1) // side, 1) * side
        for first in range(start // step * step, rows, step):
            yield range(max(first, start), min(first + step, rows))

    def read(self, rows: range) -> Array:
        """The elements of these rows as bytes, or as objects if they are of any length."""
        try:
            if self._needs_library:
                return self._ask_library(rows)
            data = self._read(rows)
            if is_kept_elsewhere(self._dataset.type):
                return read_elsewhere(self._file, self._dataset.type, data.tobytes())
        except Damaged as error:
            raise Damaged(f"{self._path}: rows {_span(rows)} cannot be read: {error}") from error
        return data

    def _read(self, rows: range) -> Array:
        side = self._dataset.layout.chunk[0] if self._dataset.layout.chunk else 1
        firsts = range(rows.start // side * side, rows.stop, side) if self._chunks else ()
        chunks = (chunk for first in firsts for chunk in self._chunks.get(first, ()))
        return read_rows(self._file, self._dataset, rows, chunks)

    def _ask_library(self, rows: range) -> Array:
        names = ", ".join(step.name or str(step.number) for step in self._dataset.filters)
        if self._sound is None:
            raise Unsupported(f"filters ({names}) in a file that was not closed")
        try:
            with h5py.File(self._sound, "r", locking=False) as file:
                dataset = file[self._path]
                if is_kept_elsewhere(self._dataset.type):
                    return read_objects(dataset, rows)
                return read_raw(dataset, rows)
        except (OSError, RuntimeError) as error:
            raise Unsupported(f"filters ({names}) that are not installed ({error})") from error


def read_raw(dataset: Any, rows: range) -> Array:
    """Rows of a dataset as the bytes of its type, by the HDF5 library."""
    type_, inner = dataset.id.get_type(), dataset.shape[1:]
    found = np.empty((len(rows), *inner), f"V{type_.get_size()}")
    space = dataset.id.get_space()
    space.select_hyperslab((rows.start, *(0 for _ in inner)), found.shape)
    if found.size:
        dataset.id.read(h5py.h5s.create_simple(found.shape), space, found, type_)
    return found.reshape(-1).view(np.uint8)


def read_objects(dataset: Any, rows: range) -> Array:
    """Rows of a dataset of texts, as bytes, or of sequences, by the HDF5 library."""
    found: Array = dataset[rows.start : rows.stop]
    return found.reshape(-1)


def is_too_large(dataset: Dataset) -> bool:
    """Whether its chunks are larger than what is read at once."""
    size = math.prod(dataset.layout.chunk) * dataset.type.size
    return max([size, *(chunk.size for chunk in dataset.chunks)]) > MOST_CHUNK_BYTES


def _span(rows: range) -> str:
    return f"{rows.start:,} to {rows.stop - 1:,}"
