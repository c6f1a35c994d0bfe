"""Files that are equal outside their data: one structure describes them all.

The files of one program are mostly such. Of a sibling only the data are looked at; what was found
out about its structure, by us and by the HDF5 library, holds for it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..hdf5.errors import Damaged
from ..hdf5.file import Hdf5File
from ..hdf5.messages import Storage
from ..hdf5.source import Source
from ..hdf5.tree import Tree, data_extents
from .findings import Finding

VIRTUAL = Storage.VIRTUAL
MOST_FOR_ONE_SIZE = 16
MOST_KEPT_BYTES = 32 << 20
MOST_STRUCTURE_BYTES = 4 << 20


@dataclass(eq=False)
class Family:
    """One parsed file; `verdict` is what the library said, once it has."""

    tree: Tree
    spans: list[tuple[int, int]]
    fixed: list[bytes]
    structure_findings: list[Finding]
    verdict: list[Finding] | None = None
    waiting: list[Any] = field(default_factory=list)

    @cached_property
    def is_plain(self) -> bool:
        """Whether its data are bytes with nothing to verify, so that siblings need only be read."""
        return not any(
            d.filters or d.type.points_elsewhere or d.is_external or d.layout.storage is VIRTUAL
            for _, d in self.tree.datasets
        )

    def gaps(self, size: int) -> Iterator[tuple[int, int]]:
        """Where a sibling, a file of `size` bytes, has data of its own."""
        last = 0
        for start, end in self.spans:
            if start > last:
                yield last, start
            last = end
        if last < size:
            yield last, size

    def tree_of(self, source: Source) -> Tree:
        """The structure of a sibling: ours, with its bytes."""
        file = Hdf5File(source, self.tree.file.superblock)
        return replace(self.tree, file=file)


class Families:
    """The families met so far, by the size of their files."""

    def __init__(self) -> None:
        self._families: dict[int, list[Family]] = {}
        self._kept_bytes = 0

    def find(self, source: Source) -> Family | None:
        """The family whose structure this file has, byte for byte."""
        for family in self._families.get(source.size, ()):
            if _is_equal(family, source):
                return family
        return None

    def add(self, tree: Tree, structure_findings: list[Finding]) -> Family:
        """Make a family of a parsed file; it is found by siblings if that costs little."""
        spans = _spans_outside_data(tree)
        size = sum(end - start for start, end in spans)
        family = Family(without_bytes(tree), spans, [], structure_findings)
        known = self._families.setdefault(tree.file.source.size, [])
        is_cheap = size <= MOST_STRUCTURE_BYTES and len(known) < MOST_FOR_ONE_SIZE
        if is_cheap and self._kept_bytes + size <= MOST_KEPT_BYTES:
            self._kept_bytes += size
            try:
                family.fixed = [tree.file.source.read(a, b - a) for a, b in spans]
            except Damaged:
                return family
            known.append(family)
        return family


def without_bytes(tree: Tree) -> Tree:
    """A structure to keep: what was read of its file on the way can take megabytes."""
    return replace(tree, file=Hdf5File(Source(b""), tree.file.superblock))


def _is_equal(family: Family, source: Source) -> bool:
    try:
        return all(
            source.read(start, end - start) == data
            for (start, end), data in zip(family.spans, family.fixed, strict=True)
        )
    except Damaged:
        return False


def _spans_outside_data(tree: Tree) -> list[tuple[int, int]]:
    """What must be equal: all but the bytes of data that are neither filtered nor addresses."""
    base, size = tree.file.superblock.start, tree.file.source.size
    free = []
    for _, dataset in tree.datasets:
        if dataset.filters or dataset.type.points_elsewhere:
            continue
        free += [(base + at, base + at + n) for at, n in data_extents(dataset)]
    spans, last = [], 0
    for start, end in sorted(free):
        if start > last:
            spans.append((last, min(start, size)))
        last = max(last, end)
    if last < size:
        spans.append((last, size))
    return spans
