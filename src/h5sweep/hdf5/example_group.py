"""A task group as the example for others: which of its bytes must be equal in all of them.

An example is made of a group that the plain reader (`tree`) found sound: its structures as bytes,
and where in them addresses of other structures, data, lengths and values stand. A group that has
the same bytes everywhere else is sound too, as the plain reader would take the same steps through
it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import headers
from .cursor import Cursor
from .errors import Damaged, Unsupported
from .file import Hdf5File
from .gather import Addresses, ByteArray, are_checked, gather
from .headers import Header, Message, read_header
from .messages import Attribute, Storage, read_attribute, read_layout
from .source import Source
from .tree import Dataset, Object, ObjectKind, Tree, TreeWalk

GROUPS_AT_ONCE = 1 << 14  # that are compared with an example: mostly some kilobytes each,
_AT_ONCE_BYTES = 64 << 20  # and no more than this
MOST_OBJECTS = 64  # in one group; a larger one is rather a group of tasks
_FREE_MESSAGES = {0x00, 0x0E, 0x12}  # nothing, and times of change in both forms
_OBJECT_TIMES = 0x20
_TIMES = slice(6, 22)
_DIMS_AT = {1: 8, 2: 4}  # in the message of a dataspace, by its version


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

    def dataset(self, path: str) -> Dataset:
        found = next(o.dataset for o in self.objects if o.path == path)
        assert found is not None
        return found


@dataclass
class Agreement:
    """Which groups agree with an example, and where in each its pieces and its data are."""

    agree: npt.NDArray[np.bool_]
    places: dict[int, Addresses]  # of each piece
    data: dict[str, Addresses] = field(default_factory=dict)  # of each contiguous dataset
    sizes: dict[str, Addresses] = field(default_factory=dict)  # of these
    shapes: dict[str, Addresses] = field(default_factory=dict)  # one row per group

    def chosen(self, groups: Addresses) -> Agreement:
        """The same for some of the groups."""
        return Agreement(
            self.agree[groups],
            {piece: where[groups] for piece, where in self.places.items()},
            {path: where[groups] for path, where in self.data.items()},
            {path: sizes[groups] for path, sizes in self.sizes.items()},
            {path: shapes[groups] for path, shapes in self.shapes.items()},
        )


def compare_groups(example: Example, source: Source, addresses: Addresses) -> Agreement:
    """Which groups agree with an example; and, for each, where its pieces and its data are."""
    step = max(min(GROUPS_AT_ONCE, _AT_ONCE_BYTES // example.structure_bytes), 1)
    parts = [
        _compare(example, source, addresses[start : start + step])
        for start in range(0, len(addresses), step)
    ]
    if len(parts) == 1:
        return parts[0]
    return Agreement(
        np.concatenate([part.agree for part in parts]),
        _concatenated([part.places for part in parts], parts),
        _concatenated([part.data for part in parts], parts),
        _concatenated([part.sizes for part in parts], parts),
        _concatenated([part.shapes for part in parts], parts),
    )


def _concatenated(
    found: list[dict[Any, Addresses]], parts: list[Agreement]
) -> dict[Any, Addresses]:
    """One array of several; a part of which no group agrees may not have looked at everything."""
    kinds = {name: array.shape[1:] for some in found for name, array in some.items()}
    for some, part in zip(found, parts, strict=True):
        for name, inner in kinds.items():
            some.setdefault(name, np.zeros((len(part.agree), *inner), np.int64))
    return {name: np.concatenate([some[name] for some in found]) for name in kinds}


def _compare(example: Example, source: Source, addresses: Addresses) -> Agreement:
    """`compare_groups` of no more groups than fit into memory."""
    found = Agreement(np.ones(len(addresses), bool), {0: addresses})
    waiting = [0]
    rows: dict[int, ByteArray] = {}
    while waiting and found.agree.any():
        number = waiting.pop()
        piece, places = example.pieces[number], found.places
        size = len(piece.data)
        found.agree &= (places[number] >= 0) & (places[number] <= source.size - size)
        places[number] = np.where(found.agree, places[number], 0)
        if size > source.size:
            found.agree[:] = False
            return found
        rows[number] = gather(source, places[number], size)
        found.agree &= _are_equal(rows[number], piece)
        for offset, target in piece.links:
            places[target] = _words(rows[number], Spot(number, offset, 8))[:, 0]
            waiting.append(target)
    if found.agree.any():
        _find_data(example, source.size, rows, found)
    return found


def _find_data(
    example: Example, file_bytes: int, rows: dict[int, ByteArray], found: Agreement
) -> None:
    """Where the data of each dataset lie, and of what shape they are; both within the file."""
    for path, spot in example.data.items():
        dataset = example.dataset(path)
        if dataset.layout.storage is Storage.COMPACT:
            continue
        where = found.data[path] = _words(rows[spot.piece], spot)[:, 0]
        sizes = np.full(len(where), dataset.size_bytes, np.int64)
        if path in example.shapes:
            spots = example.shapes[path]
            shapes = found.shapes[path] = _words(rows[spots.dims.piece], spots.dims)
            sizes = _words(rows[spots.size.piece], spots.size)[:, 0]
            found.agree &= _sizes_of(shapes, dataset.type.size, file_bytes) == sizes
            if spots.limits is not None:
                limits = _words(rows[spots.limits.piece], spots.limits)
                found.agree &= (limits == shapes).all(axis=1)
        found.sizes[path] = sizes
        found.agree &= (where >= 0) & (where <= file_bytes - sizes)


def _sizes_of(shapes: Addresses, element_bytes: int, most: int) -> Addresses:
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


def _are_equal(rows: ByteArray, piece: ExamplePiece) -> npt.NDArray[np.bool_]:
    word = np.uint64 if rows.shape[1] % 8 == 0 else np.uint8
    differ = (rows.view(word) ^ piece.data.view(word)) & piece.must_be.view(word)
    equal: npt.NDArray[np.bool_] = ~differ.any(axis=1)
    return equal & are_checked(rows) if piece.is_checked else equal


def make_example(file: Hdf5File, address: int) -> Example | None:
    """An example of the group at `address`; None if it has what cannot be read in this way."""
    own = Hdf5File(file.source, file.superblock)
    tree = Tree(own)
    walk = TreeWalk(tree)
    walk.waiting = [("", address)]
    walk.visit_some(MOST_OBJECTS)
    is_plain = not (tree.faults or tree.soft_links or tree.external_links or tree.second_names)
    if not is_plain or walk.waiting or not tree.objects:
        return None
    if not _is_task(tree.objects) or not _are_supported(tree):
        return None
    try:
        example = _Maker(own, tree.objects).make()
    except (Damaged, Unsupported):
        return None
    # Every structure that the plain reader has met must be one that is compared.
    return example if own.structures.keys() == _places_of(file.source, example) else None


def _is_task(objects: list[Object]) -> bool:
    """Whether this is a group with data of its own, or without groups: else those are the tasks."""
    group, *inside = objects
    has_data = any(o.dataset is not None and o.path.count("/") == 1 for o in inside)
    has_groups = any(o.kind is ObjectKind.GROUP for o in inside)
    return group.kind is ObjectKind.GROUP and (has_data or not has_groups)


def _places_of(source: Source, example: Example) -> set[int]:
    address = np.array([example.group.address], np.int64)
    found = _compare(example, source, address)
    return {int(where[0]) for where in found.places.values()} if found.agree.all() else set()


def _are_supported(tree: Tree) -> bool:
    for found in tree.objects:
        dataset = found.dataset
        if found.kind not in (ObjectKind.GROUP, ObjectKind.DATASET):
            return False
        if dataset is None:
            continue
        layout = dataset.layout
        if dataset.is_external or layout.storage not in (Storage.COMPACT, Storage.CONTIGUOUS):
            return False
        if layout.storage is Storage.CONTIGUOUS and layout.address is None:
            return False
        if layout.size != dataset.size_bytes or dataset.space.dims is None:
            return False
    return True


class _Maker:
    """Makes an example out of the objects of one group, which the plain reader found sound."""

    def __init__(self, file: Hdf5File, objects: list[Object]) -> None:
        self.file = file
        self.example = Example(objects)
        self.by_address = {found.address: found for found in objects}
        self.numbers: dict[int, int] = {}  # of each piece, by its address

    def make(self) -> Example:
        for found in self.example.objects:
            self._take_object(found)
        return self.example

    def _piece(self, address: int) -> tuple[int, ExamplePiece]:
        """The piece at an address where the plain reader has noted a structure."""
        if address not in self.numbers:
            data = np.frombuffer(self.file.read(address, self.file.structures[address]), np.uint8)
            self.numbers[address] = len(self.example.pieces)
            self.example.pieces.append(ExamplePiece(data, np.full(len(data), 0xFF, np.uint8)))
        number = self.numbers[address]
        return number, self.example.pieces[number]

    def _link(self, piece: ExamplePiece, offset: int, target: int) -> None:
        piece.free(offset, 8)
        piece.links.append((offset, self._piece(target)[0]))

    def _take_object(self, found: Object) -> None:
        header = read_header(self.file, found.address)
        blocks = [found.address, *_continuations(self.file, header)]
        for block in blocks:
            _, piece = self._piece(block)
            if header.version == 2:
                piece.is_checked = True
                piece.free(len(piece.data) - 4, 4)
        if header.version == 2 and self._piece(found.address)[1].data[5] & _OBJECT_TIMES:
            self._piece(found.address)[1].must_be[_TIMES] = 0
        spots: dict[int, tuple[Spot, bytes]] = {}  # of messages, by their types
        for message in header.messages:
            block = self._block_of(blocks, message)
            offset = message.address - block
            self._take_message(found, message, block, offset)
            spot = Spot(self.numbers[block], offset, len(message.data))
            spots[message.type] = spot, message.data
        if found.dataset is not None and found.dataset.layout.storage is Storage.CONTIGUOUS:
            self._take_shape(found.path, found.dataset, spots)

    def _block_of(self, blocks: list[int], message: Message) -> int:
        for block in blocks:
            if block <= message.address <= block + len(self._piece(block)[1].data):
                return block
        raise Unsupported("a message outside its header")

    def _take_message(self, found: Object, message: Message, block: int, offset: int) -> None:
        number, piece = self._piece(block)
        kind = message.type
        if message.is_shared:
            raise Unsupported("a message that is kept elsewhere")
        if kind in _FREE_MESSAGES:
            piece.free(offset, len(message.data))
        elif kind == headers.CONTINUATION:
            self._link(piece, offset, _address(message.data, 0))
        elif kind == headers.SYMBOL_TABLE:
            tree, heap = _address(message.data, 0), _address(message.data, 8)
            self._link(piece, offset, tree)
            self._link(piece, offset + 8, heap)
            self._take_symbols(tree, heap)
        elif kind == headers.LINK:
            place = _link_address_at(message.data)
            self._link(piece, offset + place, _address(message.data, place))
        elif kind == headers.ATTRIBUTE:
            attribute = read_attribute(message.data, self.file.widths, address=offset)
            self._take_attribute(found, attribute, number)
        elif kind == headers.LAYOUT:
            self._take_layout(found, message, Spot(number, offset, 0))

    def _take_attribute(self, found: Object, attribute: Attribute, piece: int) -> None:
        assert attribute.address is not None
        spot = Spot(piece, attribute.address, len(attribute.value))
        self.example.pieces[spot.piece].free(spot.offset, spot.size)
        self.example.values[found.path, attribute.name] = spot

    def _take_layout(self, found: Object, message: Message, at: Spot) -> None:
        layout = read_layout(message.data, self.file.widths)
        if layout.storage is Storage.COMPACT:
            spot = Spot(at.piece, at.offset + layout.data_offset, layout.size or 0)
        elif layout.version in (3, 4, 5):
            spot = Spot(at.piece, at.offset + 2, 8)
        else:
            raise Unsupported("an old layout")
        self.example.pieces[spot.piece].free(spot.offset, spot.size)
        self.example.data[found.path] = spot

    def _take_shape(
        self, path: str, dataset: Dataset, spots: dict[int, tuple[Spot, bytes]]
    ) -> None:
        """Let the lengths of a dataset differ that is of one size, which its layout says."""
        dims, (space, data) = dataset.space.dims, spots[headers.DATASPACE]
        if not dims or dataset.space.limits != dims or not dataset.size_bytes:
            return
        start, size = space.offset + _DIMS_AT[data[0]], 8 * len(dims)
        layout, _ = spots[headers.LAYOUT]
        found = ShapeSpots(
            Spot(space.piece, start, size),
            Spot(space.piece, start + size, size) if data[2] & 1 else None,
            Spot(layout.piece, layout.offset + 10, 8),
        )
        for spot in filter(None, (found.dims, found.limits, found.size)):
            self.example.pieces[spot.piece].free(spot.offset, spot.size)
        self.example.shapes[path] = found

    def _take_symbols(self, tree: int, heap: int) -> None:
        _, node = self._piece(tree)
        if node.data[5]:
            raise Unsupported("a tree of several levels")
        for place in range(int.from_bytes(node.data[6:8].tobytes(), "little")):
            offset = 24 + 16 * place + 8
            child = _address(node.data.tobytes(), offset)
            self._link(node, offset, child)
            self._take_symbol_node(child)
        _, names = self._piece(heap)
        self._link(names, 24, _address(names.data.tobytes(), 24))

    def _take_symbol_node(self, address: int) -> None:
        _, node = self._piece(address)
        data = node.data.tobytes()
        count = int.from_bytes(data[6:8], "little")
        for place in range(count):
            offset = 8 + 40 * place
            self._link(node, offset + 8, _address(data, offset + 8))
            node.free(offset + 20, 20)
        node.free(8 + 40 * count, len(data))


def _continuations(file: Hdf5File, header: Header) -> Iterator[int]:
    for message in header.all(headers.CONTINUATION):
        yield Cursor(message.data, file.widths).needed_address("a continuation")


def _address(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _link_address_at(data: bytes) -> int:
    """Where the address stands in the message of a hard link."""
    flags = data[1]
    if flags & 8 and data[2]:
        raise Unsupported("a link that is not hard")
    start = 2 + bool(flags & 8) + 8 * bool(flags & 4) + bool(flags & 16)
    width = 1 << (flags & 3)
    return start + width + int.from_bytes(data[start : start + width], "little")
