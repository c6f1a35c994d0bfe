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

import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from ...base.progress_callback import Progress
from ...runfolder.audit import Conflict
from ...worker_files.inputs import Input, Taken
from ...worker_files.read_values import Values
from ...worker_files.survey import Survey
from .copy import convert_rows, copy_alike, copy_file, plan_route
from .create import created, not_as_written, reopened
from .duplicates import RowsLookedAt, look_at_rows
from .input_structure import InputStructure, TablePart, Where
from .pieces import Piece, TablesFile
from .schema import HeldRows, MergedSchema, Mode

THREADS = 2
S = TypeVar("S")
T = TypeVar("T")
# What is copied at once of small files that are alike; more would be fresh memory.
ALIKE_BYTES = 1 << 17


class MergedTables:
    """The tables of `inputs`, which must all have some, as one file. Nothing is written yet.

    Raises UsageError, naming both places, if a column cannot be one without losing a value.
    """

    def __init__(
        self, survey: Survey, inputs: Sequence[Input], held: HeldRows | None = None
    ) -> None:
        self._survey, self._inputs = survey, inputs
        self._schema = schema = MergedSchema(survey, inputs, held)
        self.notes = schema.notes
        self.conflicts: list[Conflict] = []  # rows have no keys by which they could contradict
        self.looked_at: list[RowsLookedAt] = []  # for rows that may be there twice, by `verify`
        self._copied_rows = 0
        self._written: list[list[Piece]] = []  # those of a list are read back by one thread
        self._routes = {s: plan_route(s, schema.columns) for s in schema.structures}

    @property
    def attribute_owners(self) -> dict[Where, tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return self._schema.attributes.owners

    @property
    def paths(self) -> set[str]:
        """The datasets of the output that this writes."""
        return {column.path for column in self._schema.columns} | self._schema.scales.keys()

    def datasets_of(self, one: Input) -> tuple[str, ...]:
        """The datasets of an input that are in the output, and those that need not be."""
        structure = self._structures.get(one)
        return () if structure is None else self._datasets_of(structure)

    @cached_property
    def _structures(self) -> dict[Input, InputStructure]:
        return dict(zip(self._inputs, self._schema.structure_of, strict=True))

    def _datasets_of(self, structure: InputStructure) -> tuple[str, ...]:
        return *self._schema.kept_of(structure), *structure.indexes

    def have_more(self) -> set[Input]:
        """The inputs that have datasets besides: what a worker says once, or groups of tasks."""
        return {
            self._inputs[place]
            for structure in self._schema.structures
            if not structure.datasets.keys() <= {*self._datasets_of(structure)}
            for place in structure.places
        }

    @property
    def size_bytes(self) -> int:
        """About what the merged tables take on disk."""
        columns = self._schema.columns
        packed = {column.path for column in columns if column.mode is Mode.CHUNKS}
        plain = sum(c.table.rows * c.row_bytes for c in columns if c.path not in packed)
        chunks = sum(
            len(structure.places) * sum(chunk.size for chunk in dataset.chunks)
            for structure in self._schema.structures
            for path, dataset in structure.columns.items()
            if path in packed
        )
        return plain + chunks + (1 << 16)

    def write(self, path: Path, progress: Progress) -> list[Taken]:
        """Add the tables to the HDF5 file at `path`, which is created if it is not there.

        Every input is read once, and its checksum taken. Nothing is durable yet, and nothing counts
        before `verify`. ChangedError if an input is not what was looked at.
        """
        meter = _Meter(progress, sum(one.size_bytes for one in self._inputs))
        with created(path, self._schema) as output:
            copied = _in_threads(partial(self._copy, output, meter), list(self._batches()))
            self._written = [pieces for _, pieces in copied]
            self._written += [[piece] for piece in self._convert_all(output)]
        checksums = [checksum for some, _ in copied for checksum in some]
        self._note_copies(checksums)
        return _list_taken(self._schema, checksums)

    def verify(self, path: Path, progress: Progress) -> None:
        """Read everything back from `path` and compare it with what the inputs were.

        Names, types, shapes and attributes are compared with those of the inputs; data with
        checksums that were taken of the inputs' bytes when these were read, which is once.
        DamagedError if anything differs.
        """
        meter = _Meter(progress, self.size_bytes)
        with reopened(path, self._schema) as output:

            def verify_pieces(pieces: list[Piece]) -> None:
                for piece in pieces:
                    if not output.holds(piece):
                        raise not_as_written(piece.column.path)
                    meter.tick(piece.size_bytes)

            for column in self._schema.columns:
                if column.chunk and not output.has_all_chunks(column):
                    raise not_as_written(column.path)
            _in_threads(verify_pieces, self._written)
            looked_at = [
                look_at_rows(output, table, self._inputs, copied=self._copied_rows)
                for table in self._schema.tables
            ]
            self.looked_at = [one for one in looked_at if one is not None]
        meter.finish()

    # How it is copied ----------------------------------------------------------------------------

    def _batches(self) -> Iterator[range]:
        """Small files that are alike and follow one another, at once; every other by itself."""
        first, structure_of = 0, self._schema.structure_of
        while first < len(self._inputs):
            end, family = first + 1, self._inputs[first].family
            if family is not None and self._is_in_memory(first):
                most = min(first + ALIKE_BYTES // max(family.hole_bytes, 1), len(self._inputs))
                while end < most and structure_of[end] is structure_of[first]:
                    if not self._inputs[end].is_kept:
                        break
                    end += 1
            yield range(first, end)
            first = end

    def _copy(
        self, output: TablesFile, meter: _Meter, batch: range
    ) -> tuple[list[int], list[Piece]]:
        """Copy what can be copied as bytes; return the checksums of inputs and what was written."""
        first, inputs = batch.start, self._inputs[batch.start : batch.stop]
        route = self._routes[self._schema.structure_of[first]]
        if not self._is_in_memory(first):
            checksum, pieces = copy_file(inputs[0], first, route, output, meter.tick)
            return [checksum], pieces
        pieces = copy_alike(inputs, first, route, output)
        meter.tick(sum(one.size_bytes for one in inputs))
        return [one.xxh3 for one in inputs], pieces

    def _is_in_memory(self, place: int) -> bool:
        route = self._routes[self._schema.structure_of[place]]
        return self._inputs[place].is_kept and route.is_in_memory

    def _convert_all(self, output: TablesFile) -> Iterator[Piece]:
        """Copy the columns that have to be unpacked, converted or filled."""
        for place, structure in enumerate(self._schema.structure_of):
            if odd := self._routes[structure].odd:
                with self._survey.opened(self._inputs[place]) as layout:
                    for column in odd:
                        first = int(column.table.starts[place])
                        rows = convert_rows(self._inputs[place], layout, structure, column)
                        for at, data in rows:
                            yield from output.write_rows(column, first + at, data)
        yield from output.finish()

    # What came of it -----------------------------------------------------------------------------

    def _note_copies(self, checksums: Sequence[int]) -> None:
        """Say which files are equal: without a key nobody knows that their rows are the same."""
        firsts: dict[tuple[int, int], Input] = {}
        pairs = []
        for one, checksum in zip(self._inputs, checksums, strict=True):
            first = firsts.setdefault((one.size_bytes, checksum), one)
            if first is not one and one.contents and one.contents.tasks:
                pairs.append((one, first))
                self._copied_rows += one.contents.tasks
        if pairs:
            one, first = pairs[0]
            more = f", and so are {len(pairs) - 1:,} more to others" if len(pairs) > 1 else ""
            self.notes.append(
                f"{one.path} is equal to {first.path}{more}: its rows occur twice; leave the "
                "file out, or give --key, which takes each task once"
            )


def _list_taken(schema: MergedSchema, checksums: Sequence[int]) -> list[Taken]:
    """Which rows, datasets and attributes of each input are in the output."""
    shared = {structure: _shared_facts(schema, structure) for structure in schema.structures}
    places = {table.name: (table.starts.tolist(), table.counts.tolist()) for table in schema.tables}
    found = []
    for place, structure in enumerate(schema.structure_of):
        tasks, duplicates, datasets, attributes, skipped = shared[structure]
        taken = Taken(schema.inputs[place], checksums[place], tasks, duplicates, datasets)
        taken.attributes, taken.skipped = attributes, skipped
        for name, part in structure.tables.items():
            starts, counts = places[name]
            taken.rows[name] = (*part.held, starts[place], counts[place])
        if place in schema.attributes.left_out:
            taken.left_out |= schema.attributes.left_out[place]
            taken.attributes = tuple(name for name in attributes if name not in taken.left_out)
        if structure.skipped.marks:  # their values are in the audit trail alone
            with schema.survey.opened(taken.source) as layout:
                marks = layout.skipped.marks.values()
                taken.left_out |= Values(layout.tree.file).texts_of(marks)
        found.append(taken)
    return found


# How many tasks inputs of one structure have, how many of them another input has, the datasets and
# attributes of the output, and what is not in it.
_Facts = tuple[int, int, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _shared_facts(schema: MergedSchema, structure: InputStructure) -> _Facts:
    parts: dict[str, list[TablePart]] = {}
    for name, part in structure.tables.items():
        group = name if name in structure.groups else posixpath.dirname(name)
        parts.setdefault(group, []).append(part)
    # Columns that differ in length have as many tasks as the shortest has rows: so `check` counts.
    duplicates = sum(min(part.first for part in some) for some in parts.values())
    tasks = sum(min(part.first + part.rows for part in some) for some in parts.values())
    attributes = tuple(
        f"{path}@{name}"
        for path, values in structure.attributes.items()
        if path in schema.attributes.of
        for name in values
    )
    skipped = (*structure.skipped.paths, *structure.indexes, *structure.links)
    return tasks, duplicates, schema.kept_of(structure), attributes, skipped


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


def _in_threads(deal_with: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Deal with items in threads, which only move bytes."""
    with ThreadPoolExecutor(THREADS) as executor:
        try:
            return list(executor.map(deal_with, items))
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
