"""What `missing --csv` prints is a list of tasks: whatever their keys are, it is read back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from h5sweep import read_missing, redo_tasks
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import plan_product
from h5sweep.errors import UsageError
from h5sweep.runfolder.layout import Declared, RunFolder
from h5sweep.state.missing_report import missing_csv

TEXTS = ["7", "007", "1e5", "true", "nan", " 3", '"a"', "a,b", "x\x1b[1m", "ö\n", "", "reason"]
PLANS = {
    "texts": {"text": TEXTS},
    "numbers that are texts": {"text": ["7", "8"]},
    "floats": {"x": [0.1, 1.0, 1e300, math.inf, -math.inf]},
    "whole floats": {"x": [1.0, 2.0]},
    "all types": {"farm_id": range(2), "text": ["True", "b"], "x": [0.5], "is_wet": [True, False]},
    "parameters of our names": {"reason": ["a", "b"], "detail": [1]},
}


@pytest.mark.parametrize("name", PLANS)
def test_every_key_is_read_back(name: str, tmp_path: Path) -> None:
    """As a plan of the same tasks with the same types, and by `redo`."""
    folder = RunFolder(tmp_path / "out.h5")
    folder.create()
    plan = plan_product(PLANS[name])
    folder.save_plan(plan)
    folder.save_sweep({"declared": Declared("f", plan.id, []).as_json()})
    todo = tmp_path / "todo.csv"
    todo.write_text("".join(missing_csv(read_missing(folder.output))), newline="")
    read = plan_list(todo)
    assert read.types == plan.types
    assert list(map(read.key, range(len(read)))) == list(map(plan.key, range(len(plan))))
    assert len(read_missing(folder.output, expected=read).tasks) == len(plan)
    assert redo_tasks(folder.output, tasks=todo).tasks == len(plan)


@pytest.mark.parametrize(
    ("head", "row"), [("seed,reason,detail", "1,cold,2"), ("reason,detail", "failed,2")]
)
def test_parameters_of_these_names_stay(tmp_path: Path, head: str, row: str) -> None:
    """Columns are left out only if they are what `missing --csv` writes behind a key."""
    todo = tmp_path / "todo.csv"
    todo.write_text(f"{head}\n{row}\n")
    assert plan_list(todo).names == tuple(head.split(","))


def test_a_list_of_nothing_is_empty(tmp_path: Path) -> None:
    """As when nothing is missing."""
    (tmp_path / "todo.csv").write_text("seed,reason,detail\n")
    with pytest.raises(UsageError, match="has no rows"):
        plan_list(tmp_path / "todo.csv")
