"""Rows of a dataset in any storage: unpacked, put together, filled where nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...base.values import Array
from ...disk.h5py_loader import h5py
from ...hdf5.chunks import Chunk
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.tree import Dataset
from ...worker_files.decode_elements import Elements
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout
from ...worker_files.read_file import can_be_proven
from ...worker_files.read_values import read_rows
from .types import holds_objects, is_kept_elsewhere, read_elsewhere

STEP_BYTES = 4 << 20


class RowReader:
    """Reads rows of one dataset of an open input.

    Filters that our own reader does not know are left to the HDF5 library, but only in files with
    which nothing was found wrong.
    """

    def __init__(self, one: Input, layout: FileLayout, path: str, dataset: Dataset) -> None:
        self._input, self._file = one, layout.tree.file
        self._path, self._dataset = path, dataset
        self._elements = Elements(self._file)
        self._row_bytes = math.prod((dataset.space.dims or ())[1:]) * dataset.type.size
        self._side = dataset.layout.chunk[0] if dataset.layout.chunk else 1
        self._chunks: dict[int, list[Chunk]] = {}
        for chunk in dataset.chunks:
            self._chunks.setdefault(chunk.start[0], []).append(chunk)
        self._needs_library = not can_be_proven(dataset, slowly=one.is_suspect)

    def steps(self, start: int = 0, stop: int | None = None) -> Iterator[range]:
        """All rows, or those from `start` to `stop`, a few megabytes at a time, in whole chunks."""
        rows = (self._dataset.rows or 0) if stop is None else stop
        step = max(STEP_BYTES // max(self._row_bytes, 1) // self._side, 1) * self._side
        for first in range(start // step * step, rows, step):
            yield range(max(first, start), min(first + step, rows))

    def read(self, rows: range) -> Array:
        """The elements of these rows as bytes, or as objects if they are of any length."""
        try:
            if self._needs_library:
                return self._ask_library(rows)
            firsts = range(rows.start // self._side * self._side, rows.stop, self._side)
            chunks = (chunk for first in firsts for chunk in self._chunks.get(first, ()))
            data = read_rows(self._file, self._dataset, rows, chunks)
            if is_kept_elsewhere(self._dataset.type):
                return read_elsewhere(self._elements, self._dataset.type, data.tobytes())
        except Damaged as error:
            span = f"{rows.start:,} to {rows.stop - 1:,}"
            raise Damaged(f"{self._path}: rows {span} cannot be read: {error}") from error
        return data

    def _ask_library(self, rows: range) -> Array:
        names = ", ".join(step.name or str(step.number) for step in self._dataset.filters)
        if self._input.is_suspect:
            raise Unsupported(f"filters ({names}) in a file that was not closed")
        try:
            with h5py.File(self._input.path, "r", locking=False) as file:
                return library_rows(file[self._path], rows)
        except (OSError, RuntimeError) as error:
            raise Unsupported(f"filters ({names}) that are not installed ({error})") from error


def library_rows(dataset: Any, rows: range) -> Array:
    """The same by the HDF5 library, of a dataset that it has open."""
    type_, inner = dataset.id.get_type(), dataset.shape[1:]
    if holds_objects(type_):
        found: Array = dataset[rows.start : rows.stop]
        return found.reshape(-1)
    raw = np.empty((len(rows), *inner), f"V{type_.get_size()}")
    space = dataset.id.get_space()
    space.select_hyperslab((rows.start, *(0 for _ in inner)), raw.shape)
    if raw.size:
        dataset.id.read(h5py.h5s.create_simple(raw.shape), space, raw, type_)
    return raw.reshape(-1).view(np.uint8)
