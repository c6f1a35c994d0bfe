"""The wake model of IEA Wind Task 37, with its gradient: annual energy of a layout of turbines.

Behind each turbine the wind is slower by a share

    deficit = (1 - sqrt(1 - CT D² / 8σ²)) exp(-offset² / 2),   σ = K ahead + D / sqrt(8),

where `ahead` is how far downwind of it one stands and `offset` how far aside, in units of σ.
Several deficits add up as the root of the sum of their squares. As CT is constant, deficits do not
depend on the wind speed: they are computed once for each direction, not for each speed.

Two directions that are opposite to each other share all distances: turbine i stands in the wake of
j in the one exactly if j stands in that of i in the other. So only half of the directions are gone
through, in blocks of which all intermediate arrays stay in the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CT = 8 / 9
K = 0.0324555
HOURS_A_YEAR = 8760.0
PAIRS_A_BLOCK = 32_000

# glibc gives the memory of each freed array back to the kernel, and asks for it again for the next
# one. It keeps what is smaller than the largest array that was ever freed: this halves the time.
np.empty(2_000_000)


@dataclass(frozen=True)
class Turbine:
    """A turbine whose power grows with the cube of the wind speed between cut-in and rated."""

    rated_power_mw: float
    diameter_m: float
    cut_in_ms: float
    rated_ms: float
    cut_out_ms: float


@dataclass(frozen=True)
class Rose:
    """How often the wind blows from each direction at each speed; what is left out adds no energy.

    Directions are where the wind comes from, clockwise from north, at equal distances all around.
    """

    directions_deg: Array
    speeds_ms: Array
    frequency: Array  # direction, speed

    def __post_init__(self) -> None:
        count = len(self.directions_deg)
        around = self.directions_deg[0] + 360 / count * np.arange(count)
        if count % 2 or not np.allclose(self.directions_deg, around, rtol=0, atol=1e-9):
            raise ValueError("a rose has an even number of directions at equal distances")
        if self.frequency.shape != (count, len(self.speeds_ms)):
            raise ValueError("a rose has a frequency for each direction and speed")


def aep_and_gradient(
    layout: Array, turbine: Turbine, rose: Rose, widening: float = 1.0
) -> tuple[float, Array]:
    """The annual energy in GWh of turbines at `layout` (turbine, xy) in m, and its gradient.

    `widening` makes wakes wider without making them weaker: an optimiser that begins with wide
    wakes sees turbines that are still far aside.
    """
    check_speeds(turbine, rose)
    x, y = (layout - layout.mean(axis=0)).T
    half = len(rose.directions_deg) // 2
    blows_to = np.deg2rad(270 - rose.directions_deg[:half, None])
    cos, sin = np.cos(blows_to), np.sin(blows_to)
    along, across = cos * x + sin * y, cos * y - sin * x
    frequency = rose.frequency.reshape(2, half, -1)
    energy, gradient = 0.0, np.zeros_like(layout)
    size = max(1, PAIRS_A_BLOCK // len(layout) ** 2)
    for block in (slice(first, first + size) for first in range(0, half, size)):
        block_energy, by_along, by_across = _block(
            along[block], across[block], turbine, rose.speeds_ms, frequency[:, block], widening
        )
        energy += block_energy
        gradient[:, 0] += (cos[block] * by_along - sin[block] * by_across).sum(axis=0)
        gradient[:, 1] += (sin[block] * by_along + cos[block] * by_across).sum(axis=0)
    unit = turbine.rated_power_mw * HOURS_A_YEAR / 1000
    return unit * energy, unit * gradient


def check_speeds(turbine: Turbine, rose: Rose) -> None:
    """At cut-out the power jumps, so no speed may be there: rounding would decide."""
    if rose.speeds_ms.max() >= turbine.cut_out_ms:
        raise ValueError("the speeds of a rose are below the turbine's cut-out")


def _block(
    along: Array, across: Array, turbine: Turbine, speeds_ms: Array, frequency: Array, wide: float
) -> tuple[float, Array, Array]:
    """Energy of some directions and their opposites, and derivatives by each turbine's place."""
    diameter = turbine.diameter_m
    ahead = along[:, :, None] - along[:, None, :]
    strength = CT * diameter**2 / 8
    per_sigma = 1 / (K * np.abs(ahead) + diameter / np.sqrt(8))
    offset = (across[:, :, None] - across[:, None, :]) * (per_sigma / wide)
    offset_squared = offset * offset
    root = np.sqrt(1 - strength * per_sigma**2)
    squared = (1 - root) ** 2 * np.exp(-offset_squared)  # the deficit's
    squared *= ahead > 0
    # Rows: i in the wakes of all j. Columns: j in the wakes of all i when the wind has turned.
    losses = np.sqrt(np.stack([squared.sum(axis=2), squared.sum(axis=1)]))
    energy, by_losses = _energy(losses, turbine, speeds_ms, frequency)
    by_squares = np.divide(by_losses, 2 * losses, out=np.zeros_like(losses), where=losses > 0)
    slope = (by_squares[0][:, :, None] + by_squares[1][:, None, :]) * squared * per_sigma
    by_ahead = slope * (offset_squared - 1 - 1 / root) * (2 * K)
    by_aside = slope * offset * (-2 / wide)
    return (
        energy,
        by_ahead.sum(axis=2) - by_ahead.sum(axis=1),
        by_aside.sum(axis=2) - by_aside.sum(axis=1),
    )


def _energy(
    losses: Array, turbine: Turbine, speeds_ms: Array, frequency: Array
) -> tuple[float, Array]:
    """Energy in units of a year at rated power, and its derivative by each loss of wind speed."""
    span = turbine.rated_ms - turbine.cut_in_ms
    waked = (1 - losses)[..., None] * speeds_ms
    share = np.clip((waked - turbine.cut_in_ms) / span, 0, 1)
    squared = share * share
    energy = np.einsum("wdts,wds->", squared * share, frequency)
    squared *= share < 1  # at rated power no wind is missing
    return float(energy), np.einsum("wdts,wds->wdt", squared, frequency * speeds_ms * (-3 / span))
