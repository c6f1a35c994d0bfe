"""Whether the rows of a file are in an output, compared value by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...disk.h5py_loader import h5py
from ...errors import DamagedError
from ...hdf5.errors import Unsupported
from ...hdf5.tree import Dataset
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout, indexed_table
from ...worker_files.survey import Survey
from .pieces import elements_checksum
from .rows import RowReader, library_rows
from .schema import MergedSchema
from .types import convert, holds_objects, survives, type_of

Runs = Sequence[int]  # first row and count, again and again


def datasets_in_columns(
    survey: Survey, one: Input, output: Path, rows: Mapping[str, Runs]
) -> set[str]:
    """The datasets of a file that are in `output` at these rows, value by value; both are read.

    Those of its axes are there as they are, and what only indexes one of them is not asked for.
    """
    found: set[str] = set()
    with survey.opened(one) as layout, h5py.File(output, "r", locking=False) as file:
        for path, dataset in layout.tree.datasets:
            runs = _runs_of(path, rows)
            if path in file and file[path].shape == dataset.space.dims:  # an axis, or all rows
                runs = (0, dataset.rows or 0)
            is_whole = bool(runs) and dataset.rows == sum(runs[1::2])
            if is_whole and _are_equal(one, layout, output, [(path, dataset, runs)]):
                found.add(path)
        return found | {p for p, _ in layout.tree.datasets if indexed_table(p) in found}


def begins_with(survey: Survey, one: Input, output: Path, rows: Mapping[str, Runs]) -> bool:
    """Whether the tables of a file begin with these rows of `output`, value by value."""
    columns = [
        (path, dataset, _runs_of(path, rows))
        for path, dataset in MergedSchema(survey, [one]).structures[0].columns.items()
    ]
    if not columns or any(not r or (d.rows or 0) < sum(r[1::2]) for _, d, r in columns):
        return False
    with survey.opened(one) as layout:
        return _are_equal(one, layout, output, columns)


def _runs_of(path: str, rows: Mapping[str, Runs]) -> Runs:
    return rows.get(path, rows.get(path.rpartition("/")[0] or "/", ()))


def _are_equal(
    one: Input, layout: FileLayout, output: Path, columns: Sequence[tuple[str, Dataset, Runs]]
) -> bool:
    try:
        with h5py.File(output, "r", locking=False) as file:
            return all(
                _are_rows_equal(RowReader(one, layout, path, dataset), dataset, file, path, runs)
                for path, dataset, runs in columns
            )
    except (DamagedError, Unsupported, OSError, RuntimeError):
        return False


def _are_rows_equal(reader: RowReader, dataset: Dataset, file: Any, path: str, runs: Runs) -> bool:
    if path not in file:
        return False
    merged, begin = file[path], 0
    if merged.shape[1:] != (dataset.space.dims or ())[1:]:
        return False
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        steps = reader.steps(begin, begin + count)
        if merged.shape[0] < first + count or not all(
            _is_step_equal(reader, dataset, merged, step, first - begin) for step in steps
        ):
            return False
        begin += count
    return True


def _is_step_equal(
    reader: RowReader, dataset: Dataset, merged: Any, step: range, shift: int
) -> bool:
    """Whether these rows are in the merged dataset, so many rows further on."""
    data, old, new = reader.read(step), type_of(dataset.type), merged.id.get_type()
    found = library_rows(merged, range(step.start + shift, step.stop + shift))
    if holds_objects(new):
        return elements_checksum(found) == elements_checksum(convert(data, old, new))
    return survives(data, old, new) and np.array_equal(convert(data, old, new), found)
