"""Other names, units and axes for results that are there: values stay, nothing is run again."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep import Recorder, read_audit
from h5sweep.output.verify import verify_rows
from terminal import Terminal

Study = Callable[[str], Path]

BEFORE = """
@h5sweep.sweep(seed=range(4), units={"aep": "GWh"}, dims={"layout": ["t", "xy"]})
def optimise(seed):
    return {"aep": seed / 2, "layout": np.full((3, 2), seed)}
"""
ADDED = """
@h5sweep.sweep(seed=range(4), hub_height=[110.0, 120.0], units={"aep": "GWh"})
def optimise(seed, hub_height):
    return {"aep": seed / 2 + hub_height - 110, "layout": np.full((3, 2), seed)}
"""
RENAMED = """
@h5sweep.sweep(run=range(6), units={"gross": "GWh"}, dims={"layout": ["t", "xy"]})
def optimise(run):
    return {"gross": run / 2, "layout": np.full((3, 2), run)}
"""
LABELLED = """
@h5sweep.sweep(seed=range(5), units={"aep": "MWh"}, dims={"layout": ["turbine", "xy"]})
def optimise(seed):
    return {"aep": seed / 2, "layout": np.full((3, 2), seed)}
"""


RUN = ("run", "study.py", "-o", "out.h5", "-j", "1")


@pytest.fixture(scope="module")
def at_first(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A folder after a run of BEFORE, with which most tests begin, and what was said."""
    terminal = Terminal(tmp_path_factory.mktemp("at_first"))
    terminal.write_study(BEFORE)
    return terminal.folder, terminal.run(*RUN)


