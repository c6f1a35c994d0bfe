"""Every object of a file, and what is wrong with each. Never raises for what a file holds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from . import headers
from .chunks import Chunk, read_chunks
from .datatypes import Datatype, field_places, read_datatype
from .errors import Damaged, Unsupported
from .file import Hdf5File
from .groups import is_group, read_attributes, read_links, resolved_message
from .headers import Header, read_header
from .messages import (
    Attribute,
    Dataspace,
    Filter,
    Link,
    Storage,
    StorageLayout,
    read_dataspace,
    read_fill,
    read_filters,
    read_layout,
    read_old_fill,
)

MOST_OBJECTS = 200_000
MOST_CHUNKS = 1_000_000
MOST_ATTRIBUTES_KEPT = 4096
NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})  # of most datasets
_UNWRITTEN_BYTES = 1 << 30  # of data that were made room for and never written, or hardly
_UNWRITTEN_VALUE_BYTES = 64 << 20  # the same in one value
_MOST_PACKED = 1100  # gzip makes at most that much of a byte


class ObjectKind(StrEnum):
    """What an object is."""

    GROUP = "group"
    DATASET = "dataset"
    DATATYPE = "datatype"
    UNKNOWN = "unknown"


class Fault(NamedTuple):
    """Something that is wrong, or not known here, and the object where it was met."""

    path: str
    error: Damaged | Unsupported
    is_listing: bool = False  # the links of a group could not all be read


@dataclass(slots=True)
class Dataset:
    """What is known of a dataset."""

    type: Datatype
    space: Dataspace
    layout: StorageLayout
    filters: tuple[Filter, ...] = ()
    fill: bytes | None = None
    chunks: Sequence[Chunk] = ()
    compact_at: int | None = None
    is_external: bool = False

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The length of each axis; None if it can hold nothing."""
        return self.space.dims

    @property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Where each field lies in a row, if this is a row of compounds; else nothing."""
        places = field_places(self.type) if len(self.shape or ()) == 1 else {}
        return {} if "" in places else places

    @property
    def size_bytes(self) -> int:
        return self.space.count * self.type.size

    @property
    def claimed_bytes(self) -> int:
        """How much its shape says there is; elements of no size take time as well."""
        return self.space.count * max(self.type.size, 1)

    @property
    def rows(self) -> int | None:
        """The length of the first axis; None for a single value."""
        return self.space.dims[0] if self.space.dims else None

    @property
    def rows_stored(self) -> int:
        """How many rows there are bytes of; the others are fill values."""
        if self.layout.storage is Storage.CHUNKED:
            bands = {chunk.start[0] for chunk in self.chunks}
            return min(len(bands) * self.layout.chunk[0], self.rows or 0)
        is_there = self.compact_at is not None or self.layout.address is not None
        return self.rows or 0 if is_there else 0

    @property
    def may_grow(self) -> bool:
        return bool(self.space.limits) and self.space.limits[0] is None


@dataclass(slots=True)
class Object:
    """A group, dataset or named datatype, by its path from the root."""

    path: str
    address: int
    kind: ObjectKind
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRIBUTES)
    dataset: Dataset | None = None


@dataclass
class Tree:
    """All that could be listed of a file."""

    file: Hdf5File
    objects: list[Object] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    links_out: int = 0
    is_cut: bool = False  # there are more objects than were looked at
    soft_links: dict[str, str | None] = field(default_factory=dict)  # path → what it names
    external_links: list[str] = field(default_factory=list)
    second_names: list[tuple[str, int]] = field(default_factory=list)  # of objects listed already

    @cached_property
    def datasets(self) -> list[tuple[str, Dataset]]:
        return [(o.path, o.dataset) for o in self.objects if o.dataset is not None]

    @property
    def reach(self) -> int:
        """Where the last structure or piece of data ends, from the file's first byte."""
        structures = (at + size for at, size in self.file.structures.items())
        data = (at + size for _, d in self.datasets for at, size in data_extents(d))
        return self.file.superblock.start + max((*structures, *data), default=0)

    @property
    def root(self) -> Object | None:
        return self.objects[0] if self.objects else None


def read_whole_tree(file: Hdf5File) -> Tree:
    """List the whole file, as far as it goes; what is damaged is noted and passed over."""
    tree = Tree(file)
    if file.superblock.extension is not None and _needs_the_library(tree):
        return tree
    TreeWalk(tree).visit_all()
    check_overlaps(tree)
    return tree


