"""Read layouts from an output, and show the best as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

import farms
from wake import Array


@dataclass(frozen=True)
class Result:
    """One row of an output."""

    farm_id: int
    farm_type: str
    seed: int
    layout: Array
    aep: float
    aep_360: float
    aep_start: float
    capacity_factor: float
    spacing: float


def read_results(output: Path) -> list[Result]:
    """All layouts of an output. Where their sizes differ, they lie one behind the other."""
    with h5py.File(output) as file:
        columns = {
            name: file[name][:].tolist()
            for name in Result.__dataclass_fields__
            if name not in ("layout", "farm_type")
        }
        columns["farm_type"] = file["farm_type"].asstr()[:].tolist()
        columns["layout"] = split_layouts(file)
    rows = zip(*columns.values(), strict=True)
    return [Result(**dict(zip(columns, row, strict=True))) for row in rows]


def split_layouts(file: h5py.File) -> list[Array]:
    """The layout of each task."""
    layouts = file["layout"][:]
    if layouts.ndim == 3:  # all have as many turbines
        return list(layouts)
    return np.split(layouts, np.cumsum(file["n_turbine"])[:-1])


def best_by_farm(results: Iterable[Result]) -> list[Result]:
    """For each farm the layout with the most energy."""
    best: dict[int, Result] = {}
    for result in results:
        if result.farm_id not in best or result.aep > best[result.farm_id].aep:
            best[result.farm_id] = result
    return [best[farm_id] for farm_id in sorted(best)]


def table_of(results: Iterable[Result]) -> str:
    """One line a layout, with a heading."""
    lines = [
        f"{'farm':16} {'type':4} {'seed':>4} {'turbines':>8} {'aep GWh':>8} {'gain %':>6} "
        f"{'capacity':>8} {'aep_360':>8} {'spacing D':>9}"
    ]
    for result in results:
        diameters = result.spacing / farms.turbine(result.farm_type).diameter_m
        gain = 100 * (result.aep / result.aep_start - 1)
        lines.append(
            f"{f'{result.farm_id} {farms.FARM_NAMES[result.farm_id]}':16} {result.farm_type:4} "
            f"{result.seed:4} {len(result.layout):8} {result.aep:8.1f} {gain:6.2f} "
            f"{result.capacity_factor:8.3f} {result.aep_360:8.1f} {diameters:9.2f}"
        )
    return "\n".join(lines)
