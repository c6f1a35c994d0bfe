"""The modules of the wind examples, which lie in no package."""

# ruff: noqa: E402  # they can be imported when their folders are known, not before

from __future__ import annotations

import sys

from places import ROOT

EXAMPLES = ROOT / "examples"
ENERGY_ISLAND = EXAMPLES / "energy_island"
IEA37 = EXAMPLES / "iea37"

# Behind everything else: studies that other tests write must not find these modules first.
sys.path.append(str(ENERGY_ISLAND))
sys.path.append(str(IEA37))

import area
import ascent
import case
import circle
import farms
import lattice
import models
import results
import spacing
import wake

__all__ = [
    "ENERGY_ISLAND",
    "IEA37",
    "area",
    "ascent",
    "case",
    "circle",
    "farms",
    "lattice",
    "models",
    "results",
    "spacing",
    "wake",
]
