"""The area of case study 1: a circle around the origin."""

from __future__ import annotations

import math

import numpy as np

from wake import Array


class Circle:
    """A circle around the origin, as an area that turbines may stand in."""

    def __init__(self, radius_m: float) -> None:
        self.radius_m = radius_m
        self.area_m2 = math.pi * radius_m**2
        self.perimeter_m = 2 * math.pi * radius_m

    @property
    def bounds(self) -> tuple[Array, Array]:
        corner = np.full(2, self.radius_m)
        return -corner, corner

    def margins(self, points: Array) -> Array:
        margins: Array = self.radius_m - np.hypot(*points.T)
        return margins

    def project(self, points: Array, margin: float) -> Array:
        excess = np.hypot(*points.T) / (self.radius_m - margin)
        moved: Array = points / np.maximum(excess, 1)[:, None]
        return moved
