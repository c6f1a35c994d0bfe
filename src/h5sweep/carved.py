"""A carved file, seen as groups with attributes and variables (`tasks`)."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from .elements import decode_elements
from .hdf5.carve import Carved, Carving
from .hdf5.chunks import Chunk
from .hdf5.data import is_fill
from .hdf5.errors import Damaged, Unsupported
from .hdf5.messages import Attribute, Storage
from .hdf5.rescue import Stored, read_stored
from .hdf5.tree import Dataset, data_extents
from .tasks import Cell, Group, Proof
from .values import Array

SECTOR_BYTES = 512
KEPT_CHUNKS = 4
Extents = tuple[tuple[int, int], ...]


class CarvedVariable:
    """A dataset that was found in a file, read by its bytes."""

    def __init__(self, carving: Carving, carved: Carved, most_bytes: int) -> None:
        assert carved.object.dataset is not None
        self.file = carving.file
        self.dataset: Dataset = carved.object.dataset
        self.is_checked = carved.is_checked
        self.doubt = "its header is torn" if carved.is_torn else ""
        self.most_bytes = most_bytes
        self.suspects: set[int] = set()  # addresses that another dataset claims too
        self.contents: dict[int, Stored] = {}  # chunks that were found elsewhere, by first row
        self._kept: OrderedDict[tuple[int, ...], Stored] = OrderedDict()

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.dataset.space.dims

    @property
    def may_grow(self) -> bool:
        return self.dataset.may_grow

    @property
    def start(self) -> int:
        return self.file.superblock.start

    def read(self, row: int | None) -> dict[str, Cell]:
        """All of it, or one row; Damaged or Unsupported if it is not all there."""
        dims = self.shape
        if dims is None or self.dataset.is_external:
            raise Unsupported("data that are not in the file")
        shape = dims if row is None else dims[1:]
        size = math.prod(shape) * self.dataset.type.size
        if size > self.most_bytes:
            raise Unsupported(f"{size:,} bytes: more than --memory allows")
        if self.dataset.layout.storage is Storage.CHUNKED:
            data, proof, doubt, places = self._read_chunked(row, shape)
        else:
            data, proof, doubt, places = self._read_plain(row, size)
        doubt = self.doubt or doubt
        is_empty = size > 0 and is_fill(self.dataset, data)
        has_gap = proof is Proof.NOTHING and any(self._has_gap(at, n) for at, n in places)
        cells = decode_elements(self.file, self.dataset.type, data, shape)
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        return {n: Cell(array, proof, is_empty, has_gap, doubt) for n, array in cells.items()}

    def _proof_of_type(self, proof: Proof) -> Proof:
        """A text in a global heap has no checksum, whatever points to it."""
        return min(proof, Proof.NOTHING) if self.dataset.type.points_elsewhere else proof

    def _read_plain(self, row: int | None, size: int) -> tuple[bytes, Proof, str, Extents]:
        layout = self.dataset.layout
        if layout.storage is Storage.VIRTUAL:
            raise Unsupported("data of other files")
        is_compact = layout.storage is Storage.COMPACT
        address = self.dataset.compact_at if is_compact else layout.address
        if address is None and size:
            raise Damaged("nothing was written there")
        place = (address or 0) + (row or 0) * size
        data = self.file.source.read(self.start + place, size)
        doubt = "another dataset claims its place" if layout.address in self.suspects else ""
        is_proven = is_compact and self.is_checked
        proof = Proof.CHECKSUM if is_proven or not size else Proof.NOTHING
        return data, proof, doubt, () if is_compact else ((place, size),)

    def _read_chunked(
        self, row: int | None, shape: tuple[int, ...]
    ) -> tuple[bytes, Proof, str, Extents]:
        dims, sides = self.shape or (), self.dataset.layout.chunk
        rows = range(dims[0]) if row is None else range(row, row + 1)
        whole = np.empty((len(rows), *dims[1:], self.dataset.type.size), np.uint8)
        proof, doubt, places = Proof.CHECKSUM, "", []
        for first in _grid(rows, dims, sides):
            stored, chunk = self._stored(first)
            part, inside = _overlap(first, rows, dims, sides)
            block = np.frombuffer(stored.data, np.uint8).reshape(*sides, -1)
            whole[part] = block[inside]
            proof = min(proof, Proof.CHECKSUM if stored.is_checked else Proof.NOTHING)
            if chunk is not None and chunk.address in self.suspects:
                doubt = "another dataset claims a chunk of it"
            if chunk is not None and not stored.is_checked:
                step = chunk.size // sides[0]
                at = chunk.address + (rows[0] - first[0]) * step if row is not None else None
                places.append((chunk.address, chunk.size) if at is None else (at, step))
        return whole.tobytes(), proof, doubt, tuple(places)

    def _stored(self, first: tuple[int, ...]) -> tuple[Stored, Chunk | None]:
        """The chunk that begins with this element."""
        if first[0] in self.contents:
            return self.contents[first[0]], None
        chunk = self.chunks.get(first)
        if chunk is None:
            raise Damaged("a chunk of it is in no index")
        if first not in self._kept:
            self._kept[first] = read_stored(self.file, self.dataset, chunk)
            if len(self._kept) > max(KEPT_CHUNKS, self._across):
                self._kept.popitem(last=False)
        stored = self._kept[first]
        if stored.size != chunk.size and stored.is_checked:
            raise Damaged(f"a chunk at {chunk.address:,} is longer or shorter than its index says")
        return stored, chunk

    @cached_property
    def chunks(self) -> dict[tuple[int, ...], Chunk]:
        return {chunk.start: chunk for chunk in self.dataset.chunks}

    @cached_property
    def _across(self) -> int:
        """How many chunks a row is spread over."""
        dims, sides = self.shape or (), self.dataset.layout.chunk
        across = math.prod(-(-n // side) for n, side in zip(dims[1:], sides[1:], strict=True))
        return min(across, 1024)

    def _has_gap(self, address: int, size: int) -> bool:
        """Whether any of these bytes lies in a sector of zeros."""
        first = (self.start + address) // SECTOR_BYTES * SECTOR_BYTES
        last = min(-(-(self.start + address + size) // SECTOR_BYTES) * SECTOR_BYTES, self._end)
        if last <= first:
            return False
        sectors = np.frombuffer(self.file.source.read(first, last - first), np.uint8)
        return not sectors.reshape(-1, SECTOR_BYTES).any(axis=1).all()

    @property
    def _end(self) -> int:
        return self.file.source.size // SECTOR_BYTES * SECTOR_BYTES

    def place(self, row: int | None) -> Extents:
        """Where its data are, or should be: offsets in the file and sizes."""
        sides = self.dataset.layout.chunk
        if row is not None and sides:
            chunks = [c for c in self.dataset.chunks if 0 <= row - c.start[0] < sides[0]]
            return tuple((self.start + chunk.address, chunk.size) for chunk in chunks)
        extents = tuple(data_extents(self.dataset))
        if row is not None and extents:
            size = extents[0][1] // max((self.shape or (1,))[0], 1)
            return ((self.start + extents[0][0] + row * size, size),)
        return tuple((self.start + at, size) for at, size in extents)


def _grid(rows: range, dims: tuple[int, ...], sides: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The first element of each chunk that some rows lie in."""
    first = range(rows.start // sides[0] * sides[0], rows.stop, sides[0])
    return itertools.product(
        first, *(range(0, n, side) for n, side in zip(dims[1:], sides[1:], strict=True))
    )


def _overlap(
    first: tuple[int, ...], rows: range, dims: tuple[int, ...], sides: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a chunk goes in what is read, and which part of the chunk that is."""
    part, inside = [], []
    ranges = [rows, *(range(n) for n in dims[1:])]
    for start, side, wanted in zip(first, sides, ranges, strict=True):
        low, high = max(start, wanted.start), min(start + side, wanted.stop)
        part.append(slice(low - wanted.start, high - wanted.start))
        inside.append(slice(low - start, high - start))
    return tuple(part), tuple(inside)


def view_carved(carving: Carving, most_bytes: int) -> list[Group]:
    """The groups of a file; of those that nothing leads to, none if nothing is wrong with it."""
    variables = {
        address: CarvedVariable(carving, carved, most_bytes)
        for address, carved in carving.objects.items()
        if carved.object.dataset is not None
    }
    _note_suspects(carving, variables)
    groups = {
        carved.address: _group_of(carving, carved, variables)
        for carved in carving.objects.values()
        if carved.is_group and (carved.is_linked or not carving.is_sound)
    }
    for address, group in groups.items():
        parents = carving.objects[address].parents
        group.parent = groups.get(parents[0][0]) if parents and parents[0][0] is not None else None
    return list(groups.values())


def _group_of(carving: Carving, carved: Carved, variables: dict[int, CarvedVariable]) -> Group:
    group = Group(carved.path, is_linked=carved.is_linked)
    group.doubt = "its header is torn" if carved.is_torn else ""
    for name, attribute in carved.object.attributes.items():
        if (cell := _attribute_cell(carving, carved, attribute)) is not None:
            group.attributes[name] = cell
    for name, child in carved.links:
        found = carving.objects.get(child)
        if found is None:
            group.lost[name] = "its header is not there"
        elif child in variables and not _belongs_elsewhere(carving, carved, found, group):
            group.variables[name] = variables[child]
    return group


def _attribute_cell(carving: Carving, carved: Carved, attribute: Attribute) -> Cell | None:
    try:
        cells = decode_elements(
            carving.file, attribute.type, attribute.value, attribute.space.dims or ()
        )
    except (Damaged, Unsupported, ValueError):
        return None
    is_checked = carved.is_checked and not attribute.type.points_elsewhere
    proof = Proof.CHECKSUM if is_checked else Proof.NOTHING
    return Cell(cells[""], proof) if "" in cells and attribute.space.dims is not None else None


def _belongs_elsewhere(carving: Carving, carved: Carved, child: Carved, group: Group) -> bool:
    """Whether a group that nothing leads to claims what another group has: a remnant."""
    others = {parent for parent, _ in child.parents if parent not in (None, carved.address)}
    if not others:
        return False
    if carved.is_linked:
        return False
    if any(carving.objects[at].is_linked for at in others if at in carving.objects):
        group.lost[child.path] = "it belongs to another group"
        return True
    group.doubt = "another group claims its data"
    return False


def _note_suspects(carving: Carving, variables: dict[int, CarvedVariable]) -> None:
    """Find data that two datasets claim: the index of one of them is stale."""
    claims = sorted(
        (at, at + size, address)
        for address, variable in variables.items()
        for at, size in data_extents(variable.dataset)
        if size and not variable.dataset.is_external
    )
    reach, holder = 0, (0, 0, -1)
    for claim in claims:
        if claim[0] < reach and claim[2] in variables and holder[2] in variables:
            _doubt(carving, variables, holder, claim)
        if claim[1] > reach:
            reach, holder = claim[1], claim


def _doubt(
    carving: Carving,
    variables: dict[int, CarvedVariable],
    first: tuple[int, int, int],
    second: tuple[int, int, int],
) -> None:
    """Doubt both claims, or only that of a remnant, which nothing leads to."""
    linked = [carving.objects[claim[2]].is_linked for claim in (first, second)]
    for claim, is_linked in zip((first, second), linked, strict=True):
        if not is_linked or all(linked):
            variables[claim[2]].suspects.add(claim[0])
