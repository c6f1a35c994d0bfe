"""What inputs of one structure have to be merged: datasets, tables, attributes and axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...base.values import value_text
from ...hdf5.datatypes import Class
from ...hdf5.file import Hdf5File
from ...hdf5.messages import Attribute
from ...hdf5.tree import Dataset, ObjectKind, Tree
from ...worker_files.decode_elements import Elements
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout, Style, indexed_table
from ...worker_files.skipped_names import Skipped
from ...worker_files.survey import Survey
from ..merged_mark import OWN_ATTRIBUTES
from .types import (
    TypeID,
    is_kept_elsewhere,
    may_be_copied,
    objects_of,
    read_heap_parts,
    type_of,
)

_MERGED = (ObjectKind.GROUP, ObjectKind.DATASET)
AXES_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST")
Axes = tuple[tuple[str, ...], ...]  # for each axis, the datasets that stand for it
Where = tuple[str, str]  # the path of an object, and the name of its attribute
_Raw = bytes | tuple[bytes, ...]  # the value of an attribute: bytes, or those behind references


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


# The values of an attribute in inputs of one structure, and the places of those that have each.
Variants = list[tuple[AttributeValue, list[int]]]


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
    places: list[int]  # of all inputs that have it
    datasets: dict[str, Dataset]  # by path
    groups: dict[str, dict[str, Dataset]]
    growing: frozenset[str]  # paths of what may be a column
    axes: dict[str, Axes]  # by the path of their dataset
    start: int  # where in the file addresses begin to count
    links: tuple[str, ...]  # second names, and what is neither a group nor a dataset
    skipped: Skipped
    attributes: dict[str, dict[str, Variants]] = field(default_factory=dict)  # by object and name
    lost_attributes: list[str] = field(default_factory=list)  # that refer to places in their file
    tables: dict[str, TablePart] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, Dataset]:
        return {path: d for part in self.tables.values() for path, d in part.columns.items()}

    @cached_property
    def scales(self) -> set[str]:
        """Datasets that stand for an axis of a column and are no columns, as in netCDF files."""
        used = {path for name in self.columns for axis in self.axes.get(name, ()) for path in axis}
        return used - self.columns.keys()

    @property
    def indexes(self) -> tuple[str, ...]:
        """The datasets that say no more than columns do."""
        return tuple(path for path in self.datasets if indexed_table(path) in self.columns)

    def brings_group(self, path: str) -> bool:
        """Whether a group comes with the columns, and not with what else the files have."""
        has_more = not self.datasets.keys() <= {*self.columns, *self.scales, *self.indexes}
        is_above = any(column.startswith(path.rstrip("/") + "/") for column in self.columns)
        return path not in self.datasets and (is_above or not has_more)


def read_structure(
    survey: Survey, inputs: Sequence[Input], places: Sequence[int]
) -> InputStructure:
    """What may be merged of the inputs at these places, which share a structure."""
    example, values = inputs[places[0]], dict[Where, tuple[Attribute, AttributeValue]]()
    with survey.opened(example) as layout:
        structure = InputStructure(
            example,
            list(places),
            dict(layout.tree.datasets),
            {
                group: {_path(group, name): dataset for name, dataset in datasets.items()}
                for group, datasets in layout.by_group.items()
            },
            frozenset(_growing(layout)),
            _read_axes(layout),
            layout.tree.file.superblock.start,
            tuple(_links(layout.tree)),
            layout.skipped,
        )
        elements = Elements(layout.tree.file)
        for where, attribute in _attributes(layout):
            if may_be_copied(attribute.type):
                raw = _raw_value(elements, attribute, attribute.value)
                values[where] = attribute, _value_of(attribute, raw)
            else:
                structure.lost_attributes.append(f"the attribute {where[1]} of {where[0]}")
    own = _read_own(survey, inputs, places, values)
    for (path, name), (_, value) in values.items():
        variants = own.get((path, name), [(value, structure.places)])
        structure.attributes.setdefault(path, {})[name] = variants
    return structure


def _path(group: str, name: str) -> str:
    return f"{group.rstrip('/')}/{name}"


def _growing(layout: FileLayout) -> Iterator[str]:
    """The datasets that a program appends to; where there are none, all that are equally long."""
    tables = layout.all_tables() if layout.style is Style.ROWS else layout.tables()
    for table in tables:
        for name in table.columns:
            yield _path(table.group, name)


def _links(tree: Tree) -> Iterator[str]:
    yield from (path for path, _ in tree.second_names)
    yield from tree.soft_links
    yield from (one.path for one in tree.objects if one.kind not in _MERGED)


def _read_axes(layout: FileLayout) -> dict[str, Axes]:
    """What HDF5's dimension scales say: which datasets stand for the axes of which."""
    paths = {one.address: one.path for one in layout.tree.objects}
    found = {}
    for one in layout.tree.objects:
        attribute = one.attributes.get(AXES_ATTRIBUTES[0])
        if one.dataset is None or attribute is None or attribute.type.base is None:
            continue
        if attribute.type.base.type is Class.REFERENCE and attribute.type.base.size == 8:
            elements = Elements(layout.tree.file)
            parts = read_heap_parts(elements, attribute.type, attribute.value)
            axes = [np.frombuffer(part, "<u8").tolist() for part in parts]
            found[one.path] = tuple(
                tuple(paths[address] for address in axis if address in paths) for axis in axes
            )
    return found


