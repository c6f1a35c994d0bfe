"""Starts for case study 1: turbines on a lattice, which lines many of them up out of the wakes."""

from __future__ import annotations

import numpy as np

from wake import Array

MOST_STRETCHED = 0.4  # as a logarithm: cells are up to e^0.8 = 2.2 times as long as wide


def lattice_layout(turbines: int, radius_m: float, random: np.random.Generator) -> Array:
    """The lattice points closest to the centre, of a lattice at random, scaled to the circle."""
    angle = random.uniform(0, 2 * np.pi)
    stretch = np.exp(random.uniform(-MOST_STRETCHED, MOST_STRETCHED))
    shear, *offset = random.uniform(0, 1, 3)
    steps = np.arange(-turbines, turbines + 1)
    column, row = (grid.ravel() for grid in np.meshgrid(steps + offset[0], steps + offset[1]))
    x, y = (column + shear * row) * stretch, row / stretch
    points = np.stack(
        [np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y]
    )
    distances = np.hypot(*points)
    closest = np.argsort(distances, kind="stable")[:turbines]
    chosen: Array = points.T[closest] * (radius_m / distances[closest[-1]])
    return chosen
