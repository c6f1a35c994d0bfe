"""The best layout of each size beside the example and the best published."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

import case
from models import Model

HEADING = """\
Annual energy in MWh, our gain on each, and how far inside the limits (circle, 2 D) we are:

turbines      example    published         ours  seed   example published   inside m  spacing D"""
FINE_HEADING = """\

The same layouts with the wind in steps of 1 degree: what was fitted to 16 directions is lost.

turbines      example         ours       gain"""


def table_of_best(output: Path, model: Model) -> str:
    """Both tables as text; sizes without a result are left out."""
    lines, fine_lines = [HEADING], [FINE_HEADING]
    with h5py.File(output) as file:
        columns = {
            n: file[n][:] for n in ("turbines", "seed", "aep", "aep_fine", "margin", "spacing")
        }
    for turbines in case.SIZES:
        rows = np.flatnonzero(columns["turbines"] == turbines)
        if not len(rows):
            continue
        row = rows[columns["aep"][rows].argmax()]
        best = {name: column[row] for name, column in columns.items()}
        example, published = case.EXAMPLE_AEP_MWH[turbines], case.PUBLISHED_AEP_MWH[turbines]
        lines.append(
            f"{turbines:8} {example:12,.1f} {published:12,.1f} {best['aep']:12,.1f} "
            f"{best['seed']:5} {_gain(best['aep'], example)} {_gain(best['aep'], published)} "
            f"{best['margin']:10.3f} {best['spacing'] / case.TURBINE.diameter_m:10.2f}"
        )
        fine = 1000 * model.aep(case.example_layout(turbines), case.TURBINE, case.fine_rose())
        fine_lines.append(
            f"{turbines:8} {fine:12,.1f} {best['aep_fine']:12,.1f} {_gain(best['aep_fine'], fine)}"
        )
    return "\n".join(lines + fine_lines)


def _gain(mine: float, theirs: float) -> str:
    return f"{100 * (mine / theirs - 1):+7.2f} %"
