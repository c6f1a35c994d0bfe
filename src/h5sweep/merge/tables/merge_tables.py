"""Tables of many files, joined along their first axis into one file of the same shape.

Names, groups, types and attributes stay as they are, so that scripts which read one of the files
read the joined one. What is on disk for each column:

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
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64, xxh3_64_intdigest

from ...base.progress import Progress
from ...base.values import Array
from ...disk import durable
from ...disk.h5py_loader import h5py
from ...errors import DamagedError
from ...hdf5.errors import Unsupported
from ...hdf5.tree import Dataset
from ...runfolder.audit import Conflict
from ...worker_files.layouts import FileLayout, indexed_table
from ...worker_files.read_values import Values
from ...worker_files.survey import Input, Survey
from .copy import (
    Route,
    copy_alike,
    copy_file,
    list_chunks,
    plan_route,
    read_back,
    verify_alike,
    verify_file,
)
from .create import JoinedOutput, as_objects, created, not_as_written, reopened
from .duplicates import RowsLookedAt, look_at_rows
from .rows import RowReader, read_objects, read_raw
from .schema import InputStructure, MergedColumn, MergedSchema, Mode, TablePart, sound_path
from .taken_rows import TakenRows
from .types import convert, fill_element, holds_objects, survives, type_of

THREADS = 2
ALIKE_BYTES = (
    1 << 17
)  # what is copied at once of small files that are alike; more would be fresh memory
FILL_BYTES = 4 << 20


@dataclass(eq=False)
class _CopiedInputs:
    """Inputs that are copied at once, and the checksums by which they are verified."""

    places: range
    route: Route
    is_alike: bool
    checksums: Sequence[int] = ()


@dataclass(frozen=True)
class _OddPiece:
    """Rows that were not copied as bytes, and the checksum of what they became."""

    column: MergedColumn
    first: int
    count: int
    checksum: int


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
        self._odd: list[_OddPiece] = []
        self._columns = self._schema.columns
        self._tables = {table.name: table for table in self._schema.tables}
        self._places = {one: place for place, one in enumerate(inputs)}
        self._routes = [self._route(structure) for structure in self._schema.structures]

    @property
    def attribute_owners(self) -> dict[tuple[str, str], tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return self._schema.attribute_owners()

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
        """About what the joined tables take on disk."""
        packed = {c.path for c in self._columns if c.mode is Mode.CHUNKS}
        plain = sum(
            table.rows * column.row_bytes
            for table in self._schema.tables
            for column in table.columns
            if column.path not in packed
        )
        return plain + self._packed_bytes(packed) + (1 << 16)

    def write(self, path: Path, progress: Progress) -> TakenRows:
        """Add the tables to the HDF5 file at `path`, which is created if it is not there.

        Every input is read once, and its checksum taken. Nothing is durable yet, and nothing counts
        before `verify`. ChangedError if an input is not what was looked at.
        """
        meter = _Meter(progress, sum(one.size_bytes for one in self._inputs))
        self._batches, self._odd = list(self._make_batches()), []
        with created(path, self._schema) as output:
            checksums = self._copy_all(output, meter)
            has_odd = np.array([bool(route.odd) for route in self._routes])[self._schema.of_input]
            for place in np.flatnonzero(has_odd).tolist():
                self._copy_odd(place, output)
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
            chunks = {
                column.path: list_chunks(output, column)
                for column in self._columns
                if column.mode is Mode.CHUNKS
            }

            def verify_batch(batch: _CopiedInputs) -> None:
                route, count = batch.route, len(batch.places)
                firsts = self._firsts(route, batch.places.start)
                if batch.is_alike:
                    verify_alike(count, route, firsts, batch.checksums, output)
                else:
                    verify_file(route, firsts, batch.checksums, output, chunks, meter.tick)

            self._require_covered(chunks)
            _for_each(verify_batch, self._batches)
            for piece in self._odd:
                if _checksum_of(output, piece) != piece.checksum:
                    raise not_as_written(piece.column.path)
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
        is_kept = np.array([one.kept is not None for one in self._inputs], bool)
        kinds = np.where(is_plain[numbers] & is_kept, numbers, -1 - np.arange(len(numbers)))
        ends = [*(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(numbers)]
        first = 0
        for end in ends:
            route = self._routes[numbers[first]]
            kept = self._inputs[first].kept
            step = max(ALIKE_BYTES // max(kept.file_bytes if kept else 1, 1), 1)
            for place in range(first, end, step):
                places = range(place, min(place + step, end))
                yield _CopiedInputs(places, route, is_alike=bool(kinds[place] >= 0))
            first = end

    def _copy_all(self, output: JoinedOutput, meter: _Meter) -> list[int]:
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

    def _copy_odd(self, place: int, output: JoinedOutput) -> None:
        """Copy the columns of one input that have to be unpacked, converted or filled."""
        one, structure = self._inputs[place], self._structure(place)
        route = self._routes[self._schema.of_input[place]]
        firsts = self._firsts(route, place)
        with self._survey.opened(one) as layout:
            for column, first in zip(route.columns, firsts, strict=True):
                if column in route.odd:
                    part = structure.tables[column.table]
                    for at, data in self._converted(one, layout, part, column):
                        self._odd.append(_write_rows(output, column, first + at, data))

    def _converted(
        self, one: Input, layout: FileLayout, part: TablePart, column: MergedColumn
    ) -> Iterator[tuple[int, Array]]:
        """The rows of one input as elements of a column of the output, a few at a time."""
        dataset = part.columns.get(column.path)
        if dataset is None:
            yield from _filled(column, part.rows)
            return
        reader, old = _reader(one, layout, column.path, dataset), type_of(dataset.type)
        for step in reader.steps(part.first):
            yield step.start - part.first, convert(reader.read(step), old, column.type)

    # What came of it -----------------------------------------------------------------------------

    def _note_copies(self, checksums: Sequence[int]) -> None:
        """Say which files are equal: without a key nobody knows that their rows are the same."""
        if len(set(checksums)) == len(checksums):
            return
        firsts: dict[tuple[int, int], Input] = {}
        pairs = []
        for one, checksum in zip(self._inputs, checksums, strict=True):
            first = firsts.setdefault((one.size_bytes, checksum), one)
            if first is not one and one.contents and one.contents.tasks:
                pairs.append((one, first))
        if pairs:
            self._copied_rows = sum(one.contents.tasks or 0 for one, _ in pairs if one.contents)
            one, first = pairs[0]
            more = f", and so are {len(pairs) - 1:,} more to others" if len(pairs) > 1 else ""
            self.notes.append(
                f"{one.path} is equal to {first.path}{more}: such rows are there twice; leave the "
                "file out, or give --key, by which each task is taken once"
            )

    def _packed_bytes(self, packed: set[str]) -> int:
        sizes = [
            sum(c.size for path, d in s.columns.items() if path in packed for c in d.chunks)
            for s in self._schema.structures
        ]
        return int(np.array(sizes)[self._schema.of_input].sum()) if packed else 0

    def _require_covered(self, chunks: Mapping[str, Mapping[tuple[int, ...], object]]) -> None:
        """No chunk more and none less than the inputs have."""
        for column in self._columns:
            if column.mode is Mode.CHUNKS:
                shape = (self._tables[column.table].rows, *column.inner)
                sides = zip(shape, column.chunk, strict=True)
                if len(chunks[column.path]) != math.prod(-(-dim // side) for dim, side in sides):
                    raise not_as_written(column.path)


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
    large = [batch for batch in batches if not batch.is_alike]
    for batch in batches:
        if batch.is_alike:
            deal_with(batch)
    if not large:
        return
    with ThreadPoolExecutor(THREADS) as executor:
        try:
            for _ in executor.map(deal_with, large):
                pass
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _reader(one: Input, layout: FileLayout, path: str, dataset: Dataset) -> RowReader:
    return RowReader(layout.tree.file, path, dataset, sound_path(one))


def _filled(column: MergedColumn, rows: int) -> Iterator[tuple[int, Array]]:
    """Rows for files that lack the column."""
    element = fill_element(column.type, column.fill)
    per_row = math.prod(column.inner)
    step = max(FILL_BYTES // max(column.row_bytes, 1), 1)
    for first in range(0, rows, step):
        count = min(step, rows - first) * per_row
        yield first, np.tile(element, count) if element.dtype != object else element.repeat(count)


# Rows that are not copied as bytes ---------------------------------------------------------------


def _write_rows(output: JoinedOutput, column: MergedColumn, first: int, data: Array) -> _OddPiece:
    per_row = math.prod(column.inner)
    if holds_objects(column.type):
        count = len(data) // max(per_row, 1)
        _write_objects(output, column, first, count, data)
        return _OddPiece(column, first, count, _objects_checksum(data))
    count = data.size // max(column.row_bytes, 1)
    if column.mode is Mode.BYTES:
        offset = output.offsets[column.path] + first * column.row_bytes
        durable.write_all(output.descriptor, np.ascontiguousarray(data).data, offset)
    else:
        shape = (count, *column.inner)
        values = np.ascontiguousarray(data).view(f"V{column.type.get_size()}").reshape(shape)
        dataset = output.datasets[column.path].id
        memory, space = _selection(dataset, first, shape)
        dataset.write(memory, space, values, column.type)
        output.require_written()
    return _OddPiece(column, first, count, xxh3_64_intdigest(np.ascontiguousarray(data).data))


def _write_objects(
    output: JoinedOutput, column: MergedColumn, first: int, count: int, data: Array
) -> None:
    dataset, shape = output.datasets[column.path].id, (count, *column.inner)
    values = as_objects(data, column.type).reshape(shape)
    memory, space = _selection(dataset, first, shape)
    dataset.write(memory, space, values, h5py.h5t.py_create(values.dtype))
    output.require_written()


def _selection(dataset: object, first: int, shape: tuple[int, ...]) -> tuple[object, object]:
    space = dataset.get_space()  # type: ignore[attr-defined]  # h5py has no types
    space.select_hyperslab((first, *(0 for _ in shape[1:])), shape)
    return h5py.h5s.create_simple(shape), space


def _checksum_of(output: JoinedOutput, piece: _OddPiece) -> int:
    """The checksum of rows as they are in the output now."""
    column, rows = piece.column, range(piece.first, piece.first + piece.count)
    dataset = output.datasets[column.path]
    if column.mode is Mode.BYTES:
        buffer = memoryview(bytearray(piece.count * column.row_bytes))
        offset = output.offsets[column.path] + piece.first * column.row_bytes
        return xxh3_64_intdigest(read_back(output.descriptor, buffer, offset, column))
    if holds_objects(column.type):
        return _objects_checksum(read_objects(dataset, rows))
    return xxh3_64_intdigest(read_raw(dataset, rows).data)


def _objects_checksum(data: Array) -> int:
    """Of texts and sequences, with their lengths."""
    found = xxh3_64()
    for value in data:
        raw = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
        found.update(len(raw).to_bytes(8, "little"))
        found.update(raw)
    return found.intdigest()


# Whether a file is in an output ------------------------------------------------------------------


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
                _are_rows_equal(_reader(one, layout, path, dataset), dataset, file, path, runs)
                for path, dataset, runs in columns
            )
    except (DamagedError, Unsupported, OSError, RuntimeError):
        return False


def _are_rows_equal(
    reader: RowReader, dataset: Dataset, file: object, path: str, runs: Runs
) -> bool:
    if path not in file:  # type: ignore[operator]  # h5py has no types
        return False
    joined, begin = file[path], 0  # type: ignore[index]
    if joined.shape[1:] != (dataset.space.dims or ())[1:]:
        return False
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        steps = reader.steps(begin, begin + count)
        if joined.shape[0] < first + count or not all(
            _is_step_equal(reader, dataset, joined, step, first - begin) for step in steps
        ):
            return False
        begin += count
    return True


def _is_step_equal(
    reader: RowReader, dataset: Dataset, joined: Any, step: range, shift: int
) -> bool:
    """Whether these rows are in the joined dataset, so many rows further on."""
    rows, data = range(step.start + shift, step.stop + shift), reader.read(step)
    old, new = type_of(dataset.type), joined.id.get_type()
    if holds_objects(new):
        found = _objects_checksum(read_objects(joined, rows))
        return found == _objects_checksum(convert(data, old, new))
    return survives(data, old, new) and np.array_equal(
        convert(data, old, new), read_raw(joined, rows)
    )
