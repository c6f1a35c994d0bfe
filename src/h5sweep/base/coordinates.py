"""The coordinates of axes, as a sweep declares them: what `sel(wd=270)` looks a value up by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import UsageError
from .attribute_json import attribute_json, attribute_value
from .plain_values import plain_value
from .plan import RESERVED_NAMES
from .values import Array

_MOST_SHOWN = 3


def declared_coordinates(coords: Mapping[str, Any]) -> dict[str, Any]:
    """Each axis with its coordinates as JSON; UsageError if they are none."""
    return {name: attribute_json(_checked(name, values)) for name, values in coords.items()}


def _checked(name: object, values: Any) -> Array:
    if not isinstance(name, str) or not name.isidentifier() or name in RESERVED_NAMES:
        raise UsageError(f"coords: {name!r} cannot be the name of an axis: use a Python identifier")
    is_many = isinstance(values, Iterable) and not isinstance(values, str)
    is_array = hasattr(values, "__array__") or not is_many
    found = np.asarray(plain_value(values if is_array else list(values)))
    if found.ndim != 1 or found.dtype.kind not in "iufUmM" or found.dtype.char in "gG":
        raise UsageError(
            f"coords: those of {name} are {values!r}: give a list of numbers, texts or times, one "
            "for each place along the axis"
        )
    return found


def coordinate_values(coordinates: Any) -> Array:
    """What was declared, as an array."""
    return np.asarray(attribute_value(coordinates))


def coordinates_text(coordinates: Any) -> str:
    """`0, 30, 60, … (12 values)` for people."""
    values = coordinate_values(coordinates)
    shown = ", ".join(map(str, values[:_MOST_SHOWN]))
    more = f", … ({len(values):,} values)" if len(values) > _MOST_SHOWN else ""
    return shown + more
