"""Optimise the layouts of IEA Wind Task 37's case study 1: 16, 36 and 64 turbines in a circle.

python examples/iea37/study.py          610 layouts, and a table beside the published ones

h5sweep run examples/iea37/study.py -o iea37.h5     the same sweep without the table
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import h5sweep

sys.path.append(str(Path(__file__).parents[1] / "energy_island"))  # wake model and ascent

import case
import models
from ascent import Course, ascend
from lattice import lattice_layout
from spacing import smallest_distance

SEEDS = {16: 400, 36: 150, 64: 60}  # few starts are very good, so most where they cost least
MODEL = models.chosen_name()
DIAMETER_M = case.TURBINE.diameter_m
COURSE = Course(steps=300, first_step_m=DIAMETER_M / 4, last_step_m=DIAMETER_M / 200)


@h5sweep.sweep(
    tasks=[
        {"turbines": turbines, "seed": seed}
        for turbines, seeds in SEEDS.items()
        for seed in range(seeds)
    ],
    dims={"layout": ("turbine", "xy")},
    units={"layout": "m", "aep": "MW h", "aep_fine": "MW h", "margin": "m", "spacing": "m"},
)
def optimise(turbines: int, seed: int) -> dict[str, object]:
    """Improve a lattice at random; `aep_fine` is the energy in steps of 1 degree."""
    model, area, rose = models.load_model(MODEL), case.area(turbines), case.rose()
    start = lattice_layout(turbines, area.radius_m, np.random.default_rng([turbines, seed]))
    layout = ascend(
        start,
        area,
        case.SPACING_M,
        lambda layout, widening: model.aep_and_gradient(layout, case.TURBINE, rose, widening),
        COURSE,
    )
    return {
        "layout": layout,
        "aep": 1000 * model.aep(layout, case.TURBINE, rose),
        "aep_fine": 1000 * model.aep(layout, case.TURBINE, case.fine_rose()),
        "margin": float(area.margins(layout).min()),
        "spacing": smallest_distance(layout),
        "model": MODEL,
    }


def main() -> None:
    from h5sweep.errors import SweepError
    from table import table_of_best

    parser = argparse.ArgumentParser(description="Run case study 1 and compare with the published.")
    parser.add_argument("-o", "--output", type=Path, default=Path("iea37.h5"))
    parser.add_argument("-j", "--workers", type=int, help="default: all cores")
    arguments = parser.parse_args()
    try:
        report = optimise.run(arguments.output, workers=arguments.workers)
    except SweepError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print(table_of_best(arguments.output, models.load_model(MODEL)))
    raise SystemExit(0 if report.is_complete else 1)


if __name__ == "__main__":
    main()
