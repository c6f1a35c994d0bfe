"""Which bytes of a file may differ in another that is read in the same steps.

These are its data, the values of its attributes, texts of attributes in heaps that hold nothing
else, and times. A file that equals it everywhere else has the same objects at the same places.
What could be wrong in a hole is verified in each file: the checksum of a header, and the heaps.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from struct import Struct

import numpy as np

from .checksum import lookup3
from .datatypes import Class
from .errors import Damaged
from .gather import are_checked
from .heaps import read_global_heap
from .messages import Attribute
from .source import Source
from .tree import Tree, data_extents

Span = tuple[int, int]  # where it begins and ends, from the first byte of the file
MOST_OBJECTS = 256  # a file of more is rather one of many tasks, and hardly equals another
LEAST_ROWS = 8  # whose checksums are rather computed at once
_REFERENCE = Struct("<IQI")  # to a text: its length, its heap, its number there
_LENGTH_BYTES = 4
_HEAP_OBJECT = Struct("<H6xQ")  # its number and its size
_HEAP_HEAD_BYTES = 16
_CHECKSUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Text:
    """A text or a sequence in a heap."""

    number: int
    length_at: int  # where the attribute says how long it is
    element_bytes: int


@dataclass(frozen=True, slots=True)
class _TextHeap:
    """A heap of texts of attributes: in every file the same, of whatever length."""

    start: int
    size: int
    texts: tuple[_Text, ...]  # in the order in which they lie there

    def is_whole(self, source: Source) -> bool:
        """Whether the texts follow one another, as long as the attributes say."""
        data, place = source.read(self.start, self.size), _HEAP_HEAD_BYTES
        for text in self.texts:
            if place + _HEAP_OBJECT.size > self.size:
                return False
            number, size = _HEAP_OBJECT.unpack_from(data, place)
            length = int.from_bytes(source.read(text.length_at, _LENGTH_BYTES), "little")
            if number != text.number or size != length * text.element_bytes:
                return False
            place += _HEAP_OBJECT.size + size + -size % 8
        left = self.size - place
        if left < _HEAP_OBJECT.size:
            return left >= 0
        return _HEAP_OBJECT.unpack_from(data, place) == (0, left)


@dataclass
class Holes:
    """The bytes of a file that may differ in others of its structure, and how to verify them."""

    spans: list[Span] = field(default_factory=list)  # in order, with other bytes between them
    values: list[Span] = field(default_factory=list)  # those among them that make up attributes
    attributes: set[int] = field(default_factory=set)  # the addresses of those that may differ
    heaps: list[_TextHeap] = field(default_factory=list)
    checked: list[Span] = field(default_factory=list)  # structures with holes and a checksum

    def are_sound(self, sources: Sequence[Source]) -> list[bool]:
        """In which files, which are equal outside of the holes, nothing is wrong in them."""
        found = [all(heap.is_whole(source) for heap in self.heaps) for source in sources]
        for start, end in self.checked:
            right = _have_checksums([source.read(start, end - start) for source in sources])
            found = [one and other for one, other in zip(found, right, strict=True)]
        return found


def _have_checksums(structures: Sequence[bytes]) -> list[bool]:
    if len(structures) >= LEAST_ROWS:
        rows = np.frombuffer(b"".join(structures), np.uint8).reshape(len(structures), -1)
        return [*map(bool, are_checked(rows))]
    return [
        lookup3(data[:-_CHECKSUM_BYTES]) == int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
        for data in structures
    ]


def find_holes(tree: Tree, fixed_names: Collection[str]) -> Holes:
    """The holes of a file; attributes of these names must be equal in others."""
    finder = _Finder(tree, fixed_names)
    finder.take_data()
    if not tree.faults and len(tree.objects) <= MOST_OBJECTS:
        finder.take_headers()
    return finder.finish()


class _Finder:
    """Finds the holes of one file, by addresses, which count from its superblock on."""

    def __init__(self, tree: Tree, fixed_names: Collection[str]) -> None:
        self.tree, self.file, self.fixed_names = tree, tree.file, fixed_names
        self.base = tree.file.superblock.start
        self.found = Holes()
        self.free: list[Span] = []
        self.texts: dict[int, list[_Text]] = {}  # by the address of their heap

    def take_data(self) -> None:
        """The bytes of data that are neither filtered nor addresses."""
        for _, dataset in self.tree.datasets:
            if not dataset.filters and not dataset.type.points_elsewhere:
                self.free += [(at, at + size) for at, size in data_extents(dataset)]

    def take_headers(self) -> None:
        """What may differ in headers: times, values, compact data."""
        inside = [(at, at + size) for at, size in self.file.free]
        for _, dataset in self.tree.datasets:
            at, size = dataset.compact_at, dataset.layout.size or 0
            if at is not None and not dataset.type.points_elsewhere:
                inside.append((at, at + size))
        for found in self.tree.objects:
            for attribute in found.attributes.values():
                if attribute.name not in self.fixed_names:
                    self._take_attribute(attribute)
        self._take_heaps()
        inside += self.found.values
        self.free += [*inside, *self._checksums_of(inside)]

    def _take_attribute(self, attribute: Attribute) -> None:
        at, size = attribute.address, len(attribute.value)
        if at is None or not size:
            return
        kind, base = attribute.type, attribute.type.base
        if not kind.points_elsewhere:
            self.found.attributes.add(at)
            self.found.values.append((at, at + size))
        elif kind.type is Class.VARIABLE and base is not None and not base.points_elsewhere:
            self._take_texts(at, attribute.value, 1 if kind.is_text else base.size)

    def _take_texts(self, at: int, value: bytes, element_bytes: int) -> None:
        widths = self.file.widths
        if (widths.offset, widths.length) != (8, 8) or len(value) % _REFERENCE.size:
            return
        self.found.attributes.add(at)
        for place, (_, heap, number) in enumerate(_REFERENCE.iter_unpack(value)):
            if heap:
                text = _Text(number, self.base + at + place * _REFERENCE.size, element_bytes)
                self.texts.setdefault(heap, []).append(text)

    def _take_heaps(self) -> None:
        """Heaps whose every text is of one attribute, in places where nothing else lies."""
        apart = [(at, at + size) for at, size in self.file.structures.items()]
        apart += [(a, a + n) for _, dataset in self.tree.datasets for a, n in data_extents(dataset)]
        apart = _merged(apart)
        for address, texts in self.texts.items():
            heap = self._heap_of(address, texts)
            span = (address, address + (heap.size if heap else 0))
            if heap is None or not _is_apart(span, apart):
                continue
            insort(apart, span)
            self.found.heaps.append(heap)
            self.found.values.append((address + _HEAP_HEAD_BYTES, span[1]))
            lengths = (text.length_at - self.base for text in texts)
            self.found.values += [(at, at + _LENGTH_BYTES) for at in lengths]

    def _heap_of(self, address: int, texts: list[_Text]) -> _TextHeap | None:
        by_number = {text.number: text for text in texts}
        try:
            numbers = list(read_global_heap(self.file, address))
            if sorted(numbers) != sorted(text.number for text in texts):
                return None
            size = int.from_bytes(self.file.read(address + 8, 8), "little")
            in_order = tuple(by_number[number] for number in numbers)
            heap = _TextHeap(self.base + address, size, in_order)
            return heap if heap.is_whole(self.file.source) else None
        except Damaged:
            return None

    def _checksums_of(self, inside: list[Span]) -> list[Span]:
        """The checksums of structures that have holes; these are to be verified."""
        starts = sorted(self.file.checked)
        ends = [start + self.file.structures[start] for start in starts]
        places = [(bisect_right(starts, at) - 1, at) for at, _ in inside]
        having = {place for place, at in places if place >= 0 and at < ends[place]}
        self.found.checked = [(self.base + starts[n], self.base + ends[n]) for n in sorted(having)]
        return [(ends[place] - _CHECKSUM_BYTES, ends[place]) for place in having]

    def finish(self) -> Holes:
        size = self.file.source.size
        self.found.values = _merged(self.found.values, self.base, size)
        self.found.spans = _merged(self.free, self.base, size)
        return self.found


def _is_apart(span: Span, others: list[Span]) -> bool:
    """Whether none of the others, which are sorted and apart, shares bytes with this one."""
    place = bisect_right(others, (span[1],)) - 1
    return place < 0 or others[place][1] <= span[0]


def _merged(spans: list[Span], base: int = 0, size: float = math.inf) -> list[Span]:
    """The same spans in order and apart, `base` bytes further on and none beyond `size`."""
    found: list[Span] = []
    for start, end in sorted(spans):
        first, last = base + start, int(min(base + end, size))
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        elif first < last:
            found.append((first, last))
    return found
