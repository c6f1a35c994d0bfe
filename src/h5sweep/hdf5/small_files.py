"""Small files with a few groups each, read many at a time.

What leads to the groups of a file, its superblock and its root, is a frame; the files of one
program differ in it by the names of the groups, by addresses and by the values of attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from .cursor import decoded
from .example_group import HEAP_FREE_AT, Agreement, Example, Flags, Frame, Spot, compare_groups
from .gather import Addresses, ByteArray, JoinedSource, gather
from .tree import Tree
from .uniform_groups import AlikeFiles, GroupLevel, GroupMatches

_NO_FREE_BLOCK = (1, -1)
_BLOCK_BYTES = 16  # of a free block, in which the next one and its own size stand


class SmallFiles:
    """Many small files, and what was found of each."""

    def __init__(self, source: JoinedSource) -> None:
        self._source = source
        self._trees: list[Tree | None] = [None] * len(source.starts)
        self._framed: list[_FramedFiles] = []

    def take_frame(self, frame: Frame) -> None:
        """Take the files that agree with a frame, of those that agree with none before."""
        left = np.array([n for n, tree in enumerate(self._trees) if tree is None], np.int64)
        if not len(left):
            return
        starts, ends = self._source.starts[left], self._source.ends[left]
        agree, found = compare_groups(frame.example, self._source, starts, starts, ends)
        some = _FramedFiles(frame, self._source, left[agree], found.chosen(agree))
        some = some.chosen(some.are_sound())
        if len(some.files):
            frame.example.uses += len(some.files)
            self._framed.append(some)
            for file, tree in zip(some.files.tolist(), some.trees(), strict=True):
                self._trees[file] = tree

    def matched(self, known: list[Example]) -> AlikeFiles:
        """The files whose groups all agree with examples that are known."""
        groups = GroupMatches(self._source, self._source.starts, self._source.ends, known)
        left = groups.take(self._level())
        for owner in left.owners.tolist():
            self._trees[owner] = None
        is_whole = np.array([tree is not None for tree in self._trees], bool)
        groups.keep_files(is_whole)
        frames = [some.found.chosen(is_whole[some.files]) for some in self._framed]
        if not groups.are_apart({}, frames):
            return AlikeFiles(self._source, [None] * len(self._trees), [])
        return AlikeFiles(self._source, self._trees, groups.sets)

    def _level(self) -> GroupLevel:
        """The groups of all files, in the order of the files."""
        levels = [some.level() for some in self._framed]
        if not levels:
            return GroupLevel([], np.empty(0, np.int64), np.empty(0, np.int64))
        paths = [path for level in levels for path in level.paths]
        addresses = np.concatenate([level.addresses for level in levels])
        owners = np.concatenate([level.owners for level in levels])
        return GroupLevel(paths, addresses, owners).chosen(np.argsort(owners, kind="stable"))


class _FramedFiles:
    """Files that agree with a frame."""

    def __init__(
        self, frame: Frame, source: JoinedSource, files: Addresses, found: Agreement
    ) -> None:
        self._frame, self._source, self.files, self.found = frame, source, files, found

    def chosen(self, some: Flags) -> _FramedFiles:
        return _FramedFiles(self._frame, self._source, self.files[some], self.found.chosen(some))

    def are_sound(self) -> Flags:
        """Whether nothing is wrong in what the frame leaves open."""
        sizes = self._source.ends[self.files] - self._source.starts[self.files]
        sound: Flags = self._words(self._frame.end) == sizes
        if self._frame.heap is not None:
            sound &= self._have_sound_heaps(*self._frame.heap)
        is_ordered = self._frame.heap is not None
        named = [_are_names(some, is_ordered=is_ordered) for some in self._names()]
        sound &= np.array(named, bool)
        return sound

    def _have_sound_heaps(self, head: int, names: int) -> Flags:
        """Whether what is free in each heap is one block at most, which lies within it."""
        size = len(self._frame.example.pieces[names].data)
        free = self._words(Spot(head, HEAP_FREE_AT, 8))
        is_full = np.isin(free, _NO_FREE_BLOCK)
        if size < _BLOCK_BYTES:
            return is_full
        is_inside = (free >= 0) & (free <= size - _BLOCK_BYTES)
        places = self.found.pieces[:, names] + np.where(is_inside, free, 0)
        following, block_bytes = gather(self._source, places, _BLOCK_BYTES).view("<i8").T
        is_last = np.isin(following, _NO_FREE_BLOCK)
        is_sound: Flags = is_inside & is_last & (block_bytes > 0) & (block_bytes <= size - free)
        return is_full | is_sound

    def _names(self) -> Iterator[tuple[bytes | None, ...]]:
        """The names of the groups of each file; None for one that is not where it should be."""
        is_in_heap = self._frame.heap is not None
        columns = [
            [_name(row.tobytes(), is_in_heap=is_in_heap) for row in self._rows(spot)]
            for spot in self._frame.names
        ]
        return zip(*columns, strict=True)

    def level(self) -> GroupLevel:
        """The groups of all files."""
        starts = self._source.starts[self.files]
        addresses = np.stack([starts + self._words(spot) for spot in self._frame.exits], axis=1)
        names = chain.from_iterable(self._names())
        paths = ["/" + decoded(name) for name in names if name is not None]
        owners = np.repeat(self.files, len(self._frame.exits))
        return GroupLevel(paths, addresses.reshape(-1), owners)

    def trees(self) -> Sequence[Tree]:
        """What each file has besides its groups: the root, with its own attributes."""
        tree, root = self._frame.tree, self._frame.example.group
        if not root.attributes:
            return [tree] * len(self.files)
        values = {
            name: [row.tobytes() for row in self._rows(self._frame.example.values[path, name])]
            for path, name in self._frame.example.values
        }
        found = []
        for place in range(len(self.files)):
            own = {
                name: one._replace(value=values[name][place], address=None)
                for name, one in root.attributes.items()
            }
            found.append(replace(tree, objects=[replace(root, attributes=own)]))
        return found

    def _rows(self, spot: Spot) -> ByteArray:
        return gather(self._source, self.found.pieces[:, spot.piece] + spot.offset, spot.size)

    def _words(self, spot: Spot) -> Addresses:
        return self._rows(spot).view("<i8")[:, 0].astype(np.int64, copy=False)


def _name(stored: bytes, *, is_in_heap: bool) -> bytes | None:
    """A name as far as it goes: in a heap, to the zero behind it."""
    name, zero, _ = stored.partition(b"\0")
    return name if name and b"/" not in name and bool(zero) == is_in_heap else None


def _are_names(names: tuple[bytes | None, ...], *, is_ordered: bool) -> bool:
    """Whether all are there, each once, and in their order where they have one."""
    found = [name for name in names if name is not None]
    if len(found) < len(names) or len({*found}) < len(found):
        return False
    return not is_ordered or found == sorted(found)
