"""Rows of zeros in pages of zeros: values, or a lost page.

A lost page is zeros whatever was in it, but the rows around it are what they were. In a sweep that
is sorted, a parameter is the same for hundreds of rows and then changes. So zeros are values if the
rows on either side are zeros too, and if nothing that can be seen of the column changes as soon as
it would have to behind these zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

from ..hdf5.source import Source

PAGE_BYTES = 4096
PAGES_REMEMBERED = 1024
ROWS_AROUND = 8


class ZeroPages:
    """The zeros at the beginnings and ends of a file's pages, the last of which may be shorter.

    `around(page)` says how many of either there are in the page at an offset.
    """

    def __init__(self, source: Source, page_bytes: int = PAGE_BYTES) -> None:
        self._size, self.page_bytes = source.size, page_bytes
        self.around = lru_cache(PAGES_REMEMBERED)(partial(_zeros_around, source, page_bytes))

    def is_zero(self, page: int) -> bool:
        """Whether a page is nothing but zeros."""
        return self.around(page)[0] == min(self.page_bytes, self._size - page)

    def zeros_at_edges(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The zeros at the edges of the pages of a stretch: from where to where, and that edge."""
        for page in range(first // PAGE_BYTES * PAGE_BYTES, min(end, self._size), PAGE_BYTES):
            leading, trailing = self.around(page)
            page_end = min(page + PAGE_BYTES, self._size)
            if leading:
                yield page, page + leading, page
            if trailing:
                yield page_end - trailing, page_end, page_end


def _zeros_around(source: Source, page_bytes: int, page: int) -> tuple[int, int]:
    """With how many zeros the page at an offset begins, and with how many it ends."""
    data = source.read(page, min(page_bytes, source.size - page))
    return len(data) - len(data.lstrip(b"\0")), len(data) - len(data.rstrip(b"\0"))


@dataclass
class ZeroRows:
    """Rows of one number or text each, as they lie in a file."""

    rows: int
    row_bytes: int
    place_of: Callable[[int], int | None]  # where a row lies in the file
    read: Callable[[int, int], bytes]
    pages: ZeroPages
    _judged: range = field(default=range(0), init=False)  # the last rows that were
    _are_values: bool = field(default=False, init=False)

    def are_values(self, row: int) -> bool:
        """Whether a row in a page of zeros may be taken for zero."""
        if row not in self._judged:
            first, end = row, row + 1
            while self._value(first - 1) == b"":
                first -= 1
            while self._value(end) == b"":
                end += 1
            zero = bytes(self.row_bytes)
            around = [*range(first - ROWS_AROUND, first), *range(end, end + ROWS_AROUND)]
            goes_on = all(self._value(other) == zero for other in around)
            self._are_values = goes_on and end - first < self._shortest_run
            self._judged = range(first, end)
        return self._are_values

    @cached_property
    def _shortest_run(self) -> int:
        """For how many rows at least a value stays the same, where its first and last are seen."""
        shortest = self.rows
        last: bytes | None = None
        first, is_whole = 0, False
        for row in range(self.rows):
            value = self._value(row)
            if value == last:
                continue
            if is_whole and value:
                shortest = min(shortest, row - first)
            first, is_whole, last = row, bool(last and value), value
        return shortest

    def _value(self, row: int) -> bytes | None:
        """The bytes of a row; b"" if they lie in a page of zeros, None if there is no such row."""
        place = self.place_of(row) if 0 <= row < self.rows else None
        if place is None:
            return None
        step = self.pages.page_bytes
        pages = range(place // step * step, place + self.row_bytes, step)
        return b"" if any(map(self.pages.is_zero, pages)) else self.read(place, self.row_bytes)
