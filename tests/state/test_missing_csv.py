"""What `missing --csv` prints is a list of tasks: whatever their keys are, it is read back."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from h5sweep import read_missing, redo_tasks
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import plan_product
from h5sweep.errors import UsageError
from h5sweep.runfolder.layout import Declared, RunFolder
from h5sweep.state.missing_report import missing_csv
from terminal import Terminal

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


OBJECTS = """
from datetime import date
from enum import Enum
from pathlib import Path
class Kind(Enum):
    A = 1
    B = 2
@h5sweep.sweep({declared})
def f(kind, pos, day, site):
    is_given = isinstance(pos, tuple) and isinstance(day, date) and isinstance(site, Path)
    return {{"p": (20 if kind is Kind.B else 2) + (100 if is_given else 0)}}
"""
ALL = 'kind=list(Kind), pos=[(1, 2), (3, 4)], day=[date(2024, 1, 1)], site=[Path("a/b")]'


def results(terminal: Terminal) -> tuple[list[int], list[int]]:
    with h5py.File(terminal.folder / "out.h5") as file:
        return file["p"][:].tolist(), file["code"][:].tolist()


@pytest.mark.parametrize("gone", ["", "run folder"])
def test_the_function_gets_the_objects_for_texts_of_a_list(
    terminal: Terminal, study: Callable[[str], Path], gone: str
) -> None:
    """What `missing --csv` prints is fed back as it is, also beside an output alone."""
    study(OBJECTS.format(declared=ALL))
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "kind=A")
    terminal.write("todo.csv", terminal.run("missing", "out.h5", "--csv", check=1).stdout)
    if gone:
        shutil.rmtree(terminal.folder / "out.h5.run")
    study(OBJECTS.format(declared='tasks="todo.csv"'))
    assert terminal.run("run", "study.py", "-o", "out.h5", "--try", 1).returncode == 0
    terminal.run("run", "study.py", "-o", "out.h5")
    found, codes = results(terminal)
    assert (sorted(found), codes) == ([102, 102, 120, 120], [1, 1, 1, 1])


def test_a_text_of_a_list_that_stands_for_no_object_is_named(
    terminal: Terminal, study: Callable[[str], Path]
) -> None:
    study(OBJECTS.format(declared=ALL))
    terminal.run("run", "study.py", "-o", "out.h5")
    terminal.write("todo.csv", 'kind,pos,day,site\nC,"[1, 2]",2024-01-01,a\n')
    study(OBJECTS.format(declared='tasks="todo.csv"'))
    said = terminal.run("run", "study.py", "-o", "out.h5", check=2).stderr
    assert "kind=C in the list of tasks stands for no study:Kind" in said


def test_texts_where_results_had_objects_stop_the_run(
    terminal: Terminal, study: Callable[[str], Path]
) -> None:
    """Given in Python they are texts; rows that are made of them have a code of their own."""
    study(OBJECTS.format(declared=ALL))
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "kind=A")
    study(OBJECTS.format(declared=ALL.replace("list(Kind)", '["A", "B"]')))
    run = ("run", "study.py", "-o", "out.h5")
    said = terminal.run(*run, check=2).stderr
    assert "kind was given to the function as Kind and is given as text" in said
    terminal.run(*run, "--changed", "keep")
    assert results(terminal) == ([102, 102, 102, 102], [1, 1, 2, 2])
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 4
