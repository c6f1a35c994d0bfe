"""Tables of many files, merged along their first axis into one file of the same shape.

Names, groups, types and attributes stay as they are, so that scripts which read one of the files
read the merged one. What is on disk for each column:

    no input is packed      contiguous, and of fixed size: fastest to read, and written by `pwrite`
    all are packed alike    the chunks as they are, resizable if those of the inputs are; the length
                            of every input but the last must be a multiple of the chunk's
    packed in other ways    unpacked, and packed again as in the first input that is packed
    of any length           texts and sequences are read from the heaps of the inputs and written
                            by the HDF5 library

Every chunk that is taken as it is was unpacked once, so that what is written can be read. The HDF5
library opens no input, except for filters that our reader lacks, in files that are sound.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from ...base.progress_callback import Progress
from ...runfolder.audit import Conflict
from ...worker_files.inputs import Input
from ...worker_files.read_values import Values
from ...worker_files.survey import Survey
from .converted_rows import (
    ConvertedRows,
    convert_rows,
    write_rows,
)
from .copy import (
    Route,
    copy_alike,
    copy_file,
    plan_route,
    verify_alike,
    verify_file,
)
from .create import TablesFile, created, not_as_written, reopened
from .duplicates import RowsLookedAt, look_at_rows
from .input_structure import InputStructure
from .pack_chunks import ChunkPacker, PackedChunk, can_be_packed, chunk_packers
from .schema import MergedColumn, MergedSchema, MergedTable, Mode
from .taken_rows import TakenRows

THREADS = 2
T = TypeVar("T")
# What is copied at once of small files that are alike; more would be fresh memory.
ALIKE_BYTES = 1 << 17


@dataclass(eq=False)
class _CopiedInputs:
    """Inputs that are copied at once, and the checksums by which they are verified."""

    places: range
    route: Route
    is_alike: bool
    checksums: Sequence[int] = ()


class MergedTables:
    """The tables of `inputs`, which must all have some, as one file. Nothing is written yet.

    Raises UsageError, naming both places, if a column cannot be one without losing a value.
    """

    def __init__(
        self,
        survey: Survey,
        inputs: Sequence[Input],
        held: Mapping[Input, Mapping[str, Sequence[int]]] | None = None,
    ) -> None:
        """`held`: of inputs whose first rows another input has, where these are in the output."""
        self._survey, self._inputs = survey, inputs
        self._schema = MergedSchema(survey, inputs, held)
        self.notes = self._schema.notes
        self.conflicts: list[Conflict] = []  # rows have no keys by which they could contradict
        self.looked_at: list[RowsLookedAt] = []  # for rows that may be there twice, by `verify`
        self._copied_rows = 0
        self._batches: list[_CopiedInputs] = []
        self._odd: list[ConvertedRows | PackedChunk] = []
        self._columns = self._schema.columns
        self._tables = {table.name: table for table in self._schema.tables}
        self._places = {one: place for place, one in enumerate(inputs)}
        self._routes = [self._route(structure) for structure in self._schema.structures]

    @property
    def attribute_owners(self) -> dict[tuple[str, str], tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return self._schema.attributes.owners()

    @property
    def paths(self) -> set[str]:
        """The datasets of the output that this writes."""
        return {column.path for column in self._columns} | self._schema.scales.keys()

    def datasets_of(self, one: Input) -> tuple[str, ...]:
        """The datasets of an input that are in the output, and those that need not be."""
        place = self._places.get(one)
        if place is None:
            return ()
        structure = self._structure(place)
        return *self._schema.kept_of(structure), *self._schema.indexes_of(structure)

    def have_more(self) -> set[Input]:
        """The inputs that have datasets besides."""
        numbers = {n for n, s in enumerate(self._schema.structures) if self._schema.has_more(s)}
        return {self._inputs[p] for p, n in enumerate(self._schema.of_input) if n in numbers}

    @property
    def size_bytes(self) -> int:
        """About what the merged tables take on disk."""
        packed = {c.path for c in self._columns if c.mode is Mode.CHUNKS}
        plain = sum(
            table.rows * column.row_bytes
            for table in self._schema.tables
            for column in table.columns
            if column.path not in packed
        )
        return plain + _packed_bytes(self._schema, packed) + (1 << 16)

    def write(self, path: Path, progress: Progress) -> TakenRows:
        """Add the tables to the HDF5 file at `path`, which is created if it is not there.

        Every input is read once, and its checksum taken. Nothing is durable yet, and nothing counts
        before `verify`. ChangedError if an input is not what was looked at.
        """
        meter = _Meter(progress, sum(one.size_bytes for one in self._inputs))
        self._batches, self._odd = list(self._make_batches()), []
        with created(path, self._schema) as output:
            checksums = self._copy_all(output, meter)
            self._copy_odd(output)
        self._note_copies(checksums)
        return TakenRows(self._inputs, checksums, self._schema, dict(self._read_marks()))

    def _read_marks(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The values of what is left out of each input, for the audit trail."""
        for place, one in enumerate(self._inputs):
            if self._structure(place).skipped.marks:
                with self._survey.opened(one) as layout:
                    values = Values(layout.tree.file)
                    yield place, values.texts_of(layout.skipped.marks.values())

    def verify(self, path: Path, progress: Progress) -> None:
        """Read everything back from `path` and compare it with what the inputs were.

        Names, types, shapes and attributes are compared with those of the inputs; data with
        checksums that were taken of the inputs' bytes when these were read, which is once.
        DamagedError if anything differs.
        """
        meter = _Meter(progress, self.size_bytes)
        with reopened(path, self._schema) as output:

            def verify_batch(batch: _CopiedInputs) -> None:
                route, count = batch.route, len(batch.places)
                firsts = self._firsts(route, batch.places.start)
                if batch.is_alike:
                    verify_alike(count, route, firsts, batch.checksums, output)
                else:
                    verify_file(route, firsts, batch.checksums, output, meter.tick)

            for table in self._schema.tables:
                _require_covered(table, output)
            _for_each(verify_batch, self._batches)
            _in_threads(partial(_require_holding, output), self._odd)
            looked_at = [
                look_at_rows(output, table, self._inputs, copied=self._copied_rows)
                for table in self._schema.tables
            ]
            self.looked_at = [one for one in looked_at if one is not None]
        meter.finish()

    # How it is copied ----------------------------------------------------------------------------

    def _structure(self, place: int) -> InputStructure:
        return self._schema.structures[int(self._schema.of_input[place])]

    def _route(self, structure: InputStructure) -> Route:
        columns = [c for name in structure.tables for c in self._tables[name].columns]
        return plan_route(structure, columns, structure.start, structure.example.size_bytes)

    def _firsts(self, route: Route, place: int) -> list[int]:
        """For each column, the row of the output at which the rows of an input begin."""
        return [int(self._tables[column.table].starts[place]) for column in route.columns]

    def _make_batches(self) -> Iterator[_CopiedInputs]:
        """Small files that are alike and follow one another, at once; every other by itself."""
        numbers = self._schema.of_input
        is_plain = np.array([route.is_plain for route in self._routes], bool)
        is_kept = np.array([one.is_kept for one in self._inputs], bool)
        kinds = np.where(is_plain[numbers] & is_kept, numbers, -1 - np.arange(len(numbers)))
        ends = [*(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(numbers)]
        first = 0
        for end in ends:
            route = self._routes[numbers[first]]
            family = self._inputs[first].family
            step = max(ALIKE_BYTES // max(family.hole_bytes if family else 1, 1), 1)
            for place in range(first, end, step):
                places = range(place, min(place + step, end))
                yield _CopiedInputs(places, route, is_alike=bool(kinds[place] >= 0))
            first = end

    def _copy_all(self, output: TablesFile, meter: _Meter) -> list[int]:
        """Copy what can be copied as bytes; return the checksum of every input."""
        checksums = [0] * len(self._inputs)

        def copy(batch: _CopiedInputs) -> None:
            first, end, route = batch.places.start, batch.places.stop, batch.route
            inputs, firsts = self._inputs[first:end], self._firsts(route, first)
            if batch.is_alike:
                checksums[first:end], batch.checksums = copy_alike(inputs, route, firsts, output)
                meter.tick(len(inputs) * inputs[0].size_bytes)
            else:
                checksums[first], batch.checksums = copy_file(
                    inputs[0], route, firsts, output, meter.tick
                )

        _for_each(copy, self._batches)
        return checksums

    def _copy_odd(self, output: TablesFile) -> None:
        """Copy the columns that have to be unpacked, converted or filled."""
        has_odd = np.array([bool(route.odd) for route in self._routes])[self._schema.of_input]
        with chunk_packers(output, self._columns) as packers:
            for place in np.flatnonzero(has_odd).tolist():
                self._copy_odd_of(place, output, packers)
            for packer in packers.values():
                self._odd += packer.finish()

    def _copy_odd_of(
        self, place: int, output: TablesFile, packers: Mapping[MergedColumn, ChunkPacker]
    ) -> None:
        one, structure = self._inputs[place], self._structure(place)
        route = self._routes[self._schema.of_input[place]]
        firsts = self._firsts(route, place)
        with self._survey.opened(one) as layout:
            for column, first in zip(route.columns, firsts, strict=True):
                if column in route.odd:
                    part = structure.tables[column.table]
                    for at, data in convert_rows(one, layout, part, column):
                        if column in packers:
                            packers[column].add(data)
                        else:
                            self._odd.append(write_rows(output, column, first + at, data))

    # What came of it -----------------------------------------------------------------------------

    def _note_copies(self, checksums: Sequence[int]) -> None:
        """Say which files are equal: without a key nobody knows that their rows are the same."""
        pairs = _equal_files(self._inputs, checksums)
        if pairs:
            self._copied_rows = sum(one.contents.tasks or 0 for one, _ in pairs if one.contents)
            one, first = pairs[0]
            more = f", and so are {len(pairs) - 1:,} more to others" if len(pairs) > 1 else ""
            self.notes.append(
                f"{one.path} is equal to {first.path}{more}: its rows occur twice; leave the "
                "file out, or give --key, which takes each task once"
            )


def _packed_bytes(schema: MergedSchema, packed: set[str]) -> int:
    sizes = [
        sum(c.size for path, d in s.columns.items() if path in packed for c in d.chunks)
        for s in schema.structures
    ]
    return int(np.array(sizes)[schema.of_input].sum()) if packed else 0


def _equal_files(inputs: Sequence[Input], checksums: Sequence[int]) -> list[tuple[Input, Input]]:
    """The inputs with rows that are equal to an earlier one, each with that."""
    if len(set(checksums)) == len(checksums):
        return []
    firsts: dict[tuple[int, int], Input] = {}
    pairs = []
    for one, checksum in zip(inputs, checksums, strict=True):
        first = firsts.setdefault((one.size_bytes, checksum), one)
        if first is not one and one.contents and one.contents.tasks:
            pairs.append((one, first))
    return pairs


def _require_covered(table: MergedTable, output: TablesFile) -> None:
    """No chunk more and none less than the rows take."""
    for column in table.columns:
        if column.mode is Mode.CHUNKS or can_be_packed(column):
            sides = zip((table.rows, *column.inner), column.chunk, strict=True)
            if len(output.chunks_of(column.path)) != math.prod(
                -(-dim // side) for dim, side in sides
            ):
                raise not_as_written(column.path)


def _require_holding(output: TablesFile, piece: ConvertedRows | PackedChunk) -> None:
    if not piece.holds(output):
        raise not_as_written(piece.column.path)


class _Meter:
    """Says how far it is, from whatever thread."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, max(total, 1), 0
        self._lock = threading.Lock()

    def tick(self, size_bytes: int) -> None:
        with self._lock:
            self._done = min(self._done + size_bytes, self._total)
            self._progress(self._done, self._total)

    def finish(self) -> None:
        self.tick(self._total)


def _for_each(deal_with: Callable[[_CopiedInputs], None], batches: Sequence[_CopiedInputs]) -> None:
    """Small files here, one after the other; large ones in threads, which only move bytes."""
    for batch in batches:
        if batch.is_alike:
            deal_with(batch)
    _in_threads(deal_with, [batch for batch in batches if not batch.is_alike])


def _in_threads(deal_with: Callable[[T], None], items: Sequence[T]) -> None:
    if not items:
        return
    with ThreadPoolExecutor(THREADS) as executor:
        try:
            for _ in executor.map(deal_with, items):
                pass
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
