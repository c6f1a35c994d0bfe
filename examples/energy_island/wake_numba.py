"""The formulas of `wake`, compiled: each pair of turbines is met once for two directions.

What was compiled is kept beside this file, or in the user's cache if that cannot be written to. It
is compiled anew when this file changes, and only then: so CT and K, which lie in another file, are
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from wake import CT, HOURS_A_YEAR, Array, K, Rose, Turbine, check_speeds

NEGLIGIBLE = 80.0  # exp(-80) is the square of less than the rounding error of the wind speed


def aep_and_gradient(
    layout: Array, turbine: Turbine, rose: Rose, widening: float = 1.0
) -> tuple[float, Array]:
    """As `wake.aep_and_gradient`, from which it differs by rounding only."""
    check_speeds(turbine, rose)
    half = len(rose.directions_deg) // 2
    energy, gradient = _sum_directions(
        np.ascontiguousarray(layout - layout.mean(axis=0)),
        np.deg2rad(270 - rose.directions_deg[:half]),
        rose.speeds_ms,
        rose.frequency.reshape(2, half, -1),
        turbine.diameter_m,
        turbine.cut_in_ms,
        turbine.rated_ms,
        widening,
        CT * turbine.diameter_m**2 / 8,
        K,
    )
    unit = turbine.rated_power_mw * HOURS_A_YEAR / 1000
    return unit * energy, unit * gradient


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any]
    try:
        compiled = numba.njit(cache=True)(function)
    except RuntimeError:  # there is no folder to keep it in
        compiled = numba.njit(function)
    return compiled


@_compiled
def _sum_directions(
    layout: Array,
    blows_to: Array,
    speeds: Array,
    frequency: Array,
    diameter: float,
    cut_in: float,
    rated: float,
    wide: float,
    strength: float,
    growth: float,
) -> tuple[float, Array]:
    turbines = len(layout)
    energy, gradient = 0.0, np.zeros((turbines, 2))
    along, across = np.empty(turbines), np.empty(turbines)
    pairs = np.empty((turbines, turbines, 3))
    for direction in range(len(blows_to)):
        cos, sin = math.cos(blows_to[direction]), math.sin(blows_to[direction])
        for i in range(turbines):
            along[i] = cos * layout[i, 0] + sin * layout[i, 1]
            across[i] = cos * layout[i, 1] - sin * layout[i, 0]
        squares = _meet_pairs(along, across, diameter, wide, strength, growth, pairs)
        part, by_squares = _energy(squares, speeds, frequency[:, direction], cut_in, rated)
        energy += part
        _add_gradient(along, pairs, by_squares, wide, cos, sin, gradient)
    return energy, gradient


@_compiled
def _meet_pairs(
    along: Array,
    across: Array,
    diameter: float,
    wide: float,
    strength: float,
    growth: float,
    pairs: Array,
) -> Array:
    """The squared losses of all turbines, with the wind and against it; `pairs` keeps the rest."""
    turbines = len(along)
    squares = np.zeros((2, turbines))
    for i in range(turbines):
        for j in range(i):
            ahead = along[i] - along[j]
            per_sigma = 1 / (growth * abs(ahead) + diameter / math.sqrt(8.0))
            offset = (across[i] - across[j]) * per_sigma / wide
            pairs[i, j, 0] = 0.0
            if ahead == 0.0 or offset * offset > NEGLIGIBLE:
                continue
            root = math.sqrt(1 - strength * per_sigma**2)
            squared = (1 - root) ** 2 * math.exp(-offset * offset)
            downwind, upwind = (i, j) if ahead > 0 else (j, i)
            squares[0, downwind] += squared
            squares[1, upwind] += squared
            pairs[i, j, 0] = 2 * squared * per_sigma
            pairs[i, j, 1] = offset
            pairs[i, j, 2] = growth * (offset * offset - 1 - 1 / root)
    return squares


@_compiled
def _energy(
    squares: Array, speeds: Array, frequency: Array, cut_in: float, rated: float
) -> tuple[float, Array]:
    """Energy in units of a year at rated power, and its derivative by each squared loss."""
    energy, by_squares = 0.0, np.zeros_like(squares)
    span = rated - cut_in
    for way in range(2):
        for i in range(squares.shape[1]):
            loss = math.sqrt(squares[way, i])
            by_loss = 0.0
            for s in range(len(speeds)):
                share = (speeds[s] * (1 - loss) - cut_in) / span
                if share >= 1:
                    energy += frequency[way, s]
                elif share > 0:
                    energy += frequency[way, s] * share**3
                    by_loss -= frequency[way, s] * speeds[s] * 3 * share**2 / span
            if loss > 0:
                by_squares[way, i] = by_loss / (2 * loss)
    return energy, by_squares


@_compiled
def _add_gradient(
    along: Array,
    pairs: Array,
    by_squares: Array,
    wide: float,
    cos: float,
    sin: float,
    gradient: Array,
) -> None:
    for i in range(len(along)):
        for j in range(i):
            if pairs[i, j, 0] == 0.0:
                continue
            downwind, upwind = (i, j) if along[i] > along[j] else (j, i)
            slope = (by_squares[0, downwind] + by_squares[1, upwind]) * pairs[i, j, 0]
            by_along = slope * pairs[i, j, 2] * (1.0 if downwind == i else -1.0)
            by_across = -slope * pairs[i, j, 1] / wide
            by_x, by_y = cos * by_along - sin * by_across, sin * by_along + cos * by_across
            gradient[i, 0] += by_x
            gradient[i, 1] += by_y
            gradient[j, 0] -= by_x
            gradient[j, 1] -= by_y