def _needs_the_library(tree: Tree) -> bool:
    """Whether the superblock's extension says that the file cannot be read by its bytes alone."""
    assert tree.file.superblock.extension is not None
    try:
        extension = read_header(tree.file, tree.file.superblock.extension)
    except (Damaged, Unsupported) as error:
        tree.faults.append(Fault("superblock extension", error))
        return False
    if extension.first(headers.CACHE_IMAGE) is not None:
        fault = Unsupported("an image of the library's cache stands for what is in the file")
        tree.faults.append(Fault("superblock extension", fault))
        return True
    return False


def read_object(tree: Tree, header: Header) -> tuple[Object, list[tuple[str, int]]]:
    """One object by itself, and the names and addresses that it links to.

    What is wrong with it goes to the faults of `tree`.
    """
    walk = TreeWalk(tree)
    walk.waiting.clear()
    walk.take_object("", header)
    return tree.objects.pop(), [(path[1:], child) for path, child in walk.waiting]


class TreeWalk:
    """One way through a file, in which every object is visited once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.file = tree.file
        self.seen: set[int] = set()
        self.waiting: list[tuple[str, int]] = [("/", tree.file.superblock.root)]

    def visit_all(self) -> None:
        while self.waiting and not self.tree.is_cut:
            self.take_next(*self.waiting.pop())

    def visit_some(self, most: int) -> None:
        """Stop when there are more objects than `most`; the rest is still waiting then."""
        while self.waiting and len(self.seen) < most:
            self.take_next(*self.waiting.pop())

    def take_next(self, path: str, address: int) -> None:
        """Visit one object, unless it is listed already under another name."""
        if address in self.seen:
            self.tree.second_names.append((path, address))
        elif len(self.seen) >= MOST_OBJECTS:
            self.tree.is_cut = True
        else:
            self.seen.add(address)
            self.visit(path, address)

    def visit(self, path: str, address: int) -> None:
        try:
            header = read_header(self.file, address)
        except (Damaged, Unsupported) as error:
            self.note(path, error, is_listing=path == "/")
        else:
            self.take_object(path, header)

    def take_object(self, path: str, header: Header) -> None:
        found = Object(path, header.address, _kind_of(header))
        self.tree.objects.append(found)
        if found.kind is ObjectKind.GROUP:
            self.take_links(path, header)
        try:
            if found.kind is ObjectKind.DATASET:
                found.dataset = _read_dataset(self.file, header, self.tree, path)
            elif found.kind is ObjectKind.DATATYPE:
                _read_type(self.file, header)
            elif found.kind is ObjectKind.UNKNOWN:
                raise Damaged(f"the header at {header.address:,} is of no known kind of object")
        except (Damaged, Unsupported) as error:
            self.note(path, error)
        self.take_attributes(found, header)
        self.take_noted(path)

    def take_links(self, path: str, header: Header) -> None:
        links: list[Link] = []
        try:
            links.extend(read_links(self.file, header))
        except (Damaged, Unsupported) as error:
            self.note(path, error, is_listing=True)
        names: set[str] = set()
        for link in reversed(links):
            if link.name in names:
                self.note(path, Damaged(f"two links are named {link.name!r}"))
            names.add(link.name)
            self.take_link(path.rstrip("/") + "/" + link.name, link)

    def take_link(self, path: str, link: Link) -> None:
        if link.address is not None:
            self.waiting.append((path, link.address))
        elif link.is_external:
            self.tree.links_out += 1
            self.tree.external_links.append(path)
        else:
            self.tree.soft_links[path] = link.target

    def take_attributes(self, found: Object, header: Header) -> None:
        attributes: dict[str, Attribute] = {}
        try:
            for attribute in read_attributes(self.file, header):
                if len(attributes) >= MOST_ATTRIBUTES_KEPT:
                    raise Unsupported(f"more than {MOST_ATTRIBUTES_KEPT:,} attributes")
                attributes[attribute.name] = attribute
        except (Damaged, Unsupported) as error:
            self.note(found.path, error)
        found.attributes = attributes or NO_ATTRIBUTES

    def take_noted(self, path: str) -> None:
        for fault in self.file.faults:
            self.note(path, fault)
        self.file.faults.clear()

    def note(self, path: str, error: Damaged | Unsupported, *, is_listing: bool = False) -> None:
        self.tree.faults.append(Fault(path, error, is_listing))


def _kind_of(header: Header) -> ObjectKind:
    if is_group(header):
        return ObjectKind.GROUP
    if header.first(headers.LAYOUT) is not None:
        return ObjectKind.DATASET
    if header.first(headers.DATATYPE) is not None:
        return ObjectKind.DATATYPE
    return ObjectKind.UNKNOWN


def _read_dataset(file: Hdf5File, header: Header, tree: Tree, path: str) -> Dataset:
    space_message = resolved_message(file, header, headers.DATASPACE)
    layout_message = header.first(headers.LAYOUT)
    assert layout_message is not None  # it is what makes the object a dataset
    space = read_dataspace(space_message.data, file.widths)
    layout = read_layout(layout_message.data, file.widths)
    found = Dataset(_read_type(file, header), space, layout)
    _check_fill(file, header, found)
    if header.first(headers.FILTERS) is not None:
        found.filters = read_filters(
            resolved_message(file, header, headers.FILTERS).data, file.widths
        )
    found.is_external = header.first(headers.EXTERNAL) is not None
    if layout.storage is Storage.COMPACT:
        found.compact_at = layout_message.address + layout.data_offset
    _check_sizes(found)
    if layout.storage is Storage.CHUNKED:
        _take_chunks(tree, path, found)
    return found


def _read_type(file: Hdf5File, header: Header) -> Datatype:
    message = resolved_message(file, header, headers.DATATYPE)
    found = read_datatype(message.data)
    if found.has_first_array and not file.superblock.is_by_early_library:
        raise Damaged("an array type of version 1, which only early libraries wrote")
    return found


def _check_fill(file: Hdf5File, header: Header, found: Dataset) -> None:
    for number, read in ((headers.OLD_FILL, read_old_fill), (headers.FILL, read_fill)):
        message = header.first(number)
        if message is None or message.is_shared:
            continue
        fill = read(message.data, file.widths)
        if fill is not None and len(fill) == found.type.size:
            found.fill = fill


def _check_sizes(found: Dataset) -> None:
    layout = found.layout
    if layout.storage in (Storage.CONTIGUOUS, Storage.COMPACT) and not found.is_external:
        is_there = layout.storage is Storage.COMPACT or layout.address is not None
        if is_there and layout.size is not None and layout.size < found.size_bytes:
            short = f"{layout.size:,} bytes for {found.size_bytes:,} bytes of data"
            raise Damaged(short)
    if layout.storage is Storage.CHUNKED and layout.element_size != found.type.size:
        raise Damaged(f"chunks of elements of {layout.element_size}, not {found.type.size} bytes")


def _take_chunks(tree: Tree, path: str, found: Dataset) -> None:
    """List the chunks; where their index is damaged, those before the damage."""
    is_filtered = bool(found.filters)
    chunks: list[Chunk] = []
    found.chunks = chunks
    try:
        for chunk in read_chunks(tree.file, found.layout, found.space, is_filtered=is_filtered):
            if len(chunks) >= MOST_CHUNKS:
                raise Unsupported(f"more than {MOST_CHUNKS:,} chunks")
            chunks.append(chunk)
    except (Damaged, Unsupported) as error:
        tree.faults.append(Fault(path, error))


def data_extents(dataset: Dataset) -> Iterable[tuple[int, int]]:
    """The address and size of every stretch of a dataset's data outside object headers."""
    layout = dataset.layout
    if layout.storage is Storage.CONTIGUOUS and layout.address is not None:
        if not dataset.is_external:
            yield layout.address, dataset.size_bytes if layout.size is None else layout.size
    elif layout.storage is Storage.CHUNKED:
        yield from ((chunk.address, chunk.size) for chunk in dataset.chunks)


