"""Find objects by scanning the bytes of a file: no superblock, end or index is trusted.

Every object header that parses is taken, and named by whatever still links to it: symbol nodes
with their heap, link messages, and the blocks of fractal heaps. What cannot be read is noted and
passed over. Nothing found here is more than the bytes say: `salvage.trust_labels` judges it.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from sys import intern
from types import MappingProxyType

from .. import headers
from ..cursor import Cursor, Widths
from ..errors import Damaged, Unsupported
from ..file import Hdf5File
from ..headers import Header, read_header
from ..heaps import read_local_heap
from ..messages import Link, read_link, read_link_info, read_symbol_table
from ..source import Source
from ..superblock import Superblock, find_superblock, read_superblock
from ..tree import Object, ObjectKind, Tree, data_extents, read_object
from .lost_names import find_lost_names
from .zero_runs import SLACK_BYTES, ZeroRuns, is_of_sectors

STEP_BYTES = 4 << 20
MOST_FOUND = 1_000_000
_OVERLAP = 24
_MOST_BLOCK_BYTES = 64 << 10
_MOST_LINK_BYTES = 1024
_MOST_NUMBER_BYTES = 16  # a number may be zero, and at the edge of unused space
_SAMPLE = 200
_WORK_BYTES = 256 << 20  # what may be read in all, besides many times the file itself
_WORK_FACTOR = 64

_EIGHTS = b"[" + b"".join(re.escape(bytes([low])) for low in range(0, 256, 8)) + b"]"
# Version, count, references, size, padding; then the first message: type, size, flags, zeros.
_OLD_HEADER = re.compile(
    rb"\x01\0(?!\0\0)..[\x01-\xff]\0\0\0"
    + _EIGHTS
    + rb".[\0-\x0f]\0\0\0\0\0[\0-\x18]\0"
    + _EIGHTS
    + rb"..\0\0\0",
    re.DOTALL,
)
_HEAP_BLOCK = re.compile(rb"FHDB\0")
_PATTERNS = (re.compile(rb"OHDR\x02"), _OLD_HEADER, _HEAP_BLOCK)
_MESSAGE = struct.Struct("<HHB3s")
_CUT = (0, 0xFFF8, 0, b"")  # a message of which nothing is known but that it goes on
_LINK = re.compile(rb"\x01[\0-\x1f]")
_SYMBOL_NODE = re.compile(rb"SNOD\x01")
_NAMES = re.compile(rb"\0{8}(?=[!-~])")  # a heap of names begins with an empty one
_NOWHERE: Mapping[str, str | None] = MappingProxyType({})
_GUESSES = (
    *((Widths(8, 8), start) for start in (0, 512, 1024, 2048, 4096)),
    (Widths(4, 4), 0),
    (Widths(8, 4), 0),
    (Widths(4, 8), 0),
)


class LenientFile(Hdf5File):
    """Goes on behind damage, and gives up once it has read many times what there is."""

    work_left: int = 0

    def pass_over(self, error: Damaged) -> None:
        super().note_fault(error)

    @cached_property
    def zero_runs(self) -> ZeroRuns:
        return ZeroRuns(self.source)

    def note_fault(self, fault: Damaged) -> None:
        fault.costs_nothing = True
        super().note_fault(fault)

    def read(self, address: int, size: int) -> bytes:
        self.work_left -= size + 64
        if self.work_left < 0:
            raise Damaged("its structures lead in circles")
        return super().read(address, size)


@dataclass(slots=True)
class Carved:
    """One object, what links to it, and what is wrong with it.

    There may be a million of them: what is empty in most of them is one object.
    """

    object: Object
    links: tuple[tuple[str, int], ...]
    faults: tuple[Damaged | Unsupported, ...]
    elsewhere: Mapping[str, str | None]  # soft links; None: into other files
    is_checked: bool = False  # its header has a checksum
    is_torn: bool = False  # part of its header is not what it should be
    references: int = 1  # how many links lead to it, as its header says
    parents: list[tuple[int | None, str]] | tuple[()] = ()
    path: str = ""  # as much of it as is known
    is_linked: bool = False  # the path leads to the root group
    _children: dict[str, int] | None = None

    @property
    def address(self) -> int:
        return self.object.address

    @property
    def is_group(self) -> bool:
        return self.object.kind is ObjectKind.GROUP

    @property
    def cost(self) -> Damaged | Unsupported | None:
        """The first fault behind which links or attributes may be that were not read."""
        return next((fault for fault in self.faults if not fault.costs_nothing), None)

    @property
    def names(self) -> Counter[str]:
        """By which names groups link to it, and how many by each."""
        return Counter(name for _, name in self.parents)

    @property
    def has_many_names(self) -> bool:
        """Whether all that link to it are one group, and as many links as it knows of."""
        return len({at for at, _ in self.parents}) == 1 and len(self.parents) == self.references

    @property
    def children(self) -> dict[str, int]:
        if self._children is None:
            self._children = dict(self.links)
        return self._children

    def add_parent(self, address: int | None, name: str) -> None:
        if self.parents:
            self.parents.append((address, name))
        else:
            self.parents = [(address, name)]  # a list that has grown has room for four


@dataclass
class Carving:
    """Every object of a file that was found."""

    file: LenientFile
    objects: dict[int, Carved]
    has_superblock: bool

    @cached_property
    def is_sound(self) -> bool:
        """Whether everything that the root group leads to could be read, as it was left."""
        block, root = self.file.superblock, self.objects.get(self.file.superblock.root)
        if not self.has_superblock or root is None or block.is_being_written:
            return False
        is_whole = block.checksum_is_right and block.end == self.file.source.size
        linked = (o for o in self.objects.values() if o.is_linked)
        return is_whole and not any(
            isinstance(fault, Damaged) for found in linked for fault in found.faults
        )

    def find(self, start: int, path: str, most: int = 8) -> int | None:
        """What a soft link in the group at `start` leads to, through `most` more at the most."""
        at: int | None = self.file.superblock.root if path.startswith("/") else start
        for name in filter(None, path.split("/")):
            group = None if at is None else self.objects.get(at)
            if group is None:
                return None
            target = group.elsewhere.get(name)
            at = group.children.get(name)
            if target is not None and most:
                at = self.find(group.address, target, most - 1)
        return at

    def keep_nameless(self) -> None:
        """Forget all but datasets that nothing links to."""
        named = [at for at, o in self.objects.items() if o.object.dataset is None or o.parents]
        for address in named:
            del self.objects[address]

    @property
    def is_closed(self) -> bool:
        """Whether its writer surely closed it, and all that leads to data is as it was left."""
        return self.is_sound and self.file.superblock.version >= 3


def find_offsets(source: Source, pattern: re.Pattern[bytes], overlap: int) -> Iterator[int]:
    """Where a pattern of at most `overlap` bytes matches, anywhere in the file."""
    last = -1
    for start in range(0, source.size, STEP_BYTES):
        data = source.read(start, min(STEP_BYTES + overlap, source.size - start))
        for match in pattern.finditer(data):
            if start + match.start() > last:
                last = start + match.start()
                yield last


def _find_all(source: Source) -> dict[bytes, list[int]]:
    """The offsets of each kind of structure, by its pattern."""
    found: dict[bytes, list[int]] = {pattern.pattern: [] for pattern in _PATTERNS}
    for start in range(0, source.size, STEP_BYTES):
        data = source.read(start, min(STEP_BYTES + _OVERLAP, source.size - start))
        for pattern in _PATTERNS:
            for match in pattern.finditer(data):
                place = match.start()
                if place >= STEP_BYTES or len(found[pattern.pattern]) >= MOST_FOUND:
                    break
                if pattern is not _OLD_HEADER or _is_old_header(data, place):
                    found[pattern.pattern].append(start + place)
    return found


def _is_old_header(data: bytes, place: int) -> bool:
    """Whether messages of known types fill a header; nothing in it says that it is one."""
    count, says_something = int.from_bytes(data[place + 2 : place + 4], "little"), False
    end = place + 16 + int.from_bytes(data[place + 8 : place + 12], "little")
    place += 16
    while place < end and count:
        kind, size, _, zeros = _MESSAGE.unpack_from(data, place) if place + 8 <= len(data) else _CUT
        if kind > headers.LAST_KNOWN or size % 8 or any(zeros):
            return False
        place, count = place + 8 + size, count - 1
        says_something |= kind > 0 and size > 0
        if place > len(data):
            return True  # the rest is in the next stretch: it is looked at when it is read
    return place <= end and says_something


def carve(source: Source) -> Carving:
    """Find all objects of a file. Never raises for what it holds; nothing is written."""
    offsets = _find_all(source)
    blocks = offsets.pop(_HEAP_BLOCK.pattern)
    hits = sorted(offset for found in offsets.values() for offset in found)
    superblock, is_read = _choose_frame(source, hits)
    file = _lenient(source, superblock)
    start = superblock.start
    addresses = [offset - start for offset in hits if offset >= start]
    carving = Carving(file, _read_all(file, addresses), is_read)
    _add_parents(carving, [block - start for block in blocks if block >= start], addresses)
    _add_lost_names(carving)
    if not is_read and (root := _likely_root(carving)) is not None:
        file.superblock = superblock._replace(root=root)
    _add_paths(carving)
    _drop_data(carving)
    return carving


def _lenient(source: Source, superblock: Superblock) -> LenientFile:
    file = LenientFile(source, superblock)
    file.work_left = _WORK_BYTES + _WORK_FACTOR * source.size
    return file


def _choose_frame(source: Source, hits: list[int]) -> tuple[Superblock, bool]:
    """The superblock, or where addresses count from and how wide they are, by what parses then."""
    frames = [_frame(source, widths, start) for widths, start in _GUESSES if start < source.size]
    best = (0, frames[0] if frames else _frame(source, Widths(), 0), False)
    found = _read_superblock(source)
    if found is not None:
        score = _score(source, found, hits)
        if score or not hits:
            return found, True
    for frame in frames:
        score = _score(source, frame, hits)
        if score > best[0]:
            best = (score, frame, False)
    return best[1], best[2]


def _frame(source: Source, widths: Widths, start: int) -> Superblock:
    return Superblock(start, 0, 0, widths, 0, start, source.size, -1)


def _read_superblock(source: Source) -> Superblock | None:
    start = find_superblock(source)
    try:
        return None if start is None else read_superblock(source, start)
    except Damaged:
        return None


def _score(source: Source, frame: Superblock, hits: list[int]) -> int:
    """How many of some headers parse, those that link to others counting most."""
    known = {hit - frame.start for hit in hits}
    file = _lenient(source, frame)
    sample = {frame.root, *(hit - frame.start for hit in hits[:_SAMPLE])}
    read = [_read_one(file, address) for address in sorted(sample) if address >= 0]
    found = [carved for carved in read if carved is not None]
    links = sum(child in known for carved in found for _, child in carved.links)
    return 10 * links + sum(carved.object.dataset is not None for carved in found)


def _read_all(file: LenientFile, addresses: list[int]) -> dict[int, Carved]:
    """The objects at these addresses, and those that they link to."""
    found: dict[int, Carved] = {}
    tried: set[int] = set()
    waiting = [*reversed(addresses), file.superblock.root]
    while waiting and len(found) < MOST_FOUND:
        address = waiting.pop()
        if address < 0 or address in tried:
            continue
        tried.add(address)
        if (carved := _read_one(file, address)) is not None:
            found[address] = carved
            waiting += [child for _, child in carved.links if child not in tried]
    return found


def _read_one(file: LenientFile, address: int) -> Carved | None:
    tree = Tree(file)
    try:
        header = read_header(file, address)
        is_torn = bool(file.faults) or _has_zeros(file, header)
        found, children = read_object(tree, header)
    except (Damaged, Unsupported):
        return None
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None  # bytes that nobody foresaw cost one object, and never the others
    finally:
        file.faults.clear()
        file.structures.clear()
        file.free.clear()
    is_half_read = found.dataset is None and (
        found.kind is ObjectKind.DATASET or (is_torn and found.kind is not ObjectKind.GROUP)
    )
    if is_half_read or file.work_left < 0:
        return None
    # Bytes that are no name were left by a heap that was not written any more.
    links = tuple((intern(name), child) for name, child in children if name.isprintable())
    faults = tuple(fault.error for fault in tree.faults)
    elsewhere: dict[str, str | None] = {p[1:]: to for p, to in tree.soft_links.items()}
    elsewhere |= dict.fromkeys(path[1:] for path in tree.external_links)
    about = (header.version == 2, is_torn, header.references)
    return Carved(found, links, faults, elsewhere or _NOWHERE, *about)


def _has_zeros(file: LenientFile, header: Header) -> bool:
    """Whether attributes without a checksum lie in a long stretch of zeros."""
    messages = header.all(headers.ATTRIBUTE) if header.version == 1 else []
    for message in messages:
        first = file.superblock.start + message.address
        end = first + len(message.data)
        for run in file.zero_runs.within(first, end):
            part = min(end, run[1]) - max(first, run[0])
            least = SLACK_BYTES if is_of_sectors(run, first, end) else _MOST_NUMBER_BYTES + 1
            if part >= least:
                return True
    return False


def _add_parents(carving: Carving, blocks: list[int], addresses: list[int]) -> None:
    """Note at each object who links to it, and by which name."""
    for parent in carving.objects.values():
        for name, child in parent.links:
            if child in carving.objects:
                carving.objects[child].add_parent(parent.address, name)
    groups = _groups_by_heap(carving) if blocks else {}
    ends = sorted({*blocks, *addresses, carving.file.size})
    more: dict[int, list[tuple[str, int]]] = {}
    for block in blocks:
        for heap, link in _links_in_block(carving.file, block, ends):
            found = carving.objects.get(link.address or 0)
            if found is None or any(name == link.name for _, name in found.parents):
                continue
            group = groups.get(heap)
            found.add_parent(None if group is None else group.address, link.name)
            if group is not None:
                more.setdefault(group.address, []).append((link.name, found.address))
    for address, links in more.items():
        carving.objects[address].links += tuple(links)


def _groups_by_heap(carving: Carving) -> dict[int, Carved]:
    """The groups whose many links are in a heap, by where that is."""
    found = {}
    for carved in carving.objects.values():
        if not carved.is_group:
            continue
        try:
            message = read_header(carving.file, carved.address).first(headers.LINK_INFO)
            dense = None if message is None else read_link_info(message.data, carving.file.widths)
        except (Damaged, Unsupported):
            continue
        if dense is not None and dense.heap is not None:
            found[dense.heap] = carved
    carving.file.faults.clear()
    return found


def _links_in_block(file: LenientFile, block: int, ends: list[int]) -> Iterator[tuple[int, Link]]:
    """Whatever looks like a link in a block of a fractal heap, with the heap it belongs to."""
    end = ends[bisect_right(ends, block)] if block < ends[-1] else block
    try:
        data = file.read(block, min(end - block, _MOST_BLOCK_BYTES))
        heap = Cursor(data, file.widths, 5).needed_address("a heap")
    except Damaged:
        return
    for match in _LINK.finditer(data):
        try:
            link = read_link(data[match.start() : match.start() + _MOST_LINK_BYTES], file.widths)
        except Damaged:
            continue
        if link.address is not None and link.name.isprintable():
            yield heap, link


def _add_lost_names(carving: Carving) -> None:
    """Name groups that nothing leads to, out of what is left of the directory above them."""
    file, start = carving.file, carving.file.superblock.start
    groups = {o.address for o in carving.objects.values() if o.is_group and not o.parents}
    if len(groups) < 2:  # one of them may be the root
        return
    nodes = [at - start for at in find_offsets(file.source, _SYMBOL_NODE, 5)]
    if not nodes:
        return
    known = {o.address for o in carving.objects.values() if o.parents}
    heaps = sorted(_heaps_of_names(carving))
    offsets = (at - start for at in find_offsets(file.source, _NAMES, 9))
    starts = (at for at in offsets if not _is_within(at, heaps))
    try:
        names = find_lost_names(file, nodes, starts, groups, known)
    except Damaged:
        names = {}  # there is too much to look at
    for address, name in names.items():
        carving.objects[address].add_parent(None, name)


def _is_within(address: int, extents: list[tuple[int, int]]) -> bool:
    place = bisect_right(extents, (address, 1 << 64)) - 1
    return place >= 0 and address < extents[place][1]


def _heaps_of_names(carving: Carving) -> list[tuple[int, int]]:
    """Where the names are that groups of the old kind have."""
    found = []
    for carved in carving.objects.values():
        try:
            header = read_header(carving.file, carved.address) if carved.is_group else None
            message = None if header is None else header.first(headers.SYMBOL_TABLE)
            if message is not None:
                _, heap = read_symbol_table(message.data, carving.file.widths)
                names = read_local_heap(carving.file, heap)
                found.append((names.address, names.address + len(names.data)))
        except (Damaged, Unsupported):
            continue
    carving.file.faults.clear()
    return found


def _likely_root(carving: Carving) -> int | None:
    """The only group, or the one that links to more groups than there are beside it.

    Where the root is lost, its groups are what is left, and none of them stands for it.
    """
    groups = {o.address: o for o in carving.objects.values() if o.is_group}
    tops = [o for o in groups.values() if all(parent is None for parent, _ in o.parents)]
    within = {o.address: sum(at in groups for _, at in o.links) for o in tops if not o.parents}
    likely = [at for at, count in within.items() if len(groups) == 1 or count >= len(tops)]
    return likely[0] if len(likely) == 1 else None


def _add_paths(carving: Carving) -> None:
    """Give every object as much of its path as can be known, from the root where that is."""
    root = carving.file.superblock.root
    for carved in carving.objects.values():
        names: list[str] = []
        at: int | None = carved.address
        seen: set[int | None] = set()
        while at is not None and at != root and at not in seen and at in carving.objects:
            seen.add(at)
            parents = carving.objects[at].parents
            at, name = parents[0] if parents else (None, "")
            names += [name] if name else []
        carved.is_linked = at == root
        carved.path = "/" * carved.is_linked + "/".join(reversed(names))


def _drop_data(carving: Carving) -> None:
    """Forget what lies in the data of a dataset that the root group leads to.

    Somebody may have stored a file in a file: that is data, and no object of this one.
    """
    strays = [address for address, o in carving.objects.items() if not o.is_linked]
    if not strays:
        return
    datasets = (o.object.dataset for o in carving.objects.values() if o.is_linked)
    extents = sorted(
        (at, at + size) for d in datasets if d is not None for at, size in data_extents(d) if size
    )
    starts = [start for start, _ in extents]
    for address in strays:
        place = bisect_right(starts, address) - 1
        if place >= 0 and address < extents[place][1]:
            del carving.objects[address]
