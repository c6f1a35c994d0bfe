"""Make an example of a group, or of what leads to the groups of a small file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import headers
from .cursor import Cursor
from .errors import Damaged, Unsupported
from .example_group import (
    HEAP_FREE_AT,
    Example,
    ExamplePiece,
    Frame,
    ShapeSpots,
    Spot,
    compare_groups,
)
from .file import Hdf5File
from .headers import Header, Message, read_header
from .messages import Attribute, Storage, read_attribute, read_layout
from .source import Source
from .tree import Dataset, Object, ObjectKind, Tree, TreeWalk

MOST_OBJECTS = 64  # in one group; a larger one is rather a group of tasks
_FREE_MESSAGES = {0x00, 0x0E, 0x12}  # nothing, and times of change in both forms
_OBJECT_TIMES = 0x20
_TIMES = slice(6, 22)
_ROOT_AT = {0: 64, 1: 68, 2: 36, 3: 36}  # in a superblock, by its version
_END_AT = {0: 40, 1: 44, 2: 28, 3: 28}
_DIMS_AT = {1: 8, 2: 4}  # in the message of a dataspace, by its version


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
    return _Maker(own, tree.objects).make()


def make_frame(file: Hdf5File) -> Frame | None:
    """What leads to the groups at the root of a small file; None if that is unusual."""
    own = Hdf5File(file.source, file.superblock)
    tree = Tree(own)
    walk = TreeWalk(tree)
    walk.visit_some(1)
    if tree.faults or tree.soft_links or tree.external_links or not tree.objects:
        return None
    block = own.superblock
    own.note_structure(0, block.size)
    maker = _Maker(own, tree.objects)
    kept = Tree(Hdf5File(Source(b""), block), tree.objects)
    maker.frame = frame = Frame(maker.example, kept, Spot(0, _END_AT[block.version], 8))
    is_whole = maker.make() is not None and len(frame.exits) == len(walk.waiting) > 0
    return frame if is_whole else None


def _is_task(objects: list[Object]) -> bool:
    """Whether this is a group with data of its own, or without groups: else those are the tasks."""
    group, *inside = objects
    has_data = any(o.dataset is not None and o.path.count("/") == 1 for o in inside)
    has_groups = any(o.kind is ObjectKind.GROUP for o in inside)
    return group.kind is ObjectKind.GROUP and (has_data or not has_groups)


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
        self.file, self.example = file, Example(objects)
        self.frame: Frame | None = None  # that the example is of
        self.numbers: dict[int, int] = {}  # of each piece, by its address

    def make(self) -> Example | None:
        """The example, if there is nothing unusual in it."""
        try:
            if self.frame is not None:
                self._take_superblock(self.frame)
            for found in self.example.objects:
                self._take_object(found)
        except (Damaged, Unsupported):
            return None
        # Every structure that the plain reader has met must be one that is compared.
        return self.example if self.file.structures.keys() == self._places() else None

    def _places(self) -> set[int]:
        source, start = self.file.source, np.zeros(1, np.int64)
        first = start + next(iter(self.numbers))
        agree, found = compare_groups(self.example, source, first, start, start + source.size)
        return {*found.pieces[0].tolist()} if agree.all() else set()

    def _take_superblock(self, frame: Frame) -> None:
        block, (number, piece) = self.file.superblock, self._piece(0)
        self._link(number, _ROOT_AT[block.version], block.root)
        piece.free(frame.end.offset, frame.end.size)
        if block.version >= 2:
            self._free_checksum(piece)

    def _free_checksum(self, piece: ExamplePiece) -> None:
        piece.is_checked = True
        piece.free(len(piece.data) - 4, 4)

    def _piece(self, address: int) -> tuple[int, ExamplePiece]:
        """The piece at an address where the plain reader has noted a structure."""
        if address not in self.numbers:
            data = np.frombuffer(self.file.read(address, self.file.structures[address]), np.uint8)
            self.numbers[address] = len(self.example.pieces)
            self.example.pieces.append(ExamplePiece(data, np.full(len(data), 0xFF, np.uint8)))
        number = self.numbers[address]
        return number, self.example.pieces[number]

    def _link(self, number: int, offset: int, target: int) -> None:
        """Note an address that leads to another piece, or out of a frame."""
        piece = self.example.pieces[number]
        piece.free(offset, 8)
        if self.frame is not None and target not in self.file.structures:
            self.frame.exits.append(Spot(number, offset, 8))
        else:
            piece.links.append((offset, self._piece(target)[0]))

    def _take_object(self, found: Object) -> None:
        header = read_header(self.file, found.address)
        blocks = [found.address, *_continuations(self.file, header)]
        for block in blocks:
            _, piece = self._piece(block)
            if header.version == 2:
                self._free_checksum(piece)
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
            self._link(number, offset, _address(message.data, 0))
        elif kind == headers.SYMBOL_TABLE:
            tree, heap = _address(message.data, 0), _address(message.data, 8)
            self._link(number, offset, tree)
            self._link(number, offset + 8, heap)
            self._take_symbols(tree, heap)
        elif kind == headers.LINK:
            name, place = _link_name(message.data)
            self._link(number, offset + place, _address(message.data, place))
            if self.frame is not None:
                self.frame.names.append(Spot(number, offset + name, place - name))
                piece.free(offset + name, place - name)
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
        number, node = self._piece(tree)
        data = node.data.tobytes()
        if node.data[5] or data[8:24] != b"\xff" * 16 or _address(data, 24):
            raise Unsupported("a tree of several nodes")
        for place in range(_address(data[6:8], 0)):
            offset = 24 + 16 * place + 8
            child = _address(data, offset)
            self._link(number, offset, child)
            # Which we do not need; but groups are moved as they are, for others to read.
            if self._take_symbol_node(child) != _address(data, offset + 8):
                raise Unsupported("a tree whose keys are not the last names before them")
        number, head = self._piece(heap)
        self._link(number, 24, _address(head.data.tobytes(), 24))
        if self.frame is not None:
            self._take_names(self.frame, number, head.links[0][1])

    def _take_symbol_node(self, address: int) -> int:
        """Take a node with links; return where the last name is."""
        number, node = self._piece(address)
        data = node.data.tobytes()
        count = int.from_bytes(data[6:8], "little")
        for place in range(count):
            offset = 8 + 40 * place
            self._link(number, offset + 8, _address(data, offset + 8))
            node.free(offset + 20, 20)
        node.free(8 + 40 * count, len(data))
        return _address(data, 40 * count - 32) if count else 0

    def _take_names(self, frame: Frame, head: int, names: int) -> None:
        """Let the names in a heap differ, and what is free behind them."""
        pieces, frame.heap = self.example.pieces, (head, names)
        size = len(pieces[names].data)
        pieces[names].free(0, size)
        pieces[head].free(HEAP_FREE_AT, 8)
        for spot in frame.exits:
            at = _address(pieces[spot.piece].data.tobytes(), spot.offset - 8)
            frame.names.append(Spot(names, at, size - at))


def _continuations(file: Hdf5File, header: Header) -> Iterator[int]:
    for message in header.all(headers.CONTINUATION):
        yield Cursor(message.data, file.widths).needed_address("a continuation")


def _address(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _link_name(data: bytes) -> tuple[int, int]:
    """Where the name stands in the message of a hard link, and behind it the address."""
    flags = data[1]
    if flags & 8 and data[2]:
        raise Unsupported("a link that is not hard")
    start = 2 + bool(flags & 8) + 8 * bool(flags & 4) + bool(flags & 16)
    width = 1 << (flags & 3)
    length = int.from_bytes(data[start : start + width], "little")
    return start + width, start + width + length
