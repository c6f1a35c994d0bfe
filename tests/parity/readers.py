"""What an output holds, read with h5py alone, for comparison with what went in."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np

from check_samples import set_flags

# A refusal says what to do.
NEXT_STEP = re.compile(r"--[a-z]|h5sweep [a-z]|rename|leave|move|remove|put|give|correct", re.I)
# What every output of a sweep has besides keys and results.
OURS = {"task", "duration_s", "finished_at", "row_crc32", "code"}
# What refers to other objects, or counts what is beside it.
OF_ITS_PLACE = {"DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "NROWS"}


def rows_of(output: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows of a sweep's output, by their keys."""
    with h5py.File(output) as file:
        names = text_of(file.attrs["h5sweep_key"]).split()
        columns = {name: _column(file, name) for name in _columns(file)}
        keys = list(zip(*(columns.pop(name) for name in names), strict=True))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return dict(zip(keys, rows, strict=True))


def _columns(file: Any) -> list[str]:
    datasets = {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}
    counts = {name for name, item in datasets.items() if "sample_dimension" in item.attrs}
    axes = {name for name, item in datasets.items() if _is_bare_axis(item)}
    return [name for name in datasets if name not in OURS | counts | axes]


def _is_bare_axis(item: Any) -> bool:
    return text_of(item.attrs.get("NAME", "")).startswith("This is a netCDF dimension")


def _column(file: Any, name: str) -> list[Any]:
    """A value for each task; of a ragged array, the rows of each."""
    item = file[name]
    values = item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()]
    counts = _counts(file, item)
    if counts is not None:
        return np.split(values, np.cumsum(counts)[:-1])
    return values.tolist() if values.ndim == 1 else list(values)


def _counts(file: Any, item: Any) -> Any:
    scales = [scale.name.strip("/") for scale in item.dims[0].values()]
    for other in file.values():
        if text_of(getattr(other, "attrs", {}).get("sample_dimension", "")) in scales:
            return other[()]
    return None


def text_of(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal; texts of whatever kind."""
    if isinstance(one, h5py.Empty) or isinstance(other, h5py.Empty):
        return one == other
    one, other = _plain(one), _plain(other)
    if one.shape != other.shape:
        return False
    is_number = one.dtype.kind in "fc" and other.dtype.kind in "fc"
    return bool(np.array_equal(one, other, equal_nan=is_number))


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "SO":
        return np.vectorize(text_of, otypes=[object])(array) if array.size else array.astype(object)
    return array.astype(object) if array.dtype.kind == "U" else array


def objects_of(path: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every group (None) and dataset (its values) of a file, and the attributes of each."""
    try:
        with h5py.File(path, locking=False) as file:
            return _objects(file)
    except OSError:  # its writer did not close it
        with TemporaryDirectory() as folder:
            closed = Path(shutil.copy(path, folder))
            set_flags(closed, 0)
            return objects_of(closed)


def _objects(file: Any) -> dict[str, tuple[Any, dict[str, Any]]]:
    found = {"": (None, _attributes(file))}

    def visit(name: str) -> None:
        item = file[name]
        value = item[()] if isinstance(item, h5py.Dataset) else None
        found[f"/{name}"] = value, _attributes(item)

    file.visit_links(visit)
    return found


def _attributes(item: Any) -> dict[str, Any]:
    return {name: item.attrs[name] for name in item.attrs if name not in OF_ITS_PLACE}


@functools.lru_cache(maxsize=4)
def _output_objects(output: Path, modified_ns: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    return objects_of(output)


def lacks(output: Path, path: Path) -> list[str]:
    """What of a worker file is not in an output that keeps its shape, at no place it may be at.

    A dataset is at its own path, in a group with the name of its file, or in the rows of a column.
    """
    there = _output_objects(output, output.stat().st_mtime_ns)
    found = []
    for name, (value, attributes) in objects_of(path).items():
        spots = [spot for spot in (name, f"/{path.stem}{name}") if spot in there]
        if not any(_is_in(value, there[spot][0]) for spot in spots):
            found.append(name)
        for attribute, mine in attributes.items():
            if not any(is_same(mine, there[spot][1].get(attribute)) for spot in spots):
                found.append(f"{name}@{attribute}")
    return found


def _is_in(value: Any, whole: Any) -> bool:
    if value is None or whole is None:
        return value is whole
    if is_same(value, whole):
        return True
    if not np.ndim(value) or np.ndim(value) != np.ndim(whole) or len(whole) < len(value):
        return False
    starts = range(len(whole) - len(value) + 1)
    return any(is_same(value, whole[start : start + len(value)]) for start in starts)
