"""The area that turbines may stand in: a polygon without holes, convex or not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wake import Array

PROJECTIONS = 20


class Polygon:
    """A simple polygon; ValueError says what is wrong with corners that make none."""

    def __init__(self, corners: Array) -> None:
        corners = np.asarray(corners, float)
        if corners.ndim != 2 or corners.shape[1] != 2 or not np.isfinite(corners).all():
            raise ValueError("the corners of an area are pairs of finite numbers")
        if len(corners) < 3:
            raise ValueError(f"an area needs at least 3 corners, and this one has {len(corners)}")
        _check_simple(corners)
        following = np.roll(corners, -1, axis=0)
        doubled = _cross(corners, following).sum()
        if doubled < 0:  # clockwise
            corners, following = following[::-1], corners[::-1]
        self.area_m2 = abs(float(doubled)) / 2
        self.corners = corners
        self._edges = following - corners
        self._lengths = np.hypot(*self._edges.T)
        self._inward = self._edges[:, ::-1] * (-1, 1) / self._lengths[:, None]
        self.perimeter_m = float(self._lengths.sum())

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The lower left and the upper right corner of the box around it."""
        return self.corners.min(axis=0), self.corners.max(axis=0)

    def margins(self, points: Array) -> Array:
        """How far inside each point lies, in m; negative outside."""
        return self._nearest(points)[0]

    def project(self, points: Array, margin: float) -> Array:
        """Move points that are not even half of `margin` inside to the nearest place that is.

        In a corner that is too sharp for the margin a point may stay outside.
        """
        points = points.copy()
        for _ in range(PROJECTIONS):
            margins, feet, edges = self._nearest(points)
            short = margins < margin / 2
            if not short.any():
                break
            points[short] = feet[short] + margin * self._inward[edges[short]]
        return points

    def _nearest(self, points: Array) -> tuple[Array, Array, Array]:
        """For each point: how far inside it lies, the nearest boundary point, and its edge."""
        from_corner = points[:, None, :] - self.corners
        along = (from_corner * self._edges).sum(axis=2) / self._lengths**2
        feet = self.corners + np.clip(along, 0, 1)[:, :, None] * self._edges
        distances = np.hypot(*np.moveaxis(points[:, None, :] - feet, 2, 0))
        edges = distances.argmin(axis=1)
        rows = np.arange(len(points))
        signs = np.where(self._contains(points), 1, -1)
        return signs * distances[rows, edges], feet[rows, edges], edges

    def _contains(self, points: Array) -> NDArray[np.bool_]:
        """Whether a ray from the point to the east crosses the boundary an odd number of times."""
        x, y = points[:, :1], points[:, 1:]
        (x0, y0), (x1, y1) = self.corners.T, (self.corners + self._edges).T
        crosses_height = (y0 > y) != (y1 > y)
        rise = np.where(y1 == y0, 1, y1 - y0)
        crosses = crosses_height & (x < x0 + (y - y0) / rise * (x1 - x0))
        is_odd: NDArray[np.bool_] = crosses.sum(axis=1) % 2 == 1
        return is_odd


def _check_simple(corners: Array) -> None:
    """Raise ValueError if two edges touch that are not neighbours, or an edge has no length."""
    count = len(corners)
    ends = np.roll(corners, -1, axis=0)
    repeated = np.flatnonzero((corners == ends).all(axis=1))
    if len(repeated):
        raise ValueError(f"the area has corner {repeated[0] + 1} twice in a row")
    for first in range(count):
        for second in range(first + 1, count):
            is_next = second == first + 1 or (first, second) == (0, count - 1)
            if not is_next and _touch(corners[first], ends[first], corners[second], ends[second]):
                raise ValueError(
                    f"the area's boundary crosses itself: edge {first + 1} meets edge {second + 1}"
                )
    if _cross(corners, ends).sum() == 0:
        raise ValueError("the corners of the area lie on one line")


def _touch(a: Array, b: Array, c: Array, d: Array) -> bool:
    """Whether the segments ab and cd have a point in common."""
    sides = [_cross(b - a, c - a), _cross(b - a, d - a), _cross(d - c, a - c), _cross(d - c, b - c)]
    if sides[0] * sides[1] > 0 or sides[2] * sides[3] > 0:
        return False
    # For segments on one line the sides say nothing, but the boxes around them do.
    low = np.maximum(np.minimum(a, b), np.minimum(c, d))
    high = np.minimum(np.maximum(a, b), np.maximum(c, d))
    return bool((low <= high).all())


def _cross(a: Array, b: Array) -> Array:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
