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
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .plain_values import column_values, is_missing, of_modules, plain_value
from .study_function import code_of
from .values import NOT_STORED, free_name, has_labels, naming_order, value_name

RESULT = "result"  # what a value is called that has no name
COORDINATE = "_coord"  # behind the name of an axis
LONG_NAME = "long_name"
_ITSELF = object()  # in place of a name: what belongs to a tree, and to no node of it
_MOST_UNLIKE = 100  # objects in a list that become values of their own


@dataclass(frozen=True)
class Labelled:
    """A value with the names of its axes, if they have any, and what else is said of it."""

    value: Any
    dims: tuple[str, ...] = ()
    attributes: Mapping[Any, Any] = field(default_factory=dict)

    def axes(self) -> list[tuple[str, int]]:
        """The names of its axes and how long they are; nothing if it is no array."""
        return list(zip(self.dims, getattr(self.value, "shape", ()), strict=False))

    def along(self, renamed: Mapping[str, str]) -> Labelled:
        """The same along axes of other names."""
        return replace(self, dims=tuple(renamed.get(dim, dim) for dim in self.dims))


Arrays = list[tuple[tuple[str, ...], Labelled]]  # by what leads to their names
Coordinates = list[tuple[str, Labelled]]


class Returned:
    """The values of one result by their names; `names` are for what a tuple has no names for."""

    def __init__(
        self, result: object, names: Sequence[str] = (), key_names: tuple[str, ...] = ()
    ) -> None:
        self.values: dict[str, Labelled] = {}
        self._key_names = key_names
        self._coordinates: dict[str, Labelled] = {}
        self._missing: set[str] = set()
        self._around: set[int] = set()  # the objects in which that is which is unfolded
        fields = _fields(result)
        if fields is None and isinstance(result, tuple):
            more = (f"{RESULT}_{place}" for place in range(len(names), len(result)))
            fields = dict(zip([*names, *more], result, strict=False))
        if fields is not None or _is_table(result):
            self._unfold((), result if fields is None else fields)
        else:
            label = getattr(result, "name", None) if _is_labelled(result) else None
            self._unfold((next(iter(names), RESULT if label is None else str(label)),), result)
        self._rename_axes()

    def _unfold(self, path: tuple[str, ...], value: Any) -> None:
        is_inside = id(value) in self._around
        try:
            if is_inside:
                raise RecursionError("it has itself in it")
            self._around.add(id(value))
            self._unfold_into(path, value)
        except Exception as error:  # of somebody else's class
            if not path:
                raise
            self._add(path, error, (), {})  # which cannot be stored, and is named for that
        finally:
            if not is_inside:
                self._around.discard(id(value))

    def _unfold_into(self, path: tuple[str, ...], value: Any) -> None:
        if (fields := _fields(value)) is not None:
            for name, one in fields.items():
                self._unfold(path if name is _ITSELF else (*path, str(name)), one)
        elif _is_labelled(value):
            read = _of_pandas if _is_of_pandas(value) else _of_xarray
            self._add_labelled(path, *read(path, value, self._key_names))
            for name, said in value.attrs.items() if _is_table(value) else ():
                self._unfold((*path, str(name)), said)
        elif isinstance(value, list | tuple) and _is_of_objects(value):
            self._add_list(path, value)
        elif is_missing(value):
            self._missing.add("_".join(path))
        else:
            plain, unit = _without_unit(value)
            self._add(path, plain, (), {"units": unit} if unit else {})

    def _add(
        self, path: tuple[str, ...], value: Any, dims: Sequence[str], attributes: Mapping[Any, Any]
    ) -> None:
        wanted = "_".join(path)
        name = free_name(wanted, self.values, self._key_names)
        # What it was called is kept where that could not be its name.
        long_name = {LONG_NAME: ".".join(path)} if name != wanted or len(path) > 1 else {}
        said = {key: one for key, one in attributes.items() if not is_missing(one)}
        self.values[name] = Labelled(value, tuple(dims), {**long_name, **said})

    def _add_labelled(
        self, path: tuple[str, ...], arrays: Arrays, coordinates: Coordinates
    ) -> None:
        """Arrays with the coordinates that they share."""
        renamed: dict[str, str] = {}
        # Those of axes first: others may lie along an axis that is renamed.
        for name, given in sorted(coordinates, key=lambda one: one[1].dims != (one[0],)):
            end = COORDINATE if given.dims == (name,) else ""
            places = (name, value_name("_".join((*path, name))))
            free = self._place_of(places, end, given.along(renamed))
            if end:  # if it is one of another array too, with other coordinates
                renamed[name] = free
            if free + end in self._coordinates:
                continue
            found = self._coordinates[free + end] = given.along(renamed)
            about = {**_long_name(name, free), **found.attributes}
            self._add((free + end,), found.value, found.dims, about)
        for place, labelled in arrays:
            self._add(place, labelled.value, labelled.along(renamed).dims, labelled.attributes)

    def _place_of(self, names: tuple[str, str], end: str, now: Labelled) -> str:
        """The first name that nothing else has, nor other coordinates."""
        more = (f"{names[-1]}_{number}" for number in itertools.count(2))
        for name in itertools.chain(names, more):
            known = self._coordinates.get(name + end)
            is_free = free_name(name + end, self.values, self._key_names) == name + end
            if is_free if known is None else _are_alike(known, now.along({names[0]: name})):
                return name
        raise AssertionError("count does not end")

    def _add_list(self, path: tuple[str, ...], items: Sequence[Any]) -> None:
        """Each value of some objects as one array, if their labels are the same."""
        parts = [Returned({}, (), self._key_names) for _ in items]
        for part, item in zip(parts, items, strict=True):
            part._around = self._around
            part._unfold(path, item)
        dims = {dim for part in parts for one in part.values.values() for dim in one.dims}
        axis = free_name("_".join((*path, "item")), dims, self._key_names)
        if (stacked := _stacked(axis, parts)) is not None:
            self._add_labelled(path, *stacked)
        elif len(items) > _MOST_UNLIKE:
            self._add(path, items, (), {})  # which is refused, and named for that
        else:
            for number, item in enumerate(items):
                self._unfold((*path, str(number)), item)

    def _rename_axes(self) -> None:
        """Let no axis have the name of a value, or the coordinates of a longer or shorter one."""
        sizes = {
            name.removesuffix(COORDINATE): len(one.value)
            for name, one in self._coordinates.items()
            if _is_of_axis(name, self._coordinates)
        }
        values = {*self.values, *self._missing, NOT_STORED}
        axes = dict.fromkeys(axis for one in self.values.values() for axis in one.axes())
        renamed: dict[tuple[str, int], str] = {}
        for dim, size in axes:
            if dim in values or sizes.get(dim, size) != size:
                taken = {*values, *renamed.values(), *(dim for dim, _ in axes)}
                renamed[dim, size] = free_name(f"{dim}_", taken, self._key_names)
        found, self.values = self.values, {}
        for name, one in found.items():
            dims, about = tuple(renamed.get(axis, axis[0]) for axis in one.axes()), one.attributes
            if dims != one.dims and _is_of_axis(name, self._coordinates):
                name, about = dims[0] + COORDINATE, {LONG_NAME: one.dims[0], **about}
            self.values[name] = replace(one, dims=dims, attributes=about)


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


