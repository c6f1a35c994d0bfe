"""Files of workers that optimise farms, a farm in each."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

KEY = "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"


def write_groups(path: Path, farm: int, seeds: range, *, libver: str = "earliest") -> None:
    """A worker's file with a group a task, its key in name and attributes."""
    with h5py.File(path, "w", libver=libver) as file:
        for seed in seeds:
            group = file.create_group(f"farm{farm}_t1_s{seed}")
            group.attrs.update({"farm_id": farm, "farm_type": 1, "seed": seed})
            group["layout"] = layout(farm, seed)
            group["aep"] = 100.0 * farm + seed


def write_columns(path: Path, farm: int, seeds: range, dtype: str = "f8") -> None:
    """A worker's file with a row a task."""
    with h5py.File(path, "w") as file:
        file["farm_id"] = np.full(len(seeds), farm)
        file["seed"] = np.array(seeds)
        file["layout"] = np.array([layout(farm, seed) for seed in seeds])
        file["aep"] = np.array([100.0 * farm + seed for seed in seeds], dtype)


def layout(farm: int, seed: int) -> np.ndarray:
    return np.random.default_rng([farm, seed]).random((5, 2))


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder, to see that none was changed."""
    return {str(p): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
