"""What an output says of its parameters and results: units, other attributes, axes."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

import numpy as np

from ..base.attribute_json import attribute_json, has_place
from ..base.values import STR, Array
from .reader import OutputReader, StoredColumn, plain_attribute

TIME_ATTRIBUTES = {"units", "calendar"}
RETURNED = "returned"  # in the provenance: which attributes of results tasks have returned
Described = dict[str, dict[str, Any]]  # parameter or result → attribute → its value in JSON


class StoredLabels:
    """Labels by the names that parameters and results have now.

    Those that every output has are not among them.
    """

    def __init__(self, reader: OutputReader) -> None:
        self._reader, self._relabels = reader, reader.relabels
        self._described: Described = {}
        for name in reader.key_names:
            self._described[name] = _attributes(reader.object_at(name), ())
        for column in reader.stored_columns():
            self._described.setdefault(column.source_name, _of_column(column))

    def all(self) -> Described:
        """What the attributes say."""
        return self._named(self._described)

    def declared(self) -> Described:
        """The same, without what tasks have returned: that holds for their rows alone."""
        returned = self._names_returned()
        return self._named(
            {
                name: {n: value for n, value in about.items() if n not in returned.get(name, ())}
                for name, about in self._described.items()
            }
        )

    def returned(self) -> Described:
        """What tasks have returned with results."""
        known = self._described
        return self._named(
            {
                name: {n: known[name][n] for n in names if n in known.get(name, {})}
                for name, names in self._names_returned().items()
            }
        )

    def axes(self) -> dict[str, list[str]]:
        """The names of the axes of each result; none if these are only numbered."""
        found = {}
        for column in self._reader.columns():
            scales = [axis[0].name.strip("/") if len(axis) else "" for axis in column.dataset.dims]
            names = scales[1:] if column.starts is None else scales
            is_numbered = any(name.startswith(f"{column.name}_dim") for name in names)
            found[column.source_name] = [] if is_numbered or column.shapes else names
        return {name: [] for name in found} | self._relabels.dims(found)

    def _named(self, described: Described) -> Described:
        found = self._relabels.attributes(described)
        return {name: about for name, about in found.items() if about}

    def _names_returned(self) -> dict[str, list[str]]:
        """Which attributes of which results tasks have returned, by the names of then."""
        try:
            return dict(json.loads(bytes(self._reader.whole(f"provenance/{RETURNED}"))))
        except KeyError:
            return {}


def _of_column(column: StoredColumn) -> dict[str, Any]:
    kind = "" if column.dtype == STR else np.dtype(column.dtype).kind
    return _attributes(column.dataset, TIME_ATTRIBUTES if kind and kind in "mM" else ())


def _attributes(dataset: Any, ours: Container[str]) -> dict[str, Any]:
    found = {}
    for name, given in dataset.attrs.items():
        if name not in ours and has_place(name, ""):
            values = _attribute_array(given)
            value = None if values is None else attribute_json(values)
            if value is not None and has_place(name, value):
                found[name] = value
    return found


def _attribute_array(value: Any) -> Array | None:
    """The value of an attribute; None if it is neither numbers nor texts."""
    values = np.asarray(plain_attribute(value))
    if values.dtype == object and all(isinstance(text, str) for text in values.reshape(-1)):
        values = values.astype(str)
    return values if values.dtype.kind in "biufcU" else None
