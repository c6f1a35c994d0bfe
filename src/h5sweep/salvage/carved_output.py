"""The rows of a carved output of ours: each has its own checksum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any
from zlib import crc32

import numpy as np

from ..base.key_rule import KeyRule
from ..base.values import Array
from ..hdf5.errors import Damaged
from ..worker_files.file_view import NO_KEY, Failures, FoundTask, FoundValue, Group, Proof
from ..worker_files.read_tasks import rows_of
from .carved_datasets import CarvedVariable

FORMAT = "h5sweep.output/1"


def is_output(group: Group) -> bool:
    about = group.attributes.get("h5sweep_format")
    return about is not None and str(about.value) == FORMAT


def find_rows(group: Group, rule: KeyRule) -> Iterator[FoundTask]:
    """Every row whose checksum holds, as a task; of the others, what is wrong."""
    names = _words(group, "h5sweep_key")
    columns, lost = _columns_of(group)
    checksums = _variable(group, "row_crc32")
    rows = 0 if checksums is None else rows_of({"row_crc32": checksums})
    for row in range(rows):
        found = FoundTask(f"row {row:,}", is_row=True)
        try:
            _take_key(found, group, names, row, rule)
            assert checksums is not None
            expected = int(checksums.read(row)[""].value)
            found.lost.update(lost)
            if not lost:
                _take_cells(found, columns, row, expected)
        except Failures as error:
            found.lost[""] = str(error)
        yield found


def _columns_of(group: Group) -> tuple[list[_CarvedColumn], dict[str, str]]:
    """The data columns; and those without which no row is whole, with what became of them."""
    columns, lost = [], {}
    for name in _words(group, "h5sweep_columns"):
        try:
            columns.append(_CarvedColumn(group, name))
        except Failures as error:
            lost[name] = str(error)
    return columns, lost


def _words(group: Group, name: str) -> list[str]:
    cell = group.attributes.get(name)
    return str(cell.value).split() if cell is not None else []


def _variable(group: Group, name: object) -> CarvedVariable | None:
    found = group.variables.get(str(name))
    return found if isinstance(found, CarvedVariable) else None


def _take_key(found: FoundTask, group: Group, names: list[str], row: int, rule: KeyRule) -> None:
    key: dict[str, object] = {}
    proof = Proof.CHECKSUM
    for name in names:
        variable = _variable(group, name)
        if variable is None:
            raise Damaged(f"the column {name} is lost")
        cell = variable.read(row)[""]
        is_truth = str(variable.attributes.get("dtype")) == "bool"
        key[name] = bool(cell.value) if is_truth else cell.value.item()
        proof = min(proof, cell.proof)
        found.doubt = found.doubt or cell.doubt
        if cell.gap and cell.is_fill:
            found.doubt = f"there are zeros where its {name} should be, as after a lost page"
    found.key = rule.checked(key)
    if found.key is None:
        found.lost[""] = NO_KEY
    elif rule.expected is not None and rule.is_expected(found.key):
        proof = Proof.CHECKSUM  # the checksum of a row leaves out its key: the plan vouches for it
    found.key_proof = proof


def _take_cells(found: FoundTask, columns: list[_CarvedColumn], row: int, expected: int) -> None:
    checksum = 0
    for column in columns:
        stored = column.stored(row)
        checksum = crc32(_checked_bytes(stored), checksum)
        if (value := column.value(stored, row)) is not None:
            found.cells[column.source_name] = FoundValue(value, Proof.CHECKSUM)
    if checksum != expected:
        found.lost[""] = "its checksum is wrong"
    found.is_proven = True


def _checked_bytes(stored: Array) -> bytes:
    if stored.dtype.kind != "U":
        return stored.astype(stored.dtype.newbyteorder("<"), copy=False).tobytes()
    texts = [text.encode() for text in stored.ravel().tolist()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


class _CarvedColumn:
    """A data column, in whichever of the three layouts."""

    def __init__(self, group: Group, name: str) -> None:
        variable = _variable(group, name.lstrip("/"))
        if variable is None:
            raise Damaged(f"the column {name} is lost")
        self.variable = variable
        about: dict[str, Any] = variable.attributes
        self.source_name = str(about.get("h5sweep_name", name.lstrip("/")))
        self.dtype = str(about["h5sweep_dtype"]) if "h5sweep_dtype" in about else None
        self.gap = about.get("_FillValue")
        self.shapes = _variable(group, about.get("h5sweep_shape"))
        self.starts: list[int] | None = None
        if "h5sweep_count" in about:
            counts = _variable(group, about["h5sweep_count"])
            if counts is None:
                raise Damaged(f"the counts of {name} are lost")
            self.starts = [0, *accumulate(counts.read(None)[""].value.tolist())]

    def stored(self, row: int) -> Array:
        """The elements of one row, as they are in the file."""
        if self.starts is None:
            return self.variable.read(row)[""].value
        first, last = self.starts[row], self.starts[row + 1]
        inner = (self.variable.shape or (0,))[1:]
        parts = [self.variable.read(element)[""].value for element in range(first, last)]
        return np.array(parts).reshape(last - first, *inner)

    def value(self, stored: Array, row: int) -> Array | None:
        """What the task returned; None if it returned nothing by this name."""
        if stored.dtype.kind in "iu" and self.gap is not None and (stored == self.gap).all():
            return None
        if self.shapes is not None:
            axes = [n for n in self.shapes.read(row)[""].value.tolist() if n >= 0]
            if math.prod(axes) != stored.size:
                return None
            stored = stored.reshape(axes)
        if self.dtype is None or stored.dtype.kind == "U":
            return stored
        return stored.view(self.dtype)
