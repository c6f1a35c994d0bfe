"""The wind examples as users run them: every result is checked, bad input fails its task alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from running import is_running, kinds, until, worker_pids
from terminal import Terminal
from wind_examples import ENERGY_ISLAND, IEA37, case, circle, farms, models, results, wake

VERY_LONG_S = 600
TIMES = ("duration_s", "finished_at")
Result = results.Result


def run_script(script: Path, output: Path, **env: str) -> str:
    """Run `python study.py` to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, script, "-o", output.name],
        cwd=output.parent,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=VERY_LONG_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The output of the small sweep, and what it printed."""
    output = tmp_path_factory.mktemp("small") / "layouts.h5"
    return output, run_script(ENERGY_ISLAND / "study.py", output)


@pytest.fixture(scope="module")
def layouts(small: tuple[Path, str]) -> list[Result]:
    return results.read_results(small[0])


# The small sweep


def test_small_sweep_is_complete(layouts: list[Result]) -> None:
    """3 farms, 2 turbine types and 5 seeds are 30 layouts, of as many turbines as make 1 GW."""
    keys = {(r.farm_id, r.farm_type, r.seed) for r in layouts}
    assert keys == {(f, t, s) for f in range(3) for t in ("13MW", "15MW") for s in range(5)}
    assert {(r.farm_type, r.layout.shape) for r in layouts} == {
        ("13MW", (76, 2)),
        ("15MW", (66, 2)),
    }


def test_stored_energy_is_that_of_the_stored_layout(layouts: list[Result]) -> None:
    """Each energy is evaluated from the layout beside it: computed again it is the same."""
    for r in layouts:
        turbine = farms.turbine(r.farm_type)
        for directions, stored in [(72, r.aep), (360, r.aep_360)]:
            rose = farms.wind_rose(directions)
            aep, _ = wake.aep_and_gradient(r.layout, turbine, rose)
            assert stored == pytest.approx(aep, rel=1e-9, abs=0)


def test_layouts_are_feasible(layouts: list[Result]) -> None:
    """All turbines are inside their area and 3 D from each other; `spacing` says how far."""
    for r in layouts:
        assert (farms.farm_area(r.farm_id).margins(r.layout) > 0).all()
        apart = [np.hypot(*(a - b)) for i, a in enumerate(r.layout) for b in r.layout[:i]]
        assert min(apart) >= 3 * farms.turbine(r.farm_type).diameter_m
        assert r.spacing == pytest.approx(min(apart), rel=1e-12)


def test_energies_make_sense(layouts: list[Result]) -> None:
    """Capacity factors of the North Sea, and a gain in every layout that 360 directions see too."""
    for r in layouts:
        rated_gwh = len(r.layout) * {"13MW": 13, "15MW": 15}[r.farm_type] * 8.76
        assert 0.98 * 8_760 < rated_gwh <= 8_760  # a farm of 1 GW
        assert r.capacity_factor == pytest.approx(r.aep / rated_gwh)
        assert 0.3 < r.capacity_factor < 0.65
        assert 1.01 < r.aep / r.aep_start < 1.06
        assert abs(r.aep_360 / r.aep - 1) < 0.002


def test_output_has_units_and_ragged_layouts(small: tuple[Path, str]) -> None:
    """Other programs see units, and which rows belong to which layout."""
    with h5py.File(small[0]) as file:
        assert file["aep"].attrs["units"] == b"GW h"
        assert file["layout"].attrs["units"] == b"m"
        assert file["n_turbine"].attrs["sample_dimension"] == b"turbine"
        assert file["layout"].shape == (15 * 76 + 15 * 66, 2)
        assert set(file["model"].asstr()[:]) <= {"numpy", "numba"}


def test_small_sweep_shows_the_best_and_what_is_next(
    small: tuple[Path, str], layouts: list[Result]
) -> None:
    """A line for the best layout of each farm, and commands that go on from there."""
    _, printed = small
    for farm_id in range(3):
        best = max((r for r in layouts if r.farm_id == farm_id), key=lambda r: r.aep)
        gain = 100 * (best.aep / best.aep_start - 1)
        (line,) = [t for t in printed.splitlines() if t.startswith(f"{farm_id} dk")]
        numbers = line.split()[2:]
        assert numbers[:3] == [best.farm_type, str(best.seed), str(len(best.layout))]
        assert numbers[3:5] == [f"{best.aep:.1f}", f"{gain:.2f}"]
    for command in ("h5sweep status layouts.h5", "--full -o layouts.h5", "h5sweep.open("):
        assert command in printed


@pytest.mark.exhaustive
def test_interrupted_sweep_is_the_same_bit_for_bit(small: tuple[Path, str], tmp_path: Path) -> None:
    """Killed in the middle and run again, every column but the times is what it was."""
    study, output = ENERGY_ISLAND / "study.py", tmp_path / "out.h5"
    terminal = Terminal(tmp_path)
    killed = terminal.start("run", study, "-o", output.name)
    until(lambda: len(kinds(tmp_path)) >= 5, within_s=VERY_LONG_S, what="five layouts")
    pids = worker_pids(tmp_path)
    killed.kill()
    killed.communicate()
    until(lambda: not any(map(is_running, pids)), what="workers that end with the coordinator")
    kept = len(kinds(tmp_path))
    assert 5 <= kept < 30
    again = terminal.run("run", study, "-o", output.name, check=0)
    assert f"{kept} kept, {30 - kept} to do" in again.stderr
    with h5py.File(small[0]) as whole, h5py.File(output) as resumed:
        columns = [name for name in whole if isinstance(whole[name], h5py.Dataset)]
        assert {"layout", "aep", "aep_360", "aep_start", "row_crc32"} <= set(columns)
        for name in set(columns) - set(TIMES):
            assert (whole[name][()] == resumed[name][()]).all(), name


def test_full_sweep_goes_on_from_the_small_one(small: tuple[Path, str], tmp_path: Path) -> None:
    """With ENERGY_ISLAND=full on the same output 2,970 of 3,000 layouts are left to do."""
    output = tmp_path / "layouts.h5"
    shutil.copy(small[0], output)
    shutil.copytree(f"{small[0]}.run", f"{output}.run")
    terminal = Terminal(tmp_path)
    study = ENERGY_ISLAND / "study.py"
    running = terminal.start("run", study, "-o", output.name, "--no-merge", ENERGY_ISLAND="full")
    assert running.stderr is not None
    said = [running.stderr.readline(), running.stderr.readline()]
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=VERY_LONG_S)
    assert said == [
        "h5sweep: the sweep has grown by 2,970 tasks\n",
        "h5sweep: 30 kept, 2,970 to do\n",
    ]


def test_unknown_size_is_named(tmp_path: Path) -> None:
    """A setting that means nothing ends the run before it begins, with what there is."""
    done = Terminal(tmp_path).run("run", ENERGY_ISLAND / "study.py", check=2, ENERGY_ISLAND="huge")
    assert "ENERGY_ISLAND is 'huge': it is one of small, survey, full" in done.stderr


def test_pywake_as_the_model(small: tuple[Path, str], tmp_path: Path) -> None:
    """`--model pywake` is PyWake's energy of a layout, the same as ours to 1e-12."""
    pytest.importorskip("py_wake", reason="needs py_wake: pip install 'h5sweep[wind-check]'")
    best = results.best_by_farm(results.read_results(small[0]))[0]
    turbine, model = farms.turbine(best.farm_type), models.load_model("pywake")
    assert model.name == "pywake"
    for directions, stored in [(72, best.aep), (360, best.aep_360)]:
        aep = model.aep(best.layout, turbine, farms.wind_rose(directions))
        assert aep == pytest.approx(stored, rel=1e-12, abs=0)
    study = ENERGY_ISLAND / "study.py"
    tried = Terminal(tmp_path).run("run", study, "--try", "1", WIND_MODEL="pywake")
    assert "farm_id=0, farm_type=13MW, seed=0: ok" in tried.stderr + tried.stdout


