"""Optimise wind-farm layouts of the Danish Energy Island: farms, turbine types, random starts.

python examples/energy_island/study.py              30 layouts, and a table of the best
python examples/energy_island/study.py --full       all 3,000

h5sweep run examples/energy_island/study.py -o layouts.h5                       the same sweep
ENERGY_ISLAND=full h5sweep run examples/energy_island/study.py -o layouts.h5    and all of it
"""

from __future__ import annotations

import os

import numpy as np

import farms
import h5sweep
import models
from ascent import Course, ascend
from spacing import random_layout, smallest_distance

ALL_FARMS, ALL_TYPES = range(len(farms.FARM_NAMES)), list(farms.TYPES)
SIZES = {
    "small": {"farm_id": range(3), "farm_type": ["13MW", "15MW"], "seed": range(5)},
    "survey": {"farm_id": ALL_FARMS, "farm_type": ALL_TYPES, "seed": range(1)},
    "full": {"farm_id": ALL_FARMS, "farm_type": ALL_TYPES, "seed": range(50)},
}
SIZE = os.environ.get("ENERGY_ISLAND", "small")
if SIZE not in SIZES:
    raise ValueError(f"ENERGY_ISLAND is {SIZE!r}: it is one of {', '.join(SIZES)}")
MODEL = models.chosen_name()

DIRECTIONS = 72  # with fewer, layouts fit the directions rather than the wind
CHECK_DIRECTIONS = 360
SPACING_DIAMETERS = 3.0
STEPS = 300


@h5sweep.sweep(
    **SIZES[SIZE],
    dims={"layout": ("turbine", "xy")},
    units={
        "layout": "m",
        "aep": "GW h",
        "aep_360": "GW h",
        "aep_start": "GW h",
        "capacity_factor": "1",
        "spacing": "m",
    },
)
def optimise(farm_id: int, farm_type: str, seed: int) -> dict[str, object]:
    """Improve a random layout; all that is returned is evaluated from the layout that is."""
    if seed < 0:
        raise ValueError(f"the seed is {seed}, and it has to be 0 or more")
    area, turbine = farms.farm_area(farm_id), farms.turbine(farm_type)
    count = farms.turbine_count(farm_type)
    rose, model = farms.wind_rose(DIRECTIONS), models.load_model(MODEL)
    diameter_m, spacing_m = turbine.diameter_m, SPACING_DIAMETERS * turbine.diameter_m

    random = np.random.default_rng([farm_id, count, seed])
    start = random_layout(area, count, spacing_m, random)
    course = Course(
        STEPS, first_step_m=2 * diameter_m, last_step_m=diameter_m / 20, first_widening=3
    )
    layout = ascend(
        start,
        area,
        spacing_m,
        lambda layout, widening: model.aep_and_gradient(layout, turbine, rose, widening),
        course,
    )
    aep = model.aep(layout, turbine, rose)
    return {
        "layout": layout,
        "aep": aep,
        "aep_360": model.aep(layout, turbine, farms.wind_rose(CHECK_DIRECTIONS)),
        "aep_start": model.aep(start, turbine, rose),
        "capacity_factor": aep / (count * turbine.rated_power_mw * 8.76),
        "spacing": smallest_distance(layout),
        "model": MODEL,
    }


if __name__ == "__main__":
    import command

    command.main()
