"""Groups that are alike, read many at a time with NumPy.

The task groups of one program differ in their addresses, their data and the values of their
attributes, and in nothing else. One of them is read by the plain reader (`tree`) and becomes a
example: its structures as bytes, which of these bytes must be equal, and where addresses of other
structures, data and values stand. Groups whose bytes agree are sound because the example is: the
plain reader would take the same steps. Whatever agrees with no example is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import headers
from .btrees import GROUP_NODE, read_tree
from .cursor import Cursor, decoded
from .errors import Damaged, Unsupported
from .file import Hdf5File
from .groups import is_group
from .headers import Header, Message, read_header
from .heaps import read_local_heap
from .messages import Attribute, Storage, read_attribute, read_layout, read_symbol_table
from .source import FileSource, Source
from .superblock import Superblock
from .tree import Dataset, Object, ObjectKind, Tree, TreeWalk, check_overlaps

LEAST_GROUPS = 8
MOST_FILE_BYTES = 128 << 20  # that are read at once; of larger files only what is asked for
GROUPS_AT_ONCE = 1 << 14  # that are compared with an example: mostly some kilobytes each,
_AT_ONCE_BYTES = 64 << 20  # and no more than this
_WINDOW_BYTES = 1 << 20
_GAP_BYTES = 4 << 10  # what is rather read than jumped over
LARGE_BYTES = 4 << 20  # of a larger file it is worth finding out whether it has many objects
MOST_OBJECTS = 64  # in one group; a larger one is rather a group of tasks
MOST_NEW = 8  # examples made at one level of a file
MOST_KEPT = 64
_FREE_MESSAGES = {0x00, 0x0E, 0x12}  # nothing, and times of change in both forms
_OBJECT_TIMES = 0x20
_TIMES = slice(6, 22)
_NOWHERE = 2**62  # beyond the end of any file
_LINK = np.dtype(
    {
        "names": ["name", "address", "kind"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [0, 8, 16],
        "itemsize": 40,
    }
)
_KEPT_BYTES = 500  # for a group: its path, and the addresses of its pieces

ByteArray = npt.NDArray[np.uint8]
Addresses = npt.NDArray[np.int64]
_Agreement = tuple[npt.NDArray[np.bool_], dict[int, Addresses], dict[str, Addresses]]
_Name = TypeVar("_Name", int, str)


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


@dataclass(eq=False)
class Example:
    """A group that was read by the plain reader; paths of its objects begin at the group."""

    objects: list[Object]
    pieces: list[ExamplePiece]
    data: dict[str, Spot]  # of a dataset: its address or, if compact, its bytes
    values: dict[tuple[str, str], Spot]  # of an attribute, by its object and name

    @property
    def group(self) -> Object:
        return self.objects[0]

    @property
    def data_bytes(self) -> int:
        """What the data of one group take."""
        return sum(o.dataset.size_bytes for o in self.objects if o.dataset is not None)

    @property
    def structure_bytes(self) -> int:
        """What the structures of one group take, compact data and attributes among them."""
        return sum(len(piece.data) for piece in self.pieces)

    def dataset(self, path: str) -> Dataset:
        found = next(o.dataset for o in self.objects if o.path == path)
        assert found is not None
        return found


@dataclass(eq=False)
class AlikeGroups:
    """Groups of one file that agree with an example."""

    example: Example
    paths: list[str]
    places: dict[int, Addresses]  # of each piece: its address in each group
    source: Source  # of the whole file
    addresses: dict[str, Addresses]  # of the data of each contiguous dataset

    def __len__(self) -> int:
        return len(self.paths)

    def data_rows(self, path: str, chosen: Addresses) -> ByteArray:
        """The data of a dataset in some of the groups, one row a group."""
        if path in self.addresses:
            size = self.example.dataset(path).size_bytes
            return _gather(self.source, self.addresses[path][chosen], size)
        return self._rows(self.example.data[path], chosen)

    def piece_rows(self, piece: int, chosen: Addresses) -> ByteArray:
        """One structure in some of the groups, one row a group."""
        return _gather(
            self.source, self.places[piece][chosen], len(self.example.pieces[piece].data)
        )

    def value_rows(self, attribute: tuple[str, str], chosen: Addresses) -> ByteArray:
        """The value of an attribute, by its object and name, in some of the groups."""
        return self._rows(self.example.values[attribute], chosen)

    def _rows(self, spot: Spot, chosen: Addresses) -> ByteArray:
        return _gather(self.source, self.places[spot.piece][chosen] + spot.offset, spot.size)


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
        return sum(_KEPT_BYTES * len(groups) for groups in self.sets)

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


class AlikeReader:
    """Reads files and remembers their examples, which the next file probably has as well."""

    def __init__(self) -> None:
        self._known: list[Example] = []

    def read(self, file: Hdf5File) -> AlikeFile | None:
        """The objects of a file; None if it is nothing for this reader, or seems not sound."""
        if file.source.size > LARGE_BYTES and not _has_many_objects(file):
            return None
        return self.read_over(file.superblock, quick_source(file.source))

    def read_over(self, block: Superblock, source: Source) -> AlikeFile | None:
        """The same for a file that is surely worth it."""
        if block.start or block.end != source.size or block.extension is not None:
            return None
        if (block.widths.offset, block.widths.length) != (8, 8):
            return None
        walk = _QuickWalk(Tree(Hdf5File(source, block)))
        reading = _FileReading(walk, self._known)
        reading.visit_all()
        if not reading.sets or walk.tree.is_cut or walk.tree.faults:
            return None
        if not reading.is_without_overlaps():
            return None
        return AlikeFile(walk.tree, reading.sets)


def quick_source(source: Source) -> Source:
    """The same file in memory, unless it is large."""
    return source if is_large(source) else Source(source.read(0, source.size))


def is_large(source: Source) -> bool:
    """Whether a file is read piece by piece: it would take too much memory."""
    return source.size > MOST_FILE_BYTES


def _has_many_objects(file: Hdf5File) -> bool:
    """Whether there are more than one group may have; only as much is read of the file."""
    walk = _Glance(Tree(Hdf5File(file.source, file.superblock)))
    walk.visit_some(MOST_OBJECTS)
    return bool(walk.waiting)


class _QuickWalk(TreeWalk):
    """The plain reader's way through a file, but the links of large groups are read at once."""

    def take_links(self, path: str, header: Header) -> None:
        links = self._links(path.rstrip("/") + "/", header)
        if links is None:
            super().take_links(path, header)
        else:
            self.waiting += reversed(links)

    def _links(self, prefix: str, header: Header) -> list[tuple[str, int]] | None:
        """The hard links of a group of the old kind: paths, which begin with `prefix`, and where
        they lead; None if something about them is unusual."""
        message = header.first(headers.SYMBOL_TABLE)
        others = {headers.LINK, headers.LINK_INFO, headers.GROUP_INFO}
        if message is None or any(m.type in others for m in header.messages):
            return None
        try:
            tree, heap_address = read_symbol_table(message.data, self.file.widths)
            heap = read_local_heap(self.file, heap_address)
            nodes = [e.child for e in read_tree(self.file, tree, GROUP_NODE, 8)]
        except Damaged:
            return None
        return self._links_of(prefix, nodes, heap.data) if len(nodes) >= LEAST_GROUPS else None

    def _links_of(
        self, prefix: str, nodes: list[int], names: bytes
    ) -> list[tuple[str, int]] | None:
        node_bytes = 8 + 2 * self.file.superblock.leaf_k * _LINK.itemsize
        links = self._read_nodes(nodes, node_bytes, names)
        if links is None:
            return None
        paths, before = [], b""
        for at in links[0].tolist():
            name = names[at : names.index(0, at)]
            if name <= before:  # empty, out of order, or there twice
                return None
            paths.append(prefix + decoded(name))
            before = name
        for node in nodes:
            self.file.note_structure(node, node_bytes)
        return list(zip(paths, links[1].tolist(), strict=True))

    def _read_nodes(
        self, nodes: list[int], size: int, names: bytes
    ) -> tuple[Addresses, Addresses] | None:
        """Where in `names` that of each link is, and where the link leads."""
        most = size // _LINK.itemsize
        if max(nodes) > self.file.source.size - size:
            return None
        rows = _gather(self.file.source, np.array(nodes, np.int64), size)
        counts = np.ascontiguousarray(rows[:, 6:8]).view("<u2")[:, 0]
        if (rows[:, :5] != np.frombuffer(b"SNOD\1", np.uint8)).any() or counts.max() > most:
            return None
        links = np.ascontiguousarray(rows[:, 8:]).view(_LINK).reshape(len(nodes), most)
        links = links[np.arange(most) < counts[:, None]]
        if (links["kind"] > 1).any() or (links["name"] >= len(names)).any():
            return None
        if (links["address"] >= _NOWHERE).any() or names[-1:] != b"\0":
            return None
        return links["name"].astype(np.int64), links["address"].astype(np.int64)


