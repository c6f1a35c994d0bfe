"""Zeros in a carved dataset: whether they may be values, or stand for lost data.

A page or a sector that was lost is zeros, and so is what was never written. They are told from
values by where they begin and end, and by what else lies in them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache, partial

import numpy as np

from ..hdf5.chunks import Chunk
from ..hdf5.damage.carve import Carving, LenientFile
from ..hdf5.damage.zero_runs import SECTOR_BYTES, SLACK_BYTES, ZeroRun, is_of_sectors
from ..hdf5.errors import Unsupported
from ..hdf5.messages import Attribute, Storage
from ..hdf5.tree import Dataset, least_unbelievable
from ..worker_files.decode_elements import DoubtfulElements
from ..worker_files.file_view import FoundValue, Gap, Proof
from .zero_rows import PAGE_BYTES, ZeroPages, ZeroRows

FEW_BYTES = 16  # a number or two
MOST_ADDRESS = (1 << 64) - 1
ATTRIBUTES_REMEMBERED = 256  # most groups have some that others have too
MOST_BORDER_BYTES = 64  # of numbers that are zero beside unused space
UNWRITTEN = (-1, 0)  # instead of a place: of what never got one in a file that was closed


class DataPlaces:
    """Where the data of all datasets lie: addresses, in order, in a few bytes for each."""

    def __init__(self, extents: Iterable[tuple[int, int, int]] = ()) -> None:
        """`extents` say where data begin and end, and up to where rows were written."""
        found = np.fromiter(extents, "u8,u8,u8")
        found.sort()
        columns = [array("Q", found[name].tobytes()) for name in found.dtype.names or ()]
        self._starts, self._ends, self._written = columns

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self._starts, self._ends, self._written, strict=True)

    def since(self, address: int) -> Iterator[tuple[int, int, int]]:
        """Those from the last on that begins there or before."""
        for place in range(max(bisect_right(self._starts, address) - 1, 0), len(self._starts)):
            yield self._starts[place], self._ends[place], self._written[place]


class FileMemory:
    """What all variables of a file remember together."""

    def __init__(self, carving: Carving, most_bytes: int) -> None:
        self.file, self.is_closed = carving.file, carving.is_closed
        self.most_bytes = most_bytes  # of one value
        self.elements = DoubtfulElements(carving.file)
        self._cell = lru_cache(ATTRIBUTES_REMEMBERED)(partial(_read_cell, self.elements))
        self.pages = ZeroPages(carving.file.source)
        self.sectors = ZeroPages(carving.file.source, SECTOR_BYTES)
        self.claims = DataPlaces()
        self.zeros_from = carving.file.source.size  # the rest of the file is zeros, and lost
        datasets = [o.object.dataset for o in carving.objects.values() if o.object.dataset]
        claims = [dataset.claimed_bytes for dataset in datasets]
        self.too_large = least_unbelievable(claims, carving.file.size)

    def attribute_cell(self, attribute: Attribute, is_checked: bool) -> FoundValue | None:
        """The value of an attribute, which is one object for all that are alike."""
        return self._cell(attribute._replace(address=None), is_checked)


def _read_cell(
    elements: DoubtfulElements, attribute: Attribute, is_checked: bool
) -> FoundValue | None:
    """The value of an attribute; None if it has none. Damaged or Unsupported if it is not there."""
    if attribute.space.dims is None:
        return None
    cells = elements.decode(attribute.type, attribute.value, attribute.space.dims)
    if "" not in cells:
        raise Unsupported("a compound")
    is_proven = is_checked and not attribute.type.points_elsewhere
    return FoundValue(cells[""], Proof.CHECKSUM if is_proven else Proof.NOTHING)


class DataGaps:
    """The zeros among the data of one dataset."""

    def __init__(self, file: LenientFile, dataset: Dataset, shared: FileMemory) -> None:
        self.file, self.dataset, self.shared = file, dataset, shared
        self.start = file.superblock.start

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.dataset.space.dims

    @cached_property
    def chunks(self) -> dict[tuple[int, ...], Chunk]:
        return {chunk.start: chunk for chunk in self.dataset.chunks}

    def gap(self, address: int, size: int) -> tuple[Gap, int]:
        """Whether zeros among these bytes may be what was lost; how many stretches are inside."""
        if (address, size) == UNWRITTEN:
            return Gap.INSIDE, 0
        runs = self.runs_in(address, size)
        if not runs and not self.ends_at_page(address, size):
            return Gap.NONE, 0
        pages = self._zero_pages(address, size)
        is_end = self.start + address + size > self.shared.zeros_from
        if is_end or not all(map(self._may_be_values, pages)):
            return Gap.SURE, 0
        if all(self._is_inside(run, address, size) for run in runs) and runs:
            return Gap.INSIDE, len(runs)
        first, end = self.start + address, self.start + address + size
        if not all(self._is_of_whole_values(run, first, end) for run in runs):
            return Gap.ODD, 0
        # A single number may well be zero, and a page of them may be a lost one.
        return Gap.MAYBE if pages or runs or size > FEW_BYTES else Gap.NONE, 0

    def runs_in(self, address: int, size: int) -> list[ZeroRun]:
        """Long stretches of zeros with these bytes in them, but for those of unused space."""
        first, end = self.start + address, self.start + address + size
        least = min(SLACK_BYTES, self.dataset.type.size, size)
        are_rows = self.dataset.may_grow or (self.shape or (0,))[0] > 1
        may_border = are_rows and size <= MOST_BORDER_BYTES
        runs = self.file.zero_runs.within(first, end)
        runs = [
            run
            for run in runs
            if min(end, run[1]) - max(first, run[0]) >= least or self._may_be_lost(run, first, end)
        ]
        runs = [self._without_room(run, first, end) for run in runs]
        return [run for run in runs if not (may_border and self._is_border(run, first, end))]

    def _may_be_lost(self, run: ZeroRun, first: int, end: int) -> bool:
        """Whether zeros begin or end where a sector does, but for a few texts that may be empty."""
        is_short_text = self._is_fixed_text and self.dataset.type.size <= MOST_BORDER_BYTES
        slack = MOST_BORDER_BYTES if is_short_text else SLACK_BYTES
        begins = -(-run[0] // SECTOR_BYTES) * SECTOR_BYTES
        return is_of_sectors(run, first, end, slack) and not self._is_padding(first, begins, end)

    def _without_room(self, run: ZeroRun, first: int, end: int) -> ZeroRun:
        """The same zeros without the room for more rows behind the last one, if none are lost."""
        own = first - self.start
        at, room_end, written = next(self.shared.claims.since(own), (0, 0, 0))
        if not at <= own < written < min(room_end, run[1] - self.start):
            return run
        # Of a value that begins before them, where the room ends says nothing.
        unaligned = run[0], run[1] // SECTOR_BYTES * SECTOR_BYTES + MOST_BORDER_BYTES
        whole = unaligned if first < run[0] else run
        return whole if self._may_be_lost(whole, first, end) else (run[0], self.start + written)

    def _is_border(self, run: ZeroRun, first: int, end: int) -> bool:
        """Whether only a few numbers, which may be zero, border on unused space.

        Another dataset that is nothing but zeros is no more than that: it is judged by itself.
        """
        if self._may_be_lost(run, first, end):
            return False
        low, high, own = run[0] - self.start, run[1] - self.start, first - self.start
        parts = (
            min(written, high) - max(at, low)
            for at, written in self._claims_from(low, high)
            if at < low or written > high or at <= own < written
        )
        return sum(part for part in parts if part > 0) <= MOST_BORDER_BYTES

    def _claims_from(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Where data lie in a stretch, and up to where they were written."""
        for at, _, written in self.shared.claims.since(low):
            if at >= high:
                return
            yield at, written

    def _is_inside(self, run: ZeroRun, address: int, size: int) -> bool:
        """Whether zeros are part of a value, or its end."""
        first, end = self.start + address, self.start + address + size
        is_within = first < run[0] and run[1] <= end + SLACK_BYTES
        return is_within and not self._may_be_lost(run, first, end)

    def _is_of_whole_values(self, run: ZeroRun, first: int, end: int) -> bool:
        """Whether every dataset that lies in zeros is nothing but zeros."""
        if self._may_be_lost(run, first, end):
            return False
        low, high = run[0] - self.start, run[1] - self.start
        return not any(
            (at < low - SLACK_BYTES or written > high + SLACK_BYTES) and written > low + SLACK_BYTES
            for at, written in self._claims_from(low, high - SLACK_BYTES)
        )

    def ends_at_page(self, address: int, size: int) -> bool:
        """Whether all that lies of these bytes in one page is zeros, to where that begins or ends.

        So it is where a page was lost, or never written; zeros that are values end with them.
        """
        last = self.file.source.size
        first, end = self.start + address, min(self.start + address + size, last)
        for page in range(first // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
            low, high = max(page, first), min(page + PAGE_BYTES, end)
            leading, trailing = self.shared.pages.around(page)
            are_zeros = leading >= high - page or trailing >= min(page + PAGE_BYTES, last) - low
            if are_zeros and not self._is_padding(first, low, high):
                return True
        return False

    def _is_padding(self, first: int, low: int, high: int) -> bool:
        """Whether zeros at the beginning of a page are the end of a text that ended before it."""
        size = self.dataset.type.size
        is_one = low > first and (low - first) // size == (high - 1 - first) // size
        return self._is_fixed_text and is_one and not any(self.file.source.read(low - 1, 1))

    @property
    def _is_fixed_text(self) -> bool:
        return self.dataset.type.is_text and not self.dataset.type.points_elsewhere

    def _may_be_values(self, page: int) -> bool:
        """Whether a page of zeros may be values: of one dataset, or of several, all of zeros."""
        low, high = page - self.start, min(page - self.start + PAGE_BYTES, self.file.size)
        covered = low
        for at, end, written in self.shared.claims.since(low):
            if at > covered or covered >= high:
                break
            is_part = written > low and not (at <= low and end >= high)
            if is_part and any(self.file.source.read(self.start + at, written - at)):
                return False
            covered = max(covered, end)
        return covered >= high

    def _zero_pages(self, address: int, size: int) -> list[int]:
        """The offsets of the pages, all zeros, that some bytes lie in; the last may be shorter."""
        first = (self.start + address) // PAGE_BYTES * PAGE_BYTES
        last = min(self.start + address + size, self.file.source.size)
        return [
            page
            for page in range(first, last, PAGE_BYTES)
            if self.file.source.size - page > FEW_BYTES and self.shared.pages.is_zero(page)
        ]

    def is_value(self, row: int) -> bool:
        """Whether zeros in stretches of zeros are values, because all around them are zeros too."""
        is_single = len(self.shape or ()) == 1 and self.dataset.type.size <= FEW_BYTES
        place = self._row_start(row) if is_single and not self.dataset.filters else None
        if place is None:
            return False
        end = place + self.dataset.type.size
        runs = self.file.zero_runs.within(place, end)
        is_lost = any(is_of_sectors(run, place, end) for run in runs)
        has_page = any(-(-low // PAGE_BYTES) < high // PAGE_BYTES for low, high in runs)
        return (self._page_rows if has_page and not is_lost else self._sector_rows).are_values(row)

    @cached_property
    def _page_rows(self) -> ZeroRows:
        return self._zero_rows(self.shared.pages)

    @cached_property
    def _sector_rows(self) -> ZeroRows:
        return self._zero_rows(self.shared.sectors)

    def _zero_rows(self, pages: ZeroPages) -> ZeroRows:
        row_bytes = self.dataset.type.size
        # A damaged header may claim any number.
        rows = min((self.shape or (0,))[0], self.file.size // max(row_bytes, 1))
        return ZeroRows(rows, row_bytes, self._row_start, self.file.source.read, pages)

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
