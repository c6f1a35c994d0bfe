"""Find stretches of zeros as long as a sector, or as what a file has of its last.

A lost sector is zeros whatever was in it, and so is each sector of a lost page. Where such a
stretch begins or ends with a sector, or in the middle of something, values do not explain it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from functools import cached_property

from ..source import Source

SECTOR_BYTES = 512
SLACK_BYTES = 8  # zeros that a number next to it may have at that end
_STEP_BYTES = 4 << 20
_SECTOR = bytes(SECTOR_BYTES)
_OTHER = re.compile(rb"[^\0]")
ZeroRun = tuple[int, int]


class ZeroRuns:
    """Where a file has them, by offsets."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def within(self, first: int, end: int) -> list[ZeroRun]:
        """Those that some of these bytes lie in, each as a whole."""
        starts, ends = self._all
        place = max(bisect_right(starts, first) - 1, 0)
        found = []
        while place < len(starts) and starts[place] < end:
            if ends[place] > first:
                found.append((starts[place], ends[place]))
            place += 1
        return found

    @cached_property
    def _all(self) -> tuple[array[int], array[int]]:
        starts, ends = array("Q"), array("Q")
        size = self._source.size
        for offset in range(0, size, _STEP_BYTES):
            data = self._source.read(offset, min(_STEP_BYTES + SECTOR_BYTES, size - offset))
            if offset + len(data) == size and size % SECTOR_BYTES > SLACK_BYTES:
                data += bytes(-size % SECTOR_BYTES)  # of its last sector a file has only a part
            place = data.find(_SECTOR)
            while place >= 0:
                match = _OTHER.search(data, place + SECTOR_BYTES)
                end = len(data) if match is None else match.start()
                if ends and offset + place <= ends[-1]:  # the last went on beyond its step
                    ends[-1] = max(ends[-1], offset + end)
                else:
                    starts.append(offset + place)
                    ends.append(offset + end)
                place = data.find(_SECTOR, end)
        return starts, ends


def is_of_sectors(run: ZeroRun, first: int, end: int, slack: int = SLACK_BYTES) -> bool:
    """Whether zeros begin or end where a sector does, and some of these bytes are in it."""
    begins, ends = -(-run[0] // SECTOR_BYTES) * SECTOR_BYTES, run[1] // SECTOR_BYTES * SECTOR_BYTES
    # Of a sector in which something else follows, no byte was lost.
    is_aligned = begins - run[0] < slack or run[1] - ends < slack
    return is_aligned and begins < end and ends > first
