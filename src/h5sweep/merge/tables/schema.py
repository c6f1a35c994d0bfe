"""Which tables and columns many files have together, of which types, and in which rows each lies.

Only structure is read, except where types can be united for some values and not for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from operator import lt
from pathlib import Path
from typing import Any

import numpy as np

from ...base.attributes import is_decoding
from ...base.units import count_text
from ...base.values import Array, value_text
from ...errors import UsageError
from ...hdf5.datatypes import Class
from ...hdf5.messages import Attribute, Filter, Storage
from ...hdf5.tree import Dataset, ObjectKind
from ...worker_files.layouts import FileLayout, Style, indexed_table
from ...worker_files.skipping import Skipped
from ...worker_files.survey import Input, Survey
from ..marker import OWN_ATTRIBUTES
from ..words import (
    differing_axis,
    differing_text,
    not_united,
    ragged,
    require_joinable,
    some_names,
    values_lost,
)
from .rows import RowReader
from .types import (
    TypeID,
    converted_fill,
    fill_text,
    holds_objects,
    is_kept_elsewhere,
    may_be_copied,
    read_elsewhere,
    read_heap_parts,
    survives,
    type_of,
    type_text,
    unite,
)

MOST_SCALE_BYTES = 16 << 20
AXES_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST")


Axes = tuple[tuple[str, ...], ...]  # for each axis, the datasets that stand for it


class Mode(Enum):
    """How the data of a column come into the output."""

    BYTES = "as they are, one after the other"  # contiguous; converted where types differ
    CHUNKS = "chunk by chunk, as they are compressed"
    RECODED = "unpacked and packed again"
    OBJECTS = "texts or sequences of any length"


@dataclass(frozen=True, eq=False)
class AttributeValue:
    """The value of an attribute, with its type."""

    type: TypeID
    dims: tuple[int, ...] | None
    data: Any  # bytes, or an array of objects

    def equals(self, other: AttributeValue) -> bool:
        if self.dims != other.dims or self.type != other.type:
            return False
        if isinstance(self.data, bytes) or isinstance(other.data, bytes):
            return bool(self.data == other.data)
        pairs = zip(self.data, other.data, strict=True)
        return all(np.array_equal(first, second) for first, second in pairs)

    def __str__(self) -> str:
        if self.dims is None:
            return value_text(None)
        if not isinstance(self.data, bytes):
            return value_text(self.data.reshape(self.dims))
        try:
            return value_text(np.frombuffer(self.data, self.type.dtype).reshape(self.dims))
        except TypeError:  # NumPy does not have its type
            return self.data.hex()


_ColumnAttributes = dict[str, dict[str, AttributeValue]]  # by the path of their object


@dataclass
class TablePart:
    """One table in files of one structure."""

    rows: int
    columns: dict[str, Dataset] = field(default_factory=dict)  # by path
    held: Sequence[int] = ()  # where the output has the rows before these, from another input

    @property
    def first(self) -> int:
        return sum(self.held[1::2])


@dataclass(eq=False)
class InputStructure:
    """What the inputs have that share a structure; `example` is the first of them."""

    example: Input
    datasets: dict[str, Dataset]  # by path
    groups: dict[str, dict[str, Dataset]]
    growing: frozenset[str]  # paths of what may be a column
    attributes: _ColumnAttributes
    lost_attributes: tuple[str, ...]  # attributes that mean nothing outside their file
    group_paths: tuple[str, ...] = ()
    axes: dict[str, Axes] = field(default_factory=dict)  # by the path of their dataset
    start: int = 0  # where in the file addresses begin to count
    links: tuple[str, ...] = ()  # second names, and what is neither a group nor a dataset
    skipped: Skipped = field(default_factory=Skipped)
    tables: dict[str, TablePart] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # attributes that others have otherwise

    @cached_property
    def columns(self) -> dict[str, Dataset]:
        return {path: d for part in self.tables.values() for path, d in part.columns.items()}

    @cached_property
    def scales(self) -> set[str]:
        """Datasets that stand for an axis of a column and are no columns, as in netCDF files."""
        used = {path for name in self.columns for axis in self.axes.get(name, ()) for path in axis}
        return used - self.columns.keys()


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
        self._find_tables()
        self._leave_held_rows()
        self.tables = self._unite_tables()
        if recoded := [column.path for column in self.columns if column.mode is Mode.RECODED]:
            self.notes.append(f"{Mode.RECODED.value}: {', '.join(recoded)}")
        self.scales = self._unite_scales()
        self.axes = self._unite_axes()
        self._owners: dict[
            tuple[str, str], InputStructure
        ] = {}  # of attributes, by object and name
        self.attributes = self._unite_attributes()

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

    def _find_tables(self) -> None:
        """Give every structure its tables: a group's columns, or each for itself.

        Columns of a group are one table if they are equally long in every file. A dataset that
        cannot grow is one of them if it has that length wherever it is.
        """
        by_group: dict[str, list[InputStructure]] = {}
        for structure in self.structures:
            for group in structure.groups:
                by_group.setdefault(group, []).append(structure)
        for group, structures in by_group.items():
            growing = {p for s in structures for p in s.groups[group] if p in s.growing}
            having = [s for s in structures if growing & s.groups[group].keys()]
            lengths = [_lengths(s, group, growing) for s in having]
            if all(len(found) == 1 for found in lengths):
                self._take_group(group, growing, having, [found.pop() for found in lengths])
            else:
                self._take_each(group, growing, having)

    def _take_group(
        self, group: str, growing: set[str], having: list[InputStructure], rows: list[int]
    ) -> None:
        """Make one table of a group."""
        others = {p for s in having for p in s.groups[group]} - growing
        for structure, count in zip(having, rows, strict=True):
            for path in list(others):
                dataset = structure.groups[group].get(path)
                if dataset is not None and dataset.rows != count:
                    others.discard(path)
        for structure, count in zip(having, rows, strict=True):
            datasets = structure.groups[group].items()
            columns = {path: d for path, d in datasets if path in growing | others}
            structure.tables[group] = TablePart(count, columns)

    def _take_each(self, group: str, growing: set[str], having: list[InputStructure]) -> None:
        for structure in having:
            for path, dataset in structure.groups[group].items():
                if path in growing:
                    structure.tables[path] = TablePart(dataset.rows or 0, {path: dataset})
        self.notes.append(
            f"the datasets of {group} are not equally long in every file: each is joined by itself"
        )

    def _leave_held_rows(self) -> None:
        for structure in self.structures:
            held = self.held.get(structure.example, {})
            for table, part in structure.tables.items():
                group = (table.rpartition("/")[0] or "/") if table in part.columns else table
                part.held = held.get(table, held.get(group, ()))
                part.rows -= part.first

    # Tables --------------------------------------------------------------------------------------

    def _unite_tables(self) -> list[MergedTable]:
        having: dict[str, list[int]] = {}
        for number, structure in enumerate(self.structures):
            for name in structure.tables:
                having.setdefault(name, []).append(number)
        return [self._unite_table(name, numbers) for name, numbers in having.items()]

    def _unite_table(self, name: str, numbers: list[int]) -> MergedTable:
        rows = np.zeros(len(self.structures), np.int64)
        having = [self.structures[number] for number in numbers]
        rows[numbers] = [structure.tables[name].rows for structure in having]
        counts = rows[self.of_input]
        table = MergedTable(name, [], np.cumsum(counts) - counts, counts)
        paths = dict.fromkeys(path for s in having for path in s.tables[name].columns)
        for path in sorted(paths):
            table.columns.append(self._unite_column(path, table, having))
        return table

    def _unite_column(
        self, path: str, table: MergedTable, having: list[InputStructure]
    ) -> MergedColumn:
        parts = [(s, s.columns[path]) for s in having if path in s.columns]
        for structure, dataset in parts:
            require_joinable(structure.example, path, dataset)
        # What an empty dataset was created as says nothing, if there are others.
        filled = [part for part in parts if part[1].rows] or parts[:1]
        column = self._unite_types(path, table, filled)
        self._decide_mode(column, table, filled, is_everywhere=len(parts) == len(having))
        self._note_missing(column, table, having)
        return column

    def _unite_types(
        self, path: str, table: MergedTable, parts: list[tuple[InputStructure, Dataset]]
    ) -> MergedColumn:
        (first, dataset), *others = parts
        inner = _inner(dataset)
        united, is_certain = type_of(dataset.type), True
        words = {type_text(united): None}
        for structure, other in others:
            if _inner(other) != inner:
                raise ragged(path, first.example, dataset, structure.example, other)
            if other.type.encoded == dataset.type.encoded:
                continue
            type_ = type_of(other.type)
            found = unite(united, type_)
            if found is None:
                raise not_united(path, first.example, united, structure.example, type_)
            words[type_text(type_)] = None
            united, is_certain = found.type, is_certain and found.is_certain
        if not is_certain:
            self._require_survival(path, united, parts)
        if len(words) > 1:
            self.notes.append(f"{path} is {' and '.join(words)}: joined as {type_text(united)}")
        encoded = dataset.type.encoded if united == type_of(dataset.type) else b""
        fill = converted_fill(dataset.fill, type_of(dataset.type), united)
        return MergedColumn(path, table.name, united, inner, encoded, fill=fill)

    def _require_survival(
        self, path: str, united: TypeID, parts: list[tuple[InputStructure, Dataset]]
    ) -> None:
        """Look at every value that the new type may not hold."""
        numbers = {id(s): number for number, s in enumerate(self.structures)}
        for structure, dataset in parts:
            old = type_of(dataset.type)
            if old == united:
                continue
            for place in np.flatnonzero(self.of_input == numbers[id(structure)]).tolist():
                one = self.inputs[place]
                with self.survey.opened(one) as layout:
                    reader = RowReader(layout.tree.file, path, dataset, sound_path(one))
                    if not all(survives(reader.read(r), old, united) for r in reader.steps()):
                        first = (parts[0][0].example, type_of(parts[0][1].type))
                        raise values_lost(path, one, old, united, first)

    def _note_missing(
        self, column: MergedColumn, table: MergedTable, having: list[InputStructure]
    ) -> None:
        path = column.path
        without = [s for s in having if path not in s.columns and s.tables[table.name].rows]
        if not without:
            return
        numbers = [n for n, s in enumerate(self.structures) if s in without]
        places = np.flatnonzero(np.isin(self.of_input, numbers)).tolist()
        rows = int(table.counts[places].sum())
        names = some_names([self.inputs[place] for place in places])
        fill = fill_text(column.type, column.fill)
        self.notes.append(f"{path} is not in {names}: {count_text(rows, 'row')} filled with {fill}")

    def _decide_mode(
        self,
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

    # Axes ----------------------------------------------------------------------------------------

    def _unite_scales(self) -> dict[str, tuple[Dataset, bytes]]:
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

    def _unite_axes(self) -> dict[str, Axes]:
        """The axes of each column, where all files agree and the output has what they name."""
        there = {column.path for column in self.columns} | self.scales.keys()
        united: dict[str, Axes] = {}
        for column in self.columns:
            having = [s for s in self.structures if column.path in s.columns]
            axes = {s.axes.get(column.path, ()) for s in having}
            names = {path for one in axes for axis in one for path in axis}
            if len(axes) == 1 and names and names <= there:
                united[column.path] = axes.pop()
            elif names:
                self.notes.append(f"the axes of {column.path} are not kept")
        return united

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

    # Attributes ----------------------------------------------------------------------------------

    def _unite_attributes(self) -> _ColumnAttributes:
        """The attributes of every object of the output: those of the first file that has them."""
        united: _ColumnAttributes = {path: {} for path in self._object_paths()}
        owners = self._owners
        differing: dict[tuple[str, str], list[int]] = {}
        for number, structure in enumerate(self.structures):
            for path in united:
                for name, value in structure.attributes.get(path, {}).items():
                    known = united[path].setdefault(name, value)
                    owners.setdefault((path, name), structure)
                    if known is not value and not known.equals(value):
                        differing.setdefault((path, name), []).append(number)
                        structure.left_out[f"{path}@{name}"] = str(value)
        for path, name in list(self._partly_decoded(united)):
            self._leave_out(united, path, name)
            differing.pop((path, name), None)
        for (path, name), numbers in differing.items():
            first = owners[path, name].example
            places = np.flatnonzero(np.isin(self.of_input, numbers)).tolist()
            others = [self.inputs[place] for place in places]
            self.notes.append(differing_text(name, path, first, others))
        lost = dict.fromkeys(text for s in self.structures for text in s.lost_attributes)
        self.notes += [f"{text} is not kept: it refers to places in its file" for text in lost]
        return united

    def _partly_decoded(self, united: _ColumnAttributes) -> Iterator[tuple[str, str]]:
        """Scale factors and the like of columns that not all files have, with the same value."""
        for path, about in united.items():
            for name, value in about.items():
                if is_decoding(name, str(value)):
                    having = [
                        s.attributes.get(path, {}) for s in self.structures if path in s.columns
                    ]
                    if not all(name in own and own[name].equals(value) for own in having):
                        yield path, name

    def _leave_out(self, united: _ColumnAttributes, path: str, name: str) -> None:
        """Keep an attribute of a column in the audit trail alone."""
        del united[path][name]
        first = self._owners.pop((path, name)).example
        for structure in self.structures:
            if (value := structure.attributes.get(path, {}).get(name)) is not None:
                structure.left_out[f"{path}@{name}"] = str(value)
        self.notes.append(
            f"the attribute {name} of {path} in {first.name} is only in the audit trail: other "
            "files lack it or have another, and readers would decode their values by it too"
        )

    def attribute_owners(self) -> dict[tuple[str, str], tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return {
            (path, name): (structure.example, str(self.attributes[path][name]))
            for (path, name), structure in self._owners.items()
        }

    def _object_paths(self) -> list[str]:
        """The root, the columns, the groups above them, and groups that have attributes."""
        ends = {column.path: None for column in self.columns} | dict.fromkeys(self.scales)
        for structure in self.structures:
            ends |= {p: None for p in structure.group_paths if structure.attributes.get(p)}
        paths = {"/": None}
        for path in ends:
            names = path.strip("/").split("/")
            paths |= {"/" + "/".join(names[:depth]): None for depth in range(1, len(names) + 1)}
        return list(paths)


def read_structure(survey: Survey, one: Input) -> InputStructure:
    """What may be joined of one file, and of all that share its structure."""
    with survey.opened(one) as layout:
        groups = {
            group: {_path(group, name): dataset for name, dataset in datasets.items()}
            for group, datasets in layout.by_group.items()
        }
        attributes, lost = _read_attributes(layout)
        return InputStructure(
            one,
            dict(layout.tree.datasets),
            groups,
            frozenset(_growing(layout)),
            attributes,
            tuple(lost),
            tuple(o.path for o in layout.tree.objects if o.kind is ObjectKind.GROUP),
            _read_axes(layout),
            layout.tree.file.superblock.start,
            tuple(_links(layout)),
            layout.skipped,
        )


def _links(layout: FileLayout) -> Iterator[str]:
    tree = layout.tree
    yield from (path for path, _ in tree.second_names)
    yield from tree.soft_links
    yield from (
        o.path for o in tree.objects if o.kind not in (ObjectKind.GROUP, ObjectKind.DATASET)
    )


def _growing(layout: FileLayout) -> Iterator[str]:
    """The datasets that a program appends to; where there are none, all that are equally long."""
    tables = layout.all_tables() if layout.style is Style.ROWS else layout.tables()
    for table in tables:
        for name in table.columns:
            yield _path(table.group, name)


def _path(group: str, name: str) -> str:
    return f"{group.rstrip('/')}/{name}"


def _lengths(structure: InputStructure, group: str, growing: set[str]) -> set[int]:
    datasets = structure.groups.get(group, {})
    return {d.rows or 0 for path, d in datasets.items() if path in growing}


def _inner(dataset: Dataset) -> tuple[int, ...]:
    return (dataset.space.dims or ())[1:]


def _read_attributes(layout: FileLayout) -> tuple[_ColumnAttributes, list[str]]:
    found: _ColumnAttributes = {}
    lost = []
    for one in layout.tree.objects:
        for name, attribute in one.attributes.items():
            if name in AXES_ATTRIBUTES or (one.path == "/" and name in OWN_ATTRIBUTES):
                continue  # made anew: references, and what a merged file says of itself
            value = _read_value(layout, attribute)
            if value is None:
                lost.append(f"the attribute {name} of {one.path}")
            else:
                found.setdefault(one.path, {})[name] = value
    return found, lost


def _read_value(layout: FileLayout, attribute: Attribute) -> AttributeValue | None:
    """The value of an attribute; None if it means nothing outside its file."""
    if not may_be_copied(attribute.type):
        return None
    data: Any = attribute.value
    if is_kept_elsewhere(attribute.type):
        data = read_elsewhere(layout.tree.file, attribute.type, attribute.value)
    return AttributeValue(type_of(attribute.type), attribute.space.dims, data)


def _read_axes(layout: FileLayout) -> dict[str, Axes]:
    """What HDF5's dimension scales say: which datasets stand for the axes of which."""
    paths = {one.address: one.path for one in layout.tree.objects}
    found = {}
    for one in layout.tree.objects:
        attribute = one.attributes.get(AXES_ATTRIBUTES[0])
        if one.dataset is None or attribute is None or attribute.type.base is None:
            continue
        if attribute.type.base.type is Class.REFERENCE and attribute.type.base.size == 8:
            parts = read_heap_parts(layout.tree.file, attribute.type, attribute.value)
            axes = [np.frombuffer(part, "<u8").tolist() for part in parts]
            found[one.path] = tuple(
                tuple(paths[address] for address in axis if address in paths) for axis in axes
            )
    return found


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
