"""The page shows what tasks returned: distributions, distances from the best, positions."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import h5sweep
from h5sweep.base.plan import Plan, plan_product
from h5sweep.errors import UsageError
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from read_page import Element, read_page
from written_records import write_records

PLAN = plan_product({"farm": ["a", "b"], "kind": ["x", "y", "z"], "seed": range(4)})


def result(task: int) -> dict[str, object]:
    """The aep of `task`, which falls with the seed, and as many positions as the seed says."""
    seed = task % 4
    layout = np.array([[100.0 * place, 50.0 * task] for place in range(seed + 2)])
    return {"name": "n", "aep": 1000.0 - 10 * seed - task, "layout": layout, "cost": seed}


@pytest.fixture(params=["records", "output"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """Results of all tasks but the last, in records or, when those are gone, in the output."""
    found = RunFolder(tmp_path / "out.h5")
    write_records(found, PLAN, {task: result(task) for task in range(len(PLAN) - 1)})
    found.save_sweep(
        {
            "name": "f",
            "dims": {"layout": ["turbine", "xy"]},
            "units": {"layout": "m", "aep": "GW h"},
        }
    )
    if request.param == "output":
        merge_run(found)
        shutil.rmtree(found.records_path)
    return found


def read(folder: RunFolder, plan: Plan = PLAN, **choices: object) -> Element:
    return read_page(h5sweep.write_report(folder.output, **choices))  # type: ignore[arg-type]


def test_every_number_has_its_distribution(folder: RunFolder) -> None:
    """A picture for each scalar, with its unit, its range and how many values; none for texts."""
    labels = [s.attributes["aria-label"] for s in read(folder).all("svg", "lines")]
    assert labels[0].startswith("aep [GW h]: 23 values from 951 to 1000, median")
    assert labels[1].startswith("cost: 23 values from 0 to 3, median")
    assert len(labels) == 2


def test_distribution_has_a_line_for_each_value_of_a_key_column(folder: RunFolder) -> None:
    """All tasks, and each value of each column, with the number of tasks."""
    titles = [t.text for t in read(folder).all("svg", "lines")[0].all("title")]
    assert [title.partition(":")[0] for title in titles] == ["all", *"abxyz0123"]
    assert titles[0].endswith("23 tasks")
    assert titles[2].endswith("11 tasks")


def test_distance_is_from_the_best_of_the_group(folder: RunFolder) -> None:
    """Per cent of the best of all tasks with the same value of the first column."""
    (svg,) = read(folder).all("svg", "distance")
    assert len(svg.all("circle")) == 6
    titles = [t.text for t in svg.all("title")]
    assert titles[0] == "x a: median -1.1 % from the best, 4 tasks"


def test_best_of_each_group_is_drawn_to_scale(folder: RunFolder) -> None:
    """One picture for each farm and kind, of the task with the highest aep: its seed is 0."""
    figures = [f for f in read(folder).all("figure") if "data-of" in f.attributes]
    keys = [f.all("b")[0].text for f in figures]
    assert keys == [f"farm={farm}, kind={kind}, seed=0" for kind in "xyz" for farm in "ab"]
    points = [len(re.findall("M", f.all("path", "points")[0].attributes["d"])) for f in figures]
    assert points == [2] * 6
    assert all(f.all("text")[0].text == "20 m" for f in figures)


def test_the_best_may_be_the_lowest_of_another_result(folder: RunFolder) -> None:
    """--best and --lowest choose; a name that is no number is refused."""
    page = read(folder, best="cost")
    figures = [f for f in page.all("figure") if "data-of" in f.attributes]
    assert {f.all("b")[0].text[-1] for f in figures[:-1]} == {"3"}
    assert "Best: highest cost." in page.of_id("results").text
    assert "Best: lowest aep." in read(folder, best="aep", is_lowest=True).of_id("results").text
    with pytest.raises(UsageError, match="no result 'name' is a number; there are: aep, cost"):
        read(folder, best="name")


def test_gaps_and_infinities_are_left_out(tmp_path: Path) -> None:
    """A value that is no number breaks nothing, nor does a result that is always the same."""
    folder = RunFolder(tmp_path / "out.h5")
    odd = [np.nan, np.inf, 1.0, 2.0]
    write_records(folder, PLAN, {n: {"x": odd[n], "same": 1, "nan": np.nan} for n in range(4)})
    labels = [s.attributes["aria-label"] for s in read(folder).all("svg", "lines")]
    assert [label.partition(",")[0] for label in labels] == [
        "x: 2 values from 1 to 2",
        "same: 4 values from 1 to 1",
    ]
