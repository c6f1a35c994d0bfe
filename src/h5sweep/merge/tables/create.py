"""Create the datasets and attributes of a merged file, and check that they are as intended."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...disk.h5py_loader import h5py, writing
from ...errors import DamagedError, UsageError
from ...hdf5.tree import Dataset
from .input_structure import AttributeValue
from .pack_chunks import THREADS
from .pieces import TablesFile, as_objects
from .rows import library_rows
from .schema import MergedColumn, MergedSchema, Mode
from .types import holds_objects, type_of

_h5d, _h5p, _h5s = h5py.h5d, h5py.h5p, h5py.h5s
LARGEST_CACHE_BYTES = 256 << 20


@contextmanager
def created(path: Path, schema: MergedSchema) -> Iterator[TablesFile]:
    """Add all datasets to the file at `path`, with room for their data, and hold it open."""
    with writing(path, libver=("earliest", "latest")) as written:
        file = written.file
        for column in schema.columns:
            _create_dataset(file, column)
        for name, (dataset, data) in schema.scales.items():
            _write_scale(file, name, dataset, data)
        _write_attributes(file, schema)
        for name, axes in schema.axes.items():
            for number, axis in enumerate(axes):
                for scale in axis:
                    file[name].dims[number].attach_scale(file[scale])
        file.flush()
        written.require_written()
        # A full disk shows now, and what is allocated at once is written faster.
        os.posix_fallocate(written.descriptor, 0, max(file.id.get_filesize(), 1))
        with ThreadPoolExecutor(THREADS) as executor:
            yield TablesFile(
                file, written.descriptor, schema.columns, written.require_written, executor
            )


@contextmanager
def reopened(path: Path, schema: MergedSchema) -> Iterator[TablesFile]:
    """The file as it is on disk now; DamagedError if something in it is not as it should be."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            for column in schema.columns:
                _require_dataset(file, column)
            for name, (_, data) in schema.scales.items():
                if library_rows(file[name], range(len(file[name]))).tobytes() != data:
                    raise not_as_written(name)
            for name, axes in schema.axes.items():
                if _read_axes(file[name]) != axes:
                    raise not_as_written(f"an axis of {name}")
            for place, attributes in schema.attributes.of.items():
                _require_attributes(file[place], place, attributes)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield TablesFile(file, descriptor, schema.columns)
            finally:
                os.close(descriptor)
    except (KeyError, OSError, RuntimeError) as error:
        if isinstance(error, DamagedError):
            raise
        raise not_as_written(f"{path.name} ({error})") from error


def not_as_written(what: str) -> DamagedError:
    return DamagedError(
        f"{what} does not read back as it was written: the disk or the memory of this machine may "
        "be failing. The inputs are unchanged; run the same command again, perhaps on another "
        "disk"
    )


# Datasets ----------------------------------------------------------------------------------------


def _create_dataset(file: Any, column: MergedColumn) -> None:
    group, _, name = column.path.rpartition("/")
    parent = file.require_group(group or "/")
    if name in parent:
        raise UsageError(
            f"{column.path} is a column in some inputs and something else in others: merge these "
            "separately"
        )
    shape = limits = column.shape
    properties, access = _h5p.create(_h5p.DATASET_CREATE), None
    _set_fill(properties, column)
    if column.chunk:
        most = column.most_rows
        limits = (_h5s.UNLIMITED if most is None else max(most, shape[0]), *column.inner)
        _set_chunks(properties, column)
        access = _cache_for(column)
    elif column.mode is Mode.BYTES:
        # Every byte is written by us: filling the space first would write it twice.
        properties.set_alloc_time(_h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(_h5d.FILL_TIME_NEVER)
    space = _h5s.create_simple(shape, limits)
    try:
        _h5d.create(parent.id, name.encode(), column.type, space, properties, None, access)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"{column.path} cannot be created: {error}") from error


def _set_chunks(properties: Any, column: MergedColumn) -> None:
    properties.set_chunk(column.chunk)
    for step in column.filters:
        flags = h5py.h5z.FLAG_OPTIONAL if step.is_optional else h5py.h5z.FLAG_MANDATORY
        properties.set_filter(step.number, flags, step.values)


