"""The rows of a new output, block by block, from record files and from the old output."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

import numpy as np

from ...base.compare import are_identical, cast_and_back
from ...base.values import Array
from ...output.columns import ColumnLayout, DataColumn, Variant
from ...output.reader import OutputReader, OutputSource
from ...output.record_forms import Label, RowStructure
from ...output.record_rows import OLD_OUTPUT, BlockCells, ColumnCells, RecordSource, Rows, spans
from ...output.row_tasks import tasks_of_output
from ...output.stored_labels import StoredLabels
from ...output.verify import damaged_rows
from ...runfolder.records import RecordKind
from ...state.state import IN_OUTPUT, FolderState
from .returned_labels import KeptLabels

THREADS = min(4, len(os.sched_getaffinity(0)))


class Sources:
    """All finished tasks of a run folder, in ascending order, and where their results are."""

    def __init__(self, state: FolderState, old: OutputReader | None) -> None:
        self._records = RecordSource(state.paths, state.relabels)
        self._reader, self._old = old, OutputSource(old) if old is not None else None
        kinds = np.frombuffer(state.kinds, np.uint8)
        is_kept = kinds == IN_OUTPUT
        self.damaged_tasks: Array = np.empty(0, np.int64)  # of which the old output has a bad row
        if old is not None:
            tasks_of_rows = tasks_of_output(old, state.plan)
            is_bad = ~_are_held(state)[tasks_of_rows]
            if is_kept.any():
                is_bad[damaged_rows(old)] = True
            self.damaged_tasks = tasks_of_rows[is_bad]
            is_kept[self.damaged_tasks] = False
        is_there = (kinds == RecordKind.DONE) | is_kept
        tasks = np.flatnonzero(is_there)
        self.rows = Rows.empty(tasks)
        self.lost_tasks = np.unique(self.damaged_tasks[~is_there[self.damaged_tasks]])
        self._locate_records(state)
        if old is not None and is_kept.any():
            self._locate_kept(old, np.flatnonzero(is_kept[tasks]), tasks_of_rows)

    def _locate_records(self, state: FolderState) -> None:
        """Fill in the rows that come from records, from their files."""
        recorded = np.flatnonzero(
            np.frombuffer(state.kinds, np.uint8)[self.rows.tasks] == RecordKind.DONE
        )
        tasks = self.rows.tasks[recorded]
        files = np.frombuffer(state.files, np.int32)[tasks]
        offsets = np.frombuffer(state.offsets, np.int64)[tasks]
        order = np.argsort(files, kind="stable")
        by_file = np.split(order, np.flatnonzero(np.diff(files[order])) + 1)

        def locate(chosen: Array) -> None:
            if len(chosen):
                file = int(files[chosen[0]])
                self._records.locate(self.rows, recorded[chosen], file, offsets[chosen])

        with ThreadPoolExecutor(THREADS) as executor:
            # list: an error of a thread is raised here.
            list(executor.map(locate, by_file))

    def _locate_kept(self, old: OutputReader, kept: Array, tasks_of_rows: Array) -> None:
        order = np.argsort(tasks_of_rows)
        places = order[np.searchsorted(tasks_of_rows, self.rows.tasks[kept], sorter=order)]
        self.rows.position[kept] = places
        self.rows.size_bytes[kept] = old.path.stat().st_size // len(tasks_of_rows)
        self.rows.finished_at[kept] = old.whole("finished_at")[places]
        self.rows.duration_s[kept] = old.whole("duration_s")[places]

    def codes(self, of_files: Array, of_old_rows: Array) -> Array:
        """The version of the code that made each row, by the number that its source has."""
        numbers = np.zeros(len(self.rows), np.uint16)
        is_kept = self.rows.source == OLD_OUTPUT
        numbers[~is_kept] = of_files[self.rows.source[~is_kept]]
        numbers[is_kept] = of_old_rows[self.rows.position[is_kept]]
        return numbers if numbers.max(initial=0) > 255 else numbers.astype(np.uint8)

    def parts(self, block: slice, *, checked: bool = False) -> Iterator[BlockCells]:
        """All cells in the rows of a block; see `RecordSource.parts`."""
        yield from self._records.parts(self.rows, block, checked=checked)
        yield from self._kept_parts(block)

    def _kept_parts(self, block: slice) -> Iterator[BlockCells]:
        kept = np.flatnonzero(self.rows.source[block] == OLD_OUTPUT)
        if self._old is not None and len(kept):
            yield from self._old.parts(kept, self.rows.position[block][kept])

    def variants(self) -> list[Variant]:
        """Every name and dtype that occurs, in the order of the tasks that first returned it."""
        found: dict[tuple[str, str], Variant] = {}
        # Structures have numbers by the turns that threads took, which must not show.
        first_row = attrgetter("first_row")
        recorded = sorted(self._records.cells(self.rows), key=first_row)
        for cells in heapq.merge(recorded, self._kept_cells(), key=first_row):
            variant = (cells.name, cells.dtype)
            found.setdefault(variant, Variant(*variant)).add(cells.rows, cells.axes)
        return list(found.values())

    def _kept_cells(self) -> Iterator[ColumnCells]:
        for block in self.rows.blocks() if self._old is not None else ():
            for part in self._kept_parts(block):
                first_row = block.start + int(part.rows[0])
                yield ColumnCells(part.name, part.dtype, first_row, len(part.rows), part.axes)

    def labels(self) -> tuple[list[tuple[RowStructure, tuple[Label, ...]]], KeptLabels]:
        """What records say of their cells, and what tasks have said of rows that are kept."""
        has_kept = bool((self.rows.source == OLD_OUTPUT).any())
        kept: KeptLabels = {}
        if self._reader and has_kept:
            labels = StoredLabels(self._reader)
            returned, axes_of = labels.returned(), labels.axes().items()
            kept = {name: (tuple(axes), returned.get(name, {})) for name, axes in axes_of}
        return list(self._records.labels(self.rows)), kept

    def have_both(self, one: str, other: str) -> bool:
        """Whether some row has values under both names."""
        for block in self.rows.blocks():
            parts = list(self.parts(block))
            rows = [
                {r for p in parts if p.name == n for r in p.rows.tolist()} for n in (one, other)
            ]
            if rows[0] & rows[1]:
                return True
        return False

    def rows_with(self, name: str) -> Array:
        """Which rows have a value under this name; NaN and empty texts of an output are none."""
        have: Array = self.rows.source != OLD_OUTPUT
        kept = np.flatnonzero(~have)
        have[have] = self._records.have_result(self.rows.form[have], name)
        if self._reader is not None and len(kept):
            source = OutputSource(self._reader, only=name)
            for part in source.parts(kept, self.rows.position[kept]):
                have[part.rows] = True
        return have

    def only_value(self, column: DataColumn) -> Array | None:
        """What all rows that have a value in this column have there, as stored; None if it differs.

        The column is FIXED. NaN is equal to itself.
        """
        only: Array | None = None
        for block in self.rows.blocks():
            for part in _parts_of(column, list(self.parts(block))):
                stored = column.to_stored(part.load()).reshape(len(part.rows), -1)
                only = stored[0].copy() if only is None else only
                if not are_identical(stored, np.broadcast_to(only, stored.shape)):
                    return None
        return only

    def counts(self, columns: Sequence[DataColumn]) -> dict[str, Array]:
        """For each of these columns, how many elements along its first axis each row has."""
        counts = {column.name: np.zeros(len(self.rows), np.int64) for column in columns}
        for block in self.rows.blocks() if columns else ():
            parts = list(self.parts(block))
            for column in columns:
                for part in _parts_of(column, parts):
                    is_ragged = column.layout is ColumnLayout.RAGGED
                    sizes = part.axes[:, 0] if is_ragged else part.counts
                    counts[column.name][block][part.rows] = sizes
        return counts

    def survives(self, variant: Variant, dtype: str) -> bool:
        """Whether every value of a variant is the same after a conversion to `dtype` and back."""
        return all(cast_and_back(values, dtype)[1].all() for values in self._values([variant]))

    def values_among(self, variants: Sequence[Variant], candidates: Array) -> set[int]:
        """Those of the candidates that occur as values."""
        found: set[int] = set()
        for values in self._values(variants):
            found.update(values[np.isin(values, candidates)].tolist())
        return found

    def are_verbatim(self, columns: Sequence[DataColumn]) -> Array:
        """Which rows were recorded with exactly these columns, in the dtypes stored."""
        cells = [(column.source_name, column.dtype) for column in columns]
        is_recorded: Array = self.rows.source != OLD_OUTPUT
        is_recorded[is_recorded] = self._records.have_cells(self.rows.form[is_recorded], cells)
        return is_recorded

    def _values(self, variants: Sequence[Variant]) -> Iterator[Array]:
        wanted = {(variant.name, variant.dtype) for variant in variants}
        for block in self.rows.blocks():
            for part in self.parts(block):
                if (part.name, part.dtype) in wanted:
                    yield part.load()


def _are_held(state: FolderState) -> Array:
    """Which tasks have a row in the old output that was found to be sound when it was noted."""
    are_held = np.zeros(len(state.plan), bool)
    for first, last in state.held.ranges:
        are_held[first : last + 1] = True
    return are_held


def assemble(column: DataColumn, parts: Sequence[BlockCells], rows: int) -> tuple[Array, Array]:
    """The elements of one column for a block, as stored, and how many belong to each row."""
    mine = _parts_of(column, parts)
    if column.layout is ColumnLayout.FIXED:
        counts = np.full(rows, column.row_elements)
    else:
        counts = np.zeros(rows, np.int64)
        for part in mine:
            counts[part.rows] = part.counts
    if len(mine) == 1 and len(mine[0].rows) == rows:
        return column.to_stored(mine[0].load()), counts
    if column.layout is ColumnLayout.FIXED:
        return _assemble_fixed(column, mine, rows), counts
    return _assemble_ragged(column, mine, counts), counts


def assemble_shapes(column: DataColumn, parts: Sequence[BlockCells], rows: int) -> Array:
    """The shape of each cell of a SHAPED column; -1 for axes that a cell does not have."""
    shapes = np.full((rows, column.ndim), -1, np.int64)
    for part in _parts_of(column, parts):
        shapes[part.rows, : part.axes.shape[1]] = part.axes
    return shapes


def _assemble_fixed(column: DataColumn, parts: Sequence[BlockCells], rows: int) -> Array:
    width = column.row_elements
    if sum(len(part.rows) for part in parts) == rows:
        stored = np.empty((rows, width), column.stored)
    else:
        stored = np.full((rows, width), column.fill, column.stored)
    for part in parts:
        values = column.to_stored(part.load())
        stored[part.rows] = values.reshape(len(part.rows), width)
    return stored.reshape(-1)


def _assemble_ragged(column: DataColumn, parts: Sequence[BlockCells], counts: Array) -> Array:
    starts = np.cumsum(counts) - counts
    stored = np.empty(int(counts.sum()), column.stored)
    for part in parts:
        places = spans(starts[part.rows], part.counts)
        stored[places] = column.to_stored(part.load())
    return stored


def _parts_of(column: DataColumn, parts: Sequence[BlockCells]) -> list[BlockCells]:
    name, dtypes = column.source_name, column.source_dtypes
    return [part for part in parts if part.name == name and part.dtype in dtypes]
