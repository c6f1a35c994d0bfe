"""The forms of records: which headers they have, and so which cells."""

from __future__ import annotations

import json
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..base.relabels import Relabels
from ..base.values import Array, least_bytes, schema_from_header

Axes = tuple[str, ...]
Label = tuple[Axes, str]  # the names of a cell's axes, and its attributes as JSON
RowStructure = tuple[tuple[str, str, int], ...]  # name, dtype and number of axes of each cell
_FORMS_REMEMBERED = 1 << 15


class Forms:
    """The distinct schemas of records, by number.

    A schema is split into its structure (names, dtypes, numbers of axes), of which there are few,
    and its axes, of which there may be as many as tasks.
    """

    def __init__(self) -> None:
        self.structures: list[RowStructure] = []
        self._structure_numbers: dict[RowStructure, int] = {}
        self._axes: list[array[int]] = []
        self._structure_of_form = array("i")
        self._place_of_form = array("q")
        self._bytes_of_form = array("q")  # at least, of the data
        self._labels: dict[tuple[Label, ...], int] = {(): 0}
        self._labels_of_form = array("i")
        self._known: dict[tuple[bytes, int], int] = {}
        self._lock = threading.Lock()

    def number(self, head: bytes, relabels: Relabels) -> int:
        """The number of the schema in `head`, a record's header up to its key.

        `relabels` are those that its file does not know; files that know one know all before it.
        """
        with self._lock:
            known = self._known.get((head, len(relabels.entries)))
            return self._add(head, relabels) if known is None else known

    def _add(self, head: bytes, relabels: Relabels) -> int:
        header = relabels.header(json.loads(head + b"}"))
        schema = schema_from_header(header)
        size_bytes = least_bytes(schema)
        structure = tuple((cell.name, cell.dtype, len(cell.shape)) for cell in schema)
        number = self._structure_numbers.setdefault(structure, len(self.structures))
        if number == len(self.structures):
            self.structures.append(structure)
            self._axes.append(array("q"))
        width = max(sum(ndim for _, _, ndim in structure), 1)
        self._place_of_form.append(len(self._axes[number]) // width)
        self._structure_of_form.append(number)
        self._bytes_of_form.append(size_bytes)
        labels = tuple(map(_label, header.get("labels", ())))
        self._labels_of_form.append(self._labels.setdefault(labels, len(self._labels)))
        axes = [size for cell in schema for size in cell.shape]
        self._axes[number].extend(axes or [0])
        # Where every task has a shape of its own, remembering all would take more than the data.
        if len(self._known) >= _FORMS_REMEMBERED:
            self._known.clear()
        form = self._known[head, len(relabels.entries)] = len(self._structure_of_form) - 1
        return form

    def require_fit(self, forms: Array, size_bytes: Array) -> None:
        """Raise ValueError if the data of a record are too short for what its header says."""
        with self._lock:  # nobody may append to an array while it is looked at
            least = np.frombuffer(self._bytes_of_form, np.int64)[forms]
        if (least > size_bytes).any():
            raise ValueError("its data are shorter than its header says")

    def labels(self, forms: Array) -> Iterator[tuple[RowStructure, tuple[Label, ...]]]:
        """What cells there are, and what is said of them: each combination in these forms once."""
        labels = list(self._labels)
        numbers = np.frombuffer(self._labels_of_form, np.int32)[forms]
        pairs = {*zip(self.structure_of(forms).tolist(), numbers.tolist(), strict=True)}
        for structure, number in sorted(pairs):
            yield self.structures[structure], labels[number]

    def structure_of(self, forms: Array) -> Array:
        """The number of each form's structure."""
        if len(self.structures) <= 1:
            return np.broadcast_to(np.int32(0), forms.shape)
        return np.frombuffer(self._structure_of_form, np.int32)[forms]

    def axes_of(self, forms: Array, structure: int) -> Array:
        """The axes of forms of one structure: all cells' side by side, one row a form."""
        axes = self.all_axes(structure)
        if (forms == forms[0]).all():
            return np.broadcast_to(axes[self._place_of_form[forms[0]]], (len(forms), axes.shape[1]))
        return axes[np.frombuffer(self._place_of_form, np.int64)[forms]]

    def all_axes(self, structure: int) -> Array:
        """The same for every form of that structure."""
        width = max(sum(ndim for _, _, ndim in self.structures[structure]), 1)
        return np.frombuffer(self._axes[structure], np.int64).reshape(-1, width)


def _label(given: Any) -> Label:
    dims, pairs = given or ((), ())
    return tuple(dims), json.dumps(dict(pairs), sort_keys=True) if pairs else ""
