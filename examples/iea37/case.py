"""Case study 1 of IEA Wind Task 37: its turbine, wind, circles, and what is known of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from circle import Circle
from wake import Array, Rose, Turbine

DATA = json.loads(Path(__file__).with_name("iea37_cs1.json").read_text(encoding="utf-8"))
SIZES = [int(size) for size in DATA["boundary_radius_m"]]
EXAMPLE_AEP_MWH = {int(size): aep for size, aep in DATA["example_aep_MWh"].items()}
PUBLISHED_AEP_MWH = {int(size): aep for size, aep in DATA["best_published_aep_MWh"].items()}
TURBINE = Turbine(
    rated_power_mw=DATA["turbine"]["rated_power_MW"],
    diameter_m=DATA["turbine"]["diameter_m"],
    cut_in_ms=DATA["turbine"]["cut_in"],
    rated_ms=DATA["turbine"]["rated"],
    cut_out_ms=DATA["turbine"]["cut_out"],
)
SPACING_M = DATA["min_spacing_diameters"] * TURBINE.diameter_m


def area(turbines: int) -> Circle:
    return Circle(DATA["boundary_radius_m"][str(turbines)])


def example_layout(turbines: int) -> Array:
    return np.array(DATA["example_layout_xy"][str(turbines)]).T


def rose() -> Rose:
    """The 16 directions of the case study, one wind speed."""
    return _rose(np.array(DATA["directions_deg"]), np.array(DATA["frequency"]))


def fine_rose() -> Rose:
    """The same wind in steps of 1 degree, interpolated between the 16 directions."""
    directions = np.arange(360.0)
    frequency = np.interp(directions, DATA["directions_deg"], DATA["frequency"], period=360)
    return _rose(directions, frequency / frequency.sum())


def _rose(directions_deg: Array, frequency: Array) -> Rose:
    return Rose(directions_deg, np.array([DATA["wind_speed"]]), frequency[:, None])
