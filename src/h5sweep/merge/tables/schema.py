"""Which tables and columns many files have together, their types, and the rows of each file.

Only structure is read, except where types agree for some values and not for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import lt
from pathlib import Path

import numpy as np

from ...base.units import count_text
from ...base.values import Array
from ...errors import UsageError
from ...hdf5.messages import Filter, Storage
from ...hdf5.tree import Dataset
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout, indexed_table
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


class Mode(Enum):
    """How the data of a column come into the output."""

    BYTES = "as they are, one after the other"  # contiguous; converted where types differ
    CHUNKS = "chunk by chunk, as they are compressed"
    RECODED = "unpacked and packed again"
    OBJECTS = "texts or sequences of any length"


@dataclass(eq=False)
class MergedColumn:
    """A column of the output."""

    path: str
    table: str
    type: TypeID
    inner: tuple[int, ...]
    encoded: bytes = b""  # the type as it stands in the first file, if that is the column's type
    mode: Mode = Mode.BYTES
    fill: bytes | None = None
    chunk: tuple[int, ...] = ()
    filters: tuple[Filter, ...] = ()
    limits: tuple[int | None, ...] = ()

    @property
    def row_bytes(self) -> int:
        return math.prod(self.inner) * int(self.type.get_size())


@dataclass(eq=False)
class MergedTable:
    """A table of the output; `starts` and `counts` have a number for each input."""

    name: str
    columns: list[MergedColumn]
    starts: Array
    counts: Array

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


class MergedSchema:
    """What the output will be; UsageError, with both places named, if it cannot be."""

    def __init__(
        self,
        survey: Survey,
        inputs: Sequence[Input],
        held: Mapping[Input, Mapping[str, Sequence[int]]] | None = None,
    ) -> None:
        """`held`: of inputs whose first rows another input has, where these are in the output."""
        self.survey, self.inputs, self.held = survey, inputs, held or {}
        self.notes: list[str] = []
        self.structures: list[InputStructure] = []
        self.of_input = self._read_structures()  # the number of each input's structure
        self.notes += find_tables(self.structures)
        self._leave_held_rows()
        self.tables = self._merge_tables()
        if recoded := [column.path for column in self.columns if column.mode is Mode.RECODED]:
            self.notes.append(f"{Mode.RECODED.value}: {', '.join(recoded)}")
        self.scales = self._merge_scales()
        self.axes = self._merge_axes()
        # Groups of files that have more are merged with that.
        alone = [structure for structure in self.structures if not self.has_more(structure)]
        paths = _object_paths(self.columns, self.scales, alone)
        self.attributes = MergedAttributes(survey, inputs, self.structures, self.of_input, paths)
        self.notes += self.attributes.notes

    @property
    def columns(self) -> list[MergedColumn]:
        return [column for table in self.tables for column in table.columns]

    # Structures ----------------------------------------------------------------------------------

    def _read_structures(self) -> Array:
        known: dict[object, int] = {}
        kinds = [one if one in self.held else one.family or one for one in self.inputs]
        numbers = [known.setdefault(kind, len(known)) for kind in kinds]
        firsts = np.unique(numbers, return_index=True)[1].tolist()
        self.structures += [read_structure(self.survey, self.inputs[place]) for place in firsts]
        return np.array(numbers, np.int64)

    def _inputs_of(self, numbers: Sequence[int]) -> list[Input]:
        """The inputs that have structures of these numbers."""
        places = np.flatnonzero(np.isin(self.of_input, numbers)).tolist()
        return [self.inputs[place] for place in places]

    def _leave_held_rows(self) -> None:
        for structure in self.structures:
            held = self.held.get(structure.example, {})
            for table, part in structure.tables.items():
                group = (table.rpartition("/")[0] or "/") if table in part.columns else table
                part.held = held.get(table, held.get(group, ()))
                part.rows -= part.first

    # Tables --------------------------------------------------------------------------------------

    def _merge_tables(self) -> list[MergedTable]:
        having: dict[str, list[int]] = {}
        for number, structure in enumerate(self.structures):
            for name in structure.tables:
                having.setdefault(name, []).append(number)
        return [self._merge_table(name, numbers) for name, numbers in having.items()]

    def _merge_table(self, name: str, numbers: list[int]) -> MergedTable:
        rows = np.zeros(len(self.structures), np.int64)
        having = [self.structures[number] for number in numbers]
        rows[numbers] = [structure.tables[name].rows for structure in having]
        counts = rows[self.of_input]
        table = MergedTable(name, [], np.cumsum(counts) - counts, counts)
        paths = dict.fromkeys(path for s in having for path in s.tables[name].columns)
        for path in sorted(paths):
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
        _decide_mode(column, table, filled, is_everywhere=len(parts) == len(having))
        self._note_missing(column, table, having)
        return column

    def _merge_types(
        self, path: str, table: MergedTable, parts: list[tuple[InputStructure, Dataset]]
    ) -> MergedColumn:
        (first, dataset), *others = parts
        inner = _inner(dataset)
        common, is_certain = type_of(dataset.type), True
        words = {type_text(common): None}
        for structure, other in others:
            if _inner(other) != inner:
                raise ragged(path, first.example, dataset, structure.example, other)
            if other.type.encoded == dataset.type.encoded:
                continue
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
        encoded = dataset.type.encoded if common == type_of(dataset.type) else b""
        fill = converted_fill(dataset.fill, type_of(dataset.type), common)
        return MergedColumn(path, table.name, common, inner, encoded, fill=fill)

    def _require_survival(
        self, path: str, common: TypeID, parts: list[tuple[InputStructure, Dataset]]
    ) -> None:
        """Look at every value that the new type may not hold."""
        numbers = {id(s): number for number, s in enumerate(self.structures)}
        for structure, dataset in parts:
            old = type_of(dataset.type)
            if old == common:
                continue
            for place in np.flatnonzero(self.of_input == numbers[id(structure)]).tolist():
                one = self.inputs[place]
                with self.survey.opened(one) as layout:
                    reader = RowReader(layout.tree.file, path, dataset, sound_path(one))
                    if not all(survives(reader.read(r), old, common) for r in reader.steps()):
                        first = (parts[0][0].example, type_of(parts[0][1].type))
                        raise values_lost(path, one, old, common, first)

    def _note_missing(
        self, column: MergedColumn, table: MergedTable, having: list[InputStructure]
    ) -> None:
        path = column.path
        without = [s for s in having if path not in s.columns and s.tables[table.name].rows]
        if not without:
            return
        numbers = [n for n, s in enumerate(self.structures) if s in without]
        rows = int(table.counts[np.isin(self.of_input, numbers)].sum())
        names = some_names(self._inputs_of(numbers))
        fill = fill_text(column.type, column.fill)
        self.notes.append(f"{path} is not in {names}: {count_text(rows, 'row')} filled with {fill}")

    # Axes ----------------------------------------------------------------------------------------

    def _merge_scales(self) -> dict[str, tuple[Dataset, bytes]]:
        """The datasets that stand for axes; ConflictError if they differ between files."""
        found: dict[str, tuple[Dataset, bytes]] = {}
        owners: dict[str, Input] = {}
        have_scales = np.array([bool(s.scales) for s in self.structures])
        for place in np.flatnonzero(have_scales[self.of_input]).tolist():
            structure = self.structures[int(self.of_input[place])]
            with self.survey.opened(self.inputs[place]) as layout:
                for path in structure.scales:
                    one = self.inputs[place]
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

    def indexes_of(self, structure: InputStructure) -> tuple[str, ...]:
        """The datasets of a file that say no more than tables which are in the output."""
        columns = structure.columns
        return tuple(path for path in structure.datasets if indexed_table(path) in columns)

    def has_more(self, structure: InputStructure) -> bool:
        """Whether a file has datasets besides: what a worker says once, or groups of tasks."""
        known = {*self.kept_of(structure), *self.indexes_of(structure)}
        return not structure.datasets.keys() <= known


def _inner(dataset: Dataset) -> tuple[int, ...]:
    return (dataset.space.dims or ())[1:]


def _decide_mode(
    column: MergedColumn,
    table: MergedTable,
    parts: list[tuple[InputStructure, Dataset]],
    *,
    is_everywhere: bool,
) -> None:
    dataset = parts[0][1]
    packed = [d for _, d in parts if d.filters]
    if holds_objects(column.type):
        column.mode = Mode.OBJECTS
    elif packed:
        first = packed[0]
        column.chunk, column.filters = first.layout.chunk, first.filters
        column.limits = (first.space.limits[0], *column.inner)
        are_alike = all(_is_alike(dataset, d) and _is_covered(d) for _, d in parts)
        is_aligned = not (table.starts[table.counts > 0] % first.layout.chunk[0]).any()
        are_whole = not any(s.tables[table.name].first for s, _ in parts)
        same = is_everywhere and are_alike and is_aligned and are_whole
        column.mode = Mode.CHUNKS if same else Mode.RECODED


def _object_paths(
    columns: Sequence[MergedColumn], scales: Iterable[str], structures: Sequence[InputStructure]
) -> list[str]:
    """The root, the columns, the groups above them, and groups that have attributes."""
    ends = {column.path: None for column in columns} | dict.fromkeys(scales)
    for structure in structures:
        ends |= {p: None for p in structure.group_paths if structure.attributes.get(p)}
    paths = {"/": None}
    for path in ends:
        names = path.strip("/").split("/")
        paths |= {"/" + "/".join(names[:depth]): None for depth in range(1, len(names) + 1)}
    return list(paths)


def _read_scale(
    one: Input, layout: FileLayout, path: str, dataset: Dataset
) -> tuple[Dataset, bytes]:
    """A dataset that stands for an axis, with its data; UsageError if these cannot be copied."""
    is_plain = not dataset.type.points_elsewhere and not dataset.is_external
    is_plain = is_plain and dataset.layout.storage is not Storage.VIRTUAL
    if not is_plain or not dataset.space.dims or dataset.size_bytes > MOST_SCALE_BYTES:
        raise UsageError(
            f"{path} in {one.path} is an axis of other datasets that cannot be copied; nothing was "
            f"merged. Leave it out with --skip {path.rpartition('/')[2]}"
        )
    reader = RowReader(layout.tree.file, path, dataset, sound_path(one))
    return dataset, b"".join(reader.read(rows).tobytes() for rows in reader.steps())


def _are_same(first: tuple[Dataset, bytes], second: tuple[Dataset, bytes]) -> bool:
    is_same_space = first[0].space.dims == second[0].space.dims
    return is_same_space and first[0].type == second[0].type and first[1] == second[1]


def _is_alike(first: Dataset, other: Dataset) -> bool:
    """Whether the chunks of one are chunks of the other as they are."""
    return (
        first.filters == other.filters
        and first.layout.chunk == other.layout.chunk
        and (first.type.encoded == other.type.encoded or type_of(first.type) == type_of(other.type))
    )


def _is_covered(dataset: Dataset) -> bool:
    """Whether every chunk that there can be is there, each once, and none is too large to hold."""
    dims, sides = dataset.space.dims or (), dataset.layout.chunk
    inside = {chunk.start for chunk in dataset.chunks if all(map(lt, chunk.start, dims))}
    most = math.prod(-(-dim // side) for dim, side in zip(dims, sides, strict=True))
    return len(inside) == most


def sound_path(one: Input) -> Path | None:
    """Its path, if nothing was found wrong with it: only then may the HDF5 library open it."""
    return None if one.is_suspect else one.path
