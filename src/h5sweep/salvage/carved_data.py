"""The bytes of a dataset in a carved file, and what vouches for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.values import Array
from ..hdf5.chunks import Chunk
from ..hdf5.damage.carve import Carved, LenientFile
from ..hdf5.damage.packed_streams import Stored, read_stored, steps_of
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import DEFLATE, FLETCHER32, Storage
from ..hdf5.read_data import chunk_bytes, fill_bytes, overlap, require_here
from ..hdf5.tree import Dataset, data_extents, most_made_up
from ..worker_files.file_view import CLAIMS_MORE, Proof
from .data_gaps import UNWRITTEN, DataGaps, FileMemory

NO_CHUNK = "a chunk of it is in no index"
LOST_PAGE_OF_CHUNK = "its chunk has zeros to the edge of a page, as after a lost page"
NO_STREAM = "a chunk of it is not where its index leads"
BEHIND_STREAM = "it lies after the end of the stream that was found"
UNSURE_CHUNK = "it may have been half-written, and its filter cannot tell"
KEPT_CHUNKS = 4
Extents = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Rescued:
    """A chunk that is not, or not surely, what its index leads to."""

    data: bytes
    rows: int  # those that were written
    doubt: str = ""


class CarvedData:
    """The bytes of a dataset that was found in a file, and what vouches for them."""

    __slots__ = ("__dict__", "carved", "shared")  # the first has what most never need
    unsure_from: int | None = None  # rows whose chunks may be of something else

    def __init__(self, carved: Carved, shared: FileMemory) -> None:
        self.carved, self.shared = carved, shared

    @property
    def dataset(self) -> Dataset:
        assert self.carved.object.dataset is not None
        return self.carved.object.dataset

    @property
    def file(self) -> LenientFile:
        return self.shared.file

    @cached_property
    def gaps(self) -> DataGaps:
        return DataGaps(self.file, self.dataset, self.shared)

    @cached_property
    def rivals(self) -> dict[int, list[tuple[CarvedData, int]]]:
        """Who claims a place too."""
        return {}

    @cached_property
    def rescued(self) -> dict[tuple[int, ...], Rescued]:
        """The chunks that `packed_chunks` has settled, by where they begin."""
        return {}

    @cached_property
    def _kept(self) -> dict[tuple[int, ...], Stored]:
        """Chunks that were read, the oldest first."""
        return {}

    @cached_property
    def _packed_doubts(self) -> dict[int, str]:
        """Of filtered chunks, by their addresses."""
        return {}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.dataset.space.dims

    @property
    def start(self) -> int:
        return self.file.superblock.start

    def read_data(self, rows: range | None) -> tuple[bytes, Proof, str, Extents]:
        """The bytes of all, or of rows of one chunk; what vouches for them; where they are."""
        dims = self.shape
        require_here(self.dataset)
        if dims is None:
            raise Unsupported("data without a shape")
        shape = dims if rows is None else (len(rows), *dims[1:])
        size = math.prod(shape) * self.dataset.type.size
        # A few rows of what is too large are not.
        is_too_large = rows is None and self.dataset.claimed_bytes >= self.shared.too_large
        if is_too_large or (size > most_made_up(0) and _is_made_up(self.dataset, size)):
            raise Unsupported(CLAIMS_MORE)
        if size > self.shared.most_bytes:
            raise Unsupported(f"{size:,} bytes: more than --memory allows")
        if self.dataset.layout.storage is Storage.CHUNKED:
            return self._read_chunked(rows)
        return self._read_plain(rows, size)

    def is_rescued(self, row: int | None) -> bool:
        """Whether a row, or any, is in a chunk that `packed_chunks` has settled."""
        return bool(self.rescued if row is None else self.rescued_at(row))

    def rescued_at(self, row: int) -> list[Rescued]:
        """The chunks with this row that `packed_chunks` has settled."""
        if not self.rescued:
            return []
        side = self.dataset.layout.chunk[0]
        return [found for start, found in self.rescued.items() if start[0] == row // side * side]

    def is_suspect(self, address: int) -> bool:
        """Whether somebody else claims this place, and may be right."""
        rivals = self.rivals.get(address)
        return rivals is not None and any(rival.may_hold(at) for rival, at in rivals)

    def may_hold(self, address: int) -> bool:
        """Whether what lies there can be what its index says."""
        chunk = next((c for c in self.dataset.chunks if c.address == address), None)
        if chunk is None:
            return True
        try:
            stored = read_stored(self.file, self.dataset, chunk)
        except (Damaged, Unsupported):
            return False
        return stored.size == chunk.size

    def _read_plain(self, rows: range | None, size: int) -> tuple[bytes, Proof, str, Extents]:
        layout = self.dataset.layout
        is_compact = layout.storage is Storage.COMPACT
        address = self.dataset.compact_at if is_compact else layout.address
        if address is None and size and rows is None and self.shared.is_closed:
            return fill_bytes(self.dataset, size), Proof.NOTHING, "", (UNWRITTEN,)
        if address is None and size:
            raise Damaged("nothing was written there")
        place = (address or 0) + (rows.start * (size // len(rows)) if rows else 0)
        data = self.file.source.read(self.start + place, size)
        doubt = "another dataset claims its place" if self.is_suspect(address or 0) else ""
        is_proven = is_compact and self.carved.is_checked
        proof = Proof.CHECKSUM if is_proven or not size else Proof.NOTHING
        return data, proof, doubt, () if is_compact else ((place, size),)

    def _read_chunked(self, some: range | None) -> tuple[bytes, Proof, str, Extents]:
        dims, sides = self.shape or (), self.dataset.layout.chunk
        rows = range(dims[0]) if some is None else some
        whole = np.empty((len(rows), *dims[1:], self.dataset.type.size), np.uint8)
        proof, doubt = Proof.CHECKSUM, ""
        places: list[tuple[int, int]] = []
        for first in _grid(rows, dims, sides):
            if some is None and self.shared.is_closed and first not in self.chunks:
                whole[overlap(first, sides, dims, rows)[0]] = self._fill
                proof, places = Proof.NOTHING, [*places, UNWRITTEN]
                continue
            stored, chunk = self._stored(first, rows)
            part, inside = overlap(first, sides, dims, rows)
            block = np.frombuffer(stored.data, np.uint8).reshape(*sides, -1)
            whole[part] = block[inside]
            # Without a checksum of its index, a chunk may be the right one of something else.
            is_vouched = stored.is_checked and (chunk is None or self._is_vouched(chunk))
            is_proven = is_vouched and self.carved.is_checked
            proof = min(proof, Proof.CHECKSUM if is_proven else Proof.NOTHING)
            if first in self.rescued:
                doubt = doubt or self.rescued[first].doubt
            elif chunk is not None and self.is_suspect(chunk.address):
                doubt = "another dataset claims a chunk of it"
            elif self.unsure_from is not None and first[0] >= self.unsure_from:
                doubt = doubt or UNSURE_CHUNK
            if chunk is not None and not is_vouched and _is_filtered(self.dataset, chunk):
                doubt = doubt or self._packed_doubt(chunk)
            elif chunk is not None and not is_vouched:
                step = chunk_bytes(self.dataset) // sides[0]
                at = chunk.address + (rows.start - first[0]) * step
                whole_chunk = (chunk.address, chunk.size)
                places.append(whole_chunk if some is None else (at, step * len(rows)))
        if some is None:
            self._kept.clear()  # only rows come back to a chunk, and there may be many datasets
        return whole.tobytes(), proof, doubt, tuple(places)

    @cached_property
    def _fill(self) -> Array:
        return np.frombuffer(fill_bytes(self.dataset, self.dataset.type.size), np.uint8)

    def _is_vouched(self, chunk: Chunk) -> bool:
        """Whether a checksum that is right says something: Fletcher's does not see zeros."""
        is_packed = any(step.number == DEFLATE for step in steps_of(self.dataset, chunk))
        return is_packed or not self._packed_doubt(chunk)

    def _packed_doubt(self, chunk: Chunk) -> str:
        """Doubt a filtered chunk without a checksum in which a page may be lost: so may any row."""
        if chunk.address not in self._packed_doubts:
            may_be_lost = self.gaps.ends_at_page(chunk.address, chunk.size)
            may_be_lost |= bool(self.gaps.runs_in(chunk.address, chunk.size))
            self._packed_doubts[chunk.address] = LOST_PAGE_OF_CHUNK if may_be_lost else ""
        return self._packed_doubts[chunk.address]

    def _stored(self, first: tuple[int, ...], rows: range) -> tuple[Stored, Chunk | None]:
        """The chunk that begins with this element."""
        if (rescued := self.rescued.get(first)) is not None:
            if min(rows.stop - first[0], self.dataset.layout.chunk[0]) > rescued.rows:
                raise Damaged(BEHIND_STREAM if rescued.rows else NO_STREAM)
            return Stored(rescued.data, 0, is_checked=False), None
        chunk = self.chunks.get(first)
        if chunk is None:
            raise Damaged(NO_CHUNK)
        if not self.dataset.filters and chunk.address + chunk.size > self.file.size:
            return _cut_chunk(self.file, self.dataset, chunk, rows), chunk
        if first not in self._kept:
            self._kept[first] = read_stored(self.file, self.dataset, chunk)
            if len(self._kept) > max(KEPT_CHUNKS, self._across):
                del self._kept[next(iter(self._kept))]
        stored = self._kept[first]
        if stored.size != chunk.size and stored.is_checked:
            raise Damaged(f"a chunk at {chunk.address:,} is longer or shorter than its index says")
        return stored, chunk

    @property
    def chunks(self) -> dict[tuple[int, ...], Chunk]:
        return self.gaps.chunks

    @cached_property
    def _across(self) -> int:
        """How many chunks a row is spread over."""
        dims, sides = self.shape or (), self.dataset.layout.chunk
        across = math.prod(-(-n // side) for n, side in zip(dims[1:], sides[1:], strict=True))
        return min(across, 1024)


def _cut_chunk(file: LenientFile, dataset: Dataset, chunk: Chunk, rows: range) -> Stored:
    """A chunk in which the file ends; Damaged unless these rows lie before that."""
    if chunk.size != chunk_bytes(dataset):
        raise Damaged(f"a chunk of {chunk.size:,} bytes where others have another size")
    there = max(file.size - chunk.address, 0)
    whole = there // (chunk.size // dataset.layout.chunk[0])
    if rows.stop - chunk.start[0] > whole:
        raise Damaged(f"the file ends before it, at {file.source.size:,}")
    data = file.source.read(file.superblock.start + chunk.address, there)
    return Stored(data.ljust(chunk.size, b"\0"), chunk.size, is_checked=False)


def _is_made_up(dataset: Dataset, size: int) -> bool:
    """Whether so many bytes are more than what is stored of a dataset can hold."""
    stored = sum(count for _, count in data_extents(dataset))
    return size > max(stored, most_made_up(stored))


def _is_filtered(dataset: Dataset, chunk: Chunk) -> bool:
    """Whether a chunk went through any filter: its rows do not lie one behind the other."""
    return any(step.number != FLETCHER32 for step in steps_of(dataset, chunk))


def _grid(rows: range, dims: tuple[int, ...], sides: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The first element of each chunk that some rows lie in."""
    first = range(rows.start // sides[0] * sides[0], rows.stop, sides[0])
    return itertools.product(
        first, *(range(0, n, side) for n, side in zip(dims[1:], sides[1:], strict=True))
    )
