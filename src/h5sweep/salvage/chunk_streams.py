"""The packed streams of a file, and the chunks whose versions they may be."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from ..hdf5.chunks import Chunk
from ..hdf5.damage.packed_streams import (
    Stored,
    find_streams,
    packing_of,
    read_stored,
    read_stream,
    steps_of,
)
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.read_data import LZF, chunk_bytes, fill_bytes
from ..hdf5.tree import Dataset, data_extents
from ..worker_files.read_tasks import rows_of
from .carved_datasets import CarvedVariable

MOST_KEPT_BYTES = 64 << 20
LAST_CHUNKS = 2  # of each column: only these grow, if rows are flushed one by one
MOST_APPENDED = 8  # rows between two flushes


@dataclass(eq=False)
class ChunkSlot:
    """A chunk of a column, and what its index leads to."""

    name: str
    variable: CarvedVariable
    start: tuple[int, ...]
    claim: Stored | None
    is_claim_right: bool  # its size is as its index says, and nobody else claims its place

    @property
    def first(self) -> int:
        return self.start[0]

    @property
    def room(self) -> int:
        return self.variable.dataset.layout.chunk[0]

    @property
    def has_size(self) -> bool:
        """Whether its index says how many bytes it took, packed."""
        return self.start in self.variable.chunks and not self.variable.chunks[self.start].mask

    @property
    def is_lost(self) -> bool:
        """Whether no stream is where its index leads: it is damaged, or it was moved."""
        return self.claim is None and self.start in self.variable.chunks


@dataclass(eq=False)
class ChunkVersions:
    """The versions of one chunk, of which the longest is kept."""

    data: bytes
    rows: int
    size: int = 0  # as it lies in the file


@dataclass
class LzfStreams:
    """The streams of lzf in a file, by their filters and size; some are none, as they overlap."""

    by_kind: dict[tuple[object, ...], list[tuple[int, Stored]]] = field(default_factory=dict)
    mixed: set[tuple[int, int]] = field(default_factory=set)

    def note_mixed(self) -> None:
        """Note which of them lie in a longer one, or share some bytes with another.

        The end of one may fit to what is left of another, so that both look whole.
        """
        every = {(at, at + found.size) for some in self.by_kind.values() for at, found in some}
        last = (0, 0)
        for extent in sorted(every, key=lambda extent: (extent[0], -extent[1])):
            if extent[0] < last[1]:
                self.mixed |= {extent} if extent[1] <= last[1] else {extent, last}
            last = max(last, extent, key=itemgetter(1))


class TableStreams:
    """The chunks and packed streams of the columns of one kind, among all columns of a table."""

    def __init__(
        self,
        columns: Mapping[str, CarvedVariable],
        alike: Mapping[str, CarvedVariable],
        others: list[CarvedVariable],
        lzf: LzfStreams,
    ) -> None:
        self.columns = columns
        self.lzf = lzf
        self.alike = alike
        self.others = others  # all else in the file, of this table or not
        self.sample = next(iter(alike.values()))
        self.packing = packing_of(self.sample.dataset.filters)
        self.rows = rows_of(columns)
        self.longest = max(v.shape[0] for v in columns.values() if v.shape) + 1
        self.room = self.sample.dataset.layout.chunk[0]
        self.row_bytes = chunk_bytes(self.sample.dataset) // self.room
        self.fills = {self.fill_of(variable) for variable in alike.values()}

    def fill_of(self, variable: CarvedVariable) -> bytes:
        return fill_bytes(variable.dataset, self.row_bytes)

    def without_twins(self, free: list[ChunkSlot]) -> tuple[list[ChunkSlot], list[ChunkSlot]]:
        """Set chunks apart that are whole and begin as another does: no family tells them apart."""
        whole = [slot for slot in free if self.is_whole(slot)]
        twins = [slot for slot in whole if any(self.begins(slot, other) for other in whole)]
        return [slot for slot in free if slot not in twins], twins

    def begins(self, slot: ChunkSlot, other: ChunkSlot) -> bool:
        assert slot.claim is not None and other.claim is not None  # they are right
        own = ChunkVersions(slot.claim.data, self.rows_of_claim(slot))
        return slot is not other and self.is_version(own, other.claim.data)

    def is_whole(self, slot: ChunkSlot) -> bool:
        return slot.is_claim_right and not self.is_short(slot)

    def is_short(self, slot: ChunkSlot) -> bool:
        """Whether its last rows are fill values, as those are that were not written."""
        return self.rows_of_claim(slot) < min(slot.room, self.rows - slot.first)

    def rivals(self) -> list[ChunkSlot]:
        """The chunks of all others whose streams cannot be told from those of this table."""
        size = chunk_bytes(self.sample.dataset)
        return [
            ChunkSlot("", variable, chunk.start, None, is_claim_right=True)
            for variable in self.others
            if packing_of(variable.dataset.filters) == self.packing
            and chunk_bytes(variable.dataset) == size
            for chunk in variable.dataset.chunks
        ]

    def slots(self) -> tuple[list[ChunkSlot], list[ChunkSlot]]:
        """Chunks that are surely what their index says, and those to be looked for."""
        fixed: list[ChunkSlot] = []
        free: list[ChunkSlot] = []
        last, growing = (self.rows - 1) // self.room, first_growing(self.rows, self.room)
        for number in range(last + 1):
            is_old = number < growing
            slots = [
                self.slot(name, variable, start, read_stored if is_old else read_stream)
                for name, variable in self.alike.items()
                for start in _starts(variable, number * self.room)
            ]
            # Full in all columns, and rows follow: none can have been moved to another's place.
            is_full = number < last and all(map(self.is_whole, slots))
            for slot in slots:
                is_done = is_full or (is_old and slot.is_claim_right)
                (fixed if is_done else free).append(slot)
                if is_done:
                    slot.claim = None  # not to be kept: there may be many
        return fixed, free

    def slot(
        self,
        name: str,
        variable: CarvedVariable,
        start: tuple[int, ...],
        read: Callable[[Hdf5File, Dataset, Chunk], Stored],
    ) -> ChunkSlot:
        chunk = variable.chunks.get(start)
        try:
            stored = None if chunk is None else read(variable.file, variable.dataset, chunk)
        except (Damaged, Unsupported):
            stored = None
        if chunk and stored and self.may_be_mixed(variable, chunk, stored):
            stored = None
        is_right = (
            chunk is not None
            and stored is not None
            and stored.size == chunk.size
            and not variable.is_suspect(chunk.address)
        )
        return ChunkSlot(name, variable, start, stored, is_right)

    def may_be_mixed(self, variable: CarvedVariable, chunk: Chunk, stored: Stored) -> bool:
        """Whether part of it may be of another chunk by now.

        One that could not be packed proves nothing, but once it is full, it is not moved any more.
        """
        offset, side = variable.start + chunk.address, variable.dataset.layout.chunk[0]
        if stored.is_checked or packing_of(steps_of(variable.dataset, chunk)) is not None:
            return (offset, offset + stored.size) in self.lzf.mixed
        fill = fill_bytes(variable.dataset, len(stored.data) // side)
        return _rows_before(stored.data, fill) < side

    def orphans(self, fixed: list[ChunkSlot]) -> list[ChunkVersions]:
        """Streams of this kind at which no index that is surely right points."""
        file, dataset = self.sample.file, self.sample.dataset
        start = file.superblock.start
        mine = set(map(id, self.columns.values()))  # their places may have been taken since
        taken = [
            (start + at, start + at + size)
            for variable in self.others
            if id(variable) not in mine and packing_of(variable.dataset.filters) != self.packing
            for at, size in data_extents(variable.dataset)
        ]
        for slot in fixed:
            chunk = slot.variable.chunks[slot.start]
            taken.append((start + chunk.address, start + chunk.address + chunk.size))
        found, kept = [], 0
        streams: Iterable[tuple[int, Stored]] = find_streams(file.source, dataset, taken)
        if self.packing == LZF:
            none = {*taken, *self.lzf.mixed}
            known = self.lzf.by_kind[_packing_and_size(self.sample)]
            streams = [(at, found) for at, found in known if (at, at + found.size) not in none]
        for _, stored in streams:
            if rows := self.rows_in(stored.data):
                found.append(ChunkVersions(stored.data, rows, stored.size))
                kept += len(stored.data)
            if kept > MOST_KEPT_BYTES:
                return []
        return found

    def rows_in(self, data: bytes) -> int:
        """How many rows there are before the last ones that are fill values, of any column."""
        return min(_rows_before(data, fill) for fill in self.fills)

    def rows_of_claim(self, slot: ChunkSlot) -> int:
        return (
            0 if slot.claim is None else _rows_before(slot.claim.data, self.fill_of(slot.variable))
        )

    def is_version(self, older: ChunkVersions, newer: bytes) -> bool:
        size = older.rows * self.row_bytes
        return newer[:size] == older.data[:size]

    def explain(self, orphans: list[ChunkVersions], known: list[ChunkSlot]) -> list[ChunkVersions]:
        """Drop earlier versions of chunks that are known, and return them."""
        dropped: list[ChunkVersions] = []
        for slot in known if orphans else ():
            claim = slot.claim or self.slot(slot.name, slot.variable, slot.start, read_stored).claim
            if claim is not None:
                dropped += [o for o in orphans if self.is_version(o, claim.data)]
                orphans[:] = [o for o in orphans if not self.is_version(o, claim.data)]
        return dropped

    def families_of(
        self, orphans: list[ChunkVersions], free: list[ChunkSlot]
    ) -> list[ChunkVersions]:
        """Put versions of one chunk together, the longest standing for all."""
        streams = {stream.data: stream for stream in orphans}
        for slot in free:
            if slot.claim is not None and (rows := self.rows_of_claim(slot)):
                own = ChunkVersions(slot.claim.data, rows, slot.claim.size)
                streams.setdefault(slot.claim.data, own)
        found: list[ChunkVersions] = []
        for stream in sorted(streams.values(), key=lambda s: -s.rows):
            if not any(self.is_version(stream, family.data) for family in found):
                found.append(stream)
        return found

    def family_of(self, slot: ChunkSlot, families: list[ChunkVersions]) -> ChunkVersions | None:
        """The family that the claim of a chunk is of; one of its own if it holds no values."""
        assert slot.claim is not None  # it is right
        own = ChunkVersions(slot.claim.data, self.rows_of_claim(slot))
        if not own.rows:
            return own
        return next((family for family in families if self.is_version(own, family.data)), None)


def find_lzf(columns: Iterable[CarvedVariable]) -> LzfStreams:
    """Find the streams of all chunks that may have changed since the last flush."""
    packed = [v for v in columns if packing_of(v.dataset.filters) == LZF]
    taken = [
        (variable.start + chunk.address, variable.start + chunk.address + chunk.size)
        for variable in packed
        for chunk in variable.dataset.chunks
        if chunk.start[0] // (side := variable.dataset.layout.chunk[0])
        < first_growing((variable.shape or (0,))[0], side)
    ]
    found = LzfStreams()
    for variable in {_packing_and_size(v): v for v in packed}.values():
        streams = find_streams(variable.file.source, variable.dataset, taken)
        found.by_kind[_packing_and_size(variable)] = list(streams)
    found.note_mixed()
    return found


def _packing_and_size(variable: CarvedVariable) -> tuple[object, ...]:
    return chunk_bytes(variable.dataset), variable.dataset.filters


def first_growing(rows: int, side: int) -> int:
    """The number of the first chunk that may have changed since the last flush."""
    last = max(rows - 1, 0) // side
    return max(min(last + 1 - LAST_CHUNKS, (rows - MOST_APPENDED) // side), 0)


def _rows_before(data: bytes, fill: bytes) -> int:
    """How many rows there are before the last ones that are this fill value."""
    rows, size = len(data) // len(fill), len(fill)
    while rows and data[(rows - 1) * size : rows * size] == fill:
        rows -= 1
    return rows


def _starts(variable: CarvedVariable, first: int) -> Iterator[tuple[int, ...]]:
    """The first elements of the chunks that the row is spread over."""
    dims, sides = variable.shape or (), variable.dataset.layout.chunk
    inner = (range(0, n, side) for n, side in zip(dims[1:], sides[1:]))  # noqa: B905 (of one length)
    return itertools.product((first,), *inner)
