"""A task group as the example for others: which of its bytes must be equal in all of them.

An example is made of a group that the plain reader (`tree`) found sound: its structures as bytes,
and where in them addresses of other structures, data, lengths and values stand. A group that has
the same bytes everywhere else is sound too, as the plain reader would take the same steps through
it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .gather import Addresses, ByteArray, are_checked, gather
from .messages import Storage
from .source import Source
from .tree import Dataset, Object, Tree

GROUPS_AT_ONCE = 1 << 14  # that are compared with an example: mostly some kilobytes each,
_AT_ONCE_BYTES = 64 << 20  # and no more than this
HEAP_FREE_AT = 16  # in the head of a heap of names


Flags = npt.NDArray[np.bool_]


@dataclass(eq=False)
class ExamplePiece:
    """One structure of an example."""

    data: ByteArray
    must_be: ByteArray  # 0xFF for each byte that must be equal
    is_checked: bool = False  # whether it ends with its checksum
    links: list[tuple[int, int]] = field(default_factory=list)  # offset of an address → which piece

    def free(self, start: int, size: int) -> None:
        self.must_be[start : start + size] = 0


@dataclass(frozen=True)
class Spot:
    """Where in an example something differs from group to group."""

    piece: int
    offset: int
    size: int


@dataclass(frozen=True)
class ShapeSpots:
    """Where the shape of a contiguous dataset stands: its lengths, their limits, its size."""

    dims: Spot
    limits: Spot | None  # that are equal to the lengths
    size: Spot


@dataclass(eq=False)
class Example:
    """A group that was read by the plain reader; paths of its objects begin at the group."""

    objects: list[Object]
    pieces: list[ExamplePiece] = field(default_factory=list)
    data: dict[str, Spot] = field(default_factory=dict)  # of a dataset: its address, or its bytes
    values: dict[tuple[str, str], Spot] = field(default_factory=dict)  # by object and attribute
    shapes: dict[str, ShapeSpots] = field(default_factory=dict)  # of datasets of any length
    uses: int = 0  # groups that were found to agree with it

    @property
    def group(self) -> Object:
        return self.objects[0]

    @property
    def structure_bytes(self) -> int:
        """What the structures of one group take, compact data and attributes among them."""
        return sum(len(piece.data) for piece in self.pieces)

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Which columns of an `Agreement` say of a contiguous dataset where its data are.

        Behind that stands how many bytes these have, and their shape.
        """
        found, start = {}, len(self.pieces)
        for path in self.data:
            dataset = self.dataset(path)
            if dataset.layout.storage is Storage.CONTIGUOUS:
                found[path] = slice(start, start + 2 + len(dataset.space.dims or ()))
                start = found[path].stop
        return found

    @cached_property
    def datasets(self) -> dict[str, Dataset]:
        return {o.path: o.dataset for o in self.objects if o.dataset is not None}

    def dataset(self, path: str) -> Dataset:
        return self.datasets[path]


@dataclass(eq=False)
class Frame:
    """What leads to the groups of a small file: its superblock and its root, as an example."""

    example: Example
    tree: Tree  # with the root alone
    end: Spot  # where the end of the file is noted
    exits: list[Spot] = field(default_factory=list)  # the addresses of the groups
    names: list[Spot] = field(default_factory=list)  # of these; in a heap, with all behind them
    heap: tuple[int, int] | None = None  # the pieces of that heap: its head, and the names


@dataclass(eq=False)
class Agreement:
    """Where the pieces and the data of groups are that agree with an example."""

    example: Example
    words: Addresses  # a row each: its pieces, then what `Example.columns` says

    @property
    def pieces(self) -> Addresses:
        """Where the pieces are, a column each."""
        return self.words[:, : len(self.example.pieces)]

    @cached_property
    def data(self) -> dict[str, Addresses]:
        """Of each contiguous dataset, where its data are."""
        return {path: self.words[:, at.start] for path, at in self.example.columns.items()}

    @cached_property
    def sizes(self) -> dict[str, Addresses]:
        """How many bytes these have."""
        return {path: self.words[:, at.start + 1] for path, at in self.example.columns.items()}

    @cached_property
    def shapes(self) -> dict[str, Addresses]:
        """The shapes of those whose lengths may differ, one row per group."""
        columns = {path: self.example.columns[path] for path in self.example.shapes}
        return {path: self.words[:, at.start + 2 : at.stop] for path, at in columns.items()}

    def chosen(self, groups: Addresses | Flags | slice) -> Agreement:
        """The same for some of the groups."""
        return Agreement(self.example, self.words[groups])

    def moved(self, distances: Addresses) -> Agreement:
        """The same of groups that lie elsewhere in memory."""
        words, starts = self.words.copy(), (at.start for at in self.example.columns.values())
        words[:, [*range(len(self.example.pieces)), *starts]] += distances[:, None]
        return Agreement(self.example, words)


