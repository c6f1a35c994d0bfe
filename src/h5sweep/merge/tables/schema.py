"""Which tables and columns many files have together, their types, and the rows of each file.

Only structure is read, except where types agree for some values and not for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from operator import lt

import numpy as np

from ...base.units import count_text
from ...base.values import Array
from ...errors import UsageError
from ...hdf5.messages import Filter, Storage
from ...hdf5.tree import Dataset
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout
from ...worker_files.survey import Survey
from ..messages import (
    differing_axis,
    no_common_type,
    ragged,
    require_mergeable,
    some_names,
    values_lost,
)
from .find_tables import find_tables
from .input_structure import Axes, InputStructure, read_structure
from .merged_attributes import MergedAttributes
from .rows import RowReader
from .types import (
    TypeID,
    common_type,
    converted_fill,
    fill_text,
    holds_objects,
    survives,
    type_of,
    type_text,
)

MOST_SCALE_BYTES = 16 << 20
# Of inputs whose first rows another input has: where these are in the output, by table.
HeldRows = Mapping[Input, Mapping[str, Sequence[int]]]
_Part = tuple[InputStructure, Dataset]  # a column as inputs of one structure have it
Scale = tuple[Dataset, bytes]  # a dataset that stands for an axis, and its data


class Mode(Enum):
    """How the data of a column come into the output."""

    BYTES = "as they are, one after the other"  # contiguous; converted where types differ
    CHUNKS = "chunk by chunk, as they are compressed"
    RECODED = "unpacked and packed again"
    OBJECTS = "texts or sequences of any length"


@dataclass(eq=False)
class MergedTable:
    """A table of the output; `starts` and `counts` have a number for each input."""

    name: str
    columns: list[MergedColumn]
    starts: Array
    counts: Array

    @cached_property
    def rows(self) -> int:
        return int(self.counts.sum())


@dataclass(eq=False)
class MergedColumn:
    """A column of the output."""

    path: str
    table: MergedTable
    type: TypeID
    inner: tuple[int, ...]
    fill: bytes | None = None
    mode: Mode = Mode.BYTES
    chunk: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    most_rows: int | None = None  # of chunks; None if there may be any number

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.rows, *self.inner

    @cached_property
    def row_bytes(self) -> int:
        return math.prod(self.inner) * int(self.type.get_size())

    @property
    def chunk_count(self) -> int:
        return _count_chunks(self.shape, self.chunk)


class MergedSchema:
    """What the output will be; UsageError, with both places named, if it cannot be."""

    def __init__(
        self, survey: Survey, inputs: Sequence[Input], held: HeldRows | None = None
    ) -> None:
        self.survey, self.inputs = survey, inputs
        self.notes: list[str] = []
        self.structures = list(self._read_structures(held or {}))
        of_place = {place: s for s in self.structures for place in s.places}
        self.structure_of = [of_place[place] for place in range(len(inputs))]
        self.notes += find_tables(self.structures)
        for structure in self.structures:
            _leave_held_rows(structure, (held or {}).get(structure.example, {}))
        self.tables = self._merge_tables()
        self.columns = [column for table in self.tables for column in table.columns]
        if recoded := [column.path for column in self.columns if column.mode is Mode.RECODED]:
            self.notes.append(f"{Mode.RECODED.value}: {', '.join(recoded)}")
        self.scales = self._merge_scales()
        self.axes = self._merge_axes()
        ends = *(column.path for column in self.columns), *self.scales
        self.attributes = MergedAttributes(inputs, self.structures, ends)
        self.notes += self.attributes.notes

    def _read_structures(self, held: HeldRows) -> Iterator[InputStructure]:
        places: dict[object, list[int]] = {}
        for place, one in enumerate(self.inputs):
            kind = one if one in held else one.family or one
            places.setdefault(kind, []).append(place)
        for some in places.values():
            yield read_structure(self.survey, self.inputs, some)

    # Tables --------------------------------------------------------------------------------------

    def _merge_tables(self) -> list[MergedTable]:
        having: dict[str, list[InputStructure]] = {}
        for structure in self.structures:
            for name in structure.tables:
                having.setdefault(name, []).append(structure)
        return [self._merge_table(name, some) for name, some in having.items()]

    def _merge_table(self, name: str, having: list[InputStructure]) -> MergedTable:
        counts = np.zeros(len(self.inputs), np.int64)
        for structure in having:
            counts[structure.places] = structure.tables[name].rows
        table = MergedTable(name, [], np.cumsum(counts) - counts, counts)
        for path in sorted({path for s in having for path in s.tables[name].columns}):
            table.columns.append(self._merge_column(path, table, having))
        return table

    def _merge_column(
        self, path: str, table: MergedTable, having: list[InputStructure]
    ) -> MergedColumn:
        parts = [(s, s.columns[path]) for s in having if path in s.columns]
        for structure, dataset in parts:
            require_mergeable(structure.example, path, dataset)
        # What an empty dataset was created as says nothing, if there are others.
        filled = [part for part in parts if part[1].rows] or parts[:1]
        column = self._merge_types(path, table, filled)
        _decide_mode(column, filled, is_everywhere=len(parts) == len(having))
        self._note_missing(column, having)
        return column

    def _merge_types(self, path: str, table: MergedTable, parts: list[_Part]) -> MergedColumn:
        (first, dataset), *others = parts
        inner, own = _inner(dataset), type_of(dataset.type)
        common, is_certain, words = own, True, {type_text(own): None}
        for structure, other in others:
            if _inner(other) != inner:
                raise ragged(path, first.example, dataset, structure.example, other)
            type_ = type_of(other.type)
            found = common_type(common, type_)
            if found is None:
                raise no_common_type(path, first.example, common, structure.example, type_)
            words[type_text(type_)] = None
            common, is_certain = found.type, is_certain and found.is_certain
        if not is_certain:
            self._require_survival(path, common, parts)
        if len(words) > 1:
            self.notes.append(f"{path} is {' and '.join(words)}: merged as {type_text(common)}")
        return MergedColumn(path, table, common, inner, converted_fill(dataset.fill, own, common))

    def _require_survival(self, path: str, common: TypeID, parts: list[_Part]) -> None:
        """Look at every value that the new type may not hold."""
        first = parts[0][0].example, type_of(parts[0][1].type)
        for structure, dataset in parts:
            old = type_of(dataset.type)
            for one in (self.inputs[place] for place in structure.places if old != common):
                with self.survey.opened(one) as layout:
                    reader = RowReader(one, layout, path, dataset)
                    if not all(survives(reader.read(r), old, common) for r in reader.steps()):
                        raise values_lost(path, one, old, common, first)

    def _note_missing(self, column: MergedColumn, having: list[InputStructure]) -> None:
        path, table = column.path, column.table.name
        without = [s for s in having if path not in s.columns and s.tables[table].rows]
        if without:
            rows = sum(len(s.places) * s.tables[table].rows for s in without)
            names = some_names(self.inputs[p] for p in sorted(p for s in without for p in s.places))
            fill = fill_text(column.type, column.fill)
            filled = f"{count_text(rows, 'row')} filled with {fill}"
            self.notes.append(f"{path} is not in {names}: {filled}")

    # Axes ----------------------------------------------------------------------------------------

    def _merge_scales(self) -> dict[str, Scale]:
        """The datasets that stand for axes; ConflictError if they differ between files."""
        found: dict[str, Scale] = {}
        owners: dict[str, Input] = {}
        for one, structure in zip(self.inputs, self.structure_of, strict=True):
            if not structure.scales:
                continue
            with self.survey.opened(one) as layout:
                for path in structure.scales:
                    new = _read_scale(one, layout, path, structure.datasets[path])
                    if not _are_same(found.setdefault(path, new), new):
                        raise differing_axis(path, owners[path], one)
                    owners.setdefault(path, one)
        return found

    def _merge_axes(self) -> dict[str, Axes]:
        """The axes of each column, where all files agree and the output has what they name."""
        there = {column.path for column in self.columns} | self.scales.keys()
        common: dict[str, Axes] = {}
        for column in self.columns:
            having = [s for s in self.structures if column.path in s.columns]
            axes = {s.axes.get(column.path, ()) for s in having}
            names = {path for one in axes for axis in one for path in axis}
            if len(axes) == 1 and names and names <= there:
                common[column.path] = axes.pop()
            elif names:
                self.notes.append(f"the axes of {column.path} are not kept")
        return common

    def kept_of(self, structure: InputStructure) -> tuple[str, ...]:
        """The datasets of a file that are in the output."""
        return (*structure.columns, *(path for path in structure.scales if path in self.scales))


def _leave_held_rows(structure: InputStructure, held: Mapping[str, Sequence[int]]) -> None:
    for table, part in structure.tables.items():
        group = (table.rpartition("/")[0] or "/") if table in part.columns else table
        part.held = held.get(table, held.get(group, ()))
        part.rows -= part.first


def _inner(dataset: Dataset) -> tuple[int, ...]:
    return (dataset.space.dims or ())[1:]


def _decide_mode(column: MergedColumn, parts: list[_Part], *, is_everywhere: bool) -> None:
    table, packed = column.table, [dataset for _, dataset in parts if dataset.filters]
    if holds_objects(column.type):
        column.mode = Mode.OBJECTS
    elif packed:
        first = packed[0]
        column.chunk, column.filters = first.layout.chunk, first.filters
        column.most_rows = first.space.limits[0]
        are_alike = all(_has_chunks_of(column, d) and _is_covered(d) for _, d in parts)
        is_aligned = not (table.starts[table.counts > 0] % column.chunk[0]).any()
        are_whole = not any(s.tables[table.name].first for s, _ in parts)
        same = is_everywhere and are_alike and is_aligned and are_whole
        column.mode = Mode.CHUNKS if same else Mode.RECODED


def _has_chunks_of(column: MergedColumn, dataset: Dataset) -> bool:
    """Whether the chunks of a dataset are chunks of the column as they are."""
    are_packed_so = dataset.filters == column.filters and dataset.layout.chunk == column.chunk
    return are_packed_so and bool(type_of(dataset.type) == column.type)


def _is_covered(dataset: Dataset) -> bool:
    """Whether every chunk that there can be is there, each once."""
    dims = dataset.space.dims or ()
    inside = {chunk.start for chunk in dataset.chunks if all(map(lt, chunk.start, dims))}
    return len(inside) == _count_chunks(dims, dataset.layout.chunk)


def _count_chunks(dims: tuple[int, ...], sides: tuple[int, ...]) -> int:
    return math.prod(-(-dim // side) for dim, side in zip(dims, sides, strict=True))


def _read_scale(one: Input, layout: FileLayout, path: str, dataset: Dataset) -> Scale:
    """A dataset that stands for an axis, with its data; UsageError if these cannot be copied."""
    is_plain = not dataset.type.points_elsewhere and not dataset.is_external
    is_plain = is_plain and dataset.layout.storage is not Storage.VIRTUAL
    if not is_plain or not dataset.space.dims or dataset.size_bytes > MOST_SCALE_BYTES:
        raise UsageError(
            f"{path} in {one.path} is an axis of other datasets that cannot be copied; nothing was "
            f"merged. Leave it out with --skip {path.rpartition('/')[2]}"
        )
    reader = RowReader(one, layout, path, dataset)
    return dataset, b"".join(reader.read(rows).tobytes() for rows in reader.steps())


def _are_same(first: Scale, second: Scale) -> bool:
    is_same_space = first[0].space.dims == second[0].space.dims
    return is_same_space and first[0].type == second[0].type and first[1] == second[1]
