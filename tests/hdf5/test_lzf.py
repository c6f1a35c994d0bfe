"""LZF streams are packed as h5py packs them, and unpacked up to where they end."""

from __future__ import annotations

import io
import random

import h5py
import numpy as np
import pytest

from h5sweep.hdf5.errors import Damaged
from h5sweep.hdf5.lzf import pack_lzf, unpack_lzf

SIZES = (5, 8, 16, 19, 20, 21, 22, 64, 500, 3000, 20_000)  # 19 to 21: the last match may be longer


def samples() -> list[bytes]:
    chance = random.Random(1)
    found = []
    for size in SIZES:
        for most in (1, 2, 3, 256):
            found.append(bytes(chance.randrange(most) for _ in range(size)))
            found.append(found[-1][: size // 2].ljust(size, b"\0"))
        runs = b"".join(
            bytes([chance.randrange(3)]) * chance.randrange(1, 300) for _ in range(size)
        )
        found += [runs[:size], np.arange(size).tobytes()[:size]]
    return found


def test_h5py_packs_in_the_same_way() -> None:
    """Byte for byte the same stream, unless h5py leaves a chunk as it is."""
    packed = 0
    with h5py.File(io.BytesIO(), "w") as file:
        for number, data in enumerate(samples()):
            dataset = file.create_dataset(
                f"{number}", data=np.frombuffer(data, "u1"), chunks=(len(data),), compression="lzf"
            )
            mask, stored = dataset.id.read_direct_chunk((0,))
            assert mask or stored == pack_lzf(data)
            packed += not mask
    assert packed > len(samples()) / 2


def test_a_stream_ends_where_it_has_given_enough() -> None:
    """Whatever stands behind it, the same bytes come out, and its length is known."""
    for data in samples():
        stream = pack_lzf(data)
        assert unpack_lzf(stream + b"what follows", len(data)) == (data, len(stream))


def test_a_reference_to_nothing_is_damage() -> None:
    """A stream cannot begin with what came before."""
    with pytest.raises(Damaged):
        unpack_lzf(b"\0\0\x20\x07", 8)
