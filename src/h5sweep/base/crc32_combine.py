"""Combine the CRC-32 of pieces into that of the whole, so that one checksum proves many.

A CRC-32 is linear, so that bytes behind a piece change its checksum by a map of 32 bits, which
depends on nothing but how many bytes there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]


def of_concatenation(checksums: Words, piece_bytes: int) -> int:
    """The checksum of pieces of one size, one behind the other, from the checksums of each."""
    shift = shift_by(piece_bytes)
    while len(checksums) > 1:
        if len(checksums) % 2:
            # A piece in front whose checksum is 0 changes nothing.
            checksums = np.concatenate([np.zeros(1, np.uint32), checksums])
        checksums = shift(checksums[0::2]) ^ checksums[1::2]
        shift = shift.twice()
    return int(checksums[0])


def after(checksum: int, size_bytes: int) -> int:
    """What becomes of the part of a piece in the checksum when `size_bytes` follow it."""
    zeros = bytes(size_bytes)
    return crc32(zeros, checksum) ^ crc32(zeros)


@lru_cache(64)
def shift_by(size_bytes: int) -> LinearMap:
    """`after` for many checksums at a time."""
    return LinearMap.of(lambda checksum: after(checksum, size_bytes))


class LinearMap:
    """A linear map of 32 bits, applied to arrays of words by a table for each byte."""

    def __init__(self, images: list[int]) -> None:
        self._images = images
        self._tables = [_span(images[first : first + 8]) for first in range(0, 32, 8)]

    @classmethod
    def of(cls, function: Callable[[int], int]) -> LinearMap:
        return cls([function(1 << bit) for bit in range(32)])

    def __call__(self, words: Words) -> Words:
        octets = np.ascontiguousarray(words, "<u4").view(np.uint8).reshape(-1, 4)
        first, second, third, fourth = (
            table.take(octets[:, place]) for place, table in enumerate(self._tables)
        )
        return first ^ second ^ third ^ fourth

    @lru_cache(64)  # noqa: B019  # maps live as long as the process
    def twice(self) -> LinearMap:
        """This map applied to its own result."""
        return LinearMap(self(np.array(self._images, np.uint32)).tolist())


def _span(images: list[int]) -> Words:
    """The image of every byte, from those of its eight bits."""
    table = np.zeros(1, np.uint32)
    for image in images:
        table = np.concatenate([table, table ^ np.uint32(image)])
    return table
