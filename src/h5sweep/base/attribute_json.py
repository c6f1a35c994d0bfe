"""Column attributes, as the run folder keeps them until an output is written.

In JSON: a text as it is, other values with their dtype and shape, so that they come back bit by
bit. What cannot be decoded is kept as its raw bytes, which are for the audit trail alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

from .values import Array, value_text

MOST_NAME_BYTES = 256
MOST_BYTES = 60_000  # HDF5 takes no more than 64 kB into the header of a dataset
# How HDF5 and netCDF name the axes of a dataset; those of a column get new names.
_AXES = frozenset(
    {
        "DIMENSION_LIST",
        "REFERENCE_LIST",
        "DIMENSION_LABELS",
        "_Netcdf4Dimid",
        "_Netcdf4Coordinates",
    }
)
# Of a dataset that is an axis itself; of others PyTables has a class as well.
_SCALE = frozenset({"CLASS", "NAME"})
# What an output says itself; a fill value would make gaps of values that are equal to it, and a
# dtype would make truths of numbers and of gaps. A text lies otherwise in the output.
_OURS = frozenset({"_FillValue", "_Encoding", "coordinates", "dtype", "sample_dimension"})
_OURS |= {"_NCProperties", "_nc3_strict"}  # which netCDF shows nobody
# By which readers make other values of those that are stored.
_DECODING = frozenset({"_Encoding", "_FillValue", "_Unsigned", "add_offset", "calendar", "dtype"})
_DECODING |= {"missing_value", "scale_factor"}
_RAW = "raw"

Attributes = Mapping[str, Mapping[str, Any]]  # column → attribute → its value in JSON


def attribute_json(values: Array) -> Any:
    """A value as JSON."""
    if values.dtype.kind != "U":
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        about = {"dtype": little.dtype.str, "shape": list(values.shape)}
        return {**about, "hex": little.tobytes().hex()}
    if values.ndim:
        return {"texts": values.reshape(-1).tolist(), "shape": list(values.shape)}
    return str(values)


def raw_json(data: bytes) -> Any:
    """What cannot be decoded, as JSON."""
    return {_RAW: data.hex()}


def attribute_value(value: Any) -> str | Array:
    """What `attribute_json` was given; a text if it was a single one."""
    if isinstance(value, str):
        return value
    if "texts" in value:
        return np.array(value["texts"], str).reshape(value["shape"])
    found = np.frombuffer(bytes.fromhex(value["hex"]), value["dtype"])
    return found.reshape(value["shape"])


def attribute_text(value: Any) -> str:
    """The same for people."""
    if isinstance(value, dict) and _RAW in value:
        return value[_RAW] or value_text(None)
    return value_text(np.asarray(attribute_value(value)))


def names_axes(name: str, beside: Container[str]) -> bool:
    """Whether an attribute, beside others of these names, says which axes a dataset has or is."""
    return name in _AXES or (name in _SCALE and any(axes in beside for axes in _AXES))


def is_decoding(name: str, value: Any) -> bool:
    """Whether readers make other values of a column for this attribute: times, or unpacked ones."""
    is_time = name == "units" and isinstance(value, str) and "since" in value
    return is_time or name in _DECODING


def decoding_texts(attributes: Attributes) -> Iterator[str]:
    """What to say if attributes of merged files may not fit what is computed now."""
    for column, about in attributes.items():
        for name, value in about.items():
            text = "" if value is None else attribute_text(value)
            if text and is_decoding(name, value):
                yield (
                    f"{column} has the {name} {text} of merged files, which readers "
                    "also apply to new results: return values of that kind, or choose another "
                    "output with -o"
                )


def has_place(name: str, value: Any) -> bool:
    """Whether an attribute can be one of a column of an output."""
    if name in _OURS | _AXES | _SCALE or name.startswith("h5sweep_") or not is_attribute_name(name):
        return False
    if isinstance(value, dict):
        return _RAW not in value and _is_writable(value)
    return "\0" not in value and len(value.encode()) <= MOST_BYTES


def _is_writable(value: dict[str, Any]) -> bool:
    texts = value.get("texts", ())
    size_bytes = len(value.get("hex", "")) // 2 + 16 * len(texts)
    is_flat = len(value["shape"]) <= 1  # netCDF opens no file with a table in an attribute
    return is_flat and 0 < size_bytes <= MOST_BYTES and not any("\0" in text for text in texts)


def is_attribute_name(name: str) -> bool:
    """Whether netCDF takes it for a name; else it, or ncdump, refuses the whole file."""
    is_short = 0 < len(name.encode("utf-8", "replace")) < MOST_NAME_BYTES
    return is_short and name.isprintable() and name == name.strip() and "/" not in name


def with_texts_of_any_length(attributes: Attributes) -> Attributes:
    """Texts as h5py writes them, so that it reads them as `str`: most files have them from there.

    What an output says itself is of fixed length, for readers that know no other texts.
    """
    return {
        column: {
            name: {"texts": [value], "shape": []} if isinstance(value, str) else value
            for name, value in about.items()
        }
        for column, about in attributes.items()
    }


def united_with_units(attributes: Attributes, units: Mapping[str, str]) -> Attributes:
    """What goes with the columns; units that were declared before those that were found."""
    found = {
        column: {name: value for name, value in about.items() if value is not None}
        for column, about in attributes.items()
    }
    for column, unit in units.items():
        found[column] = {**found.get(column, {}), "units": unit}
    return found