# Attributes --------------------------------------------------------------------------------------


def _attributes(layout: FileLayout) -> Iterator[tuple[Where, Attribute]]:
    for one in (one for one in layout.tree.objects if one.kind in _MERGED):
        for name, attribute in one.attributes.items():
            # References, and what a merged file says of itself, are made again.
            if name not in AXES_ATTRIBUTES and (one.path != "/" or name not in OWN_ATTRIBUTES):
                yield (one.path, name), attribute


def _raw_value(elements: Elements, attribute: Attribute, value: bytes) -> _Raw:
    if is_kept_elsewhere(attribute.type):
        return tuple(read_heap_parts(elements, attribute.type, value))
    return value


def _value_of(attribute: Attribute, raw: _Raw) -> AttributeValue:
    data = raw if isinstance(raw, bytes) else objects_of(attribute.type, raw)
    return AttributeValue(type_of(attribute.type), attribute.space.dims, data)


def _read_own(
    survey: Survey,
    inputs: Sequence[Input],
    places: Sequence[int],
    values: Mapping[Where, tuple[Attribute, AttributeValue]],
) -> dict[Where, Variants]:
    """The attributes of which inputs of one structure have different values.

    The value of the first input comes first.
    """
    family = inputs[places[0]].family
    own = {w: a for w, (a, _) in values.items() if family is not None and family.may_differ(a)}
    unlike = _unlike_first(inputs, places) if own else []
    if not unlike:
        return {}
    found: dict[Where, dict[_Raw, list[int]]] = {where: {} for where in own}
    alike = sorted({*places} - {*unlike})
    for place in (places[0], *unlike):
        with _opened_file(survey, inputs[place]) as file:
            elements = Elements(file)
            for where, attribute in own.items():
                assert attribute.address is not None
                value = file.read(attribute.address, len(attribute.value))
                having = found[where].setdefault(_raw_value(elements, attribute, value), [])
                having += alike if place == places[0] else [place]
    return {
        where: [(_value_of(own[where], raw), having) for raw, having in variants.items()]
        for where, variants in found.items()
    }


def _unlike_first(inputs: Sequence[Input], places: Sequence[int]) -> list[int]:
    """The places of inputs that may have other values than the first of these."""
    family = inputs[places[0]].family
    if family is None or not all(inputs[place].is_kept for place in places):
        return list(places[1:])
    numbers = [inputs[place].kept_as for place in places]
    return [places[n] for n in family.unlike_in_values(numbers)]


@contextmanager
def _opened_file(survey: Survey, one: Input) -> Iterator[Hdf5File]:
    """An input, out of memory if all that is in it is kept there."""
    if one.family is not None and one.is_kept:
        yield Hdf5File(one.family.kept_source(one.kept_as), one.family.tree.file.superblock)
    else:
        with survey.opened(one) as layout:
            yield layout.tree.file
