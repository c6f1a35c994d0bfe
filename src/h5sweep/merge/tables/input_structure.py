"""What can be merged from one input: its datasets, tables, attributes and axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...base.values import value_text
from ...hdf5.datatypes import Class
from ...hdf5.file import Hdf5File
from ...hdf5.messages import Attribute
from ...hdf5.tree import Dataset, ObjectKind
from ...worker_files.decode_elements import Elements
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout, Style
from ...worker_files.skipped_names import Skipped
from ...worker_files.survey import Survey
from ..merged_mark import OWN_ATTRIBUTES
from .types import (
    TypeID,
    is_kept_elsewhere,
    may_be_copied,
    objects_of,
    read_elsewhere,
    read_heap_parts,
    type_of,
)

AXES_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST")
Axes = tuple[tuple[str, ...], ...]  # for each axis, the datasets that stand for it


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


ObjectAttributes = dict[str, dict[str, AttributeValue]]  # by the path of their object


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
    attributes: ObjectAttributes
    lost_attributes: tuple[str, ...]  # attributes that mean nothing outside their file
    group_paths: tuple[str, ...] = ()
    axes: dict[str, Axes] = field(default_factory=dict)  # by the path of their dataset
    start: int = 0  # where in the file addresses begin to count
    links: tuple[str, ...] = ()  # second names, and what is neither a group nor a dataset
    skipped: Skipped = field(default_factory=Skipped)
    tables: dict[str, TablePart] = field(default_factory=dict)
    # Attributes of which each file has a value of its own, by object and name.
    own: dict[tuple[str, str], Attribute] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, Dataset]:
        return {path: d for part in self.tables.values() for path, d in part.columns.items()}

    @cached_property
    def scales(self) -> set[str]:
        """Datasets that stand for an axis of a column and are no columns, as in netCDF files."""
        used = {path for name in self.columns for axis in self.axes.get(name, ()) for path in axis}
        return used - self.columns.keys()


def read_structure(survey: Survey, one: Input) -> InputStructure:
    """What may be merged of one file, and of all that share its structure."""
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
            own=dict(_own_attributes(one, layout, attributes)),
        )


def _own_attributes(
    one: Input, layout: FileLayout, read: ObjectAttributes
) -> Iterator[tuple[tuple[str, str], Attribute]]:
    for found in layout.tree.objects if one.family is not None else ():
        for name, attribute in found.attributes.items():
            may_differ = one.family is not None and one.family.may_differ(attribute)
            if may_differ and name in read.get(found.path, {}):
                yield (found.path, name), attribute


# The values of an attribute in inputs of one structure, and the places of those that have each.
Variants = list[tuple[AttributeValue, list[int]]]


def read_variants(
    survey: Survey, structure: InputStructure, inputs: Sequence[Input], places: Sequence[int]
) -> dict[tuple[str, str], Variants]:
    """The attributes that differ among inputs of one structure, by object and name.

    The value of the first input comes first.
    """
    unlike = _unlike_first(inputs, places) if structure.own else []
    if not unlike:
        return {}
    found: dict[tuple[str, str], dict[_Raw, tuple[AttributeValue, list[int]]]] = {}
    alike = sorted({*places} - {*unlike})
    for place in (places[0], *unlike):
        with _opened_file(survey, inputs[place]) as file:
            elements = Elements(file)
            for where, attribute in structure.own.items():
                raw = _read_raw(file, attribute, elements)
                variants = found.setdefault(where, {})
                if raw not in variants:
                    value = _value_of(structure.attributes[where[0]][where[1]], attribute, raw)
                    variants[raw] = value, []
                variants[raw][1].extend(alike if place == places[0] else [place])
    return {where: list(variants.values()) for where, variants in found.items()}


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


_Raw = bytes | tuple[bytes, ...]


def _read_raw(file: Hdf5File, attribute: Attribute, elements: Elements) -> _Raw:
    """The value that an attribute has in a sibling, as bytes."""
    assert attribute.address is not None
    value = file.read(attribute.address, len(attribute.value))
    if is_kept_elsewhere(attribute.type):
        return tuple(read_heap_parts(elements, attribute.type, value))
    return value


def _value_of(example: AttributeValue, attribute: Attribute, raw: _Raw) -> AttributeValue:
    data = raw if isinstance(raw, bytes) else objects_of(attribute.type, raw)
    return AttributeValue(example.type, example.dims, data)


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


def _read_attributes(layout: FileLayout) -> tuple[ObjectAttributes, list[str]]:
    found: ObjectAttributes = {}
    lost = []
    for one in layout.tree.objects:
        for name, attribute in one.attributes.items():
            if name in AXES_ATTRIBUTES or (one.path == "/" and name in OWN_ATTRIBUTES):
                continue  # made again: references, and what a merged file says of itself
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
            elements = Elements(layout.tree.file)
            parts = read_heap_parts(elements, attribute.type, attribute.value)
            axes = [np.frombuffer(part, "<u8").tolist() for part in parts]
            found[one.path] = tuple(
                tuple(paths[address] for address in axis if address in paths) for axis in axes
            )
    return found
