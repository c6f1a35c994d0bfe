"""Spread turbines over a square so that the closest two are as far apart as they can be.

A sweep small enough to try h5sweep with: three farms, three farm types, ten random starts each.
Every task is independent of all others and depends on nothing but its key, so it gives the same
result whenever and wherever it is run again.

    h5sweep run examples/quickstart/study.py -o layouts.h5
"""

from __future__ import annotations

import numpy as np

import h5sweep

SIDE_KM = {0: 4.0, 1: 6.0, 2: 9.0}
TURBINES = {"onshore": 9, "offshore": 16, "floating": 25}
ROUNDS = 4_000


@h5sweep.sweep(
    farm_id=list(SIDE_KM),
    farm_type=list(TURBINES),
    seed=range(10),
    dims={"layout": ("turbine", "xy")},
    units={"layout": "km", "spacing": "km"},
)
def optimise(farm_id: int, farm_type: str, seed: int) -> dict[str, object]:
    """Improve a random layout by moving one turbine at a time."""
    random = np.random.default_rng([farm_id, TURBINES[farm_type], seed])
    layout = random.random((TURBINES[farm_type], 2))
    spacing = smallest_distance(layout)
    for round_number in range(ROUNDS):
        step = 0.3 * (1 - round_number / ROUNDS)
        moved = layout.copy()
        turbine = random.integers(len(layout))
        moved[turbine] = np.clip(moved[turbine] + random.normal(0, step, 2), 0, 1)
        if (moved_spacing := smallest_distance(moved)) >= spacing:
            layout, spacing = moved, moved_spacing
    side_km = SIDE_KM[farm_id]
    return {"layout": side_km * layout, "spacing": side_km * spacing}


def smallest_distance(layout: np.ndarray) -> float:
    """The distance between the two points that are closest to each other."""
    between = layout[:, None, :] - layout[None, :, :]
    squares = (between**2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    return float(np.sqrt(squares.min()))