def _stacked(axis: str, parts: Sequence[Returned]) -> tuple[Arrays, Coordinates] | None:
    """Each value of all parts as one array along `axis`; None if the labels are not the same."""
    arrays: Arrays = []
    coordinates: Coordinates = []
    first = parts[0]
    if any(part.values.keys() != first.values.keys() for part in parts):
        return None
    for name, one in first.values.items():
        given = [part.values[name] for part in parts]
        is_coordinate, is_of_axis = (
            name in first._coordinates,
            _is_of_axis(name, first._coordinates),
        )
        if is_coordinate and all(_are_alike(one, other) for other in given):
            coordinates.append((name.removesuffix(COORDINATE) if is_of_axis else name, one))
        elif is_of_axis or (array := _along(axis, given)) is None:
            return None
        elif is_coordinate:
            coordinates.append((name, array))
        else:
            arrays.append(((name,), array))
    return arrays, coordinates


def _is_of_axis(name: str, coordinates: Mapping[str, Labelled]) -> bool:
    return name in coordinates and coordinates[name].dims == (name.removesuffix(COORDINATE),)


def _along(axis: str, given: Sequence[Labelled]) -> Labelled | None:
    first = given[0]
    if not all(
        one.dims == first.dims and _are_same(one.attributes, first.attributes) for one in given
    ):
        return None
    values = [plain_value(one.value) for one in given]
    array = plain_value(values)
    if not isinstance(array, np.ndarray) or array.shape != (len(given), *np.shape(values[0])):
        return None
    if array.dtype == object:
        return None
    return replace(
        first, value=array, dims=(axis, *first.dims) if len(first.dims) == array.ndim - 1 else ()
    )


def _fields(value: Any) -> Mapping[Any, Any] | None:
    """The values of an object that is made of named ones; None of any other."""
    if hasattr(value, "to_dataset") and hasattr(value, "children"):  # a tree of xarray
        name = {} if value.name is None or not value.is_root else {"name": value.name}
        return {_ITSELF: value.to_dataset(), **name, **value.children}
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


def _is_of_objects(items: Sequence[Any]) -> bool:
    """Whether a list has objects with labels, and nothing beside them but gaps."""
    return has_labels(items) and all(is_missing(one) or has_labels([one]) for one in items)