class _Glance(_QuickWalk):
    """A way through groups alone: their links, and not what these lead to."""

    def visit(self, path: str, address: int) -> None:
        with suppress(Damaged, Unsupported):
            header = read_header(self.file, address)
            if is_group(header):
                self.take_links(path, header)


class _FileReading:
    """One way through one file."""

    def __init__(self, walk: TreeWalk, known: list[Example]) -> None:
        self.walk, self._known = walk, known
        self.sets: list[AlikeGroups] = []

    def visit_all(self) -> None:
        """Go down level by level; groups of one level are those that may be alike."""
        walk = self.walk
        while walk.waiting:
            level, walk.waiting = walk.waiting[::-1], []
            if len(level) >= LEAST_GROUPS:
                level = self._take_alike(level)
            elif not self.sets and len(walk.seen) > MOST_OBJECTS:
                return
            walk.waiting, below = level[::-1], walk.waiting
            while walk.waiting and not walk.tree.is_cut:
                path, address = walk.waiting.pop()
                here, walk.waiting = walk.waiting, []
                walk.take_next(path, address)
                below += walk.waiting[::-1]
                walk.waiting = here
            walk.waiting = below[::-1]

    def _take_alike(self, level: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Take the groups that agree with an example; return the rest."""
        for example in list(self._known):
            level = self._match(example, level)
            if not level:
                return level
        for _ in range(MOST_NEW):
            if not level or len(self._known) >= MOST_KEPT:
                break
            made = make_example(self.walk.file, level[0][1])
            if made is None:
                break
            self._known.append(made)
            level = self._match(made, level)
        return level

    def _match(self, example: Example, level: list[tuple[str, int]]) -> list[tuple[str, int]]:
        addresses = np.array([min(address, _NOWHERE) for _, address in level], np.int64)
        agree, places, data = _agree_all(example, self.walk.file.source, addresses)
        # A group that is there twice, by a second name, is for the plain reader.
        if len(np.unique(addresses[agree])) < int(agree.sum()):
            return level
        chosen = np.flatnonzero(agree)
        if not len(chosen):
            return level
        self.sets.append(
            AlikeGroups(
                example,
                [level[place][0] for place in chosen.tolist()],
                {piece: where[chosen] for piece, where in places.items()},
                self.walk.file.source,
                {path: where[chosen] for path, where in data.items()},
            )
        )
        return [level[place] for place in np.flatnonzero(~agree).tolist()]

    def is_without_overlaps(self) -> bool:
        """Whether no structure lies in another, nor data in a structure; as the plain reader."""
        noted = self.walk.file.structures
        starts = [np.fromiter(noted.keys(), np.int64, len(noted))]
        sizes = [np.fromiter(noted.values(), np.int64, len(noted))]
        data_starts, data_sizes = [], []
        for groups in self.sets:
            for piece, where in groups.places.items():
                starts.append(where)
                size = len(groups.example.pieces[piece].data)
                sizes.append(np.broadcast_to(np.int64(size), len(where)))
            for path, where in groups.addresses.items():
                data_starts.append(where)
                size = groups.example.dataset(path).size_bytes
                data_sizes.append(np.broadcast_to(np.int64(size), len(where)))
        check_overlaps(self.walk.tree)
        if self.walk.tree.faults:
            return False
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


def _agree_all(example: Example, source: Source, addresses: Addresses) -> _Agreement:
    """`_agree` of any number of groups, a few at a time."""
    step = max(min(GROUPS_AT_ONCE, _AT_ONCE_BYTES // example.structure_bytes), 1)
    parts = [
        _agree(example, source, addresses[start : start + step])
        for start in range(0, len(addresses), step)
    ]
    agree = np.concatenate([part[0] for part in parts])
    # A part of which no group agrees may not have looked at all pieces.
    sizes = [len(part[0]) for part in parts]
    places = _joined_places([part[1] for part in parts], sizes)
    return agree, places, _joined_places([part[2] for part in parts], sizes)


def _joined_places(parts: list[dict[_Name, Addresses]], sizes: list[int]) -> dict[_Name, Addresses]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate(
            [part.get(name, np.zeros(n, np.int64)) for part, n in zip(parts, sizes, strict=True)]
        )
        for name in names
    }


def _agree(example: Example, source: Source, addresses: Addresses) -> _Agreement:
    """Which groups agree with an example; and, for each, where its pieces and its data are."""
    agree = np.ones(len(addresses), bool)
    places = {0: addresses}
    waiting = [0]
    rows: dict[int, ByteArray] = {}
    while waiting and agree.any():
        number = waiting.pop()
        piece = example.pieces[number]
        size = len(piece.data)
        agree &= (places[number] >= 0) & (places[number] <= source.size - size)
        places[number] = np.where(agree, places[number], 0)
        if size > source.size:
            return np.zeros(len(addresses), bool), places, {}
        found = rows[number] = _gather(source, places[number], size)
        agree &= _are_equal(found, piece)
        for offset, target in piece.links:
            places[target] = _word(found, offset)
            waiting.append(target)
    data: dict[str, Addresses] = {}
    for path, spot in example.data.items():
        if example.dataset(path).layout.storage is Storage.COMPACT or spot.piece not in rows:
            continue
        where = _word(rows[spot.piece], spot.offset)
        size = example.dataset(path).size_bytes
        agree &= (where >= 0) & (where <= source.size - size)
        data[path] = where
    return agree, places, data


def _gather(source: Source, places: Addresses, size: int) -> ByteArray:
    """The `size` bytes at each place, one row a place."""
    if not size or not len(places):
        return np.empty((len(places), size), np.uint8)
    if isinstance(source, FileSource):
        return _gather_from_file(source, places, size)
    return _gather_from(np.frombuffer(source.content, np.uint8), places, size)


def _gather_from(content: ByteArray, places: Addresses, size: int) -> ByteArray:
    windows: npt.NDArray[Any] = np.ndarray(
        (len(content) - size + 1,), f"V{size}", content, strides=(1,)
    )
    return windows[places].view(np.uint8).reshape(len(places), size)


def _gather_from_file(source: FileSource, places: Addresses, size: int) -> ByteArray:
    """The same by as few calls as possible: what lies close together is read at once."""
    found = np.empty((len(places), size), np.uint8)
    order = np.argsort(places, kind="stable")
    starts = places[order]
    is_apart = np.diff(starts) > size + _GAP_BYTES
    is_apart |= np.diff(starts // _WINDOW_BYTES) > 0
    bounds = [0, *(np.flatnonzero(is_apart) + 1).tolist(), len(starts)]
    for first, last in pairwise(bounds):
        if last - first == 1 or size > _WINDOW_BYTES:
            for place in order[first:last].tolist():
                source.read_into(found[place].data, int(places[place]))
        else:
            window = np.empty(int(starts[last - 1] - starts[first]) + size, np.uint8)
            source.read_into(window.data, int(starts[first]))
            found[order[first:last]] = _gather_from(
                window, starts[first:last] - starts[first], size
            )
    return found


def _word(rows: ByteArray, offset: int) -> Addresses:
    """The addresses that stand at `offset`; none is negative, for "nothing is there"."""
    return np.ascontiguousarray(rows[:, offset : offset + 8]).view("<i8")[:, 0].astype(np.int64)


def _are_equal(rows: ByteArray, piece: ExamplePiece) -> npt.NDArray[np.bool_]:
    word = np.uint64 if rows.shape[1] % 8 == 0 else np.uint8
    differ = (rows.view(word) ^ piece.data.view(word)) & piece.must_be.view(word)
    equal: npt.NDArray[np.bool_] = ~differ.any(axis=1)
    if piece.is_checked:
        stated = np.ascontiguousarray(rows[:, -4:]).view("<u4")[:, 0]
        equal &= lookup3_rows(rows[:, :-4]) == stated
    return equal


def lookup3_rows(rows: ByteArray) -> npt.NDArray[np.uint32]:
    """The checksum `checksum.lookup3` of each row."""
    count, size = rows.shape
    whole = max(size - 1, 0) // 12
    padded = np.zeros((count, 12 * (whole + 1)), np.uint8)
    padded[:, :size] = rows
    words = np.ascontiguousarray(padded.view("<u4").T).astype(np.uint32)
    a, b, c = (np.full(count, (0xDEADBEEF + size) & 0xFFFFFFFF, np.uint32) for _ in range(3))
    if not size:
        return c
    for place in range(0, 3 * whole, 3):
        a, b, c = a + words[place], b + words[place + 1], c + words[place + 2]
        a = (a - c) ^ _turn(c, 4)
        c = c + b
        b = (b - a) ^ _turn(a, 6)
        a = a + c
        c = (c - b) ^ _turn(b, 8)
        b = b + a
        a = (a - c) ^ _turn(c, 16)
        c = c + b
        b = (b - a) ^ _turn(a, 19)
        a = a + c
        c = (c - b) ^ _turn(b, 4)
        b = b + a
    a, b, c = a + words[-3], b + words[-2], c + words[-1]
    c = (c ^ b) - _turn(b, 14)
    a = (a ^ c) - _turn(c, 11)
    b = (b ^ a) - _turn(a, 25)
    c = (c ^ b) - _turn(b, 16)
    a = (a ^ c) - _turn(c, 4)
    b = (b ^ a) - _turn(a, 14)
    found: npt.NDArray[np.uint32] = (c ^ b) - _turn(b, 24)
    return found


def _turn(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


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
    if tree.objects[0].kind is not ObjectKind.GROUP or not _are_supported(tree):
        return None
    try:
        example = _Maker(own, tree.objects).make()
    except (Damaged, Unsupported):
        return None
    # Every structure that the plain reader has met must be one that is compared.
    return example if own.structures.keys() == _places_of(file.source, example) else None


def _places_of(source: Source, example: Example) -> set[int]:
    address = np.array([example.group.address], np.int64)
    agree, places, _ = _agree(example, source, address)
    return {int(where[0]) for where in places.values()} if agree.all() else set()


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
        self.example = Example(objects, [], {}, {})
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
        for message in header.messages:
            block = self._block_of(blocks, message)
            self._take_message(found, message, block, message.address - block)

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
            attribute = read_attribute(message.data, self.file.widths)
            self._take_attribute(found, attribute, Spot(number, offset, 0))
        elif kind == headers.LAYOUT:
            self._take_layout(found, message, Spot(number, offset, 0))

    def _take_attribute(self, found: Object, attribute: Attribute, at: Spot) -> None:
        spot = Spot(at.piece, at.offset + attribute.value_offset, len(attribute.value))
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
