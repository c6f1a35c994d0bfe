"""A carved file, seen as groups with attributes and variables (`tasks`)."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from .elements import DoubtfulElements, field_places, has_lists
from .file_view import Cell, Cells, Proof, rows_that_fit
from .hdf5.carve import Carved, Carving
from .hdf5.chunks import Chunk
from .hdf5.data import chunk_bytes, fill_bytes, overlap
from .hdf5.errors import Damaged, Unsupported
from .hdf5.messages import Attribute, Storage
from .hdf5.rescue import Stored, read_stored
from .hdf5.tree import Dataset, data_extents
from .values import Array
from .zero_rows import PAGE_BYTES, ZeroPages, ZeroRows

FEW_BYTES = 16  # of zeros at the edge of what lies in a page
LOST_PAGE = "it lies in a page of zeros that reaches beyond it: a lost page"
NO_CHUNK = "a chunk of it is in no index"
LOST_PAGE_OF_CHUNK = "its chunk has zeros to the edge of a page, as a lost page leaves them"
UNSURE_CHUNK = "it was perhaps in the making, and its filter does not tell"
KEPT_CHUNKS = 4
MOST_CHUNKS_LOST = 80  # in a row: a node of an index has 64
Extents = tuple[tuple[int, int], ...]


class Gap(IntEnum):
    """Whether zeros may stand for what was lost."""

    NONE = 0
    MAYBE = 1  # they may as well be values
    SURE = 2  # they reach beyond the data


@dataclass(frozen=True)
class Rescued:
    """A chunk that is not, or not surely, what its index leads to."""

    data: bytes
    rows: int  # those that were written
    doubt: str = ""


class Shared:
    """What all variables of a file remember together."""

    def __init__(self, carving: Carving) -> None:
        self.elements = DoubtfulElements(carving.file)
        self.pages = ZeroPages(carving.file.source)


class CarvedVariable:
    """A dataset that was found in a file, read by its bytes."""

    def __init__(self, carving: Carving, carved: Carved, most_bytes: int, shared: Shared) -> None:
        assert carved.object.dataset is not None
        self.file = carving.file
        self.elements, self._pages = shared.elements, shared.pages
        self.dataset: Dataset = carved.object.dataset
        self.is_checked = carved.is_checked
        self.doubt = "its header is torn" if carved.is_torn else ""
        self.most_bytes = most_bytes
        self.attributes = dict(_readable_attributes(self.elements, carved))
        self.claims: list[tuple[int, int, int]] = []  # the extents of all datasets, in order
        self.zeros_from = carving.file.source.size  # the rest of the file is zeros, and lost
        self.rivals: dict[int, list[tuple[CarvedVariable, int]]] = {}  # who claims a place too
        self.rescued: dict[int, Rescued] = {}  # chunks that `streams` has settled, by first row
        self.unsure_from: int | None = None  # rows whose chunks may be of something else
        self._kept: OrderedDict[tuple[int, ...], Stored] = OrderedDict()
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

    def read(self, row: int | None) -> dict[str, Cell]:
        """All of it, or one row; Damaged or Unsupported if it is not all there."""
        rows = None if row is None else range(row, row + 1)
        data, proof, doubt, places = self._read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, 1, by_field=row is not None)
        gaps = self._gaps(row, places if proof is Proof.NOTHING else ())
        doubt = doubt or (LOST_PAGE if Gap.SURE in gaps.values() else "")
        dims = self.shape or ()
        cells = self.elements.decode(self.dataset.type, data, dims if row is None else dims[1:])
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self._is_rescued(row)
        is_whole = row is None and proof is Proof.NOTHING and len(places) == 1
        offset = self.start + places[0][0] if is_whole else None
        found = {}
        for name, array in cells.items():
            part = name if name in self.fields and row is not None else ""
            has_gap = gaps.get(part, Gap.NONE) is not Gap.NONE
            found[name] = Cell(array, proof, bool(fills[part][0]), has_gap, rescued, doubt, offset)
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

    def read_rows(self, rows: range) -> dict[str, Cells]:
        """The same for rows of one chunk at once; those with zeros at a page's edge are apart."""
        data, proof, doubt, places = self._read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, len(rows), by_field=True)
        apart = self._near_page_edges(len(rows), places if proof is Proof.NOTHING else ())
        shape = (len(rows), *(self.shape or ())[1:])
        cells = self.elements.decode(self.dataset.type, data, shape)
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self._is_rescued(rows[0])
        return {
            name: Cells(
                array, fills[name if name in self.fields else ""], apart, proof, rescued, doubt
            )
            for name, array in cells.items()
        }

    def _read_data(self, rows: range | None) -> tuple[bytes, Proof, str, Extents]:
        """The bytes of all, or of rows of one chunk; what vouches for them; where they are."""
        dims = self.shape
        if dims is None or self.dataset.is_external:
            raise Unsupported("data that are not in the file")
        shape = dims if rows is None else (len(rows), *dims[1:])
        size = math.prod(shape) * self.dataset.type.size
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

    def _near_page_edges(self, rows: int, places: Extents) -> Array:
        """For which rows `_gap` may find one: those that reach into zeros at a page's edge.

        Where these zeros are few, it takes a value that goes on in the next page.
        """
        found = np.zeros(rows, bool)
        least = min((FEW_BYTES, *(size for _, size in self.fields.values())))
        for address, size in places:
            first, step = self.start + address, size // rows
            for low, high, edge in self._pages.zeros_at_edges(first, first + size):
                if high - low >= min(least, step) or (edge - first) % step:
                    found[max(low - first, 0) // step : max(-((first - high) // step), 0)] = True
        return found

    def _gaps(self, row: int | None, places: Extents) -> dict[str, Gap]:
        """Whether zeros may stand for something lost: in each field of a row, or anywhere ("")."""
        parts = self.fields if row is not None else {}
        if not parts or len(places) != 1:
            gap = max((self._gap(at, size) for at, size in places), default=Gap.NONE)
            are_values = gap is Gap.MAYBE and row is not None and self._is_value(row)
            return {"": Gap.NONE if are_values else gap}
        (start, _), *_ = places
        return {name: self._gap(start + at, size) for name, (at, size) in parts.items()}

    def _is_value(self, row: int) -> bool:
        """Whether zeros in pages of zeros are values, because all around them are zeros too."""
        is_single = len(self.shape or ()) == 1 and self.dataset.type.size <= FEW_BYTES
        return is_single and not self.dataset.filters and self._zero_rows.are_values(row)

    @cached_property
    def _zero_rows(self) -> ZeroRows:
        row_bytes = self.dataset.type.size
        # A damaged header may claim any number.
        rows = min((self.shape or (0,))[0], self.file.size // max(row_bytes, 1))
        return ZeroRows(rows, row_bytes, self._row_start, self.file.source.read, self._pages)

    def _row_start(self, row: int) -> int | None:
        """Where a row of single values that are not filtered lies in the file."""
        layout, size, first = self.dataset.layout, self.dataset.type.size, 0
        address = layout.address if layout.storage is Storage.CONTIGUOUS else None
        if layout.storage is Storage.CHUNKED:
            first = row // layout.chunk[0] * layout.chunk[0]
            chunk = self.chunks.get((first,))
            address = None if chunk is None else chunk.address
        if address is None or address + (row - first + 1) * size > self.file.size:
            return None
        return self.start + address + (row - first) * size

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
        if layout.storage is Storage.VIRTUAL:
            raise Unsupported("data of other files")
        is_compact = layout.storage is Storage.COMPACT
        address = self.dataset.compact_at if is_compact else layout.address
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
        proof, doubt, places = Proof.CHECKSUM, "", []
        for first in _grid(rows, dims, sides):
            stored, chunk = self._stored(first, rows)
            part, inside = overlap(first, sides, dims, rows)
            block = np.frombuffer(stored.data, np.uint8).reshape(*sides, -1)
            whole[part] = block[inside]
            # Without a checksum of its index, a chunk may be the right one of something else.
            is_proven = stored.is_checked and self.is_checked
            proof = min(proof, Proof.CHECKSUM if is_proven else Proof.NOTHING)
            if first[0] in self.rescued:
                doubt = doubt or self.rescued[first[0]].doubt
            elif chunk is not None and self.is_suspect(chunk.address):
                doubt = "another dataset claims a chunk of it"
            elif self.unsure_from is not None and first[0] >= self.unsure_from:
                doubt = doubt or UNSURE_CHUNK
            if chunk is not None and not stored.is_checked and self._is_filtered(chunk):
                doubt = doubt or self._packed_doubt(chunk)
            elif chunk is not None and not stored.is_checked:
                step = chunk.size // sides[0]
                at = chunk.address + (rows.start - first[0]) * step
                whole_chunk = (chunk.address, chunk.size)
                places.append(whole_chunk if some is None else (at, step * len(rows)))
        return whole.tobytes(), proof, doubt, tuple(places)

    def _is_filtered(self, chunk: Chunk) -> bool:
        """Whether a chunk went through any filter: its rows do not lie one behind the other."""
        return any(not chunk.mask >> place & 1 for place in range(len(self.dataset.filters)))

    def _packed_doubt(self, chunk: Chunk) -> str:
        """Doubt a filtered chunk without a checksum in which a page may be lost: so may any row."""
        if chunk.address not in self._packed_doubts:
            may_be_lost = self._ends_at_page(chunk.address, chunk.size)
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
                self._kept.popitem(last=False)
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

    @cached_property
    def chunks(self) -> dict[tuple[int, ...], Chunk]:
        return {chunk.start: chunk for chunk in self.dataset.chunks}

    @cached_property
    def _across(self) -> int:
        """How many chunks a row is spread over."""
        dims, sides = self.shape or (), self.dataset.layout.chunk
        across = math.prod(-(-n // side) for n, side in zip(dims[1:], sides[1:], strict=True))
        return min(across, 1024)

    def _gap(self, address: int, size: int) -> Gap:
        """Whether any of these bytes lies in a stretch of zeros that may be a lost page."""
        if not self._ends_at_page(address, size):
            return Gap.NONE
        if self.start + address + size > self.zeros_from:
            return Gap.SURE
        pages = self._zero_pages(address, size)
        if not all(map(self._may_be_values, pages)):
            return Gap.SURE
        # A single number may well be zero, and a page of them may be a lost one.
        return Gap.MAYBE if pages or size > FEW_BYTES else Gap.NONE

    def _ends_at_page(self, address: int, size: int) -> bool:
        """Whether zeros among these bytes go on to where a page begins or ends.

        So it is where a page was lost, or never written; zeros that are values end with them.
        """
        last = self.file.source.size
        first, end = self.start + address, min(self.start + address + size, last)
        for page in range(first // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
            low, high = max(page, first), min(page + PAGE_BYTES, end)
            few = min(FEW_BYTES, high - low)
            leading, trailing = self._pages.around(page)
            if leading >= low + few - page or trailing >= min(page + PAGE_BYTES, last) - high + few:
                return True
        return False

    def _may_be_values(self, page: int) -> bool:
        """Whether a page of zeros may be values: of one dataset, or of several, all of zeros."""
        low, high = page - self.start, min(page - self.start + PAGE_BYTES, self.file.size)
        place = max(bisect_right(self.claims, (low, high, high)) - 1, 0)
        covered = low
        for at, end, written in itertools.islice(self.claims, place, None):
            if at > covered or covered >= high:
                break
            is_part = written > low and not (at <= low and end >= high)
            if is_part and any(self.file.source.read(self.start + at, written - at)):
                return False
            covered = max(covered, end)
        return covered >= high

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

    def _zero_pages(self, address: int, size: int) -> list[int]:
        """The offsets of the pages, all zeros, that some bytes lie in; the last may be shorter."""
        first = (self.start + address) // PAGE_BYTES * PAGE_BYTES
        last = min(self.start + address + size, self.file.source.size)
        return [
            page
            for page in range(first, last, PAGE_BYTES)
            if self.file.source.size - page > FEW_BYTES and self._pages.is_zero(page)
        ]

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


def attribute_cell(elements: DoubtfulElements, carved: Carved, attribute: Attribute) -> Cell | None:
    """The value of an attribute; None if it has none. Damaged or Unsupported if it is not there."""
    if attribute.space.dims is None:
        return None
    cells = elements.decode(attribute.type, attribute.value, attribute.space.dims)
    if "" not in cells:
        raise Unsupported("a compound")
    is_checked = carved.is_checked and not attribute.type.points_elsewhere
    return Cell(cells[""], Proof.CHECKSUM if is_checked else Proof.NOTHING)
