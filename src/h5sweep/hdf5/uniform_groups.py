"""Groups that are alike: those of one file, or of many small ones.

The task groups of one program differ in their addresses, their data, the lengths of their arrays
and the values of their attributes, and in nothing else. One of them is the example
(`example_group`) that NumPy compares the others with, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .example_group import Agreement, Example, Flags, Spot, compare_groups
from .file import Hdf5File
from .gather import Addresses, ByteArray, JoinedSource, gather, gather_ragged
from .make_example import make_example
from .source import Source
from .tree import Tree

MOST_VAIN = 8  # examples made at one level of a file that no other group agrees with
MOST_KEPT = 256
NOWHERE = 2**62  # beyond the end of any file
_KEPT_BYTES = 500  # for a group: its path, and the addresses of its pieces; and for a file
_NO_CONTENT = Source(b"")
_POINTER = np.dtype([("length", "<u4"), ("heap", "<i8"), ("number", "<u4")])  # to a text or list


@dataclass(eq=False)
class AlikeGroups:
    """Groups of one file, or of many small ones, that agree with an example."""

    example: Example
    paths: list[str]
    found: Agreement  # of each group
    source: Source  # of the whole file, or of all files
    owners: Addresses  # in which of the files each group is, in the order of these

    def __len__(self) -> int:
        return len(self.paths)

    def chosen(self, some: Addresses) -> AlikeGroups:
        """Some of them."""
        paths = [self.paths[place] for place in some.tolist()]
        found, owners = self.found.chosen(some), self.owners[some]
        return AlikeGroups(self.example, paths, found, self.source, owners)

    @property
    def starts(self) -> Addresses:
        """Where the file of each group begins."""
        if isinstance(self.source, JoinedSource):
            return self.source.starts[self.owners]
        return np.zeros(len(self), np.int64)

    @property
    def data_bytes(self) -> int:
        """What the data of all groups take."""
        return sum(int(self.sizes(path).sum()) for path in self.example.datasets)

    def sizes(self, path: str) -> Addresses:
        """How many bytes the data of a dataset have in each group."""
        if path in self.found.sizes:
            return self.found.sizes[path]
        return np.full(len(self), self.example.dataset(path).size_bytes, np.int64)

    def data(self, path: str, chosen: Addresses) -> bytes:
        """The data of a dataset in some of the groups, one behind the other."""
        datatype, sizes = self.example.dataset(path).type, self.sizes(path)[chosen]
        if path not in self.found.data:
            found = self._rows(self.example.data[path], chosen).tobytes()
        elif len(sizes) and (sizes == sizes[0]).all():
            found = gather(self.source, self.found.data[path][chosen], int(sizes[0])).tobytes()
        else:
            found = gather_ragged(self.source, self.found.data[path][chosen], sizes)
        return self._pointing(found, sizes, chosen) if datatype.points_elsewhere else found

    def piece_rows(self, piece: int, chosen: Addresses) -> ByteArray:
        """One structure in some of the groups, one row per group."""
        places = self.found.pieces[chosen, piece]
        return gather(self.source, places, len(self.example.pieces[piece].data))

    def value_rows(self, attribute: tuple[str, str], chosen: Addresses) -> ByteArray:
        """The value of an attribute, by its object and name, in some of the groups."""
        rows = self._rows(self.example.values[attribute], chosen)
        owner = next(o for o in self.example.objects if o.path == attribute[0])
        if owner.attributes[attribute[1]].type.points_elsewhere:
            sizes = np.full(len(chosen), rows.shape[1])
            data = self._pointing(rows.tobytes(), sizes, chosen)
            rows = np.frombuffer(data, np.uint8).reshape(rows.shape)
        return rows

    def _rows(self, spot: Spot, chosen: Addresses) -> ByteArray:
        return gather(self.source, self.found.pieces[chosen, spot.piece] + spot.offset, spot.size)

    def _pointing(self, data: bytes, sizes: Addresses, chosen: Addresses) -> bytes:
        """Elements that point into heaps, with addresses that count from the first file's start."""
        if not isinstance(self.source, JoinedSource) or len(data) % _POINTER.itemsize:
            return data
        pointers = np.frombuffer(bytearray(data), _POINTER)
        files = np.repeat(self.owners[chosen], sizes // _POINTER.itemsize)
        heaps, starts = pointers["heap"], self.source.starts[files]
        is_outside = heaps >= self.source.ends[files] - starts
        pointers["heap"] = np.where(is_outside, NOWHERE, heaps + starts * (heaps > 0))
        return pointers.tobytes()


@dataclass(eq=False)
class AlikeFile:
    """A file of which most groups are alike; `tree` has all objects that are in none of `sets`."""

    tree: Tree
    sets: list[AlikeGroups]

    def __len__(self) -> int:
        return sum(len(groups) for groups in self.sets)

    @property
    def kept_bytes(self) -> int:
        """About what it takes in memory without the file's content."""
        return _KEPT_BYTES + sum(_KEPT_BYTES * len(groups) for groups in self.sets)

    @property
    def content(self) -> bytes | None:
        """All of the file, if that is in memory."""
        content = self.tree.file.source.content
        return content if isinstance(content, bytes) and content else None

    def over(self, source: Source) -> AlikeFile:
        """The same objects over the same file, opened again; or over none."""
        file = Hdf5File(source, self.tree.file.superblock)
        sets = [replace(groups, source=source) for groups in self.sets]
        return AlikeFile(replace(self.tree, file=file), sets)


@dataclass(eq=False)
class AlikeFiles:
    """Small files of which all groups are alike, in one piece of memory."""

    source: JoinedSource
    trees: list[Tree | None]  # what is above the groups; None for a file that is none of these
    sets: list[AlikeGroups]

    def joined(self) -> AlikeFile:
        """All as if they were one; what is above the groups is that of the first."""
        first = next(tree for tree in self.trees if tree is not None)
        file = Hdf5File(self.source, first.file.superblock)
        return AlikeFile(replace(first, file=file), self.sets)

    def split(self) -> list[AlikeFile | None]:
        """Each by itself, without its content."""
        found = [AlikeFile(tree, []) if tree is not None else None for tree in self.trees]
        for groups in self.sets:
            own, owners = groups.found.moved(-groups.starts), groups.owners.tolist()
            ends = [*(np.flatnonzero(np.diff(groups.owners)) + 1).tolist(), len(owners)]
            for first, end in zip([0, *ends], ends, strict=False):
                some, file = slice(first, end), found[owners[first]]
                assert file is not None
                paths, zeros = groups.paths[some], np.zeros(end - first, np.int64)
                file.sets.append(
                    AlikeGroups(groups.example, paths, own.chosen(some), _NO_CONTENT, zeros)
                )
        return found


class GroupLevel(NamedTuple):
    """Groups that may be alike: their paths, their addresses in the source, and their files."""

    paths: list[str]
    addresses: Addresses
    owners: Addresses

    def chosen(self, places: Addresses) -> GroupLevel:
        paths = [self.paths[place] for place in places.tolist()]
        return GroupLevel(paths, self.addresses[places], self.owners[places])


class GroupMatches:
    """The groups of one file, or of many small ones, by the examples that they agree with."""

    def __init__(
        self, source: Source, starts: Addresses, ends: Addresses, known: list[Example]
    ) -> None:
        self._source, self._starts, self._ends, self._known = source, starts, ends, known
        self.sets: list[AlikeGroups] = []

    def take(
        self, level: GroupLevel, file_of: Callable[[int], Hdf5File] | None = None
    ) -> GroupLevel:
        """Take the groups that agree with an example; return the rest.

        New examples are made of groups in the files that `file_of` gives.
        """
        for example in sorted(self._known, key=lambda it: -it.uses):
            level = self._match(example, level)
        vain = 0
        while file_of and level.paths and vain < MOST_VAIN and len(self._known) < MOST_KEPT:
            owner = int(level.owners[0])
            made = make_example(file_of(owner), int(level.addresses[0] - self._starts[owner]))
            if made is None:
                break
            self._known.append(made)
            level = self._match(made, level)
            vain += made.uses < 2
        return level

    def _match(self, example: Example, level: GroupLevel) -> GroupLevel:
        if not level.paths:
            return level
        starts, ends = self._starts[level.owners], self._ends[level.owners]
        agree, found = compare_groups(example, self._source, level.addresses, starts, ends)
        # A group that is there twice, by a second name, is for the plain reader.
        chosen = np.flatnonzero(agree)
        mine = level.chosen(chosen)
        if not len(chosen) or len({*mine.addresses.tolist()}) < len(chosen):
            return level
        example.uses += len(chosen)
        found = found.chosen(chosen)
        self.sets.append(AlikeGroups(example, mine.paths, found, self._source, mine.owners))
        return level.chosen(np.flatnonzero(~agree))

    def keep_files(self, are_kept: Flags) -> None:
        """Leave out the groups of some files."""
        whole, self.sets = self.sets, []
        for groups in whole:
            chosen = np.flatnonzero(are_kept[groups.owners])
            if len(chosen):
                self.sets.append(groups.chosen(chosen))

    def are_apart(self, noted: Mapping[int, int], others: Sequence[Agreement] = ()) -> bool:
        """Whether no structure lies in another, nor data in a structure; as the plain reader.

        `noted`: structures beside the groups, and their sizes; `others`: more such.
        """
        starts = [np.fromiter(noted.keys(), np.int64, len(noted))]
        sizes = [np.fromiter(noted.values(), np.int64, len(noted))]
        data_starts, data_sizes = list[Addresses](), list[Addresses]()
        for found in (*others, *(groups.found for groups in self.sets)):
            for number, piece in enumerate(found.example.pieces):
                starts.append(found.pieces[:, number])
                sizes.append(np.broadcast_to(np.int64(len(piece.data)), len(found.words)))
            data_starts += found.data.values()
            data_sizes += found.sizes.values()
        return _are_apart(
            _joined(starts), _joined(sizes), _joined(data_starts), _joined(data_sizes)
        )


def _joined(parts: Sequence[Any]) -> Addresses:
    return np.concatenate(parts, dtype=np.int64) if parts else np.empty(0, np.int64)


def _are_apart(starts: Addresses, sizes: Addresses, data: Addresses, data_sizes: Addresses) -> bool:
    """Whether no structure begins before the one before it ends, and no data lie in any.

    Arrays are used up, to save memory. Structures without a size are in nobody's way.
    """
    ends = np.add(starts, sizes, out=sizes)
    # Each sorted by itself: before any structure but the first begins, all before it have ended.
    starts.sort()
    ends.sort()
    if (ends[:-1] > starts[1:]).any():
        return False
    data, data_ends = data[data_sizes > 0], (data + data_sizes)[data_sizes > 0]
    before = np.searchsorted(starts, data_ends - 1, "right") - 1
    return not ((before >= 0) & (ends[before] > data)).any()
