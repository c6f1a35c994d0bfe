"""The checksums of HDF5 are those that their authors and the library compute."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from h5sweep.hdf5.checksum import fletcher32, lookup3


def test_lookup3_of_its_authors_examples() -> None:
    """The two values that are published with the function."""
    assert lookup3(b"") == 0xDEADBEEF
    assert lookup3(b"Four score and seven years ago") == 0x17770551


@pytest.mark.parametrize("size", [1, 2, 3, 359, 360, 361, 720, 1001, 65536])
def test_fletcher32_is_what_the_library_puts_behind_a_chunk(size: int, tmp_path: Path) -> None:
    """The last four bytes of a stored chunk are our checksum of those before, odd sizes too."""
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    with h5py.File(tmp_path / "f.h5", "w") as file:
        data = file.create_dataset("data", data=values, chunks=(size,), fletcher32=True)
        _, raw = data.id.read_direct_chunk((0,))
    assert fletcher32(raw[:-4]) == int.from_bytes(raw[-4:], "little")
    flipped = bytes([raw[0] ^ 0xFF]) + raw[1:-4]
    assert fletcher32(flipped) != int.from_bytes(raw[-4:], "little")
