"""Files that are equal outside their holes: one structure describes them all.

The files of one program are mostly such. Of a sibling only the holes are looked at: its data, the
values of its attributes, times (`hdf5.holes`). What was found out about its structure, by us and by
the HDF5 library, holds for it too. What small siblings have each for itself is kept, so that these
are read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from struct import Struct
from typing import Any

import numpy as np

from ..base.values import Array
from ..hdf5.errors import Damaged
from ..hdf5.file import Hdf5File
from ..hdf5.holes import Holes, Span, find_holes
from ..hdf5.messages import Attribute, Storage
from ..hdf5.read_data import fill_bytes
from ..hdf5.source import Source
from ..hdf5.tree import Dataset, Object, Tree
from .findings import Finding
from .layouts import TELLING_ATTRIBUTES, Contents, FileLayout

VIRTUAL = Storage.VIRTUAL
MOST_FOR_ONE_SIZE = 16
MOST_KEPT_BYTES = 32 << 20
MOST_STRUCTURE_BYTES = 4 << 20
MOST_ROW_BYTES = 64 << 10


@dataclass(eq=False)
class Family:
    """One parsed file; `verdict` is what the library said, once it has."""

    tree: Tree
    size_bytes: int
    holes: Holes
    structure_findings: list[Finding]
    verdict: list[Finding] | None = None
    waiting: list[Any] = field(default_factory=list)
    fixed: tuple[bytes, ...] = ()  # what stands between the holes
    contents: Contents | None = None  # of every sibling, once nothing was found wrong with one
    kept: bytearray = field(default_factory=bytearray)  # what siblings have in their holes
    _last_rows: tuple[tuple[int, bytes], ...] = ()

    @cached_property
    def is_plain(self) -> bool:
        """Whether its data are bytes with nothing to verify, so that siblings need only be read."""
        return not any(
            d.filters or d.type.points_elsewhere or d.is_external or d.layout.storage is VIRTUAL
            for _, d in self.tree.datasets
        )

    @cached_property
    def fixed_spans(self) -> list[Span]:
        """What all siblings have in common; a file begins with such, because of its superblock."""
        bounds = [0, *chain.from_iterable(self.holes.spans), self.size_bytes]
        return [(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=True) if a < b]

    @cached_property
    def _parts(self) -> Struct:
        places = sorted([*self.fixed_spans, *self.holes.spans])
        return Struct("".join(f"{end - start}s" for start, end in places))

    def has(self, source: Source) -> bool:
        """Whether a file of the same size is a sibling."""
        if source.content:
            return self.read_holes([source]) != [None]
        try:
            spans = zip(self.fixed_spans, self.fixed, strict=True)
            is_equal = all(source.read(a, b - a) == data for (a, b), data in spans)
            return is_equal and all(self.holes.are_sound([source]))
        except Damaged:
            return False

    def read_holes(self, sources: Sequence[Source]) -> list[bytes | None]:
        """What each of these small files has for itself; None for one that is no sibling."""
        parts = [self._parts.unpack(source.content) for source in sources]
        return [
            b"".join(some[1::2]) if is_sound and some[::2] == self.fixed else None
            for some, is_sound in zip(parts, self.holes.are_sound(sources), strict=True)
        ]

    def tree_of(self, source: Source) -> Tree:
        """The structure of a sibling: ours, with its bytes and the values of its attributes."""
        file = Hdf5File(source, self.tree.file.superblock)
        objects = list(self.tree.objects)
        for number in self._with_values:
            objects[number] = self._with_own_values(objects[number], file)
        return replace(self.tree, file=file, objects=objects)

    @cached_property
    def _with_values(self) -> list[int]:
        """The objects with attributes that may differ."""
        numbered = enumerate(self.tree.objects)
        return [n for n, o in numbered if any(map(self.may_differ, o.attributes.values()))]

    def may_differ(self, attribute: Attribute) -> bool:
        """Whether siblings may have another value."""
        return attribute.address in self.holes.attributes

    def _with_own_values(self, found: Object, file: Hdf5File) -> Object:
        attributes = dict(found.attributes)
        for name, one in found.attributes.items():
            if one.address is not None and self.may_differ(one):
                attributes[name] = one._replace(value=file.read(one.address, len(one.value)))
        return replace(found, attributes=attributes)

    # Sound files ---------------------------------------------------------------------------------

    def note_sound(self, layout: FileLayout, contents: Contents) -> None:
        """Remember that nothing is wrong with a sibling; so it is with all, but for lost rows."""
        self.contents, self._last_rows = contents, tuple(_last_rows(layout))

    def is_sound(self, sibling: Source) -> bool:
        """Whether a sibling need not be looked at closer.

        It is as sound as the first, unless the last row of a table is unwritten: of each table one
        piece of that row is looked at.
        """
        return self.contents is not None and not any(
            sibling.read(at, len(fill)) == fill for at, fill in self._last_rows
        )

    # What small siblings have each for itself -----------------------------------------------------

    @cached_property
    def hole_bytes(self) -> int:
        """How much one file has for itself."""
        return sum(end - start for start, end in self.holes.spans)

    def keep(self, holes: bytes) -> int:
        """Keep what a file has for itself; return its number."""
        number = len(self.kept) // self.hole_bytes
        self.kept += holes
        return number

    def kept_rows(self, numbers: Sequence[int]) -> Array:
        """What these files have for themselves, in a row each."""
        return self._kept().take(numbers, axis=0)

    def kept_at(self, start: int, size: int) -> int | None:
        """Where in such a row these bytes of a file are; None if they are not all there."""
        for (begin, end), before in self._places:
            if begin <= start and start + size <= end:
                return before + start - begin
        return None

    def unlike_in_values(self, numbers: Sequence[int]) -> list[int]:
        """The places of those among these files whose attributes differ from those of the first."""
        rows = self._kept()
        differ = np.zeros(len(numbers), bool)
        for start, end in self.holes.values:
            at = self.kept_at(start, end - start)
            assert at is not None
            part = rows[:, at : at + end - start]
            differ |= (part[numbers] != part[numbers[0]]).any(axis=1)
        return np.flatnonzero(differ).tolist()

    def kept_source(self, number: int) -> Source:
        """A small file as it was read, of which the holes are kept."""
        holes = self._kept()[number].tobytes()
        parts = [holes[at : at + end - start] for (start, end), at in self._places]
        pieces = zip(self.fixed, [*parts, b""], strict=False)
        return Source(b"".join(chain.from_iterable(pieces)))

    def _kept(self) -> Array:
        rows: Array = np.frombuffer(self.kept, np.uint8).reshape(-1, self.hole_bytes)
        return rows

    @cached_property
    def _places(self) -> list[tuple[Span, int]]:
        """The holes, and where in what is kept of a file each is."""
        sizes = (end - start for start, end in self.holes.spans)
        return list(zip(self.holes.spans, accumulate(sizes, initial=0), strict=False))


class Families:
    """The families met so far, by the size of their files."""

    def __init__(self) -> None:
        self._families: dict[int, list[Family]] = {}
        self._kept_bytes = 0

    def find(self, source: Source) -> Family | None:
        """The family that this file is of."""
        return next((family for family in self.of_size(source.size) if family.has(source)), None)

    def of_size(self, size_bytes: int) -> Sequence[Family]:
        """The families of files of this size."""
        return self._families.get(size_bytes, ())

    def add(self, tree: Tree, structure_findings: list[Finding]) -> Family:
        """Make a family of a parsed file; it is found by siblings if that costs little."""
        source = tree.file.source
        holes = find_holes(tree, TELLING_ATTRIBUTES)
        family = Family(without_bytes(tree), source.size, holes, structure_findings)
        size = source.size - family.hole_bytes
        known = self._families.setdefault(source.size, [])
        is_cheap = size <= MOST_STRUCTURE_BYTES and len(known) < MOST_FOR_ONE_SIZE
        begins_with_data = bool(holes.spans) and not holes.spans[0][0]  # which is nonsense
        if is_cheap and not begins_with_data and self._kept_bytes + size <= MOST_KEPT_BYTES:
            self._kept_bytes += size
            try:
                family.fixed = tuple(source.read(a, b - a) for a, b in family.fixed_spans)
            except Damaged:
                return family
            known.append(family)
        return family


def without_bytes(tree: Tree) -> Tree:
    """A structure to keep: what was read of its file on the way can take megabytes."""
    return replace(tree, file=Hdf5File(Source(b""), tree.file.superblock))


def _last_rows(layout: FileLayout) -> Iterator[tuple[int, bytes]]:
    """Of every table that may end with rows which nobody has written: where one piece of its last
    row lies, and what fills it.

    The piece is the smallest that is in the file.
    """
    start = layout.tree.file.superblock.start
    for table in filter(layout.may_have_tail, layout.tables()):
        pieces = [
            (len(fill), start + at, fill)
            for dataset in table.columns.values()
            for at, fill in _last_row(dataset)
        ]
        if pieces:
            _, at, fill = min(pieces)
            yield at, fill
        else:
            yield 0, b""  # equal to anything: each such file is looked at by itself


def _last_row(dataset: Dataset) -> Iterator[tuple[int, bytes]]:
    row = (dataset.rows or 0) - 1
    row_bytes = math.prod(dataset.layout.chunk[1:]) * dataset.type.size
    if dataset.filters or dataset.type.points_elsewhere or row_bytes > MOST_ROW_BYTES:
        return
    for chunk in dataset.chunks:
        within = row - chunk.start[0]
        if 0 <= within < dataset.layout.chunk[0]:
            yield chunk.address + within * row_bytes, fill_bytes(dataset, row_bytes)
