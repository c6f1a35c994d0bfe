"""The attributes by which netCDF and CF readers understand an output: units, dates, gaps, types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.attribute_json import attribute_value
from ..disk.h5py_loader import h5py
from .columns import NAT, TIME_WORDS, ColumnLayout, DataColumn

ATTRIBUTE_BYTES = 60_000


def column_attributes(column: DataColumn) -> dict[str, Any]:
    """What readers need, and what a later merge needs to read the column back."""
    attributes: dict[str, Any] = {}
    kind = "" if column.is_text else np.dtype(column.dtype).kind
    if kind and kind in "mM":
        attributes |= _time_attributes(np.dtype(column.dtype))
        attributes["_FillValue"] = np.int64(NAT)
    elif column.has_gaps and column.layout is ColumnLayout.FIXED and column.stored.kind in "iu":
        attributes["_FillValue"] = column.stored.type(column.fill)
    elif kind == "b":
        attributes["dtype"] = "bool"
    if column.source_name != column.name:
        attributes["h5sweep_name"] = column.source_name
    if column.stored != column.dtype and not column.is_text:
        attributes["h5sweep_dtype"] = column.dtype
    if column.count_name:
        attributes["h5sweep_count"] = column.count_name
    if column.shape_name:
        attributes["h5sweep_shape"] = column.shape_name
    return attributes


def attribute_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes out of JSON."""
    return {name: attribute_value(value) for name, value in given.items()}


def _time_attributes(dtype: np.dtype[Any]) -> dict[str, str]:
    """How CF writes dates and durations; a unit that CF lacks stands as NumPy names it."""
    unit, _ = np.datetime_data(dtype)
    words = TIME_WORDS.get(unit, unit)
    if dtype.kind == "m":
        # xarray decodes durations for certain only if it is told the dtype.
        return {"units": words} | ({"dtype": dtype.name} if unit in TIME_WORDS else {})
    return {"units": f"{words} since 1970-01-01", "calendar": "proleptic_gregorian"}


def set_attributes(target: Any, attributes: Mapping[str, Any]) -> None:
    """Text as fixed-length ASCII wherever it can be: netCDF-Fortran, NCO and MATLAB need that."""
    for name, value in attributes.items():
        if isinstance(value, str):
            is_short = 0 < len(value) < ATTRIBUTE_BYTES
            value = np.bytes_(value.encode()) if value.isascii() and is_short else value
        is_texts = isinstance(value, np.ndarray) and value.dtype.kind == "U"
        target.attrs[name] = value.astype(h5py.string_dtype()) if is_texts else value