# Bad input

BAD_STUDY = """
import h5sweep
import study

TASKS = [
    {"farm_id": 0, "farm_type": "15MW", "seed": 0},
    {"farm_id": 1, "farm_type": "15MW", "seed": 0},
    {"farm_id": 2, "farm_type": "15MW", "seed": 0},
    {"farm_id": 3, "farm_type": "15MW", "seed": 0},
    {"farm_id": 0, "farm_type": "14MW", "seed": 0},
    {"farm_id": 0, "farm_type": "15MW", "seed": -1},
    {"farm_id": 9, "farm_type": "15MW", "seed": 0},
    {"farm_id": 0, "farm_type": "99MW", "seed": 0},
    {"farm_id": 0, "farm_type": "15MW", "seed": 1},
]


@h5sweep.sweep(tasks=TASKS)
def optimise(farm_id, farm_type, seed):
    return study.optimise(farm_id, farm_type, seed)
"""
BAD = {
    (1, "15MW", 0): "the area of 0.0 km² is too small for 4 turbines 720 m apart: not even 2",
    (2, "15MW", 0): "the area's boundary crosses itself: edge 1 meets edge 3",
    (3, "15MW", 0): "an area needs at least 3 corners, and this one has 2",
    (0, "14MW", 0): "a farm has at least one turbine, and this one is to have 0",
    (0, "15MW", -1): "the seed is -1, and it has to be 0 or more",
    (9, "15MW", 0): "there is no farm 9: they are 0 to 3",
    (0, "99MW", 0): "there is no turbine type 99MW: they are 14MW, 15MW",
}


