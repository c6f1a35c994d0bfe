"""Whatever a task returns, as named values with their labels. Pure.

Dicts, data classes, named tuples and the like are unfolded into their values, those inside others
under joined names: `{"farm": {"aep": 1}}` is `farm_aep`. Objects of xarray and pandas become their
arrays, with the names of axes, the units and all attributes as labels. The coordinate of an axis
`wd` is a value too, `wd_coord`. Neither xarray nor pandas is imported: who returns such an object
has done that.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from .key_objects import object_text
from .study_function import code_of
from .values import Array, free_name, value_name

RESULT = "result"  # what a value is called that has no name
COORDINATE = "_coord"  # behind the name of an axis
LONG_NAME = "long_name"
_EXACT = 2**53  # beyond, a float does not have every int


@dataclass(frozen=True)
class Labelled:
    """A value with the names of its axes, if they have any, and what else is said of it."""

    value: Any
    dims: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Returned:
    """The values of one result by their names; `names` are for what a tuple has no names for."""

    def __init__(
        self, result: object, names: Sequence[str] = (), key_names: tuple[str, ...] = ()
    ) -> None:
        self.values: dict[str, Labelled] = {}
        self._key_names = key_names
        self._coordinates: dict[str, Array] = {}
        fields = _fields(result)
        if fields is None and isinstance(result, tuple):
            more = (f"{RESULT}_{place}" for place in range(len(names), len(result)))
            fields = dict(zip([*names, *more], result, strict=False))
        if fields is not None or _is_table(result):
            self._unfold((), result if fields is None else fields)
        else:
            label = getattr(result, "name", None) if _is_labelled(result) else None
            self._unfold((next(iter(names), label if isinstance(label, str) else RESULT),), result)

    def _unfold(self, path: tuple[str, ...], value: Any) -> None:
        if (fields := _fields(value)) is not None:
            for name, one in fields.items():
                self._unfold((*path, str(name)), one)
        elif _is_labelled(value):
            self._add_labelled(path, value)
        elif not is_missing(value):
            plain, unit = _without_unit(value)
            self._add(path, plain, (), {"units": unit} if unit else {})

    def _add(
        self, path: tuple[str, ...], value: Any, dims: Sequence[str], attributes: Mapping[Any, Any]
    ) -> None:
        wanted = "_".join(path)
        name = free_name(wanted, self.values, self._key_names)
        # What it was called is kept where that could not be its name.
        long_name = {LONG_NAME: ".".join(path)} if name != wanted or len(path) > 1 else {}
        said = {str(key): one for key, one in attributes.items() if not is_missing(one)}
        self.values[name] = Labelled(value, tuple(dims), {**long_name, **said})

    def _add_labelled(self, path: tuple[str, ...], value: Any) -> None:
        """An array of xarray, or a Series or DataFrame of pandas, with its coordinates."""
        arrays, coordinates = (_of_pandas if _is_of_pandas(value) else _of_xarray)(path, value)
        renamed: dict[str, str] = {}
        for name, labelled in coordinates.items():
            is_axis = labelled.dims == (name,)
            wanted = name + COORDINATE if is_axis else name
            known, now = self._coordinates.get(wanted), np.asarray(labelled.value)
            if known is not None and _are_equal(known, now):
                continue
            if known is not None and is_axis:  # one axis of two arrays, with other coordinates
                renamed[name] = value_name("_".join((*path, name)))
                wanted = renamed[name] + COORDINATE
            self._coordinates[wanted] = now
            dims = [renamed.get(dim, dim) for dim in labelled.dims]
            self._add((wanted,), now, dims, labelled.attributes)
        for place, labelled in arrays.items():
            dims = [renamed.get(dim, dim) for dim in labelled.dims]
            self._add(place, labelled.value, dims, labelled.attributes)
        for name, said in value.attrs.items() if _is_table(value) else ():
            self._unfold((*path, str(name)), said)


def result_names(function: Callable[..., object]) -> tuple[str, ...]:
    """What the annotation of a function calls its results: the texts of `Annotated`.

    `-> tuple[Annotated[float, "aep"], Annotated[int, "rounds"]]`; others are `result_0` and so on.
    """
    try:
        hints = typing.get_type_hints(code_of(function), include_extras=True)
    except Exception:  # an annotation may name what is not there
        return ()
    returned = hints.get("return")
    parts = typing.get_args(returned) if typing.get_origin(returned) is tuple else [returned]
    named = [
        next((text for text in getattr(part, "__metadata__", ()) if isinstance(text, str)), None)
        for part in parts
        if part is not Ellipsis
    ]
    if not any(named):
        return ()
    return tuple(text or f"{RESULT}_{place}" for place, text in enumerate(named))


def plain_value(value: Any) -> Any:
    """The same value as an array, a number, a text or a time; itself, if it is none of these."""
    if isinstance(value, Enum):
        return value.value if isinstance(value, int | float | str) else object_text(value)
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return np.datetime64(value, "D")
    if isinstance(value, datetime.timedelta):
        of_pandas = getattr(value, "to_timedelta64", None)
        return of_pandas() if of_pandas else np.timedelta64(value, "us")
    if isinstance(value, np.ma.MaskedArray):
        return _filled(value)
    if isinstance(value, list | tuple | np.ndarray) or hasattr(value, "__array__"):
        return _as_plain_array(value)
    return value


def _as_plain_array(value: Any) -> Any:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # lists of other lengths
        return value
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "backslashreplace")
    return _of_one_kind(array) if array.dtype == object else array


def _of_one_kind(array: Array) -> Array:
    """Objects that are all numbers, texts or times, or are not there, as an array of these."""
    items = [None if _is_gap(item) else _scalar(item) for item in array.ravel().tolist()]
    found = [item for item in items if item is not None]
    gap = _GAPS.get(next((kind for kind in _GAPS if _are_all(found, kind)), object))
    if not found or gap is None or (gap is _NAN and len(found) < len(items) and _are_long(found)):
        return array
    made = np.array([gap if item is None else item for item in items])
    return array if made.dtype == object else made.reshape(array.shape)


def _scalar(item: Any) -> Any:
    """A time as NumPy's, in UTC."""
    for kind in ("to_datetime64", "to_timedelta64"):  # of pandas, with nanoseconds
        if hasattr(item, kind):
            return getattr(item, kind)()
    if isinstance(item, datetime.datetime):
        return np.datetime64(
            item.astimezone(datetime.UTC).replace(tzinfo=None) if item.tzinfo else item, "us"
        )
    return plain_value(item)