@pytest.fixture
def run(
    terminal: Terminal, study: Study, at_first: tuple[Path, subprocess.CompletedProcess[str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a study into out.h5."""

    def run(text: str, *words: str, check: int = 0) -> subprocess.CompletedProcess[str]:
        if (text, words) == (BEFORE, ()) and not any(terminal.folder.iterdir()):
            shutil.copytree(at_first[0], terminal.folder, dirs_exist_ok=True)
            return at_first[1]
        study(text)
        return terminal.run(*RUN, *words, check=check)

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


def relabel(terminal: Terminal, *words: str, check: int = 0) -> str:
    return terminal.run("relabel", "out.h5", *words, check=check).stderr


def rows(terminal: Terminal, *names: str) -> dict[str, Any]:
    """Columns of the output, every row of which must hold."""
    assert verify_rows(terminal.folder / "out.h5") == []
    with h5py.File(terminal.folder / "out.h5") as file:
        return {name: file[name][:].tolist() for name in names}


def columns(terminal: Terminal) -> set[str]:
    with h5py.File(terminal.folder / "out.h5") as file:
        return {name for name in file if isinstance(file[name], h5py.Dataset)}


def test_a_new_parameter_has_this_value_in_all_rows(terminal: Terminal, run: Run) -> None:
    """The study that has it runs only what is new."""
    run(BEFORE)
    relabel(terminal, "--add", "hub_height=110.0")
    assert rows(terminal, "hub_height", "seed") == {"hub_height": [110.0] * 4, "seed": [0, 1, 2, 3]}
    assert "4 kept, 4 to do" in run(ADDED).stderr
    found = rows(terminal, "hub_height", "aep")
    assert found["hub_height"] == [110.0] * 4 + [120.0] * 4
    assert found["aep"] == [0, 0.5, 1, 1.5, 10, 10.5, 11, 11.5]


@pytest.mark.parametrize("text", ["7", "2.5", "true", "north", '"7"', ""])
def test_a_new_parameter_has_the_type_of_its_value(terminal: Terminal, run: Run, text: str) -> None:
    """In double quotes it is a text, whatever it looks like."""
    run(BEFORE)
    relabel(terminal, "--add", f"site={text}")
    texts: dict[str, Any] = {"true": True, "north": "north", '"7"': "7", "": ""}
    value = texts[text] if text in texts else json.loads(text)
    listed = [{"seed": seed, "site": value} for seed in range(4)]
    declared = f"@h5sweep.sweep(tasks={listed!r})\ndef optimise(seed, site):\n    return {{}}\n"
    assert "4 kept, 0 to do" in run(declared).stderr


def test_parameters_and_results_are_renamed(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    assert {"run", "gross"} <= columns(terminal)
    assert not {"seed", "aep"} & columns(terminal)
    assert "4 kept, 2 to do" in run(RENAMED).stderr
    assert rows(terminal, "run", "gross") == {
        "run": [0, 1, 2, 3, 4, 5],
        "gross": [0, 0.5, 1, 1.5, 2, 2.5],
    }
    with h5py.File(terminal.folder / "out.h5") as file:
        assert np.bytes_(file["gross"].attrs["units"]) == b"GWh"


def test_names_may_be_exchanged(terminal: Terminal, run: Run) -> None:
    """Each file knows which relabels it was written behind: twice is as before."""
    run('@h5sweep.sweep(seed=range(3))\ndef f(seed):\n    return {"a": seed, "b": -seed}\n')
    for expected in ([0, -1, -2], [0, 1, 2]):
        relabel(terminal, "--rename", "a=b", "--rename", "b=a", "--sweep", "f")
        relabel(terminal, "--sweep", "f")  # or the same command would be taken for the last one
        assert rows(terminal, "a")["a"] == expected


def test_a_renamed_function_goes_on(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    renamed = BEFORE.replace("def optimise", "def best_layout")
    said = run(renamed, check=2).stderr
    assert "h5sweep relabel out.h5 --sweep best_layout" in said
    relabel(terminal, "--sweep", "best_layout")
    assert "4 kept, 0 to do" in run(renamed).stderr


def test_wrong_labels_are_put_right(terminal: Terminal, run: Run) -> None:
    """A refused run says how; the values stay."""
    run(BEFORE)
    assert "h5sweep relabel out.h5 --units aep=MWh" in run(LABELLED, check=2).stderr
    relabel(terminal, "--units", "aep=MWh")
    assert "h5sweep relabel out.h5 --dims layout=turbine,xy" in run(LABELLED, check=2).stderr
    relabel(terminal, "--dims", "layout=turbine,xy")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert np.bytes_(file["aep"].attrs["units"]) == b"MWh"
        assert "turbine" in file
    run(LABELLED)
    assert rows(terminal, "aep")["aep"] == [0, 0.5, 1, 1.5, 2]
    # What the code of before declared stays as it was.
    first = json.loads((terminal.folder / "out.h5.run/code/1.json").read_text())
    assert first["units"] == {"aep": "GWh"}


def test_a_refused_study_is_told_how_to_relabel(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    assert "h5sweep relabel out.h5 --add hub_height=110.0" in run(ADDED, check=2).stderr
    assert "h5sweep relabel out.h5 --rename seed=run" in run(RENAMED, check=2).stderr
    other = '@h5sweep.sweep(name=["a"])\ndef optimise(name):\n    return {"aep": 1.0}\n'
    assert "relabel" not in run(other, check=2).stderr  # a text is no seed


def test_undo_takes_one_relabel_back_at_a_time(terminal: Terminal, run: Run) -> None:
    """Until there is none; with or without the records."""
    run(BEFORE)
    at_first = columns(terminal)
    relabel(terminal, "--add", "hub_height=110")
    relabel(terminal, "--rename", "aep=gross", "--units", "gross=MWh")
    terminal.run("clean", "out.h5", "--yes")
    relabel(terminal, "--undo")
    assert columns(terminal) == at_first | {"hub_height"}
    with h5py.File(terminal.folder / "out.h5") as file:
        assert np.bytes_(file["aep"].attrs["units"]) == b"GWh"
    relabel(terminal, "--undo")
    assert columns(terminal) == at_first
    assert rows(terminal, "seed", "aep") == {"seed": [0, 1, 2, 3], "aep": [0, 0.5, 1, 1.5]}
    assert "is left to undo" in relabel(terminal, "--undo", check=2)
    assert "4 kept, 0 to do" in run(BEFORE).stderr


def test_a_parameter_by_which_tasks_differ_stays(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--add", "hub_height=110.0")
    run(ADDED)
    assert "4 tasks of out.h5 have another hub_height" in relabel(terminal, "--undo", check=2)
    assert "hub_height" in columns(terminal)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rename", "aepp=gross"], "has no column aepp: name one of seed, aep, layout"),
        (["--rename", "aep=layout"], "has a column layout already"),
        (["--rename", "aep=seed"], "has a column seed already"),
        (["--rename", "aep=x", "--rename", "layout=x"], "'x' is given twice"),
        (["--rename", "aep=a b"], "'a b' cannot be the name"),
        (["--rename", "aep=task"], "'task' is a column that every output has"),
        (["--add", "seed=1"], "has a column seed already"),
        (["--add", "hub=nan"], "hub is nan"),
        (["--add", "hub=inf"], "give a finite value"),
        (["--add", "hub"], "write --add a=b"),
        (["--add", "hub=1", "--add", "hub=2"], "names hub twice"),
        (["--units", "aepp=m"], "has no column aepp"),
        (["--dims", "seed=a"], "has no column seed: name one of aep, layout"),
        (["--dims", "layout=a"], "layout has 2 axes, not 1"),
        (["--dims", "layout=a,a"], "have the same name"),
        (["--dims", "layout=a,/"], "'/' cannot be the name of an axis"),
        (["--undo", "--sweep", "f"], "use --undo by itself"),
        (["--undo"], "no relabel of out.h5 is left to undo"),
    ],
)
def test_what_cannot_be_changes_nothing(
    terminal: Terminal, run: Run, words: list[str], said: str
) -> None:
    run(BEFORE)
    before = (terminal.folder / "out.h5").read_bytes()
    assert said in relabel(terminal, *words, check=2)
    assert (terminal.folder / "out.h5").read_bytes() == before
    assert not (terminal.folder / "out.h5.run/relabels.json").exists()


def test_without_an_output_there_is_nothing_to_relabel(terminal: Terminal) -> None:
    assert "there is no run folder" in relabel(terminal, "--sweep", "f", check=2)
    assert not list(terminal.folder.iterdir())


def test_the_same_again_is_done_already(terminal: Terminal, run: Run) -> None:
    """So that a command that was killed at its end can be typed again."""
    run(BEFORE)
    relabel(terminal, "--rename", "aep=gross")
    written = (terminal.folder / "out.h5").stat()
    assert "done before: aep is gross" in relabel(terminal, "--rename", "aep=gross")
    assert (terminal.folder / "out.h5").stat() == written


def test_a_compressed_output_stays_compressed(terminal: Terminal, run: Run) -> None:
    run(BEFORE, "--compress")
    relabel(terminal, "--rename", "aep=gross")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["layout"].compression == "gzip"


def test_results_that_are_not_merged_have_the_new_labels(terminal: Terminal, run: Run) -> None:
    """There is no output afterwards either, if there was none."""
    run(BEFORE, "--no-merge")
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    assert not (terminal.folder / "out.h5").exists()
    assert "4 kept, 2 to do" in run(RENAMED).stderr
    assert rows(terminal, "gross")["gross"] == [0, 0.5, 1, 1.5, 2, 2.5]


def test_an_output_without_its_run_folder_is_relabelled(terminal: Terminal, run: Run) -> None:
    """Also one that was relabelled in the folder that is gone; units and axes stay."""
    run(BEFORE)
    relabel(terminal, "--rename", "aep=gross")
    shutil.rmtree(terminal.folder / "out.h5.run")
    relabel(terminal, "--rename", "seed=run")
    assert "4 kept, 2 to do" in run(RENAMED).stderr
    assert rows(terminal, "gross", "run")["gross"] == [0, 0.5, 1, 1.5, 2, 2.5]
    with h5py.File(terminal.folder / "out.h5") as file:
        assert {"t", "xy"} <= set(file)


def test_an_older_output_is_read_with_what_it_lacks(terminal: Terminal, run: Run) -> None:
    """As one is that was put back from a backup, with the records gone."""
    run(BEFORE)
    output = terminal.folder / "out.h5"
    shutil.copy(output, terminal.folder / "backup.h5")
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    terminal.run("clean", "out.h5", "--yes")
    shutil.move(terminal.folder / "backup.h5", output)
    assert "4 kept, 2 to do" in run(RENAMED).stderr
    assert rows(terminal, "gross", "run")["gross"] == [0, 0.5, 1, 1.5, 2, 2.5]


def test_what_a_recorder_writes_under_the_old_names_counts(terminal: Terminal) -> None:
    """One that was opened before the relabel has said so in its file."""
    output = terminal.folder / "out.h5"
    with Recorder(output) as recorder:
        recorder.write({"seed": 0}, aep=0.0)
        terminal.run("merge", "out.h5")
        relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
        recorder.write({"seed": 1}, aep=0.5)
    with Recorder(output) as recorder:
        recorder.write({"run": 2}, gross=1.0)
    terminal.run("merge", "out.h5")
    assert rows(terminal, "run", "gross") == {"run": [0, 1, 2], "gross": [0, 0.5, 1]}


def test_files_that_are_merged_by_key_behind_a_relabel_keep_their_names(
    terminal: Terminal, run: Run
) -> None:
    """A result that is called as one was before is another one."""
    run(BEFORE)
    relabel(terminal, "--rename", "aep=gross")
    with h5py.File(terminal.folder / "more.h5", "w") as file:
        file["s9/aep"] = 7.0
    terminal.run("merge", "more.h5", "-o", "out.h5", "--key", "s{seed:d}")
    found = rows(terminal, "seed", "gross", "aep")
    assert found["seed"] == [0, 1, 2, 3, 9]
    assert found["aep"][-1] == 7.0
    assert np.isnan(found["gross"][-1])


def test_another_output_takes_records_by_their_new_names(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    terminal.run("merge", "out.h5.run", "-o", "other.h5")
    with h5py.File(terminal.folder / "other.h5") as file:
        assert file["run"][:].tolist() == [0, 1, 2, 3]
        assert file["gross"][:].tolist() == [0, 0.5, 1, 1.5]


def test_a_lost_plan_is_made_again_with_the_new_names(terminal: Terminal, run: Run) -> None:
    """The records hold the keys, under the names of when they were written."""
    run(BEFORE)
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    (terminal.folder / "out.h5.run/plan.jsonl").unlink()
    (terminal.folder / "out.h5").unlink()
    assert "4 kept, 2 to do" in run(RENAMED).stderr
    assert rows(terminal, "gross")["gross"] == [0, 0.5, 1, 1.5, 2, 2.5]


def test_records_are_proven_under_their_old_names(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--rename", "seed=run", "--rename", "aep=gross")
    assert "1 file is safe to remove" in terminal.run("clean", "out.h5").stdout


def test_relabels_are_listed_and_in_the_audit_trail(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--rename", "aep=gross")
    relabel(terminal, "--undo")
    listed = terminal.run("relabel", "out.h5").stdout.splitlines()
    assert [line.partition("  ")[2] for line in listed] == [
        "aep is gross",
        "taken back: gross is aep",
    ]
    found = json.loads(terminal.run("relabel", "out.h5", "--json").stdout)
    assert [one["rename"] for one in found["relabels"]] == [{"aep": "gross"}, {"gross": "aep"}]
    events = read_audit(terminal.folder / "out.h5").events
    assert [event.event for event in events] == [
        "relabel: aep is gross",
        "relabel taken back: gross is aep",
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"relabels": [{}]}', '{"relabels": 3}', "{" * 9999])
def test_a_damaged_list_of_relabels_is_named(terminal: Terminal, run: Run, text: str) -> None:
    run(BEFORE)
    (terminal.folder / "out.h5.run/relabels.json").write_text(text)
    assert "relabels.json is damaged" in terminal.run("status", "out.h5", check=3).stderr


def verified(terminal: Terminal, path: str = "out.h5") -> int:
    """How many rows are equal when all are run again."""
    return int(terminal.json("verify", path, "--sample", 50)["counts"]["equal"])


def set_time(terminal: Terminal, code: int, time: str) -> None:
    """Have the clock have been wrong when a version of the code was noted."""
    path = terminal.folder / f"out.h5.run/code/{code}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "time": time}))


def test_no_clock_decides_which_rows_a_relabel_is_behind(terminal: Terminal, run: Run) -> None:
    """Rows of before are replayed by their names, and rows of behind it by the new ones."""
    run(BEFORE)
    set_time(terminal, 1, "2099-01-01T00:00:00Z")
    relabel(terminal, "--add", "hub_height=110.0", "--rename", "aep=gross")
    assert verified(terminal) == 4
    run(ADDED.replace("aep", "gross"))
    set_time(terminal, 2, "1999-01-01T00:00:00Z")
    relabel(terminal, "--units", "gross=MWh")
    assert verified(terminal) == 8


OPTIONAL = """
@h5sweep.sweep(seed=range(2){more})
def f(seed, hub=80):
    return {{"x": seed + hub}}
"""


def test_the_same_code_has_two_numbers_around_a_relabel(terminal: Terminal, run: Run) -> None:
    """It was called without the parameter before; a run says nothing, and redoes nothing."""
    run(OPTIONAL.format(more=""))
    relabel(terminal, "--add", "hub=80")
    said = run(OPTIONAL.format(more=", hub=[80, 100]"), "--changed", "redo").stderr
    assert "2 kept, 2 to do\n" in said and "changed" not in said
    assert rows(terminal, "x", "code") == {"x": [80, 81, 100, 101], "code": [1, 1, 2, 2]}
    assert verified(terminal) == 4


def test_a_copy_of_the_output_alone_can_be_replayed(terminal: Terminal, run: Run) -> None:
    """It says itself what was relabelled; a run folder that adopts it knows that too."""
    run(BEFORE)
    relabel(terminal, "--add", "hub_height=110.0", "--rename", "aep=gross")
    (terminal.folder / "far").mkdir()
    shutil.copy(terminal.folder / "out.h5", terminal.folder / "far/out.h5")
    assert verified(terminal, "far/out.h5") == 4
    shutil.rmtree(terminal.folder / "out.h5.run")
    run(ADDED.replace("aep", "gross"))
    relabel(terminal, "--rename", "gross=net")
    assert verified(terminal) == 8


def test_axes_that_were_relabelled_as_advised_are_no_change(terminal: Terminal, run: Run) -> None:
    run(BEFORE)
    relabel(terminal, "--dims", "layout=turbine,xy", "--units", "aep=MWh")
    said = run(LABELLED).stderr
    assert "4 kept, 1 to do" in said and "changed" not in said


UNITS = """
@h5sweep.sweep(seed=range(4), units={{"p": "{unit}"}})
def f(seed):
    if seed == 2 and os.path.exists("bad"):
        raise ValueError("bad")
    return {{"p": seed * {factor}}}
"""


@pytest.fixture
def half_redone(terminal: Terminal, run: Run) -> str:
    """Rows in m, of which all but one were run again in km; what the second run said."""
    run(UNITS.format(unit="m", factor=1000))
    (terminal.folder / "bad").touch()
    return run(UNITS.format(unit="km", factor=1), "--changed", "redo", check=1).stderr


def test_a_redo_of_other_units_that_fails_says_how_far_it_is(half_redone: str) -> None:
    """The merge has to wait: a column has one unit."""
    assert "4 of 4 done, 1 failed" in half_redone
    assert "not merged, out.h5 stays as it is: units: p is 'km' in the study" in half_redone
    assert "is up to date" not in half_redone


@pytest.mark.usefixtures("half_redone")
def test_rows_of_two_units_are_not_given_one(terminal: Terminal) -> None:
    terminal.run("redo", "out.h5", "--cancel")
    said = relabel(terminal, "--units", "p=km", check=2)
    assert "units: p is 'm' in 1 row of code 1 and 'km' in 3 rows of code 2" in said
    assert "h5sweep run study.py -o out.h5 --changed redo" in said
    (terminal.folder / "bad").unlink()
    terminal.run("run", "study.py", "-o", "out.h5", "--changed", "redo")
    assert rows(terminal, "p")["p"] == [0, 1, 2, 3]


def test_units_are_taken_back_to_those_of_the_rows(terminal: Terminal, run: Run) -> None:
    """Not to those of a study that has run nothing yet."""
    run(UNITS.format(unit="m", factor=1000))
    words = ("--changed", "redo", "--only", "seed=2")
    (terminal.folder / "bad").touch()
    run(UNITS.format(unit="km", factor=1), *words, check=1)
    terminal.run("redo", "out.h5", "--cancel")
    relabel(terminal, "--units", "p=km")
    assert "units of p: m\n" in relabel(terminal, "--undo")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert np.bytes_(file["p"].attrs["units"]) == b"m"


RETURNS = """
@h5sweep.sweep(seed=range({seeds}))
def f(seed):
    # {comment}
    return {{"aep": seed{more}}}
"""


def test_a_study_that_still_returns_a_renamed_result_is_stopped(
    terminal: Terminal, run: Run
) -> None:
    """Its code is as before, so it would; the way out is named, and works."""
    run(RETURNS.format(seeds=2, comment="", more=""))
    relabel(terminal, "--rename", "aep=gross")
    grown = RETURNS.format(seeds=4, comment="", more="")
    said = run(grown, check=2).stderr
    assert "aep is called gross in out.h5 since it was relabelled" in said
    assert "h5sweep relabel out.h5 --undo" in said
    relabel(terminal, "--undo")
    run(grown)
    assert rows(terminal, "aep")["aep"] == [0, 1, 2, 3]
    assert verified(terminal) == 4


@pytest.mark.parametrize("without", ["", "records"])
def test_two_columns_of_a_renamed_result_become_one_again(
    terminal: Terminal, run: Run, without: str
) -> None:
    """A study that was edited, and returns the old name, is told so when it is merged."""
    run(RETURNS.format(seeds=2, comment="", more=""))
    relabel(terminal, "--rename", "aep=gross")
    said = run(RETURNS.format(seeds=4, comment="", more=" + 0")).stderr
    assert "aep is called gross since a relabel, and newer rows have aep" in said
    assert verified(terminal) == 4
    if without:
        terminal.run("clean", "out.h5", "--yes")
    relabel(terminal, "--undo")
    assert rows(terminal, "aep")["aep"] == [0, 1, 2, 3]
    assert "gross" not in columns(terminal)
    assert verified(terminal) == 4
