"""The ten tender areas, the six turbine types and the wind of the Danish Energy Island.

All of it is in energy_island.json, which says where it is from. Nothing is checked when it is read:
an area that cannot be used fails the tasks that use it, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from area import Polygon
from wake import Rose, Turbine

DATA = json.loads(Path(__file__).with_name("energy_island.json").read_text(encoding="utf-8"))
FARM_NAMES: list[str] = list(DATA["farms"])
TYPES = {f"{described['rated_power_MW']}MW": described for described in DATA["turbine_types"]}
SPEED_EDGES_MS = np.arange(3.0, 26.0)  # 22 bins, whose centres are off the cut-out


def farm_area(farm_id: int) -> Polygon:
    """The area of a farm; ValueError if there is none, or its boundary is no polygon."""
    if not 0 <= farm_id < len(FARM_NAMES):
        raise ValueError(f"there is no farm {farm_id}: they are 0 to {len(FARM_NAMES) - 1}")
    return Polygon(np.array(DATA["farms"][FARM_NAMES[farm_id]]))


def turbine(farm_type: str) -> Turbine:
    """A turbine by its rated power, such as `15MW`.

    All types have nearly the same power for each square metre of their rotor, so they share the
    wind speeds of the 10 MW turbine in case studies 3 and 4 of IEA Wind Task 37.
    """
    described = _described(farm_type)
    return Turbine(
        rated_power_mw=float(described["rated_power_MW"]),
        diameter_m=float(described["diameter_m"]),
        cut_in_ms=4.0,
        rated_ms=11.0,
        cut_out_ms=25.0,
    )


def turbine_count(farm_type: str) -> int:
    """How many turbines of a type make a farm of 1 GW."""
    return int(_described(farm_type)["turbines_per_1GW_farm"])


@cache
def wind_rose(directions: int) -> Rose:
    """The wind in so many directions, interpolated between the 12 sectors of the data."""
    sectors = DATA["wind_rose"]
    angles = np.linspace(0, 360, directions, endpoint=False)
    frequency, scale, shape = (
        np.interp(
            angles, [s["direction_deg"] for s in sectors], [s[name] for s in sectors], period=360
        )
        for name in ("frequency", "weibull_A", "weibull_k")
    )
    slower = 1 - np.exp(-((SPEED_EDGES_MS / scale[:, None]) ** shape[:, None]))
    share = (frequency * len(sectors) / directions)[:, None]
    centres = (SPEED_EDGES_MS[:-1] + SPEED_EDGES_MS[1:]) / 2
    return Rose(angles, centres, share * np.diff(slower, axis=1))


def _described(farm_type: str) -> Mapping[str, float]:
    if farm_type not in TYPES:
        raise ValueError(f"there is no turbine type {farm_type}: they are {', '.join(TYPES)}")
    described: Mapping[str, float] = TYPES[farm_type]
    return described
