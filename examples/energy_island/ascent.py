"""From a start to a better layout: gradient ascent (Adam) that begins with widened wakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spacing import MARGIN, Area, crowding, repair
from wake import Array

Model = Callable[[Array, float], tuple[float, Array]]  # layout, widening -> AEP, gradient

MEMORY_OF_SLOPE = 0.9
MEMORY_OF_SIZE = 0.99
PENALTY = 10.0  # what weighs as much as the wakes: a tenth of the spacing missing


@dataclass(frozen=True)
class Course:
    """How an ascent goes: step sizes fall steadily, and wakes narrow to what they are."""

    steps: int
    first_step_m: float
    last_step_m: float
    first_widening: float = 1.0
    widened_share: float = 0.5  # of the steps

    def step_m(self, step: int) -> float:
        return float(
            self.first_step_m * (self.last_step_m / self.first_step_m) ** (step / self.steps)
        )

    def widening(self, step: int) -> float:
        left = 1 - step / (self.widened_share * self.steps)
        return 1 + (self.first_widening - 1) * max(left, 0.0)


def ascend(start: Array, area: Area, spacing_m: float, model: Model, course: Course) -> Array:
    """Follow the gradient of the annual energy; the layout that is returned is feasible.

    ValueError if the last layout cannot be made so.
    """
    layout = start
    slope, size = np.zeros_like(layout), np.zeros_like(layout)
    for step in range(course.steps):
        _, gradient = model(layout, course.widening(step))
        gradient = gradient / max(np.sqrt(np.mean(gradient**2)), 1e-300)
        gradient += PENALTY / spacing_m * crowding(layout, spacing_m)
        slope += (1 - MEMORY_OF_SLOPE) * (gradient - slope)
        size += (1 - MEMORY_OF_SIZE) * (gradient**2 - size)
        unbiased_slope = slope / (1 - MEMORY_OF_SLOPE ** (step + 1))
        unbiased_size = size / (1 - MEMORY_OF_SIZE ** (step + 1))
        layout = layout + course.step_m(step) * unbiased_slope / (np.sqrt(unbiased_size) + 1e-12)
        layout = area.project(layout, MARGIN * spacing_m)
    return repair(layout, area, spacing_m)
