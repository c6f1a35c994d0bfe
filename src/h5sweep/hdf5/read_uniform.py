"""Read files whose groups are alike, many groups at a time.

One group is read by the plain reader (`tree`) and becomes an example; whatever agrees with no
example is left to the plain reader. Of small files also what leads to their groups is compared with
that of a file which was read before (`small_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from . import headers
from .btrees import GROUP_NODE, read_tree
from .cursor import decoded
from .errors import Damaged, Unsupported
from .example_group import Example, Frame
from .file import Hdf5File
from .gather import Addresses, JoinedSource, gather
from .groups import is_group
from .headers import Header, read_header
from .heaps import read_local_heap
from .make_example import MOST_OBJECTS, make_frame
from .messages import read_symbol_table
from .small_files import SmallFiles
from .source import Source
from .superblock import Superblock
from .tree import Tree, TreeWalk, check_overlaps
from .uniform_groups import MOST_KEPT, NOWHERE, AlikeFile, AlikeFiles, GroupLevel, GroupMatches

LEAST_GROUPS = 8
MOST_FILE_BYTES = 128 << 20  # that are read at once; of larger files only what is asked for
LARGE_BYTES = 4 << 20  # of a larger file it is worth finding out whether it has many objects
_LINK = np.dtype(
    {
        "names": ["name", "address", "kind"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [0, 8, 16],
        "itemsize": 40,
    }
)


class AlikeReader:
    """Reads files and remembers their examples, which the next file probably has as well."""

    def __init__(self) -> None:
        self._known: list[Example] = []
        self._frames: list[Frame] = []

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

    def remember(self, file: Hdf5File, alike: AlikeFile) -> bool:
        """Remember what leads to the few groups of a small file, so that others can be like it.

        False if that has no use.
        """
        if len(alike.tree.objects) > 1 or len(alike) >= LEAST_GROUPS:
            return False
        if self.read_small([file.source.content]).sets:
            return True
        frame = make_frame(file) if len(self._frames) < MOST_KEPT else None
        self._frames += [frame] if frame is not None else []
        return frame is not None

    def read_small(self, contents: Sequence[bytes]) -> AlikeFiles:
        """Many small files at once; those that are not like one that was read are left out."""
        files = SmallFiles(JoinedSource(contents))
        for frame in sorted(self._frames, key=lambda it: -it.example.uses):
            files.take_frame(frame)
        return files.matched(self._known)

    def read_tasks(
        self, contents: Sequence[bytes], paths: Sequence[str], blocks: Sequence[Superblock]
    ) -> AlikeFiles:
        """The same of small files that are one task each; `paths` are what these shall have."""
        source = JoinedSource(contents)
        groups = GroupMatches(source, source.starts, source.ends, self._known)
        roots = source.starts + np.array([block.root for block in blocks], np.int64)
        left = groups.take(
            GroupLevel(list(paths), roots, np.arange(len(paths))),
            lambda owner: Hdf5File(Source(contents[owner]), blocks[owner]),
        )
        is_whole = not left.paths and groups.are_apart({})
        trees = [Tree(Hdf5File(source, block)) if is_whole else None for block in blocks]
        return AlikeFiles(source, trees, groups.sets if is_whole else [])


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
        if (links["address"] >= NOWHERE).any() or names[-1:] != b"\0":
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
        self.walk = walk
        source = walk.file.source
        start = np.zeros(1, np.int64)
        self._groups = GroupMatches(source, start, start + source.size, known)
        self.sets = self._groups.sets

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
        addresses = np.array([min(address, NOWHERE) for _, address in level], np.int64)
        whole = GroupLevel([path for path, _ in level], addresses, np.zeros(len(level), np.int64))
        left = self._groups.take(whole, lambda _: self.walk.file)
        return list(zip(left.paths, left.addresses.tolist(), strict=True))

    def is_without_overlaps(self) -> bool:
        check_overlaps(self.walk.tree)
        return not self.walk.tree.faults and self._groups.are_apart(self.walk.file.structures)
