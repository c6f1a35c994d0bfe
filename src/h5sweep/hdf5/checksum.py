"""The checksums of HDF5: Jenkins' lookup3 for metadata, Fletcher's for chunks."""

from __future__ import annotations

import struct

_START = 0xDEADBEEF
_MASK = 0xFFFFFFFF
_MOST_WORDS = 1 << 16  # of which a sum of products stays below 2**64


def lookup3(data: bytes) -> int:
    """The 32-bit checksum that ends every checksummed structure."""
    size = len(data)
    a = b = c = (_START + size) & _MASK
    whole = max(size - 1, 0) // 12  # the last 1 to 12 bytes are mixed in another way
    words = struct.unpack_from(f"<{3 * whole}I", data)
    for place in range(0, 3 * whole, 3):
        a = (a + words[place]) & _MASK
        b = (b + words[place + 1]) & _MASK
        c = (c + words[place + 2]) & _MASK
        a = (a - c) & _MASK ^ ((c << 4 | c >> 28) & _MASK)
        c = (c + b) & _MASK
        b = (b - a) & _MASK ^ ((a << 6 | a >> 26) & _MASK)
        a = (a + c) & _MASK
        c = (c - b) & _MASK ^ ((b << 8 | b >> 24) & _MASK)
        b = (b + a) & _MASK
        a = (a - c) & _MASK ^ ((c << 16 | c >> 16) & _MASK)
        c = (c + b) & _MASK
        b = (b - a) & _MASK ^ ((a << 19 | a >> 13) & _MASK)
        a = (a + c) & _MASK
        c = (c - b) & _MASK ^ ((b << 4 | b >> 28) & _MASK)
        b = (b + a) & _MASK
    if not size:
        return c
    last = struct.unpack("<3I", data[12 * whole :].ljust(12, b"\0"))
    return _finish((a + last[0]) & _MASK, (b + last[1]) & _MASK, (c + last[2]) & _MASK)


def _finish(a: int, b: int, c: int) -> int:
    c = ((c ^ b) - _turn(b, 14)) & _MASK
    a = ((a ^ c) - _turn(c, 11)) & _MASK
    b = ((b ^ a) - _turn(a, 25)) & _MASK
    c = ((c ^ b) - _turn(b, 16)) & _MASK
    a = ((a ^ c) - _turn(c, 4)) & _MASK
    b = ((b ^ a) - _turn(a, 14)) & _MASK
    return ((c ^ b) - _turn(b, 24)) & _MASK


def _turn(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def fletcher32(data: bytes | memoryview) -> int:
    """The checksum that the Fletcher filter puts behind a chunk."""
    import numpy as np  # for which `status` must not wait

    words = np.frombuffer(data, ">u2", len(data) // 2)
    first = second = 0
    for start in range(0, len(words), _MOST_WORDS):
        some = words[start : start + _MOST_WORDS].astype(np.uint64)
        weights = np.arange(len(some), 0, -1, dtype=np.uint64)
        second += len(some) * first + int((some * weights).sum())
        first += int(some.sum())
    if len(data) % 2:
        first += data[-1] << 8
        second += first
    return _fold(second) << 16 | _fold(first)


def _fold(value: int) -> int:
    """The remainder by 65535, but 65535 where it would be 0 for a sum that is not."""
    return (value - 1) % 0xFFFF + 1 if value else 0
