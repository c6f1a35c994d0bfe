"""Layouts whose turbines keep their distance: random ones, and how to mend one that does not."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from wake import Array

TRIES = 20_000
PUSHES = 200
MARGIN = 1e-3  # of the spacing: how far inside the area a mended layout stays
SLACK = 1e-6  # of the spacing: how much further apart than asked, against rounding


class Area(Protocol):
    """Where turbines may stand."""

    area_m2: float
    perimeter_m: float

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The lower left and the upper right corner of the box around it."""

    def margins(self, points: Array) -> Array:
        """How far inside each point lies, in m; negative outside."""

    def project(self, points: Array, margin: float) -> Array:
        """Move points that are not so far inside to the nearest place that is."""


def smallest_distance(layout: Array) -> float:
    """The distance between the two turbines that are closest to each other."""
    return float(_distances(layout).min()) if len(layout) > 1 else math.inf


def is_feasible(layout: Array, area: Area, spacing_m: float) -> bool:
    """Whether all turbines are inside the area and far enough from each other."""
    return bool((area.margins(layout) > 0).all()) and smallest_distance(layout) >= spacing_m


def random_layout(
    area: Area, turbines: int, spacing_m: float, random: np.random.Generator
) -> Array:
    """Place turbines one by one wherever there is room; ValueError if there is too little."""
    _check_room(area, turbines, spacing_m)
    return _fill_up(np.empty((0, 2)), area, turbines, spacing_m, random)


def crowding(layout: Array, spacing_m: float) -> Array:
    """How far, and where to, each turbine is pushed by those too close to it, as vectors in m."""
    distances = _distances(layout)
    missing = np.maximum(spacing_m - distances, 0)
    if not missing.any():
        return np.zeros_like(layout)
    apart = layout[:, None, :] - layout[None, :, :]
    pushes = apart * (missing / np.maximum(distances, 1e-9))[:, :, None]
    total: Array = pushes.sum(axis=1)
    return total


def repair(layout: Array, area: Area, spacing_m: float) -> Array:
    """Make a layout feasible; ValueError if that cannot be done.

    Turbines are pushed apart and back into the area. Those that are in each other's way even then,
    in a corner, are placed anew.
    """
    for _ in range(PUSHES):
        layout = area.project(layout, MARGIN * spacing_m)
        if is_feasible(layout, area, spacing_m):
            return layout
        layout = layout + crowding(layout, spacing_m * (1 + SLACK)) / 2
    kept = _keep_feasible(layout, area, spacing_m)
    return _fill_up(kept, area, len(layout), spacing_m, np.random.default_rng(0))


def _check_room(area: Area, turbines: int, spacing_m: float) -> None:
    """Raise ValueError if so many turbines cannot fit, however they are placed.

    Around each one is a disc of half the spacing that no other disc overlaps; all discs lie within
    the area and a seam of half the spacing around it.
    """
    if turbines < 1:
        raise ValueError(f"a farm has at least one turbine, and this one is to have {turbines}")
    radius = spacing_m / 2
    disc = math.pi * radius**2
    most = int((area.area_m2 + area.perimeter_m * radius + disc) / disc)
    if turbines > most:
        raise ValueError(
            f"the area of {area.area_m2 / 1e6:.1f} km² is too small for {turbines} turbines "
            f"{spacing_m:.0f} m apart: not even {most + 1} would fit"
        )


def _fill_up(
    layout: Array, area: Area, turbines: int, spacing_m: float, random: np.random.Generator
) -> Array:
    """Add turbines at random places that are far enough from all others, until there are enough."""
    low, high = area.bounds
    tries = 0
    while len(layout) < turbines and tries < TRIES:
        points = random.uniform(low, high, (turbines, 2))
        tries += turbines
        for point in points[area.margins(points) > MARGIN * spacing_m]:
            if len(layout) < turbines and _is_clear(point, layout, spacing_m):
                layout = np.vstack([layout, point])
    if len(layout) < turbines:
        raise ValueError(
            f"the area of {area.area_m2 / 1e6:.1f} km² is too small for {turbines} turbines "
            f"{spacing_m:.0f} m apart: no room for more than {len(layout)} was found"
        )
    return layout


def _keep_feasible(layout: Array, area: Area, spacing_m: float) -> Array:
    """The turbines inside the area, without those that are too close to one before them."""
    kept = np.empty((0, 2))
    for point in layout[area.margins(layout) > 0]:
        if _is_clear(point, kept, spacing_m):
            kept = np.vstack([kept, point])
    return kept


def _is_clear(point: Array, layout: Array, spacing_m: float) -> bool:
    return bool((_lengths(layout - point) >= spacing_m).all())


def _distances(layout: Array) -> Array:
    """From each turbine to each other one; infinite to itself."""
    distances = _lengths(layout[:, None, :] - layout)
    np.fill_diagonal(distances, np.inf)
    return distances


def _lengths(vectors: Array) -> Array:
    lengths: Array = np.sqrt(vectors[..., 0] ** 2 + vectors[..., 1] ** 2)
    return lengths
