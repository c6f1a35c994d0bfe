"""A value of any kind as an array, a number, a text or a time. Pure.

Neither xarray nor pandas is imported: who has an object of theirs has done that.
"""

from __future__ import annotations

import datetime
import sys
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from .values import EXACT, Array, has_labels, is_other


def plain_value(value: Any) -> Any:
    """The same value as an array, a number, a text or a time; itself, if it is none of these."""
    if isinstance(value, Enum):
        return value.value if isinstance(value, int | float | str) else value.name or str(value)
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
    if isinstance(value, of_modules(("pandas", "Interval"), ("pandas", "Period"))):
        return str(value)
    if hasattr(value, "isna") and hasattr(value, "to_numpy"):
        return column_values(value)
    if isinstance(value, list | tuple | np.ndarray) or hasattr(value, "__array__"):
        return _as_plain_array(value)
    return value


def column_values(values: Any) -> Any:
    """A column of pandas as an array; in UTC, if it has a time zone."""
    if getattr(values.dtype, "tz", None) is not None:
        values = getattr(values, "dt", values).tz_convert("UTC")
        values = getattr(values, "dt", values).tz_localize(None)
    # Of ints beside gaps pandas makes floats, and these do not have all of them.
    is_int = getattr(values.dtype, "kind", "O") in "iu"
    has_gaps = is_int and bool(values.isna().any())
    return _as_plain_array(values.to_numpy(object) if has_gaps else values.to_numpy())


def of_modules(*kinds: tuple[str, str]) -> tuple[type, ...]:
    """Those of these classes of which the module is imported."""
    found = [getattr(sys.modules.get(module), kind, None) for module, kind in kinds]
    return tuple(kind for kind in found if isinstance(kind, type))


def is_missing(value: Any) -> bool:
    """None, and what pandas has in its place."""
    pandas = sys.modules.get("pandas")
    return value is None or (pandas is not None and value is getattr(pandas, "NA", None))


def _as_plain_array(value: Any) -> Any:
    if isinstance(value, list | tuple) and has_labels(value):
        return value
    if isinstance(value, list | tuple) and any(isinstance(v, np.ma.MaskedArray) for v in value):
        return _filled(np.ma.array(value))
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):  # lists of other lengths
        return value
    if is_other(array, value):
        return value
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "backslashreplace")
    if array.dtype.kind == "T" or (array.dtype.kind == "U" and array.dtype is not _dtype(value)):
        array = np.asarray(value, object)  # NumPy makes texts of numbers beside texts
    if array.dtype != object:
        return array
    found = _of_one_kind(array)
    return value if found is array and isinstance(value, list | tuple) else found


def _dtype(value: object) -> object:
    return getattr(value, "dtype", None)


def _of_one_kind(array: Array) -> Array:
    """Objects that are all numbers, texts or times, or are not there, as an array of these."""
    items = [None if _is_gap(item) else _scalar(item) for item in array.ravel().tolist()]
    found = [item for item in items if item is not None]
    if not items:
        return array.astype(str)
    gap = _GAPS.get(next((kind for kind in _GAPS if _are_all(found, kind)), object))
    if not found or gap is None:
        return array
    made = np.array([gap if item is None else item for item in items])
    if made.dtype.kind in "fc" and _are_long(found):
        return array
    if made.dtype.kind == "U" and is_other(made, items):
        return array
    is_time = made.dtype.kind in "mM"  # of several units, some values may not fit into the finest
    if is_time and not all(
        item is None or one.astype(item.dtype) == item
        for one, item in zip(made, items, strict=True)
    ):
        return array
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
    return any(isinstance(item, int) and abs(item) > EXACT for item in found)


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
    if kind in "biu" and (np.abs(value.compressed().astype(float)) <= EXACT).all():
        return value.astype(float).filled(np.nan)
    return value
