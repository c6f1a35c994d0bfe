"""The same annual energy from PyWake, an independent implementation, to compare with."""

from __future__ import annotations

import numpy as np
import xarray as xr
from py_wake.deficit_models.gaussian import IEA37SimpleBastankhahGaussianDeficit
from py_wake.site import XRSite
from py_wake.superposition_models import SquaredSum
from py_wake.wind_farm_models.engineering_models import All2All
from py_wake.wind_turbines import WindTurbine
from py_wake.wind_turbines.power_ct_functions import CubePowerSimpleCt

from wake import CT, Array, Rose, Turbine

ELEMENTS_AT_ONCE = 10_000_000  # of PyWake's arrays: turbine, turbine, direction, speed


def aep(layout: Array, turbine: Turbine, rose: Rose) -> float:
    """The annual energy in GWh, some directions at a time to keep within memory."""
    model = wind_farm_model(turbine, rose)
    x, y = layout.T
    size = ELEMENTS_AT_ONCE // (len(layout) ** 2 * len(rose.speeds_ms))
    pieces = max(1, len(rose.directions_deg) // max(size, 2))  # from one, PyWake sees no bin width
    directions = np.array_split(rose.directions_deg, pieces)
    return float(sum(model.aep(x, y, wd=some, ws=rose.speeds_ms) for some in directions))


def wind_farm_model(turbine: Turbine, rose: Rose) -> All2All:
    """PyWake's model of IEA Wind Task 37 in the class that computes all pairs at once."""
    wind = xr.Dataset(
        {"P": (("wd", "ws"), rose.frequency), "TI": 0.075},
        coords={"wd": rose.directions_deg, "ws": rose.speeds_ms},
    )
    power_and_ct = CubePowerSimpleCt(
        ws_cutin=turbine.cut_in_ms,
        ws_cutout=turbine.cut_out_ms,
        ws_rated=turbine.rated_ms,
        power_rated=turbine.rated_power_mw,
        power_unit="MW",
        ct=CT,
        ct_idle=None,
        additional_models=[],
    )
    hub_height_m = turbine.diameter_m  # all are equally high, so it plays no part
    return All2All(
        XRSite(wind, interp_method="nearest"),
        WindTurbine("", turbine.diameter_m, hub_height_m, power_and_ct),
        wake_deficitModel=IEA37SimpleBastankhahGaussianDeficit(),
        superpositionModel=SquaredSum(),
    )