def compare_groups(
    example: Example, source: Source, addresses: Addresses, starts: Addresses, ends: Addresses
) -> tuple[Flags, Agreement]:
    """Which groups agree with an example; and, for each, where its pieces and its data are.

    `starts` and `ends`: of the file that each group is in; `source` may hold many.
    """
    step = max(min(GROUPS_AT_ONCE, _AT_ONCE_BYTES // example.structure_bytes), 1)
    parts = []
    for first in range(0, len(addresses), step):
        some = slice(first, first + step)
        parts.append(_Comparison(example, source, starts[some], ends[some]).of(addresses[some]))
    agree, words = zip(*parts, strict=True)
    return np.concatenate(agree), Agreement(example, np.concatenate(words))


class _Comparison:
    """The comparison of no more groups than fit into memory with an example."""

    def __init__(
        self, example: Example, source: Source, starts: Addresses, ends: Addresses
    ) -> None:
        self._example, self._source, self._starts, self._ends = example, source, starts, ends
        width = max((at.stop for at in example.columns.values()), default=len(example.pieces))
        self.words = np.zeros((len(starts), width), np.int64)
        self.agree = np.ones(len(starts), bool)

    def of(self, addresses: Addresses) -> tuple[Flags, Addresses]:
        """Which agree, and what stands in a row of their `Agreement`."""
        self.words[:, 0] = addresses
        waiting, rows = [0], dict[int, ByteArray]()
        while waiting and self.agree.any():
            number = waiting.pop()
            piece, places = self._example.pieces[number], self.words[:, number]
            size = len(piece.data)
            self.agree &= (places >= self._starts) & (places <= self._ends - size)
            if not self.agree.any():
                break
            places[~self.agree] = places[self.agree.argmax()]  # where something can be read
            rows[number] = gather(self._source, places, size)
            self.agree &= _are_equal(rows[number], piece)
            for offset, target in piece.links:
                addresses = _words(rows[number], Spot(number, offset, 8))[:, 0]
                self.words[:, target] = self._starts + addresses
                waiting.append(target)
        if self.agree.any():
            self._find_data(rows)
        return self.agree, self.words

    def _find_data(self, rows: dict[int, ByteArray]) -> None:
        """Where the data of each dataset lie, and of what shape they are; both within the file."""
        example, file_bytes = self._example, self._ends - self._starts
        for path, columns in example.columns.items():
            dataset, spot = example.dataset(path), example.data[path]
            where = self._starts + _words(rows[spot.piece], spot)[:, 0]
            sizes = np.full(len(where), dataset.size_bytes, np.int64)
            if path in example.shapes:
                spots = example.shapes[path]
                shapes = _words(rows[spots.dims.piece], spots.dims)
                self.words[:, columns.start + 2 : columns.stop] = shapes
                sizes = _words(rows[spots.size.piece], spots.size)[:, 0]
                self.agree &= _sizes_of(shapes, dataset.type.size, file_bytes) == sizes
                if spots.limits is not None:
                    limits = _words(rows[spots.limits.piece], spots.limits)
                    self.agree &= (limits == shapes).all(axis=1)
            self.words[:, columns.start], self.words[:, columns.start + 1] = where, sizes
            self.agree &= (where >= self._starts) & (where <= self._ends - sizes)


def _sizes_of(shapes: Addresses, element_bytes: int, most: Addresses) -> Addresses:
    """How many bytes data of these shapes have; -1 for none, and for more than `most`."""
    sizes = np.full(len(shapes), element_bytes, np.int64)
    for lengths in shapes.T:
        fits = (lengths > 0) & (sizes > 0) & (lengths <= most // np.maximum(sizes, 1))
        sizes = np.where(fits, sizes * np.where(fits, lengths, 1), -1)
    return sizes


def _words(rows: ByteArray, spot: Spot) -> Addresses:
    """The addresses or lengths at a spot; an address is negative where nothing is there."""
    words = np.ascontiguousarray(rows[:, spot.offset : spot.offset + spot.size])
    return words.view("<i8").astype(np.int64, copy=False)


def _are_equal(rows: ByteArray, piece: ExamplePiece) -> Flags:
    word = np.uint64 if rows.shape[1] % 8 == 0 else np.uint8
    differ = (rows.view(word) ^ piece.data.view(word)) & piece.must_be.view(word)
    equal: Flags = ~differ.any(axis=1)
    return equal & are_checked(rows) if piece.is_checked else equal