def test_bad_input_fails_its_own_task_with_a_sentence(terminal: Terminal) -> None:
    """Areas that are none or too small, no turbines, bad keys: each says so, the others go on."""
    shutil.copytree(ENERGY_ISLAND, terminal.folder, dirs_exist_ok=True)
    described = json.loads((terminal.folder / "energy_island.json").read_text())
    described["farms"] = {
        "good": [[0, 0], [4000, 0], [4000, 4000], [0, 4000]],
        "too_small": [[0, 0], [90, 0], [90, 90], [0, 90]],
        "self_crossing": [[0, 0], [4000, 4000], [4000, 0], [0, 4000]],
        "two_points": [[0, 0], [4000, 0]],
    }
    *_, none, few = described["turbine_types"]
    none["turbines_per_1GW_farm"], few["turbines_per_1GW_farm"] = 0, 4
    described["turbine_types"] = [none, few]
    terminal.write("energy_island.json", json.dumps(described))
    terminal.write("bad.py", BAD_STUDY)
    ended = terminal.run("run", "bad.py", "-o", "bad.h5", check=1, WIND_MODEL="numpy")
    assert "2 of 9 done, 7 failed" in ended.stdout + ended.stderr
    missing = terminal.json("missing", "bad.h5")["missing"]
    found = {tuple(task["key"].values()): task["detail"] for task in missing}
    assert found.keys() == BAD.keys()
    for key, sentence in BAD.items():
        assert found[key].startswith(f"raised: ValueError: {sentence}"), found[key]
    with h5py.File(terminal.folder / "bad.h5") as file:
        assert file["layout"].shape == (2, 4, 2)


# Case study 1


@pytest.mark.exhaustive
def test_case_study_1_beats_the_published_layouts(tmp_path: Path) -> None:
    """The best of each size has more energy than the best published, and keeps the rules."""
    output = tmp_path / "iea37.h5"
    printed = run_script(IEA37 / "study.py", output)
    with h5py.File(output) as file:
        sizes, energies = file["turbines"][:], file["aep"][:]
        every_layout = results.split_layouts(file)
    for turbines in (16, 36, 64):
        row = max(np.flatnonzero(sizes == turbines), key=lambda row: energies[row])
        layout = every_layout[row]
        aep, _ = wake.aep_and_gradient(layout, case.TURBINE, case.rose())
        assert energies[row] == pytest.approx(1000 * aep, rel=1e-9)
        assert 1000 * aep > {16: 418_924.4064, 36: 863_676.2993, 64: 1_513_311.1936}[turbines]
        assert np.hypot(*layout.T).max() < {16: 1300, 36: 2000, 64: 3000}[turbines]
        assert results_spacing(layout) >= 2 * 130
        assert f"{energies[row]:,.1f}" in printed
    assert "in steps of 1 degree" in printed


def results_spacing(layout: wake.Array) -> float:
    return min(float(np.hypot(*(a - b))) for i, a in enumerate(layout) for b in layout[:i])


def test_fine_rose_is_the_same_wind() -> None:
    """Each of the 16 directions blows as often in steps of 1 degree, where both have it."""
    coarse, fine = case.rose(), case.fine_rose()
    assert coarse.frequency.sum() == pytest.approx(1)
    assert fine.frequency.sum() == pytest.approx(1)
    share = fine.frequency[::45, 0] / coarse.frequency[::2, 0]
    assert share == pytest.approx([16 / 360] * 8, rel=1e-3)
    assert case.area(16).radius_m == 1300
    assert isinstance(case.area(16), circle.Circle)
