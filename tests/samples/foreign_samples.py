"""Files as other programs write them: a group a task, a row a task, a file a task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

KEY = "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"


def layout_of(seed: int, turbines: int = 5) -> Any:
    return np.arange(2.0 * turbines).reshape(turbines, 2) + seed


def write_groups(
    path: Path, seeds: Iterable[int], *, farm: int = 3, libver: Any = "earliest"
) -> Path:
    """`/farm3_t1_s42/{layout,aep}` with the key in attributes as well."""
    with h5py.File(path, "w", libver=libver) as file:
        for seed in seeds:
            group = file.create_group(f"farm{farm}_t1_s{seed}")
            group.attrs.update(farm_id=farm, farm_type=1, seed=seed, solver="slsqp")
            group["layout"] = layout_of(seed)
            group["layout"].attrs["units"] = "m"
            group["aep"] = seed / 8
    return path


def write_rows(path: Path, seeds: list[int], *, farm: int = 3, **settings: Any) -> Path:
    """Columns that may grow, a row a task."""
    with h5py.File(path, "w") as file:
        columns = {
            "farm_id": np.full(len(seeds), farm),
            "farm_type": np.ones(len(seeds), int),
            "seed": np.array(seeds),
            "layout": np.array([layout_of(seed) for seed in seeds]),
            "aep": np.array(seeds) / 8,
        }
        for name, values in columns.items():
            shape = (None, *values.shape[1:])
            file.create_dataset(name, data=values, maxshape=shape, chunks=True, **settings)
    return path


def write_compounds(path: Path, seeds: list[int], *, farm: int = 3, **settings: Any) -> Path:
    """One dataset, a row a task."""
    names = [(name, "i8") for name in ("farm_id", "farm_type", "seed")]
    dtype = np.dtype([("aep", "f8"), *names, ("layout", "f8", (5, 2))])
    rows = [(seed / 8, farm, 1, seed, layout_of(seed)) for seed in seeds]
    with h5py.File(path, "w") as file:
        file.create_dataset("run/results", data=np.array(rows, dtype), **settings)
    return path


def write_one(path: Path, seed: int, *, farm: int = 3) -> Path:
    """One task, with the key in attributes of the root."""
    with h5py.File(path, "w") as file:
        file.attrs.update(farm_id=farm, farm_type=1, seed=seed)
        file["layout"] = layout_of(seed)
        file["aep"] = seed / 8
    return path
