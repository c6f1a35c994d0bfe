"""Groups that are alike, read many at a time with NumPy.

The task groups of one program differ in their addresses, their data, the lengths of their arrays
and the values of their attributes, and in nothing else. One of them is read by the plain reader
(`tree`) and becomes the example (`example_group`) that the others are compared with. Whatever
agrees with no example is left to the plain reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import headers
from .btrees import GROUP_NODE, read_tree
from .cursor import decoded
from .errors import Damaged, Unsupported
from .example_group import MOST_OBJECTS, Agreement, Example, Spot, compare_groups, make_example
from .file import Hdf5File
from .gather import Addresses, ByteArray, gather, gather_ragged
from .groups import is_group
from .headers import Header, read_header
from .heaps import read_local_heap
from .messages import read_symbol_table
from .source import Source
from .superblock import Superblock
from .tree import Tree, TreeWalk, check_overlaps

LEAST_GROUPS = 8
MOST_FILE_BYTES = 128 << 20  # that are read at once; of larger files only what is asked for
LARGE_BYTES = 4 << 20  # of a larger file it is worth finding out whether it has many objects
MOST_VAIN = 8  # examples made at one level of a file that no other group agrees with
MOST_KEPT = 256
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


@dataclass(eq=False)
class AlikeGroups:
    """Groups of one file that agree with an example."""

    example: Example
    paths: list[str]
    found: Agreement  # of each group
    source: Source  # of the whole file

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def data_bytes(self) -> int:
        """What the data of all groups take."""
        datasets = [o.path for o in self.example.objects if o.dataset is not None]
        return sum(int(self.sizes(path).sum()) for path in datasets)

    @property
    def data_places(self) -> dict[str, Addresses]:
        """Of each contiguous dataset, where its data lie in each group."""
        return self.found.data

    def sizes(self, path: str) -> Addresses:
        """How many bytes the data of a dataset have in each group."""
        if path in self.found.sizes:
            return self.found.sizes[path]
        return np.full(len(self), self.example.dataset(path).size_bytes, np.int64)

    def data(self, path: str, chosen: Addresses) -> bytes:
        """The data of a dataset in some of the groups, one behind the other."""
        if path not in self.found.data:
            return self._rows(self.example.data[path], chosen).tobytes()
        sizes, places = self.sizes(path)[chosen], self.found.data[path][chosen]
        if len(sizes) and (sizes == sizes[0]).all():
            return gather(self.source, places, int(sizes[0])).tobytes()
        return gather_ragged(self.source, places, sizes)

    def piece_rows(self, piece: int, chosen: Addresses) -> ByteArray:
        """One structure in some of the groups, one row per group."""
        places = self.found.places[piece][chosen]
        return gather(self.source, places, len(self.example.pieces[piece].data))

    def value_rows(self, attribute: tuple[str, str], chosen: Addresses) -> ByteArray:
        """The value of an attribute, by its object and name, in some of the groups."""
        return self._rows(self.example.values[attribute], chosen)

    def _rows(self, spot: Spot, chosen: Addresses) -> ByteArray:
        return gather(self.source, self.found.places[spot.piece][chosen] + spot.offset, spot.size)


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
        rows = gather(self.file.source, np.array(nodes, np.int64), size)
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
            if walk.seen:  # not the root
                if not self._may_have_groups(level):
                    return
                level = self._take_alike(level)
            walk.waiting, below = level[::-1], walk.waiting
            while walk.waiting and not walk.tree.is_cut:
                path, address = walk.waiting.pop()
                here, walk.waiting = walk.waiting, []
                walk.take_next(path, address)
                below += walk.waiting[::-1]
                walk.waiting = here
            walk.waiting = below[::-1]

    def _may_have_groups(self, level: list[tuple[str, int]]) -> bool:
        """Whether it is worth going on: a file of a few datasets is for the plain reader."""
        if self.sets or len(level) >= LEAST_GROUPS:
            return True
        if len(self.walk.seen) > MOST_OBJECTS:
            return False
        apart = Hdf5File(self.walk.file.source, self.walk.file.superblock)  # it notes what it reads
        return any(is_group(read_header(apart, address)) for _, address in level)

    def _take_alike(self, level: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Take the groups that agree with an example; return the rest."""
        for example in sorted(self._known, key=lambda it: -it.uses):
            if not level:
                return level
            level = self._match(example, level)
        vain = 0
        while level and vain < MOST_VAIN and len(self._known) < MOST_KEPT:
            made = make_example(self.walk.file, level[0][1])
            if made is None:
                break
            self._known.append(made)
            level = self._match(made, level)
            vain += made.uses < 2
        return level

    def _match(self, example: Example, level: list[tuple[str, int]]) -> list[tuple[str, int]]:
        addresses = np.array([min(address, _NOWHERE) for _, address in level], np.int64)
        found = compare_groups(example, self.walk.file.source, addresses)
        # A group that is there twice, by a second name, is for the plain reader.
        chosen = np.flatnonzero(found.agree)
        if not len(chosen) or len({*addresses[chosen].tolist()}) < len(chosen):
            return level
        example.uses += len(chosen)
        paths = [level[place][0] for place in chosen.tolist()]
        source = self.walk.file.source
        self.sets.append(AlikeGroups(example, paths, found.chosen(chosen), source))
        return [level[place] for place in np.flatnonzero(~found.agree).tolist()]

    def is_without_overlaps(self) -> bool:
        """Whether no structure lies in another, nor data in a structure; as the plain reader."""
        noted = self.walk.file.structures
        starts = [np.fromiter(noted.keys(), np.int64, len(noted))]
        sizes = [np.fromiter(noted.values(), np.int64, len(noted))]
        data_starts, data_sizes = [], []
        for groups in self.sets:
            for piece, where in groups.found.places.items():
                starts.append(where)
                size = len(groups.example.pieces[piece].data)
                sizes.append(np.broadcast_to(np.int64(size), len(where)))
            for path, where in groups.data_places.items():
                data_starts.append(where)
                data_sizes.append(groups.sizes(path))
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
