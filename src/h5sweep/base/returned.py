"""Whatever a task returns, as named values with their labels. Pure.

Dicts, data classes, named tuples and the like are unfolded into their values, those inside others
under joined names: `{"farm": {"aep": 1}}` is `farm_aep`. Objects of xarray and pandas become their
arrays, with the names of axes, the units and all attributes as labels. The coordinate of an axis
`wd` is a value too, `wd_coord`. Neither xarray nor pandas is imported: who returns such an object
has done that.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .plain_values import column_values, is_missing, of_modules
from .study_function import code_of
from .values import Array, free_name, naming_order, value_name

RESULT = "result"  # what a value is called that has no name
COORDINATE = "_coord"  # behind the name of an axis
LONG_NAME = "long_name"


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
            self._unfold((next(iter(names), RESULT if label is None else str(label)),), result)

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
        arrays, coordinates = (_of_pandas if _is_of_pandas(value) else _of_xarray)(
            path, value, self._key_names
        )
        renamed: dict[str, str] = {}
        # Those of axes first: others may lie along an axis that is renamed.
        for name, labelled in sorted(coordinates, key=lambda one: one[1].dims != (one[0],)):
            is_axis, now = labelled.dims == (name,), np.asarray(labelled.value)
            end = COORDINATE if is_axis else ""
            places = (name, value_name("_".join((*path, name))))
            free = self._place_of(places, end, now)
            if is_axis:  # if it is one of another array too, with other coordinates
                renamed[name] = free
            if free + end in self._coordinates:
                continue
            self._coordinates[free + end] = now
            dims = [renamed.get(dim, dim) for dim in labelled.dims]
            self._add((free + end,), now, dims, labelled.attributes)
        for place, labelled in arrays:
            dims = [renamed.get(dim, dim) for dim in labelled.dims]
            self._add(place, labelled.value, dims, labelled.attributes)
        for name, said in value.attrs.items() if _is_table(value) else ():
            self._unfold((*path, str(name)), said)

    def _place_of(self, names: tuple[str, str], end: str, now: Array) -> str:
        """The first name under which there are no other coordinates."""
        more = (f"{names[-1]}_{number}" for number in itertools.count(2))
        for name in itertools.chain(names, more):
            known = self._coordinates.get(name + end)
            if known is None or _are_equal(known, now):
                return name
        raise AssertionError("count does not end")


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
    return isinstance(value, of_modules(*kinds))


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" or hasattr(value, "iloc")


def _is_table(value: Any) -> bool:
    """Whether it is a Dataset or a DataFrame: arrays with names, and attributes of them all."""
    is_table = hasattr(value, "data_vars") or (hasattr(value, "iloc") and hasattr(value, "columns"))
    return _is_labelled(value) and is_table


Arrays = list[tuple[tuple[str, ...], Labelled]]
Coordinates = list[tuple[str, Labelled]]


def _of_xarray(
    path: tuple[str, ...], value: Any, key_names: tuple[str, ...]
) -> tuple[Arrays, Coordinates]:
    """The arrays of a Dataset or DataArray, and the coordinates beside them."""
    coords = getattr(value, "coords", {})
    names = _legal_names([*value.dims, *coords], key_names)
    arrays = [(path, _variable(value, names))]
    if _is_table(value):
        arrays = [((*path, str(n)), _variable(one, names)) for n, one in value.data_vars.items()]
    coordinates = [
        (names[name], _variable(one, names, _long_name(name, names[name])))
        for name, one in coords.items()
        if not _is_stacked(one, name)
    ]
    return arrays, coordinates


def _legal_names(given: Iterable[Hashable], key_names: tuple[str, ...]) -> dict[Hashable, str]:
    """A name of its own for each; who has a legal one keeps it, in whatever order they come."""
    found: dict[Hashable, str] = {}
    for name in sorted(dict.fromkeys(given), key=lambda name: naming_order(str(name))):
        found[name] = free_name(str(name), found.values(), key_names)
    return found


def _long_name(given: Hashable, name: str) -> dict[str, str]:
    """What it was called is kept where that could not be its name."""
    return {} if str(given) == name else {LONG_NAME: str(given)}


def _variable(
    one: Any, names: Mapping[Hashable, str], more: Mapping[str, str] | None = None
) -> Labelled:
    dims = tuple(names[dim] for dim in one.dims)
    return Labelled(np.asarray(one.values), dims, {**(more or {}), **one.attrs})


def _is_stacked(coordinate: Any, name: object) -> bool:
    """Whether it has tuples of the values of other coordinates, which are there themselves."""
    index = getattr(coordinate, "indexes", {}).get(name)
    return coordinate.dtype == object and hasattr(index, "levels")


def _of_pandas(
    path: tuple[str, ...], value: Any, key_names: tuple[str, ...]
) -> tuple[Arrays, Coordinates]:
    """The columns of a DataFrame or a Series, and the labels of their rows."""
    if not hasattr(value, "index") or not hasattr(value, "iloc"):  # an index by itself
        return [(path, Labelled(column_values(value)))], []
    index = value.index
    given = index.name if index.name is not None else "index"
    axis = value_name(str(given), key_names)
    has_labels = hasattr(index, "levels") or index.name is not None
    has_labels |= type(index).__name__ != "RangeIndex" or index.start != 0 or index.step != 1
    dims = (axis,) if has_labels else ()
    found: dict[str, Labelled] = {}
    for place, level in enumerate(index.names if hasattr(index, "levels") else ()):
        of_level = level if level is not None else f"{axis}_{place}"
        name = free_name(str(of_level), found, key_names)
        column = column_values(index.get_level_values(place))
        found[name] = Labelled(column, dims, _long_name(of_level, name))
    if has_labels and not found:
        found[axis] = Labelled(column_values(index), dims, _long_name(given, axis))
    if not hasattr(value, "columns"):
        return [(path, Labelled(column_values(value), dims, value.attrs))], list(found.items())
    return [
        ((*path, *_column_path(name)), Labelled(column_values(value.iloc[:, number]), dims))
        for number, name in enumerate(value.columns)
    ], list(found.items())


def _column_path(name: object) -> tuple[str, ...]:
    return tuple(map(str, name)) if isinstance(name, tuple) else (str(name),)


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