def _cache_for(column: MergedColumn) -> Any:
    """Room for a row of chunks, so that each is packed once."""
    sides = zip(column.inner, column.chunk[1:], strict=True)
    per_row = math.prod(-(-dim // side) for dim, side in sides)
    size = math.prod(column.chunk) * int(column.type.get_size()) * per_row
    access = _h5p.create(_h5p.DATASET_ACCESS)
    access.set_chunk_cache(10_007, min(max(2 * size, 1 << 20), LARGEST_CACHE_BYTES), 1.0)
    return access


def _set_fill(properties: Any, column: MergedColumn) -> None:
    """Keep a fill value that NumPy can hold; those of texts and objects have no meaning here."""
    if column.fill is None or holds_objects(column.type):
        return
    if column.type.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        dtype = column.type.dtype
        if dtype.itemsize == len(column.fill):
            properties.set_fill_value(np.frombuffer(column.fill, dtype)[0:1].reshape(()))


def _require_dataset(file: Any, column: MergedColumn) -> None:
    dataset = file[column.path]
    is_right = (
        isinstance(dataset, h5py.Dataset)
        and dataset.shape == column.shape
        and dataset.id.get_type() == column.type
    )
    if not is_right:
        raise not_as_written(column.path)


# Axes --------------------------------------------------------------------------------------------


def _write_scale(file: Any, name: str, dataset: Dataset, data: bytes) -> None:
    """Copy a dataset that is the same in all files, and stands for an axis of columns."""
    group, _, last = name.rpartition("/")
    parent = file.require_group(group or "/")
    type_, shape = type_of(dataset.type), dataset.space.dims or ()
    made = _h5d.create(parent.id, last.encode(), type_, _h5s.create_simple(shape))
    if data:
        values = np.array(np.frombuffer(data, f"V{type_.get_size()}").reshape(shape))
        made.write(_h5s.ALL, _h5s.ALL, values, type_)


def _read_axes(dataset: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(scale.name for scale in axis.values()) for axis in dataset.dims)


# Attributes --------------------------------------------------------------------------------------


def _write_attributes(file: Any, schema: MergedSchema) -> None:
    for place, attributes in schema.attributes.of.items():
        if place not in file:
            file.create_group(place)
        for name, value in attributes.items():
            if name not in file[place].attrs:
                _write_attribute(file[place].id, name, value)


def _write_attribute(target: Any, name: str, value: AttributeValue) -> None:
    if value.dims is None:
        h5py.h5a.create(target, name.encode(), value.type, _h5s.create(_h5s.NULL))
        return
    space = _h5s.create_simple(value.dims) if value.dims else _h5s.create(_h5s.SCALAR)
    attribute = h5py.h5a.create(target, name.encode(), value.type, space)
    if not np.prod(value.dims):
        return
    if isinstance(value.data, bytes):
        data = np.frombuffer(value.data, f"V{value.type.get_size()}").reshape(value.dims)
        attribute.write(np.array(data), mtype=value.type)
    else:
        attribute.write(as_objects(value.data, value.type).reshape(value.dims))


def _require_attributes(target: Any, place: str, attributes: Mapping[str, AttributeValue]) -> None:
    for name, value in attributes.items():
        if name not in target.attrs or not _read_attribute(target.id, name).equals(value):
            raise not_as_written(f"the attribute {name} of {place}")


def _read_attribute(target: Any, name: str) -> AttributeValue:
    attribute = h5py.h5a.open(target, name.encode())
    type_, space = attribute.get_type(), attribute.get_space()
    if space.get_simple_extent_type() == _h5s.NULL:
        return AttributeValue(type_, None, b"")
    dims = attribute.shape
    if holds_objects(type_):
        data = np.empty(dims, type_.dtype)
        if data.size:
            attribute.read(data)
        return AttributeValue(type_, dims, data.reshape(-1))
    raw = np.empty(dims, f"V{type_.get_size()}")
    if raw.size:
        attribute.read(raw, mtype=type_)
    return AttributeValue(type_, dims, raw.tobytes())
