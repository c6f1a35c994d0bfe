"""A dataset in a carved file, read from its bytes: its values, and what vouches for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

import numpy as np

from ..base.values import Array
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import Storage
from ..hdf5.read_data import fill_bytes
from ..hdf5.tree import data_extents
from ..worker_files.decode_elements import DoubtfulElements, has_lists
from ..worker_files.file_view import FoundValue, FoundValues, Gap, Proof, rows_that_fit
from .carved_data import CarvedData, Extents
from .data_gaps import FEW_BYTES, UNWRITTEN

LOST_PAGE = "it lies in a page of zeros that reaches beyond it: a lost page"
MOST_CHUNKS_LOST = 80  # in a row: a node of an index has 64


class CarvedVariable(CarvedData):
    """A dataset that was found in a file: its values, with what is in doubt about each."""

    __slots__ = ()

    @property
    def elements(self) -> DoubtfulElements:
        return self.shared.elements

    @property
    def doubt(self) -> str:
        return "its header is torn" if self.carved.is_torn else ""

    @property
    def attributes(self) -> dict[str, Array]:
        """Those that can be read."""
        found = {}
        for name, attribute in self.carved.object.attributes.items():
            with suppress(Damaged, Unsupported, ValueError):
                cell = self.shared.attribute_cell(attribute, self.carved.is_checked)
                found.update({} if cell is None else {name: cell.value})
        return found

    @property
    def may_grow(self) -> bool:
        return self.dataset.may_grow

    @cached_property
    def fields(self) -> dict[str, tuple[int, int]]:
        return self.dataset.fields

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

    def read(self, row: int | None) -> dict[str, FoundValue]:
        """All of it, or one row; Damaged or Unsupported if it is not all there."""
        rows = None if row is None else range(row, row + 1)
        data, proof, doubt, places = self.read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, 1, by_field=row is not None)
        gaps = self._gaps(row, places if proof is Proof.NOTHING else ())
        is_lost = any(gap is Gap.SURE for gap, _ in gaps.values())
        doubt = doubt or (LOST_PAGE if is_lost else "")
        dims = self.shape or ()
        cells = self.elements.decode(self.dataset.type, data, dims if row is None else dims[1:])
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self.is_rescued(row)
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
        left = [found.rows - row % side for found in self.rescued_at(row)]
        return min((most, *(rows for rows in left if rows > 0)))

    @cached_property
    def _has_lists(self) -> bool:
        return has_lists(self.dataset.type)

    def read_rows(self, rows: range) -> dict[str, FoundValues]:
        """The same for rows of one chunk at once; those with zeros at a page's edge are apart."""
        data, proof, doubt, places = self.read_data(rows)
        doubt = self.doubt or doubt
        fills = self._fills(data, len(rows), by_field=True)
        apart = self._near_zeros(len(rows), places if proof is Proof.NOTHING else ())
        shape = (len(rows), *(self.shape or ())[1:])
        cells = self.elements.decode(self.dataset.type, data, shape)
        proof = Proof.DOUBT if doubt else self._proof_of_type(proof)
        rescued = self.is_rescued(rows[0])
        return {
            name: FoundValues(
                array, fills[name if name in self.fields else ""], apart, proof, rescued, doubt
            )
            for name, array in cells.items()
        }

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
            for low, high, edge in self.shared.pages.zeros_at_edges(first, first + size):
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

    def _proof_of_type(self, proof: Proof) -> Proof:
        """A text in a global heap has no checksum, whatever points to it."""
        return min(proof, Proof.NOTHING) if self._points_elsewhere else proof

    @cached_property
    def _points_elsewhere(self) -> bool:
        return self.dataset.type.points_elsewhere

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
