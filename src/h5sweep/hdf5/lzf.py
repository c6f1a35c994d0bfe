"""LZF, the packing of h5py's own filter: stretches of bytes, and references to what came before.

A stream has no checksum and no mark at its end. But it ends where it has given as many bytes as a
chunk has, and h5py packs the same bytes in the same way: bytes that are no whole stream hardly ever
come out again when they are unpacked and packed.
"""

from __future__ import annotations

from .errors import Damaged, DamageKind

_MOST_LITERALS = 32
_MOST_BACK = 8192
_MOST_COPIED = 264
_HASH_MASK = (1 << 17) - 1


def unpack_lzf(data: bytes | memoryview, size: int) -> tuple[bytes, int]:
    """What the stream at the beginning of `data` gives, up to `size` bytes, and how long it is."""
    found = bytearray()
    place = 0
    try:
        while place < len(data) and len(found) < size:
            control = data[place]
            place += 1
            if control < 32:
                found += data[place : place + control + 1]
                place += control + 1
                continue
            length = (control >> 5) + 2
            if length == 9:
                length += data[place]
                place += 1
            back = (control & 31) * 256 + data[place] + 1
            place += 1
            if back > len(found):
                raise Damaged(
                    "a compressed chunk that refers to what is not there", DamageKind.CHECKSUM
                )
            start = len(found) - back
            part = found[start : start + length]
            found += (part * (length // back + 1))[:length] if back < length else part
    except IndexError as error:
        raise Damaged("a compressed chunk that has no end", DamageKind.CHECKSUM) from error
    return bytes(found), place


def pack_lzf(data: bytes) -> bytes:
    """The stream that h5py makes of these bytes, however long it gets."""
    words = [a << 16 | b << 8 | c for a, b, c in zip(data, data[1:], data[2:], strict=False)]
    slots = [((word >> 7) - word) & _HASH_MASK for word in words]
    seen: dict[int, int] = {}
    packed = bytearray()
    at = first = 0  # of the bytes that are not packed yet, and of those to be copied as they are
    while at < len(words):
        before = seen.get(slots[at], 0)
        seen[slots[at]] = at
        is_near = before > 0 and at - before <= _MOST_BACK and at + 4 < len(data)
        if not is_near or words[before] != words[at]:
            at += 1
            continue
        _add_literals(packed, data[first:at])
        length, back = _length_of_match(data, before, at), at - before - 1
        if length < 9:
            packed += bytes(((length - 2) << 5 | back >> 8, back & 255))
        else:
            packed += bytes((7 << 5 | back >> 8, length - 9, back & 255))
        at = first = at + length
        if at < len(words):
            seen[slots[at - 1]] = at - 1
    _add_literals(packed, data[first:])
    return bytes(packed)


def _length_of_match(data: bytes, before: int, at: int) -> int:
    """How many bytes are equal, of those that h5py compares."""
    most = min(len(data) - at - 2, _MOST_COPIED)
    most = max(most, 19) if most > 16 else most
    if data[before : before + most] == data[at : at + most]:
        return most
    return next(n for n in range(3, most) if data[before + n] != data[at + n])


def _add_literals(packed: bytearray, data: bytes) -> None:
    for start in range(0, len(data), _MOST_LITERALS):
        part = data[start : start + _MOST_LITERALS]
        packed.append(len(part) - 1)
        packed += part
