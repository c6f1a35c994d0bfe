"""Write a new HDF5 file of uniform groups, as bytes.

Groups are moved by copying their structures, and behind these their data, and putting the new
addresses into them, which NumPy does for thousands of groups at once. What leads to them are groups
of the oldest kind, which every reader knows: a tree, nodes with the links, a heap with the names.
"""

from __future__ import annotations

import posixpath
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ...hdf5.datatypes import Datatype
from ...hdf5.example_group import Example, Spot
from ...hdf5.gather import Addresses, ByteArray, gather, lookup3_rows
from ...hdf5.superblock import SIGNATURE
from ...hdf5.uniform_groups import AlikeGroups
from ...worker_files.decode_elements import points_simply
from ...worker_files.read_values import Values

LEAF_K, NODE_K = 4, 16  # how many links half a node has, and how many children half a tree node
_USUAL_SIZES = np.array([LEAF_K, NODE_K], "<u2").view(np.uint8)  # in a superblock
BLOCK_BYTES = 8 << 20
_NOWHERE = b"\xff" * 8
_SUPERBLOCK_BYTES = 96
_NODE_BYTES = 24 + 2 * NODE_K * 16 + 8
_LEAST_HEAP_BYTES = 4096
_MOST_IN_HEAP = 60_000
_LINKS = 2 * LEAF_K
_CHILDREN = 2 * NODE_K
_LINK = np.dtype(
    {
        "names": ["name", "address"],
        "formats": ["<u8", "<u8"],
        "offsets": [0, 8],
        "itemsize": 40,
    }
)


def can_be_moved(groups: AlikeGroups) -> bool:
    """Whether all of these groups but texts lies in them, and their nodes have the usual size."""
    heads = gather(groups.source, np.unique(groups.starts), 20)
    is_usual = (heads[:, 8] >= 2) | (heads[:, 16:20] == _USUAL_SIZES).all(axis=1)
    types: list[Datatype] = []
    for found in groups.example.objects:
        types += [attribute.type for attribute in found.attributes.values()]
        types += [found.dataset.type] if found.dataset is not None else []
    are_simple = all(not kind.points_elsewhere or points_simply(kind) for kind in types)
    return are_simple and bool(is_usual.all())


