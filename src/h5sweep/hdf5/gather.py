"""Read the bytes at many places of a file as rows of one array, with a checksum for each row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import Damaged, DamageKind
from .source import FileSource, Source, beyond_text

_WINDOW_BYTES = 1 << 20
_GAP_BYTES = 4 << 10  # what is rather read than jumped over
ByteArray = npt.NDArray[np.uint8]
Addresses = npt.NDArray[np.int64]


class JoinedSource(Source):
    """Many small files one behind the other; nothing is read across the end of one."""

    def __init__(self, contents: Sequence[bytes]) -> None:
        super().__init__(b"".join(contents))
        sizes = np.array([len(content) for content in contents], np.int64)
        self.ends: Addresses = np.cumsum(sizes)
        self.starts: Addresses = self.ends - sizes

    def file(self, number: int) -> Source:
        """One of the files."""
        return Source(self.content[self.starts[number] : self.ends[number]])

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes of one file; Damaged if that does not have them."""
        number = int(np.searchsorted(self.ends, offset, "right"))
        end = self.ends[number] if number < len(self.ends) else 0
        if offset + size > end:
            raise Damaged(beyond_text(offset, size, end), DamageKind.BEYOND_END)
        return super().read(offset, size)


def gather(source: Source, places: Addresses, size: int) -> ByteArray:
    """The `size` bytes at each place, one row per place."""
    if not size or not len(places):
        return np.empty((len(places), size), np.uint8)
    if isinstance(source, FileSource):
        return _gather_from_file(source, places, size)
    return _gather_from(np.frombuffer(source.content, np.uint8), places, size)


def gather_ragged(source: Source, places: Addresses, sizes: Addresses) -> bytes:
    """As many bytes at each place as it has, one behind the other."""
    ends = (places + sizes).tolist()
    if not isinstance(source, FileSource):
        content = source.content
        return b"".join([content[a:b] for a, b in zip(places.tolist(), ends, strict=True)])
    return b"".join([source.read(a, b - a) for a, b in zip(places.tolist(), ends, strict=True)])


def _gather_from(content: ByteArray, places: Addresses, size: int) -> ByteArray:
    windows: npt.NDArray[Any] = np.ndarray(
        (len(content) - size + 1,), f"V{size}", content, strides=(1,)
    )
    return windows[places].view(np.uint8).reshape(len(places), size)


def _gather_from_file(source: FileSource, places: Addresses, size: int) -> ByteArray:
    """The same by as few calls as possible: what lies close together is read at once."""
    found = np.empty((len(places), size), np.uint8)
    order = np.argsort(places, kind="stable")
    starts = places[order]
    is_apart = np.diff(starts) > size + _GAP_BYTES
    is_apart |= np.diff(starts // _WINDOW_BYTES) > 0
    bounds = [0, *(np.flatnonzero(is_apart) + 1).tolist(), len(starts)]
    for first, last in pairwise(bounds):
        if last - first == 1 or size > _WINDOW_BYTES:
            for place in order[first:last].tolist():
                source.read_into(found[place].data, int(places[place]))
        else:
            window = np.empty(int(starts[last - 1] - starts[first]) + size, np.uint8)
            source.read_into(window.data, int(starts[first]))
            found[order[first:last]] = _gather_from(
                window, starts[first:last] - starts[first], size
            )
    return found


def are_checked(rows: ByteArray) -> npt.NDArray[np.bool_]:
    """Which rows end with the checksum of what is before it."""
    stated = np.ascontiguousarray(rows[:, -4:]).view("<u4")[:, 0]
    equal: npt.NDArray[np.bool_] = lookup3_rows(rows[:, :-4]) == stated
    return equal


def lookup3_rows(rows: ByteArray) -> npt.NDArray[np.uint32]:
    """The checksum `checksum.lookup3` of each row."""
    count, size = rows.shape
    whole = max(size - 1, 0) // 12
    padded = np.zeros((count, 12 * (whole + 1)), np.uint8)
    padded[:, :size] = rows
    words = np.ascontiguousarray(padded.view("<u4").T).astype(np.uint32)
    a, b, c = (np.full(count, (0xDEADBEEF + size) & 0xFFFFFFFF, np.uint32) for _ in range(3))
    if not size:
        return c
    for place in range(0, 3 * whole, 3):
        a, b, c = a + words[place], b + words[place + 1], c + words[place + 2]
        a = (a - c) ^ _turn(c, 4)
        c = c + b
        b = (b - a) ^ _turn(a, 6)
        a = a + c
        c = (c - b) ^ _turn(b, 8)
        b = b + a
        a = (a - c) ^ _turn(c, 16)
        c = c + b
        b = (b - a) ^ _turn(a, 19)
        a = a + c
        c = (c - b) ^ _turn(b, 4)
        b = b + a
    a, b, c = a + words[-3], b + words[-2], c + words[-1]
    c = (c ^ b) - _turn(b, 14)
    a = (a ^ c) - _turn(c, 11)
    b = (b ^ a) - _turn(a, 25)
    c = (c ^ b) - _turn(b, 16)
    a = (a ^ c) - _turn(c, 4)
    b = (b ^ a) - _turn(a, 14)
    found: npt.NDArray[np.uint32] = (c ^ b) - _turn(b, 24)
    return found


def _turn(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)
