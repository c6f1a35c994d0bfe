"""The numbers that tasks returned: from the output or, as long as there is none, from records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..base.units import size_text
from ..base.values import Array
from ..merge.from_records.rows import Sources
from ..merge.row_labels import RowLabels
from ..output.reader import OutputReader, OutputSource
from ..output.record_rows import BlockCells, Rows
from ..output.row_tasks import tasks_of_output
from ..output.stored_labels import StoredLabels
from ..runfolder.layout import RunFolder
from ..state.declare_sweep import found_units
from ..state.state import FolderState

MOST_RECORD_BYTES = 256_000_000  # that are read where there is no output
_ROWS = 1 << 16
_NUMBERS = "biuf"


@dataclass(frozen=True)
class Scalar:
    """One result that is a number: its value in each of these tasks."""

    name: str
    units: str
    tasks: Array
    values: Array


@dataclass(frozen=True)
class Results:
    """What the page shows of results; `note` says which are meant."""

    scalars: tuple[Scalar, ...] = ()
    drawable: tuple[str, ...] = ()  # arrays of which the last axis is declared as xy
    units: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def read_results(folder: RunFolder, state: FolderState) -> Results:
    """The scalars of all tasks that are done, and which arrays can be drawn."""
    note = _why_not(folder, state)
    if note is None:
        return Results()
    if note:
        return Results(note=note)
    units = _units(folder, state)
    found: dict[str, list[tuple[Array, Array]]] = {}
    for tasks, cells in _cells(folder, state, None):
        if cells.axes.shape[1] == 0 and np.dtype(cells.dtype).kind in _NUMBERS:
            values = cells.load().astype(np.float64)
            found.setdefault(cells.name, []).append((tasks, values))
    scalars = [
        Scalar(name, units.get(name, ""), *map(np.concatenate, zip(*parts, strict=True)))
        for name, parts in found.items()
    ]
    return Results(tuple(scalars), _drawable(folder), units, _which(folder, state))


def read_drawings(
    folder: RunFolder, state: FolderState, name: str, tasks: Array
) -> dict[int, Array]:
    """The positions, two numbers each, that these tasks returned under this name."""
    found = {}
    for of_cells, cells in _cells(folder, state, tasks):
        if cells.name != name or np.dtype(cells.dtype).kind not in _NUMBERS:
            continue
        pieces = np.split(cells.load(), np.cumsum(cells.counts)[:-1])
        for task, axes, piece in zip(of_cells.tolist(), cells.axes, pieces, strict=True):
            if len(axes) and axes[-1] == 2:
                found[task] = piece.reshape(-1, 2).astype(np.float64)
    return found


def _why_not(folder: RunFolder, state: FolderState) -> str | None:
    """Empty if results can be read; None if there are none."""
    if not state.results:
        return None
    size_bytes = sum(path.stat().st_size for path in state.paths)
    if folder.output.exists() or size_bytes <= MOST_RECORD_BYTES:
        return ""
    return f"{size_text(size_bytes)} of results are not merged yet, and not read for this page."


def _which(folder: RunFolder, state: FolderState) -> str:
    if not folder.output.exists():
        return "From the records; there is no output yet."
    if state.results_not_merged:
        return f"From the output, which lacks {state.results_not_merged:,} of the results."
    return ""


def _units(folder: RunFolder, state: FolderState) -> dict[str, str]:
    """Of the output; of records those that the code of all rows has declared."""
    if folder.output.exists():
        with OutputReader(folder.output, state.relabels) as reader:
            return found_units(StoredLabels(reader).all())
    of_rows = RowLabels.read(folder, state).labels.values()
    declared = folder.load_sweep().get("units") or {}
    return {n: u for n, u in declared.items() if all(it["units"].get(n) == u for it in of_rows)}


def _drawable(folder: RunFolder) -> tuple[str, ...]:
    dims = folder.load_sweep().get("dims") or {}
    return tuple(name for name, axes in dims.items() if len(axes) > 1 and axes[-1] == "xy")


def _cells(
    folder: RunFolder, state: FolderState, wanted: Array | None
) -> Iterator[tuple[Array, BlockCells]]:
    """The cells of all tasks that are done, or of those wanted, with the task of each."""
    if not folder.output.exists():
        yield from _record_cells(state, wanted)
        return
    with OutputReader(folder.output, state.relabels) as reader:
        yield from _output_cells(reader, state, wanted)


def _output_cells(
    reader: OutputReader, state: FolderState, wanted: Array | None
) -> Iterator[tuple[Array, BlockCells]]:
    tasks = tasks_of_output(reader, state.plan)
    is_done = np.array([state.is_done(task) for task in tasks.tolist()], bool)
    unsound = list(state.held.unsound)
    is_wanted = is_done & ~np.isin(tasks, unsound)
    if wanted is not None:
        is_wanted &= np.isin(tasks, wanted)
    rows, source = np.flatnonzero(is_wanted), OutputSource(reader)
    for start in range(0, len(rows), _ROWS):
        block = rows[start : start + _ROWS]
        for cells in source.parts(np.arange(len(block)), block):
            yield tasks[block[cells.rows]], cells


def _record_cells(state: FolderState, wanted: Array | None) -> Iterator[tuple[Array, BlockCells]]:
    sources = Sources(state, None)
    if wanted is not None:
        sources.rows = _chosen(sources.rows, np.isin(sources.rows.tasks, wanted))
    for block in sources.rows.blocks():
        tasks = sources.rows.tasks[block]
        for cells in sources.parts(block):
            yield tasks[cells.rows], cells


def _chosen(rows: Rows, is_chosen: Any) -> Rows:
    return Rows(**{f.name: getattr(rows, f.name)[is_chosen] for f in fields(rows)})
