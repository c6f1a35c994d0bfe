"""The task that the overhead benchmark runs: no work, and a result of the usual size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


def task(number: int) -> dict[str, object]:
    """Return 800 bytes and a number, without computing anything."""
    return {"xy": np.full((50, 2), float(number)), "s": float(number)}


def task_kept_as_hdf5(number: int, folder: str) -> int:
    """Keep the same result in an HDF5 file of its own, whole or absent, durable."""
    import h5py

    target = Path(folder, f"{number}.h5")
    temporary = target.with_suffix(".part")
    with h5py.File(temporary, "w") as file:
        for name, value in task(number).items():
            file[name] = value
    descriptor = os.open(temporary, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.replace(target)
    return number
