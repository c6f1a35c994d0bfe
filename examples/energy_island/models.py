"""Which implementation of the wake model is used: NumPy, compiled with numba, or PyWake."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from wake import Array, Rose, Turbine

SETTING = "WIND_MODEL"  # an environment variable, because workers inherit those
NAMES = ("auto", "numpy", "numba", "pywake")
NEEDS = {"numba": ("numba", "wind"), "pywake": ("py_wake", "wind-check")}


@dataclass(frozen=True)
class Model:
    """Where the energy that is stored comes from, and where the gradient that is followed."""

    name: str
    aep: Callable[[Array, Turbine, Rose], float]
    aep_and_gradient: Callable[..., tuple[float, Array]]


def chosen_name() -> str:
    """What the setting says; `auto` is numba where it is installed. ValueError if it cannot be."""
    name = os.environ.get(SETTING, "auto")
    if name not in NAMES:
        raise ValueError(f"{SETTING} is {name!r}: it is one of {', '.join(NAMES)}")
    if name == "auto":
        return "numba" if find_spec("numba") else "numpy"
    if name in NEEDS and not find_spec(NEEDS[name][0]):
        package, extra = NEEDS[name]
        raise ValueError(f"the model {name} needs {package}: pip install 'h5sweep[{extra}]'")
    return name


@cache
def load_model(name: str) -> Model:
    """Import an implementation. PyWake is too slow for an ascent: it has the last word only."""
    if name == "pywake":
        import wake_pywake

        quick = load_model("numba" if find_spec("numba") else "numpy")
        return Model(name, wake_pywake.aep, quick.aep_and_gradient)
    if name == "numba":
        from wake_numba import aep_and_gradient
    else:
        from wake import aep_and_gradient
    return Model(name, lambda *case: aep_and_gradient(*case)[0], aep_and_gradient)
