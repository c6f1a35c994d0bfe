"""Energy and gradient of a layout: our wake model with NumPy and numba, and PyWake's.

    pip install -e '.[wind-check]' && python benchmarks/wind.py [--repetitions 9]

PyWake is measured in its fastest class for this (All2All) with automatic differentiation, on the
same wind (case study 1 of IEA Wind Task 37: 16 directions, one speed) and the same layouts. All
take turns, so that whatever else the machine does falls on all of them; medians of CPU time are
given. Prints a table and writes benchmarks/results/wind.json.
"""

# ruff: noqa: E402  # the examples can be imported when their folders are known, not before

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
sys.path += [str(EXAMPLES / "energy_island"), str(EXAMPLES / "iea37")]

import case
import wake
import wake_numba
import wake_pywake

RESULTS = Path(__file__).parent / "results" / "wind.json"
SIZES = (16, 36, 64, 100)
LEAST_S = 0.1  # one measurement repeats until so much CPU time is spent
AIMS = {"NumPy": {16: 10, 36: 10}, "numba": dict.fromkeys(SIZES, 20)}

Evaluation = Callable[[], tuple[float, wake.Array]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    arguments = parser.parse_args()
    table = {}
    for turbines in SIZES:
        contenders = contenders_for(turbines)
        check_agreement(contenders)
        table[turbines] = measure(contenders, arguments.repetitions)
    print_table(table)
    save(table, arguments.repetitions)


def contenders_for(turbines: int) -> dict[str, Evaluation]:
    """What each has to do: energy and gradient of one random layout of about equal density."""
    side_m = 650 * np.sqrt(turbines)
    layout = np.random.default_rng(turbines).uniform(0, side_m, (turbines, 2))
    rose = case.rose()
    model = wake_pywake.wind_farm_model(case.TURBINE, rose)
    x, y = layout.T
    wind = {"wd": rose.directions_deg, "ws": rose.speeds_ms}

    def by_pywake() -> tuple[float, wake.Array]:
        # The gradient alone: automatic differentiation has computed the energy on its way.
        return float("nan"), model.aep_gradients(wrt_arg=["x", "y"], x=x, y=y, **wind).T

    return {
        "NumPy": lambda: wake.aep_and_gradient(layout, case.TURBINE, rose),
        "numba": lambda: wake_numba.aep_and_gradient(layout, case.TURBINE, rose),
        "PyWake": by_pywake,
    }


def check_agreement(contenders: dict[str, Evaluation]) -> None:
    """All compute the same thing; this also compiles and warms up."""
    gradients = {name: evaluate()[1] for name, evaluate in contenders.items()}
    scale = np.abs(gradients["PyWake"]).max()
    for name, gradient in gradients.items():
        assert np.abs(gradient - gradients["PyWake"]).max() < 1e-9 * scale, name


def measure(contenders: dict[str, Evaluation], repetitions: int) -> dict[str, float]:
    """Median CPU milliseconds of each, in turns."""
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, evaluate in contenders.items():
            runs[name].append(cpu_ms(evaluate))
    return {name: statistics.median(times) for name, times in runs.items()}


def cpu_ms(evaluate: Evaluation) -> float:
    count, begun = 0, time.process_time()
    while time.process_time() - begun < LEAST_S:
        evaluate()
        count += 1
    return 1000 * (time.process_time() - begun) / count


def print_table(table: dict[int, dict[str, float]]) -> None:
    print("energy and gradient, CPU ms (and how many times faster than PyWake)\n")
    print(f"{'turbines':>8} {'PyWake':>9} {'NumPy':>18} {'numba':>18}")
    for turbines, row in table.items():
        cells = [f"{row[name]:9.3f} ({row['PyWake'] / row[name]:5.1f}×)" for name in AIMS]
        print(f"{turbines:8} {row['PyWake']:9.3f} {' '.join(cells)}")
    for name, aims in AIMS.items():
        faster = {size: table[size]["PyWake"] / table[size][name] for size in aims}
        missed = [size for size, aim in aims.items() if faster[size] < aim]
        aim, sizes = next(iter(aims.values())), ", ".join(map(str, aims))
        print(f"{name}: {aim}× at {sizes}: {f'missed at {missed}' if missed else 'met'}")


def save(table: dict[int, dict[str, float]], repetitions: int) -> None:
    about = {
        "repetitions": repetitions,
        "load": os.getloadavg(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "numba", "py_wake")},
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"about": about, "cpu_ms": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
