"""An output that was opened with xarray, in the shapes that people work with: a grid, a table.

In the output, arrays of different lengths lie one behind the other, and a task that has no result
has no row. A grid has an axis for each parameter, and gaps instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.returned import COORDINATE
from ..base.units import count_text
from ..base.values import Array
from ..errors import UsageError

if TYPE_CHECKING:
    import pandas
    import xarray

_CHECKSUM = "row_crc32"  # of what a row holds, which a cell of a grid does not
_MOST_CELLS = 10_000_000  # of a grid that is nearly empty
_MOST_CELLS_PER_ROW = 100


def to_grid(data: xarray.Dataset) -> xarray.Dataset:
    """The results as arrays with one axis for each parameter, its values sorted.

    Where a task has no result there is NaN (NaT for times, "" for texts), and so behind the end of
    arrays that are shorter than others; ints and bools become floats where that is needed. The
    counts say how long each array is. UsageError if the grid were nearly empty and large, or if
    only some of the rows are in `data`.
    """
    import xarray

    axes, places = _axes(data)
    sizes = tuple(len(values) for values in axes.values())
    _require_dense(axes, len(places))
    variables: dict[str, Any] = {}
    for name, variable in data.variables.items():
        if name in axes or name in ("task", _CHECKSUM):
            continue
        cells = _cells(data, str(name))
        about = _without_ours(variable.attrs)
        if cells is None:
            variables[str(name)] = (variable.dims, variable.values, about)
        else:
            dims, values = cells
            grid = _spread(values, places, math.prod(sizes))
            shape = (*sizes, *values.shape[1:])
            variables[str(name)] = ((*axes, *dims), grid.reshape(shape), about)
    coordinates = {n: (n, v, _without_ours(data[n].attrs)) for n, v in axes.items()}
    others = {n: variables.pop(str(n)) for n in list(data.coords) if str(n) in variables}
    return xarray.Dataset(variables, {**others, **coordinates}, _without_ours(data.attrs))


def to_dataframe(data: xarray.Dataset) -> pandas.DataFrame:
    """One row for each task, by its number: parameters, results, then code and times.

    An array is a NumPy array in its cell, as the task returned it; None if it returned none.
    """
    import pandas

    keys = _key_names(data)
    helpers = {it for v in data.variables.values() for it in map(v.attrs.get, _HELPERS) if it}
    columns: dict[str, Any] = {name: data[name].values for name in keys}
    for name in map(str, data.data_vars):
        if name not in helpers and name not in keys and name != _CHECKSUM:
            column = _column(data, name)
            if column is not None:
                columns[name] = column
    return pandas.DataFrame(columns, index=pandas.Index(data["task"].values, name="task"))


def open_output_file(opened: Any) -> xarray.Dataset:
    """A file, or what reads one, as a dataset. Columns whose times xarray does not have, such as
    the year 10**9, are the numbers that are stored, and their attributes have `_` behind them.
    """
    import xarray

    try:
        return xarray.open_dataset(opened, engine="h5netcdf")
    except (ValueError, OverflowError):
        how: dict[str, Any] = {"decode_times": False, "mask_and_scale": False}
        with xarray.open_dataset(opened, engine="h5netcdf", **how) as raw:
            can = {str(name): _can_decode(variable) for name, variable in raw.variables.items()}
        how = {"decode_times": can, "mask_and_scale": can}
        data = xarray.open_dataset(opened, engine="h5netcdf", **how)
        for name in (name for name, is_time in can.items() if not is_time):
            attributes = data[name].attrs
            for attribute in attributes.keys() & {"units", "calendar", "dtype", "_FillValue"}:
                attributes[f"{attribute}_"] = attributes.pop(attribute)
        return data


def _can_decode(variable: Any) -> bool:
    from xarray.conventions import decode_cf_variable

    try:
        return decode_cf_variable("column", variable).values is not None
    except (ValueError, OverflowError):
        return False


def without_copies_of_axes(data: xarray.Dataset) -> xarray.Dataset:
    """Without the coordinates of each row where the axis has them for all rows."""
    axes = str(data.attrs.get("h5sweep_coords", "")).split()
    names = {axis + COORDINATE for axis in axes} & data.variables.keys()
    return data.drop_vars([name for name in names if data[name].dims[0] == "task"])


def register_accessor() -> None:
    """Let every `xarray.Dataset` have these as methods: `data.h5sweep.to_grid()`."""
    import xarray

    if not hasattr(xarray.Dataset, "h5sweep"):
        xarray.register_dataset_accessor("h5sweep")(_Accessor)  # type: ignore[no-untyped-call]


class _Accessor:
    """What xarray calls an accessor: methods of ours on a dataset."""

    def __init__(self, data: xarray.Dataset) -> None:
        self._data = data

    def to_grid(self) -> xarray.Dataset:
        """See `h5sweep.to_grid`."""
        return to_grid(self._data)

    def to_dataframe(self) -> pandas.DataFrame:
        """See `h5sweep.to_dataframe`."""
        return to_dataframe(self._data)


_HELPERS = ("h5sweep_count", "h5sweep_shape")


def _key_names(data: xarray.Dataset) -> list[str]:
    names = str(data.attrs.get("h5sweep_key", "")).split()
    if not names or "task" not in data.dims:
        raise UsageError("this dataset has no rows of tasks: take one that h5sweep.open has given")
    return names


def _axes(data: xarray.Dataset) -> tuple[dict[str, Array], Array]:
    """The values of each parameter, and where in the grid each row belongs."""
    axes, numbers = {}, []
    for name in _key_names(data):
        axes[name], number = np.unique(data[name].values, return_inverse=True)
        numbers.append(number)
    sizes = tuple(len(values) for values in axes.values())
    rows = data.sizes["task"]
    return axes, np.ravel_multi_index(numbers, sizes) if rows else np.empty(0, np.int64)


def _require_dense(axes: dict[str, Array], rows: int) -> None:
    cells = math.prod(len(values) for values in axes.values())
    if cells > max(_MOST_CELLS, _MOST_CELLS_PER_ROW * rows):
        sizes = " × ".join(f"{name} ({len(values):,})" for name, values in axes.items())
        raise UsageError(
            f"a grid of {sizes} would have {cells:,} cells for {count_text(rows, 'row')}: take "
            "to_dataframe()"
        )


def _cells(data: xarray.Dataset, name: str) -> tuple[tuple[str, ...], Array] | None:
    """A variable with one padded cell for each row, and the names of a cell's axes; None if it has
    nothing to do with rows.
    """
    variable = data.variables[name]
    dims = tuple(map(str, variable.dims))
    if dims[:1] == ("task",):
        return dims[1:], variable.values
    counts = _counts(data, name)
    if counts is None:
        return None
    shapes = _shapes(data, name)
    if shapes is None:
        return dims, _padded(variable.values, counts[:, None], variable.shape[1:])
    sizes = np.where(counts[:, None] > 0, np.where(shapes < 0, 1, shapes), 0)
    axes = tuple(f"{name}_dim{axis}" for axis in range(sizes.shape[1]))
    return axes, _padded(variable.values, sizes, ())


def _counts(data: xarray.Dataset, name: str) -> Array | None:
    """How many elements of a ragged variable belong to each row."""
    count_name = data.variables[name].attrs.get("h5sweep_count")
    if count_name is None:
        return None
    found = data.variables.get(count_name)
    if found is None or int(found.values.sum()) != data.variables[name].shape[0]:
        raise UsageError(
            f"{name} has arrays of other rows than these: select rows behind to_grid() or "
            "to_dataframe(), not before"
        )
    counts: Array = found.values.astype(np.int64)
    return counts


def _shapes(data: xarray.Dataset, name: str) -> Array | None:
    shape_name = data.variables[name].attrs.get("h5sweep_shape")
    return None if shape_name is None else data.variables[shape_name].values


def _padded(values: Array, sizes: Array, inner: tuple[int, ...]) -> Array:
    """Arrays that lie one behind the other, each in a cell as large as the largest."""
    most = tuple(sizes.max(axis=0, initial=0).tolist())
    is_there = np.ones((len(sizes), *most), bool)
    for axis, size in enumerate(most):
        within = np.arange(size) < sizes[:, axis, None]
        beside = [1] * axis + [size] + [1] * (len(most) - axis - 1)
        is_there &= within.reshape(len(sizes), *beside)
    if is_there.all():
        return values.reshape(is_there.shape + inner)
    padded = _gaps(is_there.shape + inner, values.dtype)
    padded[is_there] = values
    return padded


def _spread(cells: Array, places: Array, size: int) -> Array:
    """The cells at their places in a grid of that size, and gaps elsewhere."""
    full = len(places) == size
    shape = (size, *cells.shape[1:])
    grid = np.empty(shape, cells.dtype) if full else _gaps(shape, cells.dtype)
    grid[places] = cells
    return grid


def _gaps(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of nothing but gaps, which can take values of that dtype."""
    if dtype.kind in "mM":
        return np.full(shape, "NaT", dtype)
    if dtype.kind in "OSUT":
        return np.full(shape, "", dtype)
    return np.full(shape, np.nan, dtype if dtype.kind in "fc" else np.float64)


def _column(data: xarray.Dataset, name: str) -> Any:
    """A variable as a column of a table; None if it has nothing to do with rows."""
    variable = data.variables[name]
    if variable.dims[:1] == ("task",):
        return variable.values if variable.ndim == 1 else _objects(iter(variable.values))
    counts = _counts(data, name)
    if counts is None:
        return None
    shapes = _shapes(data, name)
    parts = np.split(variable.values, np.cumsum(counts)[:-1])
    if shapes is None:
        return _objects(iter(parts))
    return _objects(
        part.reshape([size for size in shape if size >= 0])
        if part.size or (shape >= 0).any()
        else None
        for part, shape in zip(parts, shapes, strict=True)
    )


def _objects(values: Iterator[Any]) -> Array:
    found = list(values)
    column = np.empty(len(found), object)
    for row, value in enumerate(found):
        column[row] = value
    return column


def _without_ours(attributes: Any) -> dict[str, Any]:
    """Attributes without those that say how an output is stored."""
    return {
        name: value
        for name, value in attributes.items()
        if not str(name).startswith("h5sweep_") and name != "sample_dimension"
    }