def most_claimed(file_bytes: int) -> int:
    """How much data a file of this size may claim to hold.

    What it claims beyond that, a reader would have to make up: fill values without end.
    """
    return _UNWRITTEN_BYTES + _MOST_PACKED * file_bytes


def most_made_up(stored_bytes: int) -> int:
    """How large a value may be that is held in memory as a whole, by what is stored of it."""
    return _UNWRITTEN_VALUE_BYTES + _MOST_PACKED * stored_bytes


def least_unbelievable(claims: Iterable[int], file_bytes: int) -> float:
    """From which size on the claims of a file's datasets are more, with all below, than it holds.

    So one that claims too much costs the others nothing.
    """
    left = most_claimed(file_bytes)
    for claim in sorted(claims):
        left -= claim
        if left < 0:
            return claim
    return math.inf


def check_overlaps(tree: Tree) -> None:
    """Note structures that lie in one place with others: one of them was overwritten."""
    extents = sorted((at, at + size) for at, size in tree.file.structures.items() if size)
    for before, after in pairwise(extents):
        if before[1] > after[0]:
            what = f"structures at {before[0]:,} and at {after[0]:,} lie in one another"
            tree.faults.append(Fault("/", Damaged(what)))
            return
    starts = [start for start, _ in extents]
    for path, dataset in tree.datasets:
        for address, size in data_extents(dataset):
            place = bisect_right(starts, address + size - 1) - 1
            if size and place >= 0 and extents[place][1] > address:
                what = f"data at {address:,} lie where a structure is, at {extents[place][0]:,}"
                tree.faults.append(Fault(path, Damaged(what)))
                return