def _are_all(found: list[Any], kind: Any) -> bool:
    return all(isinstance(item, kind) for item in found)


def _are_long(found: list[Any]) -> bool:
    """Whether some are ints that no float has."""
    return any(isinstance(item, int) and abs(item) > _EXACT for item in found)


def _is_gap(item: Any) -> bool:
    """Whether it stands for no value among others: also NaN and NaT."""
    is_number = isinstance(item, float | datetime.datetime | np.datetime64 | np.timedelta64)
    return is_missing(item) or (is_number and bool(item != item))


_NAN = float("nan")
_GAPS: dict[Any, Any] = {  # what stands for no value, by the kind of the others
    str: "",
    np.datetime64: np.datetime64("NaT"),
    np.timedelta64: np.timedelta64("NaT"),
    int | float | complex | np.number | np.bool_: _NAN,
}


def _filled(value: Any) -> Any:
    """A masked array with NaN, NaT or an empty text where there is no value."""
    if not np.ma.is_masked(value):
        return value.data
    kind = value.dtype.kind
    if kind in "fc":
        return value.filled(np.nan)
    if kind in "mM":
        return value.filled(np.array("NaT", value.dtype))
    if kind in "U":
        return value.filled("")
    if kind in "biu" and (np.abs(value.compressed().astype(float)) <= _EXACT).all():
        return value.astype(float).filled(np.nan)
    return value


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """The values of an object that is made of named ones; None of any other."""
    if isinstance(value, Mapping) and not _is_labelled(value):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    if hasattr(type(value), "__attrs_attrs__"):
        return {one.name: getattr(value, one.name) for one in type(value).__attrs_attrs__}
    if isinstance(value, np.ndarray | np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    return None


def _is_labelled(value: object) -> bool:
    """Whether it is an object of xarray or pandas that has axes with names."""
    kinds = [("xarray", "Dataset"), ("xarray", "DataArray"), ("xarray", "Variable")]
    kinds += [("pandas", "Series"), ("pandas", "DataFrame"), ("pandas", "Index")]
    found = [getattr(sys.modules.get(module), kind, None) for module, kind in kinds]
    return isinstance(value, tuple(kind for kind in found if isinstance(kind, type)))


def is_missing(value: Any) -> bool:
    """None, and what pandas has in its place."""
    pandas = sys.modules.get("pandas")
    return value is None or (pandas is not None and value is getattr(pandas, "NA", None))


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" or hasattr(value, "iloc")


def _is_table(value: Any) -> bool:
    """Whether it is a Dataset or a DataFrame: arrays with names, and attributes of them all."""
    is_table = hasattr(value, "data_vars") or (hasattr(value, "iloc") and hasattr(value, "columns"))
    return _is_labelled(value) and is_table


Arrays = dict[tuple[str, ...], Labelled]


def _of_xarray(path: tuple[str, ...], value: Any) -> tuple[Arrays, dict[str, Labelled]]:
    """The arrays of a Dataset or DataArray, and the coordinates beside them."""
    arrays = {path: _variable(value)}
    if _is_table(value):
        arrays = {(*path, str(name)): _variable(one) for name, one in value.data_vars.items()}
    coordinates = {
        value_name(str(name)): _variable(one)
        for name, one in getattr(value, "coords", {}).items()
        if not _is_stacked(one, name)
    }
    return arrays, coordinates


def _variable(one: Any) -> Labelled:
    dims = tuple(value_name(str(dim)) for dim in one.dims)
    return Labelled(np.asarray(one.values), dims, one.attrs)


def _is_stacked(coordinate: Any, name: object) -> bool:
    """Whether it has tuples of the values of other coordinates, which are there themselves."""
    index = getattr(coordinate, "indexes", {}).get(name)
    return coordinate.dtype == object and hasattr(index, "levels")


def _of_pandas(path: tuple[str, ...], value: Any) -> tuple[Arrays, dict[str, Labelled]]:
    """The columns of a DataFrame or a Series, and the labels of their rows."""
    if not hasattr(value, "index") or not hasattr(value, "iloc"):  # an index by itself
        return {path: Labelled(_column(value))}, {}
    index, coordinates = value.index, {}
    axis = value_name(str(index.name if index.name is not None else "index"))
    has_labels = hasattr(index, "levels") or index.name is not None
    has_labels |= type(index).__name__ != "RangeIndex" or index.start != 0 or index.step != 1
    dims = (axis,) if has_labels else ()
    for place, level in enumerate(index.names if hasattr(index, "levels") else ()):
        name = value_name(str(level if level is not None else f"{axis}_{place}"))
        coordinates[name] = Labelled(_column(index.get_level_values(place)), dims)
    if has_labels and not coordinates:
        coordinates[axis] = Labelled(_column(index), dims)
    if not hasattr(value, "columns"):
        return {path: Labelled(_column(value), dims, value.attrs)}, coordinates
    return {
        (*path, *_column_path(name)): Labelled(_column(value.iloc[:, number]), dims)
        for number, name in enumerate(value.columns)
    }, coordinates


def _column_path(name: object) -> tuple[str, ...]:
    return tuple(map(str, name)) if isinstance(name, tuple) else (str(name),)


def _column(values: Any) -> Any:
    """A column of pandas as an array; in UTC, if it has a time zone."""
    if getattr(values.dtype, "tz", None) is not None:
        values = getattr(values, "dt", values).tz_convert("UTC")
        values = getattr(values, "dt", values).tz_localize(None)
    return plain_value(values.to_numpy())


def _without_unit(value: Any) -> tuple[Any, str]:
    """What packages for quantities have put together: a number or an array, and its unit."""
    if hasattr(value, "magnitude") and hasattr(value, "units"):
        return value.magnitude, str(value.units)
    if isinstance(value, np.ndarray) and hasattr(value, "unit"):
        return np.asarray(value), str(value.unit)
    return value, ""


def _are_equal(one: Array, other: Array) -> bool:
    is_number = one.dtype.kind in "fc" and other.dtype.kind in "fc"
    return bool(np.array_equal(one, other, equal_nan=is_number))