def _is_of_pandas(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" or hasattr(value, "iloc")


def _is_table(value: Any) -> bool:
    """Whether it is a Dataset or a DataFrame: arrays with names, and attributes of them all."""
    is_table = hasattr(value, "data_vars") or (hasattr(value, "iloc") and hasattr(value, "columns"))
    return _is_labelled(value) and is_table


def _of_xarray(
    path: tuple[str, ...], value: Any, key_names: tuple[str, ...]
) -> tuple[Arrays, Coordinates]:
    """The arrays of a Dataset or DataArray, and the coordinates beside them."""
    coords = getattr(value, "coords", {})
    names = _legal_names([*value.dims, *coords], key_names)
    if _is_table(value):
        arrays = [((*path, str(n)), _variable(one, names)) for n, one in value.data_vars.items()]
    else:
        arrays = [(path, _variable(value, names, _name_of(value, path)))]
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


def _name_of(value: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """What it calls itself, if that is not what it is called where it was returned."""
    name = getattr(value, "name", None)
    of_dask = getattr(getattr(value, "data", None), "name", None)  # made up, and told by nobody
    if name is None or name == of_dask or str(name) == path[-1]:
        return {}
    return {"name_" if "name" in getattr(value, "attrs", ()) else "name": name}


def _variable(
    one: Any, names: Mapping[Hashable, str], more: Mapping[str, Any] | None = None
) -> Labelled:
    dims = tuple(names[dim] for dim in one.dims)
    try:
        held, unit = _without_unit(one.data)
        value = np.asarray(held if unit else one.values)
    except Exception as error:  # of whatever it has for an array
        return Labelled(error, dims)  # which cannot be stored, and is named for that
    about = {"units": unit} if unit else {}
    return Labelled(value, dims, {**(more or {}), **about, **one.attrs})


def _is_stacked(coordinate: Any, name: object) -> bool:
    """Whether it has tuples of the values of other coordinates, which are there themselves."""
    index = getattr(coordinate, "indexes", {}).get(name)
    return coordinate.dims == (name,) and hasattr(index, "levels")


def _of_pandas(
    path: tuple[str, ...], value: Any, key_names: tuple[str, ...]
) -> tuple[Arrays, Coordinates]:
    """The columns of a DataFrame or a Series, and the labels of their rows."""
    if not hasattr(value, "index") or not hasattr(value, "iloc"):  # an index by itself
        return [(path, Labelled(column_values(value), (), _name_of(value, path)))], []
    index = value.index
    given = index.name if index.name is not None else "index"
    axis = value_name(str(given), key_names)
    is_named = hasattr(index, "levels") or index.name is not None
    is_named |= type(index).__name__ != "RangeIndex" or index.start != 0 or index.step != 1
    dims = (axis,) if is_named else ()
    found: dict[str, Labelled] = {}
    for place, level in enumerate(index.names if hasattr(index, "levels") else ()):
        of_level = level if level is not None else f"{axis}_{place}"
        name = free_name(str(of_level), found, key_names)
        column = column_values(index.get_level_values(place))
        found[name] = Labelled(column, dims, _long_name(of_level, name))
    if is_named and not found:
        found[axis] = Labelled(column_values(index), dims, _long_name(given, axis))
    coordinates = list(found.items())
    if not hasattr(value, "columns"):
        about = {**_name_of(value, path), **value.attrs}
        return [(path, Labelled(column_values(value), dims, about))], coordinates
    arrays: Arrays = []
    for number, label in enumerate(map(_column_label, value.columns)):
        column = column_values(value.iloc[:, number])
        about = _named_levels(value.columns, label)
        arrays.append(((*path, *map(str, label)), Labelled(column, dims, about)))
    return arrays, coordinates


def _column_label(label: Any) -> tuple[Any, ...]:
    return label if isinstance(label, tuple) else (label,)


def _named_levels(columns: Any, label: tuple[Any, ...]) -> dict[Any, Any]:
    """What a column is called on each level that has a name."""
    levels = zip(columns.names, label, strict=False)
    return {level: one for level, one in levels if level is not None}


def _without_unit(value: Any) -> tuple[Any, str]:
    """What packages for quantities have put together: a number or an array, and its unit."""
    if hasattr(value, "magnitude") and hasattr(value, "units"):
        return value.magnitude, str(value.units)
    if isinstance(value, np.ndarray) and hasattr(value, "unit"):
        return np.asarray(value), str(value.unit)
    return value, ""


def _are_alike(one: Labelled, other: Labelled) -> bool:
    return (
        one.dims == other.dims
        and _are_equal(one.value, other.value)
        and _are_same(one.attributes, other.attributes)
    )


def _are_same(some: Mapping[Any, Any], others: Mapping[Any, Any]) -> bool:
    return some.keys() == others.keys() and all(_are_equal(some[n], others[n]) for n in some)


def _are_equal(one: Any, other: Any) -> bool:
    try:
        one, other = np.asarray(one), np.asarray(other)
        is_number = one.dtype.kind in "fc" and other.dtype.kind in "fc"
        return bool(np.array_equal(one, other, equal_nan=is_number))
    except Exception:  # lists of other lengths, somebody else's class
        return False
