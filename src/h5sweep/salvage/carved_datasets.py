"""A dataset of a carved file, read by its bytes: its values, and what vouches for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..base.values import Array
from ..hdf5.chunks import Chunk
from ..hdf5.damage.carve import Carved, Carving
from ..hdf5.damage.gzip_streams import Stored, read_stored
from ..hdf5.data import chunk_bytes, fill_bytes, overlap, require_here
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import DEFLATE, FLETCHER32, Attribute, Filter, Storage
from ..hdf5.tree import Dataset, data_extents, most_made_up
from ..worker_files.decode import DoubtfulElements, field_places, has_lists
from ..worker_files.view import CLAIMS_MORE, FoundValue, FoundValues, Gap, Proof, rows_that_fit
from .data_gaps import FEW_BYTES, UNWRITTEN, DataGaps, FileMemory

LOST_PAGE = "it lies in a page of zeros that reaches beyond it: a lost page"
NO_CHUNK = "a chunk of it is in no index"
LOST_PAGE_OF_CHUNK = "its chunk has zeros to the edge of a page, as a lost page leaves them"
UNSURE_CHUNK = "it was perhaps in the making, and its filter does not tell"
KEPT_CHUNKS = 4
MOST_CHUNKS_LOST = 80  # in a row: a node of an index has 64
Extents = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Rescued:
    """A chunk that is not, or not surely, what its index leads to."""

    data: bytes
    rows: int  # those that were written
    doubt: str = ""


class CarvedVariable:
    """A dataset that was found in a file, read by its bytes."""

    def __init__(
        self, carving: Carving, carved: Carved, most_bytes: int, shared: FileMemory
    ) -> None:
        assert carved.object.dataset is not None
        self.file = carving.file
        self.elements, self._pages, self.is_closed = (
            shared.elements,
            shared.pages,
            carving.is_closed,
        )
        self.dataset: Dataset = carved.object.dataset
        self.gaps = DataGaps(carving.file, self.dataset, shared)
        self.is_checked = carved.is_checked
        self.doubt = "its header is torn" if carved.is_torn else ""
        self.most_bytes = most_bytes
        self.is_too_large = self.dataset.claimed_bytes >= shared.too_large
        self.attributes = dict(_readable_attributes(self.elements, carved))
        self.rivals: dict[int, list[tuple[CarvedVariable, int]]] = {}  # who claims a place too
        self.rescued: dict[int, Rescued] = {}  # chunks that `streams` has settled, by first row
        self.unsure_from: int | None = None  # rows whose chunks may be of something else
        self._kept: dict[tuple[int, ...], Stored] = {}  # the oldest first
        self._packed_doubts: dict[int, str] = {}  # of filtered chunks, by their addresses

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.dataset.space.dims

    @property
    def may_grow(self) -> bool:
        return self.dataset.may_grow

    @cached_property
    def fields(self) -> dict[str, tuple[int, int]]:
        """Where each field lies in a row, if this is one compound; else nothing."""
        places = field_places(self.dataset.type) if len(self.shape or ()) == 1 else {}
        return {} if "" in places else places

    @property
    def rows_there(self) -> int:
        sides, dims = self.dataset.layout.chunk, self.shape or (1,)
        if self.dataset.layout.storage is Storage.CHUNKED:
            return self._chunks_end * sides[0]
        row_bytes = math.prod(dims[1:]) * self.dataset.type.size
        return min(dims[0], self.file.size // max(row_bytes, 1))

    @cached_property
    def _chunks_end(self) -> int:
        """Behind which chunk there are no more; one far behind all others is not believed."""
        side, end = self.dataset.layout.chunk[0], 0
        numbers = sorted({chunk.start[0] // side for chunk in self.dataset.chunks})
        for number in numbers:
            if number > end + len(numbers) + MOST_CHUNKS_LOST:
                break
            end = number + 1
        return end

    @property
    def start(self) -> int:
        return self.file.superblock.start

    def read(self, row: int | None) -> dict[str, FoundValue]:
        """All of it, or one row; Damaged or Unsupported if it is not all there."""
        rows = None if row is None else range(row, row + 1)
        data, proof, doubt, places = self._read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, 1, by_field=row is not None)
        gaps = self._gaps(row, places if proof is Proof.NOTHING else ())
        is_lost = any(gap is Gap.SURE for gap, _ in gaps.values())
        doubt = doubt or (LOST_PAGE if is_lost else "")
        dims = self.shape or ()
        cells = self.elements.decode(self.dataset.type, data, dims if row is None else dims[1:])
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self._is_rescued(row)
        is_whole = row is None and proof is Proof.NOTHING and len(places) == 1
        is_whole = is_whole and UNWRITTEN not in places
        offset = self.start + places[0][0] if is_whole else None
        found = {}
        for name, array in cells.items():
            part = name if name in self.fields and row is not None else ""
            gap, runs = gaps.get(part, (Gap.NONE, 0))
            is_fill = bool(fills[part][0])
            found[name] = FoundValue(array, proof, is_fill, gap, runs, rescued, doubt, offset)
        return found

    def rows_at_once(self, row: int) -> int:
        """How many rows from this one on lie in one chunk, and are not too many."""
        if self._has_lists:
            return 1
        row_bytes = math.prod((self.shape or ())[1:]) * self.dataset.type.size
        if self.dataset.layout.storage is not Storage.CHUNKED:
            return rows_that_fit(row_bytes, row, None)
        side = self.dataset.layout.chunk[0]
        most = rows_that_fit(row_bytes, row, side)
        rescued = self.rescued.get(row // side * side)
        left = 0 if rescued is None else rescued.rows - row % side
        return min(most, left) if left > 0 else most

    @cached_property
    def _has_lists(self) -> bool:
        return has_lists(self.dataset.type)

    def read_rows(self, rows: range) -> dict[str, FoundValues]:
        """The same for rows of one chunk at once; those with zeros at a page's edge are apart."""
        data, proof, doubt, places = self._read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, len(rows), by_field=True)
        apart = self._near_zeros(len(rows), places if proof is Proof.NOTHING else ())
        shape = (len(rows), *(self.shape or ())[1:])
        cells = self.elements.decode(self.dataset.type, data, shape)
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self._is_rescued(rows[0])
        return {
            name: FoundValues(
                array, fills[name if name in self.fields else ""], apart, proof, rescued, doubt
            )
            for name, array in cells.items()
        }

    def _read_data(self, rows: range | None) -> tuple[bytes, Proof, str, Extents]:
        """The bytes of all, or of rows of one chunk; what vouches for them; where they are."""
        dims = self.shape
        require_here(self.dataset)
        if dims is None:
            raise Unsupported("data without a shape")
        shape = dims if rows is None else (len(rows), *dims[1:])
        size = math.prod(shape) * self.dataset.type.size
        stored = sum(count for _, count in data_extents(self.dataset))
        is_too_large = self.is_too_large and rows is None  # a few rows of it are not
        if is_too_large or (size > stored and size > most_made_up(stored)):
            raise Unsupported(CLAIMS_MORE)
        if size > self.most_bytes:
            raise Unsupported(f"{size:,} bytes: more than --memory allows")
        if self.dataset.layout.storage is Storage.CHUNKED:
            return self._read_chunked(rows)
        return self._read_plain(rows, size)

    def _fills(self, data: bytes, rows: int, *, by_field: bool) -> dict[str, Array]:
        """Whether each row is the fill value: in each field, and in all ("")."""
        row_bytes = len(data) // rows
        fill = fill_bytes(self.dataset, row_bytes)
        if not data or len(fill) != row_bytes:
            return dict.fromkeys(("", *self.fields), np.zeros(rows, bool))
        same = np.frombuffer(data, np.uint8).reshape(rows, -1) == np.frombuffer(fill, np.uint8)
        parts = self.fields if by_field else {}
        found = {name: same[:, at : at + size].all(axis=1) for name, (at, size) in parts.items()}
        return {**found, "": same.all(axis=1)}

    def _near_zeros(self, rows: int, places: Extents) -> Array:
        """For which rows there may be a gap: those in long zeros, or in zeros at a page's edge.

        Where these zeros are few, it takes a value that goes on in the next page.
        """
        found = np.zeros(rows, bool)
        least = min((FEW_BYTES, *(size for _, size in self.fields.values())))
        for address, size in places:
            first, step = self.start + address, size // rows
            for low, high in self.file.zero_runs.within(first, first + size):
                found[max(low - first, 0) // step : max(-((first - high) // step), 0)] = True
            for low, high, edge in self._pages.zeros_at_edges(first, first + size):
                if high - low >= min(least, step) or (edge - first) % step:
                    found[max(low - first, 0) // step : max(-((first - high) // step), 0)] = True
        return found

    def _gaps(self, row: int | None, places: Extents) -> dict[str, tuple[Gap, int]]:
        """Whether zeros may stand for something lost: in each field of a row, or anywhere ("").

        With each, how many stretches of zeros are inside.
        """
        parts = self.fields if row is not None else {}
        if not parts or len(places) != 1:
            gaps = [self.gaps.gap(at, size) for at, size in places]
            gap = max((gap for gap, _ in gaps), default=Gap.NONE)
            are_values = Gap.NONE < gap < Gap.SURE and row is not None and self.gaps.is_value(row)
            return {"": (Gap.NONE if are_values else gap, sum(runs for _, runs in gaps))}
        (start, _), *_ = places
        return {name: self.gaps.gap(start + at, size) for name, (at, size) in parts.items()}

    def _is_rescued(self, row: int | None) -> bool:
        if row is None or not self.rescued:
            return bool(self.rescued)
        side = self.dataset.layout.chunk[0]
        return row // side * side in self.rescued

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

    def _proof_of_type(self, proof: Proof) -> Proof:
        """A text in a global heap has no checksum, whatever points to it."""
        return min(proof, Proof.NOTHING) if self._points_elsewhere else proof

    @cached_property
    def _points_elsewhere(self) -> bool:
        return self.dataset.type.points_elsewhere

    def _read_plain(self, rows: range | None, size: int) -> tuple[bytes, Proof, str, Extents]:
        layout = self.dataset.layout
        is_compact = layout.storage is Storage.COMPACT
        address = self.dataset.compact_at if is_compact else layout.address
        if address is None and size and rows is None and self.is_closed:
            return fill_bytes(self.dataset, size), Proof.NOTHING, "", (UNWRITTEN,)
        if address is None and size:
            raise Damaged("nothing was written there")
        place = (address or 0) + (rows.start * (size // len(rows)) if rows else 0)
        data = self.file.source.read(self.start + place, size)
        doubt = "another dataset claims its place" if self.is_suspect(address or 0) else ""
        is_proven = is_compact and self.is_checked
        proof = Proof.CHECKSUM if is_proven or not size else Proof.NOTHING
        return data, proof, doubt, () if is_compact else ((place, size),)

    def _read_chunked(self, some: range | None) -> tuple[bytes, Proof, str, Extents]:
        dims, sides = self.shape or (), self.dataset.layout.chunk
        rows = range(dims[0]) if some is None else some
        whole = np.empty((len(rows), *dims[1:], self.dataset.type.size), np.uint8)
        proof, doubt = Proof.CHECKSUM, ""
        places: list[tuple[int, int]] = []
        for first in _grid(rows, dims, sides):
            if some is None and self.is_closed and first not in self.chunks:
                whole[overlap(first, sides, dims, rows)[0]] = self._fill
                proof, places = Proof.NOTHING, [*places, UNWRITTEN]
                continue
            stored, chunk = self._stored(first, rows)
            part, inside = overlap(first, sides, dims, rows)
            block = np.frombuffer(stored.data, np.uint8).reshape(*sides, -1)
            whole[part] = block[inside]
            # Without a checksum of its index, a chunk may be the right one of something else.
            is_vouched = stored.is_checked and (chunk is None or self._is_vouched(chunk))
            is_proven = is_vouched and self.is_checked
            proof = min(proof, Proof.CHECKSUM if is_proven else Proof.NOTHING)
            if first[0] in self.rescued:
                doubt = doubt or self.rescued[first[0]].doubt
            elif chunk is not None and self.is_suspect(chunk.address):
                doubt = "another dataset claims a chunk of it"
            elif self.unsure_from is not None and first[0] >= self.unsure_from:
                doubt = doubt or UNSURE_CHUNK
            if chunk is not None and not is_vouched and self._is_filtered(chunk):
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

    def _is_filtered(self, chunk: Chunk) -> bool:
        """Whether a chunk went through any filter: its rows do not lie one behind the other."""
        return any(step.number != FLETCHER32 for step in self._steps(chunk))

    def _steps(self, chunk: Chunk) -> list[Filter]:
        steps = enumerate(self.dataset.filters)
        return [step for place, step in steps if not chunk.mask >> place & 1]

    def _is_vouched(self, chunk: Chunk) -> bool:
        """Whether a checksum that is right says something: Fletcher's does not see zeros."""
        is_packed = any(step.number == DEFLATE for step in self._steps(chunk))
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
        if (rescued := self.rescued.get(first[0])) is not None:
            if min(rows.stop - first[0], self.dataset.layout.chunk[0]) > rescued.rows:
                raise Damaged("it is behind the end of the stream that was found")
            return Stored(rescued.data, 0, is_checked=False), None
        chunk = self.chunks.get(first)
        if chunk is None:
            raise Damaged(NO_CHUNK)
        if not self.dataset.filters and chunk.address + chunk.size > self.file.size:
            return self._cut_chunk(chunk, rows), chunk
        if first not in self._kept:
            self._kept[first] = read_stored(self.file, self.dataset, chunk)
            if len(self._kept) > max(KEPT_CHUNKS, self._across):
                del self._kept[next(iter(self._kept))]
        stored = self._kept[first]
        if stored.size != chunk.size and stored.is_checked:
            raise Damaged(f"a chunk at {chunk.address:,} is longer or shorter than its index says")
        return stored, chunk

    def _cut_chunk(self, chunk: Chunk, rows: range) -> Stored:
        """A chunk in which the file ends; Damaged unless these rows lie before that."""
        if chunk.size != chunk_bytes(self.dataset):
            raise Damaged(f"a chunk of {chunk.size:,} bytes where others have another size")
        there = max(self.file.size - chunk.address, 0)
        whole = there // (chunk.size // self.dataset.layout.chunk[0])
        if rows.stop - chunk.start[0] > whole:
            raise Damaged(f"the file ends before it, at {self.file.source.size:,}")
        data = self.file.source.read(self.start + chunk.address, there)
        return Stored(data.ljust(chunk.size, b"\0"), chunk.size, is_checked=False)

    @property
    def chunks(self) -> dict[tuple[int, ...], Chunk]:
        return self.gaps.chunks

    @cached_property
    def _across(self) -> int:
        """How many chunks a row is spread over."""
        dims, sides = self.shape or (), self.dataset.layout.chunk
        across = math.prod(-(-n // side) for n, side in zip(dims[1:], sides[1:], strict=True))
        return min(across, 1024)

    def extents(self) -> Iterator[tuple[int, int, int]]:
        """Where its data begin and end, and up to where rows were written."""
        size = self.file.size
        sides, rows = self.dataset.layout.chunk, (self.shape or (0,))[0] if self.shape else 0
        starts = {chunk.address: chunk.start[0] for chunk in self.dataset.chunks}
        for at, count in data_extents(self.dataset):
            written = count
            if at in starts and not self.dataset.filters:
                written = count // sides[0] * min(max(rows - starts[at], 0), sides[0])
            yield at, min(at + count, size), max(min(at + written, size), at)

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


def _readable_attributes(elements: DoubtfulElements, carved: Carved) -> Iterator[tuple[str, Array]]:
    for name, attribute in carved.object.attributes.items():
        with suppress(Damaged, Unsupported, ValueError):
            if (cell := attribute_cell(elements, carved, attribute)) is not None:
                yield name, cell.value


def attribute_cell(
    elements: DoubtfulElements, carved: Carved, attribute: Attribute
) -> FoundValue | None:
    """The value of an attribute; None if it has none. Damaged or Unsupported if it is not there."""
    if attribute.space.dims is None:
        return None
    cells = elements.decode(attribute.type, attribute.value, attribute.space.dims)
    if "" not in cells:
        raise Unsupported("a compound")
    is_checked = carved.is_checked and not attribute.type.points_elsewhere
    return FoundValue(cells[""], Proof.CHECKSUM if is_checked else Proof.NOTHING)
