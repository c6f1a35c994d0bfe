"""Write an output as netCDF-4 with CF, so that every HDF5 reader opens it.

Bulk numbers are written by `os.pwrite` into space that HDF5 allocated, which is faster than through
the library; whatever is written is read back before it counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.attribute_json import Attributes
from ..base.plan import Plan
from ..base.values import STR, Array
from ..disk import durable
from ..disk.h5py_loader import h5py, writing
from .cf_attributes import attribute_values, column_attributes, set_attributes
from .columns import ColumnLayout, DataColumn, stored_dtype
from .dimensions import Dimensions
from .reader import BARE_DIMENSION, BOOKKEEPING

CHUNK_BYTES = 512 << 10
LIBRARY_ROWS = 1 << 16  # at a time: the library copies texts before it writes them
_KEY_DTYPES = {"int": "<i8", "float": "<f8", "bool": "|b1", "str": STR}


class OutputWriter:
    """A new output being written; it counts for nothing before it was synced and read back."""

    def __init__(
        self,
        path: Path,
        columns: Sequence[DataColumn],
        dimensions: Dimensions,
        coordinates: Mapping[str, DataColumn],
        *,
        compress: bool,
    ) -> None:
        self.compress = compress
        self._opened = writing(path, libver=("earliest", "v110"), track_order=True)
        self._written = self._opened.__enter__()
        self._file = self._written.file
        self._raw = self._written.descriptor
        self._dimensions = dimensions
        self._raw_offsets: dict[str, int] = {}
        self._datasets: dict[str, Any] = {}
        self._scales: dict[str, Any] = {}
        self._columns, self._axes = columns, coordinates
        self._coordinates = ""

    def __enter__(self) -> OutputWriter:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._opened.__exit__(*raised)

    def write_attributes(self, attributes: Mapping[str, str | int]) -> None:
        """Describe the whole output."""
        set_attributes(self._file, attributes)

    def create_columns(
        self, plan: Plan, attributes: Attributes | None = None, dtypes: Mapping[str, str] = {}
    ) -> None:
        """Lay out all columns: space is allocated, nothing is in it yet.

        `attributes` are what is said of parameters and of results, by their names; `dtypes` those
        of bookkeeping that are not as usual.
        """
        given = attributes or {}
        self._coordinates = " ".join(plan.names)
        self._create("task", "<i8", ("task",), {"long_name": "number of the task in the plan"})
        for dimension, size in self._dimensions.sizes.items():
            if dimension in self._axes:
                self._create_coordinate(dimension, given)
            elif dimension != "task":
                self._create_dimension(dimension, size)
        for key in plan.columns:
            about = {"dtype": "bool"} if key.type == "bool" else {}
            about = {**attribute_values(given.get(key.name, {})), **about}
            self._create(key.name, _KEY_DTYPES[key.type], ("task",), about)
        for column in self._columns:
            self._create_column(column, given.get(column.source_name, {}))
        for name, (dtype, about) in BOOKKEEPING.items():
            about = {**about, "coordinates": self._coordinates}
            self._create(name, dtypes.get(name, dtype), ("task",), about)

    def allocate(self) -> None:
        """Reserve the disk space of all columns, so that a full disk shows now."""
        self._file.flush()
        self._written.require_written()
        os.posix_fallocate(self._raw, 0, max(self._file.id.get_filesize(), 1))
        for name, dataset in self._datasets.items():
            offset = dataset.id.get_offset()
            if offset is not None and not h5py.check_string_dtype(dataset.dtype):
                self._raw_offsets[name] = offset

    def write_column(self, column: DataColumn, first: int, stored: Array) -> None:
        """Write elements of a data column, from the position `first` along its first axis on."""
        if stored.size:
            self.write(column.name, first, stored.reshape(-1, *column.inner))

    def write(self, name: str, first: int, values: Array) -> None:
        """Write `values` into a dataset, from the position `first` along its first axis on."""
        if not values.size:
            return
        if name not in self._raw_offsets:
            self._write_by_library(name, first, values)
            return
        row_bytes = values.nbytes // len(values)
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        durable.write_all(self._raw, data, self._raw_offsets[name] + first * row_bytes)

    def _write_by_library(self, name: str, first: int, values: Array) -> None:
        for start in range(0, len(values), LIBRARY_ROWS):
            piece = values[start : start + LIBRARY_ROWS]
            place = first + start
            self._datasets[name][place : place + len(piece)] = piece
            self._written.require_written()

    def write_failures(self, table: Mapping[str, Array]) -> None:
        """Write the group /failures, one row a failed task."""
        group = self._file.create_group("failures", track_order=True)
        count = len(table["task"])
        scale = group.create_dataset("failure", (count,), ">f4")
        scale.make_scale(BARE_DIMENSION.format(count))
        for name, values in table.items():
            dtype = h5py.string_dtype() if values.dtype == object else values.dtype
            dataset = group.create_dataset(name, data=values, dtype=dtype)
            dataset.dims[0].attach_scale(scale)
            if values.dtype == np.int8:
                set_attributes(dataset, {"dtype": "bool"})
        set_attributes(group["finished_at"], BOOKKEEPING["finished_at"][1])
        set_attributes(group["duration_s"], BOOKKEEPING["duration_s"][1])

    def write_provenance(self, texts: Mapping[str, bytes]) -> None:
        """Write the group /provenance, one text for each thing known about the sweep."""
        group = self._file.create_group("provenance", track_order=True)
        for name, text in texts.items():
            group.create_dataset(name, data=text, dtype=h5py.string_dtype())

    def _create_dimension(self, name: str, size: int) -> None:
        scale = self._file.create_dataset(name, (size,), ">f4")
        scale.make_scale(BARE_DIMENSION.format(size))
        self._scales[name] = scale

    def _create_coordinate(self, name: str, given: Attributes) -> None:
        """The coordinates of an axis, with what is said of the axis and of their own column."""
        column = self._axes[name]
        about = {**given.get(column.source_name, {}), **given.get(name, {})}
        said = {n: v for n, v in column_attributes(column).items() if not n.startswith("h5sweep_")}
        self._create(name, column.dtype, (name,), {**attribute_values(about), **said})

    def _create_column(self, column: DataColumn, given: Mapping[str, Any]) -> None:
        attributes = {**attribute_values(given), **column_attributes(column)}
        if column.layout is ColumnLayout.FIXED:
            attributes["coordinates"] = self._coordinates
            dims = ("task", *column.dims)
        else:
            dims = column.dims
            self._create_counts(column)
        self._create(column.name, column.dtype, dims, attributes)

    def _create_counts(self, column: DataColumn) -> None:
        if column.count_name not in self._file:
            about = {"sample_dimension": column.dims[0], "coordinates": self._coordinates}
            self._create(column.count_name, "<i8", ("task",), about)
        if column.shape_name:
            about = {"coordinates": self._coordinates}
            self._create(column.shape_name, "<i8", ("task", column.axis_dim), about)

    def _create(
        self, name: str, dtype: str, dims: Sequence[str], attributes: Mapping[str, Any]
    ) -> None:
        shape = tuple(self._dimensions.sizes[dimension] for dimension in dims)
        dataset = _create_dataset(self._file, name, dtype, shape, compress=self.compress)
        self._datasets[name] = dataset
        set_attributes(dataset, attributes)
        if tuple(dims) == (name,):
            dataset.make_scale(name)
            self._scales[name] = dataset
            return
        for axis, dimension in enumerate(dims):
            dataset.dims[axis].attach_scale(self._scales[dimension])


def key_column(plan: Plan, name: str, tasks: Array) -> Array:
    """The stored values of one key column for these tasks; text as bytes objects."""
    column = next(column for column in plan.columns if column.name == name)
    dtype = stored_dtype(_KEY_DTYPES[column.type])
    distinct = np.empty(len(column.values), dtype)
    distinct[:] = [v.encode() if isinstance(v, str) else v for v in column.values]
    codes = np.frombuffer(column.codes, np.uint32) if len(column.codes) else np.empty(0, np.uint32)
    return distinct.take(codes.take(tasks))


def _create_dataset(
    group: Any, name: str, dtype: str, shape: tuple[int, ...], *, compress: bool
) -> Any:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if dtype == STR:
        return group.create_dataset(name, shape, h5py.string_dtype(), dcpl=properties)
    stored = stored_dtype(dtype)
    fill = stored.type(np.nan) if stored.kind in "fc" else None
    if compress and np.prod(shape):
        return group.create_dataset(
            name,
            shape,
            stored,
            chunks=_chunks(shape, stored.itemsize),
            compression="gzip",
            compression_opts=4,
            shuffle=True,
            fletcher32=True,
            fillvalue=fill,
        )
    # Every byte is written by us: filling the space first would write it twice.
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return group.create_dataset(name, shape, stored, dcpl=properties, fillvalue=fill)


def _chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """About CHUNK_BYTES: as many whole rows as fit, or a piece of one."""
    chunks = list(shape)
    for axis in range(len(shape)):
        rest_bytes = int(np.prod(chunks[axis + 1 :])) * itemsize
        chunks[axis] = max(1, min(shape[axis], CHUNK_BYTES // rest_bytes))
        if chunks[axis] > 1:
            break
    return tuple(chunks)