class GroupWriter:
    """Writes one file; it is an HDF5 file once it was closed, and nothing of it is durable."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("xb")
        self._file.write(bytes(_SUPERBLOCK_BYTES))
        self._end = _SUPERBLOCK_BYTES
        self._links: dict[str, dict[bytes, int]] = {"/": {}}  # group → name → address

    def __enter__(self) -> GroupWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, groups: AlikeGroups, chosen: Addresses, values: Values) -> None:
        """Write some of the groups, under the paths that they have; `values` are their file's."""
        moved = _Shift(groups)
        for some in moved.batches(chosen):
            pointers = [
                self._write_heaps(list(values.lists(data, datatype)))
                for data, datatype in moved.pointing(some)
            ]
            starts = self._end + moved.size * np.arange(len(some))
            blocks, data = moved.blocks(some, starts, pointers)
            self._append(blocks.tobytes())
            for part in data:
                self._append(part)
            for number, start in zip(some.tolist(), starts.tolist(), strict=True):
                parent, name = posixpath.split(groups.paths[number])
                self._group(parent)[name.encode()] = start

    def _write_heaps(self, lists: list[tuple[int, bytes]]) -> bytes:
        """Write texts and lists into global heaps; return what points to each."""
        found: list[bytes] = []
        waiting: list[tuple[int, bytes]] = []
        size = 0
        for length, data in lists:
            if waiting and (len(waiting) == _MOST_IN_HEAP or size > BLOCK_BYTES):
                found += self._write_heap(waiting)
                waiting, size = [], 0
            waiting.append((length, data))
            size += len(data) + 24
        found += self._write_heap(waiting) if waiting else []
        return b"".join(found)

    def _write_heap(self, lists: list[tuple[int, bytes]]) -> list[bytes]:
        parts, found = [], []
        for number, (length, data) in enumerate(lists, 1):
            if not length:
                found.append(bytes(16))
                continue
            parts.append(struct.pack("<HHIQ", number, 0, 0, len(data)) + data)
            parts.append(bytes(-len(data) % 8))
            found.append(struct.pack("<IQI", length, self._end, number))
        size = 16 + sum(map(len, parts))
        left = max(_LEAST_HEAP_BYTES - size, 16)
        parts.append(struct.pack("<HHIQ", 0, 0, 0, left).ljust(left, b"\0"))
        self._append(struct.pack("<4sB3xQ", b"GCOL", 1, size + left) + b"".join(parts))
        return found

    def _group(self, path: str) -> dict[bytes, int]:
        """The links of a group, which is linked from the group above it when all is written."""
        if path not in self._links:
            self._links[path] = {}
            self._group(posixpath.dirname(path))
        return self._links[path]

    def finish(self) -> None:
        """Write the groups that lead to the others, and the superblock."""
        root = (0, 0, 0)
        for path in sorted(self._links, key=lambda it: -len(it)):  # from the deepest up
            root = self._write_group(self._links[path])
            if path != "/":
                parent, name = posixpath.split(path)
                self._group(parent)[name.encode()] = root[0]
        self._file.seek(0)
        self._file.write(_superblock(self._end, *root))
        self._file.flush()

    def _append(self, data: bytes) -> int:
        """Write at the end; return where."""
        start = self._end
        self._file.write(data)
        self._end += len(data)
        return start

    def _write_group(self, links: dict[bytes, int]) -> tuple[int, int, int]:
        """Write a group; return the addresses of its header, its tree and its heap."""
        names = sorted(links)
        heap_data, offsets = _heap_data(names)
        data_start = self._append(heap_data)
        head = struct.pack("<4s4xQQQ", b"HEAP", len(heap_data), 1, data_start)
        heap = self._append(head)
        tree = self._write_tree(offsets, np.array([links[name] for name in names], np.uint64))
        message = struct.pack("<HHB3xQQ", 0x11, 16, 0, tree, heap)
        header = struct.pack("<BxHII4x", 1, 1, 1, len(message)) + message
        return self._append(header), tree, heap

    def _write_tree(self, offsets: Addresses, addresses: npt.NDArray[np.uint64]) -> int:
        """Write the nodes with the links, and the tree above them; return where its top is."""
        count = -(-len(offsets) // _LINKS)
        nodes = np.zeros((count, 8 + _LINKS * _LINK.itemsize), np.uint8)
        for node in range(count):
            some = slice(node * _LINKS, (node + 1) * _LINKS)
            head = struct.pack("<4sBxH", b"SNOD", 1, len(offsets[some]))
            nodes[node, :8] = np.frombuffer(head, np.uint8)
        links = np.zeros(count * _LINKS, _LINK)
        links["name"][: len(offsets)], links["address"][: len(offsets)] = offsets, addresses
        nodes[:, 8:] = links.view(np.uint8).reshape(count, _LINKS * _LINK.itemsize)
        start = self._append(nodes.tobytes())
        children = [start + nodes.shape[1] * node for node in range(count)]
        # The key behind a child is the last name in it.
        keys = [int(offsets[min((n + 1) * _LINKS, len(offsets)) - 1]) for n in range(count)]
        level = 0
        while True:
            children, keys = self._write_level(level, children, keys)
            if len(children) == 1:
                return children[0]
            level += 1

    def _write_level(
        self, level: int, children: list[int], keys: list[int]
    ) -> tuple[list[int], list[int]]:
        """Write the nodes of one level of a tree; return them as children of the next."""
        count = max(-(-len(children) // _CHILDREN), 1)
        starts = [self._end + _NODE_BYTES * node for node in range(count)]
        last_keys, before = [], 0
        for node in range(count):
            some = slice(node * _CHILDREN, (node + 1) * _CHILDREN)
            mine = list(zip(children[some], keys[some], strict=True))
            left = starts[node - 1].to_bytes(8, "little") if node else _NOWHERE
            right = starts[node + 1].to_bytes(8, "little") if node + 1 < count else _NOWHERE
            parts = [struct.pack("<4sBBH", b"TREE", 0, level, len(mine)), left, right]
            parts.append(before.to_bytes(8, "little"))
            for child, key in mine:
                parts.append(struct.pack("<QQ", child, key))
                before = key
            self._append(b"".join(parts).ljust(_NODE_BYTES, b"\0"))
            last_keys.append(before)
        return starts, last_keys


def _superblock(end: int, root: int, tree: int, heap: int) -> bytes:
    """A superblock of version 0, as the library writes it unless told otherwise."""
    head = SIGNATURE + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", LEAF_K, NODE_K, 0)
    places = struct.pack("<Q", 0) + _NOWHERE + struct.pack("<Q", end) + _NOWHERE
    return head + places + struct.pack("<QQI4xQQ", 0, root, 1, tree, heap)


def _heap_data(names: list[bytes]) -> tuple[bytes, Addresses]:
    """Names one behind the other, behind an empty one; and where each begins."""
    padded = [name + bytes(8 - len(name) % 8) for name in names]
    sizes = np.array([0, *map(len, padded)], np.int64)
    return bytes(8) + b"".join(padded), 8 + np.cumsum(sizes)[:-1]


class _Shift:
    """Where the pieces of a group go, counted from its beginning; data lie behind all groups."""

    def __init__(self, groups: AlikeGroups) -> None:
        self._groups = groups
        self._pieces: list[int] = []
        end = 0
        for piece in groups.example.pieces:
            self._pieces.append(end)
            is_tree = piece.data[:4].tobytes() == b"TREE"
            end += _rounded(_NODE_BYTES if is_tree else len(piece.data))
        self.size = end

    def batches(self, chosen: Addresses) -> Iterator[Addresses]:
        """The groups in turn, as many at once as fit into memory."""
        sizes = np.full(len(chosen), self.size, np.int64)
        for path in self._groups.found.data:
            sizes += self._groups.sizes(path)[chosen]
        numbers = np.cumsum(sizes) // BLOCK_BYTES
        yield from np.split(chosen, np.flatnonzero(np.diff(numbers)) + 1)

    def pointing(self, chosen: Addresses) -> Iterator[tuple[bytes, Datatype]]:
        """What points into a heap: values of attributes, then data."""
        groups = self._groups
        for place, datatype in self._pointing_values():
            yield groups.value_rows(place, chosen).tobytes(), datatype
        for path, datatype in self._pointing_data():
            yield groups.data(path, chosen), datatype

    def _pointing_values(self) -> Iterator[tuple[tuple[str, str], Datatype]]:
        for found in self._groups.example.objects:
            for name, attribute in found.attributes.items():
                if attribute.type.points_elsewhere:
                    yield (found.path, name), attribute.type

    def _pointing_data(self) -> Iterator[tuple[str, Datatype]]:
        for found in self._groups.example.objects:
            if found.dataset is not None and found.dataset.type.points_elsewhere:
                yield found.path, found.dataset.type

    def blocks(
        self, chosen: Addresses, starts: Addresses, pointers: list[bytes]
    ) -> tuple[ByteArray, list[bytes]]:
        """The structures of these groups, which will lie at `starts`, and the data behind them.

        `pointers`: what points into the new heaps, in the order of `pointing`.
        """
        example = self._groups.example
        found = np.zeros((len(chosen), self.size), np.uint8)
        for number, piece in enumerate(example.pieces):
            at = self._pieces[number]
            found[:, at : at + len(piece.data)] = self._groups.piece_rows(number, chosen)
            for offset, target in piece.links:
                _put(found, at + offset, starts + self._pieces[target])
            _forget_cached(found, at, piece.data)
        new = iter(pointers)
        for place, _ in self._pointing_values():
            self._put_bytes(found, example.values[place], next(new))
        data = self._put_data(
            found,
            chosen,
            int(starts[-1]) + self.size,
            dict(zip((path for path, _ in self._pointing_data()), new, strict=True)),
        )
        self._put_checksums(example, found)
        return found, data

    def _put_data(
        self, found: ByteArray, chosen: Addresses, end: int, pointers: dict[str, bytes]
    ) -> list[bytes]:
        """Say where the data of each dataset will lie, from `end` on; return them in that order."""
        groups, data = self._groups, []
        for path, spot in groups.example.data.items():
            if path in groups.found.data:
                sizes = groups.sizes(path)[chosen]
                part = pointers.get(path) or groups.data(path, chosen)
                ends = end + np.cumsum(sizes + -sizes % 8)
                _put(found, self._pieces[spot.piece] + spot.offset, ends - (sizes + -sizes % 8))
                data.append(_padded(part, sizes))
                end = int(ends[-1])
            elif path in pointers:
                self._put_bytes(found, spot, pointers[path])
        return data

    def _put_bytes(self, found: ByteArray, spot: Spot, data: bytes) -> None:
        at = self._pieces[spot.piece] + spot.offset
        rows = np.frombuffer(data, np.uint8).reshape(len(found), spot.size)
        found[:, at : at + spot.size] = rows

    def _put_checksums(self, example: Example, found: ByteArray) -> None:
        for number, piece in enumerate(example.pieces):
            if piece.is_checked:
                at, end = self._pieces[number], self._pieces[number] + len(piece.data) - 4
                checksums = lookup3_rows(found[:, at:end]).astype("<u4")
                found[:, end : end + 4] = checksums.view(np.uint8).reshape(-1, 4)


def _padded(data: bytes, sizes: Addresses) -> bytes:
    """Data of these sizes, each filled up to the next multiple of 8."""
    if not (sizes % 8).any():
        return data
    ends = np.cumsum(sizes).tolist()
    parts = zip([0, *ends], ends, (-sizes % 8).tolist(), strict=False)
    return b"".join([data[start:end] + bytes(padding) for start, end, padding in parts])


def _put(rows: ByteArray, offset: int, addresses: Addresses) -> None:
    rows[:, offset : offset + 8] = addresses.astype("<i8").view(np.uint8).reshape(-1, 8)


def _forget_cached(rows: ByteArray, at: int, data: ByteArray) -> None:
    """Links to groups may repeat addresses of the group, which need not be there."""
    if data[:4].tobytes() == b"SNOD":
        for link in range(int(data[6])):
            start = at + 8 + link * _LINK.itemsize + 16
            rows[:, start : start + 24] = 0


def _rounded(size: int) -> int:
    return size + -size % 8
