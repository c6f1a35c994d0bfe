"""The coordinates of an output's axes: as declared, or as all tasks have returned them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...base.coordinates import coordinate_values
from ...base.returned import COORDINATE
from ...base.values import STR, Array
from ...output.columns import ColumnLayout, DataColumn, writable_dtype
from ...output.dimensions import Dimensions
from .rows import Sources

Coordinates = dict[str, tuple[DataColumn, Array]]  # how each axis is stored, and what


def axis_coordinates(
    declared: Mapping[str, Any],
    columns: Iterable[DataColumn],
    dimensions: Dimensions,
    sources: Sources,
) -> tuple[Coordinates, list[str]]:
    """The coordinates of each axis that has some, and what the user should know about them.

    A task may return its own, as `wd_coord` of the axis `wd`. They are those of the axis if all
    tasks agree: no row may be looked up by what holds for another.
    """
    found: Coordinates = {}
    notes = [
        f"coords names {name}, which is no axis of a result"
        for name in declared
        if name not in dimensions.sizes and len(sources.rows)
    ]
    own = {c.dims[0]: c for c in columns if len(c.dims) == 1 and c.name == c.dims[0] + COORDINATE}
    for name, size in dimensions.sizes.items():
        if name == "task" or (name not in declared and name not in own):
            continue
        coordinate = _declared(name, declared[name]) if name in declared else None
        if coordinate is not None and (name in dimensions.counts or len(coordinate[1]) != size):
            axis = "varies" if name in dimensions.counts else f"has {size:,}"
            notes.append(
                f"coords has {len(coordinate[1]):,} values for {name}, whose length {axis}: the "
                "axis has no coordinates"
            )
        elif name not in own:
            assert coordinate is not None
            found[name] = coordinate
        elif (agreed := _agreed(own[name], coordinate, sources)) is not None:
            found[name] = agreed
        else:
            differ = "there in all tasks" if own[name].has_gaps else "the same in all tasks"
            notes.append(
                f"the coordinates of {name} are not {differ}: {own[name].name} has "
                "those of each, and the axis none"
            )
    return found, notes


def _declared(name: str, given: Any) -> tuple[DataColumn, Array]:
    values = coordinate_values(given)
    dtype = STR if values.dtype.kind == "U" else values.dtype.str
    column = DataColumn(
        name, name, frozenset({dtype}), writable_dtype(dtype), ColumnLayout.FIXED, (), 0
    )
    if column.is_text:
        values = np.array([text.encode() for text in values.tolist()], object)
    return column, column.to_stored(values)


def _agreed(
    column: DataColumn, declared: tuple[DataColumn, Array] | None, sources: Sources
) -> tuple[DataColumn, Array] | None:
    """What all rows have, and what is declared; None if these are not the same."""
    if column.layout is not ColumnLayout.FIXED or (column.has_gaps and declared is None):
        return None
    values = sources.only_value(column)
    if values is None:
        return None
    if declared is not None and not (
        declared[0].is_text == column.is_text and np.array_equal(declared[1], values)
    ):
        return None
    return column, values
