"""A column has one unit and one order of axes, and rows that were made without are given none."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

import h5sweep
from h5sweep import Recorder
from h5sweep.errors import ChangedStudyError
from read_page import read_page
from terminal import Terminal

Run = Callable[..., subprocess.CompletedProcess[str]]

STUDY = """
@h5sweep.sweep(seed={seeds}{labels})
def f(seed):
    if os.path.exists(f"bad{{seed}}"):
        raise ValueError("bad")
    return {{"p": seed * {factor}.0, "layout": np.full((3, 2), seed){more}}}
"""
METRES = ', units={"p": "m"}'
KM = ', units={"p": "km"}'
AXES = ', dims={"layout": ["turbine", "xy"]}'
NO_UNIT = "units: p is 'km' in the study, and no unit in 1 row of code 1, still to be run again"
NO_DIM = "dims: layout is 'turbine, xy' in the study, and no dim in 1 row of code 1"


@pytest.fixture
def run(terminal: Terminal, study: Callable[[str], Path]) -> Run:
    """Run the study with these labels into out.h5."""

    def run(
        labels: str,
        *words: str,
        factor: int = 1,
        seeds: str = "range(4)",
        more: str = "",
        check: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        study(STUDY.format(labels=labels, factor=factor, seeds=seeds, more=more))
        return terminal.run("run", "study.py", "-o", "out.h5", "-j", "1", *words, check=check)

    return run


@pytest.fixture
def half(terminal: Terminal, run: Run) -> Callable[[str, str], str]:
    """Rows with some labels, of which all but one were run again with others; what was said."""

    def half(before: str, now: str) -> str:
        run(before, factor=1000)
        (terminal.folder / "bad2").touch()
        said = run(now, "--changed", "redo", check=1).stderr
        (terminal.folder / "bad2").unlink()
        return said

    return half


Half = Callable[[str, str], str]


def unit(terminal: Terminal) -> str | None:
    with h5py.File(terminal.folder / "out.h5") as file:
        found = file["p"].attrs.get("units")
        return found.decode() if isinstance(found, bytes) else found


def values(terminal: Terminal) -> list[Any]:
    with h5py.File(terminal.folder / "out.h5") as file:
        found: list[Any] = file["p"][:].tolist()
        return found


def paste(terminal: Terminal, said: str, verb: str, after: str, check: int = 0) -> str:
    """Type the command that a message gives, in front of these words."""
    (command,) = re.findall(rf"h5sweep ({verb} [^:\n]*?){re.escape(after)}", said)
    return terminal.run(*shlex.split(command), check=check).stderr


@pytest.mark.parametrize(("labels", "said"), [(KM, NO_UNIT), (AXES, NO_DIM)])
def test_a_redo_that_is_half_done_gives_rows_no_label(
    terminal: Terminal, half: Half, labels: str, said: str
) -> None:
    """Nobody gets to see the rows of before under it: the run, merges, snapshots, copies."""
    assert f"not merged, out.h5 stays as it is: {said}" in half("", labels)
    before = (terminal.folder / "out.h5").read_bytes()
    for words in (
        ["merge", "out.h5"],
        ["merge", "out.h5", "--snapshot", "peek.h5"],
        ["export", "out.h5", "--csv", "peek.csv"],
    ):
        assert said in terminal.run(*words, check=2).stderr
    with pytest.raises(ChangedStudyError, match=re.escape(said)):
        h5sweep.open(terminal.folder / "out.h5")
    assert list(terminal.folder.glob("peek*")) == []
    assert (terminal.folder / "out.h5").read_bytes() == before


def test_a_redo_of_which_nothing_is_done_gives_no_unit(terminal: Terminal, run: Run) -> None:
    """As if it were killed at once."""
    run("")
    for seed in range(4):
        (terminal.folder / f"bad{seed}").touch()
    assert "no unit in 4 rows of code 1" in run(KM, "--changed", "redo", check=1).stderr
    assert unit(terminal) is None


def test_a_redo_that_ends_gives_the_unit(terminal: Terminal, half: Half) -> None:
    """By the command that the refusal names."""
    paste(terminal, half("", KM), "run", ". Before that")
    assert (unit(terminal), values(terminal)) == ("km", [0, 1, 2, 3])


def test_what_fails_each_time_is_taken_out(terminal: Terminal, half: Half, run: Run) -> None:
    """The rest is merged then."""
    half("", KM)
    said = run(KM, seeds="[0, 1, 3]", check=1).stderr
    assert "no unit in 1 row of code 1, of tasks that the study no longer has" in said
    paste(terminal, said, "merge", " leaves them out")
    assert (unit(terminal), values(terminal)) == ("km", [0, 1, 3])


def test_somebody_can_say_that_rows_are_in_the_unit(terminal: Terminal, half: Half) -> None:
    """What takes it back makes them rows without a unit again."""
    paste(terminal, half("", KM), "relabel", "\n")
    assert (unit(terminal), values(terminal)) == ("km", [0, 1, 2000, 3])
    assert NO_UNIT in terminal.run("relabel", "out.h5", "--undo", check=2).stderr


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_new_result_may_have_a_unit(terminal: Terminal, run: Run, is_cleaned: bool) -> None:
    """No row of before has it; gaps in the output are no values without a unit."""
    labels = ', units={"q": "GWh"}'
    run("")
    run(labels, seeds="range(6)", more=', "q": seed / 2')
    if is_cleaned:
        terminal.run("clean", "out.h5", "--yes")
    run(labels, seeds="range(7)", more=', "q": seed / 2')
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["q"].attrs["units"] in ("GWh", b"GWh")
        assert len(file["q"]) == 7


def test_rows_of_unknown_code_may_be_given_a_unit(terminal: Terminal, run: Run) -> None:
    """Nobody has said what a Recorder wrote."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 0}, p=7.0)
    run(KM)
    assert (unit(terminal), values(terminal)) == ("km", [7, 1, 2, 3])


def test_a_study_that_was_put_back_does_not_give_the_unit_either(
    terminal: Terminal, half: Half, run: Run
) -> None:
    """All is run again without one, as the refusal says."""
    half("", KM)
    said = run("", factor=1000, check=1).stderr
    assert "p is 'km' in an earlier study, and no unit in 1 row of code 1" in said
    assert unit(terminal) is None
    paste(terminal, said, "run", ". Before that")
    assert (unit(terminal), values(terminal)) == (None, [0, 1000, 2000, 3000])


def test_a_unit_is_not_taken_away_half_way(terminal: Terminal, half: Half) -> None:
    """A study that says none any more, and runs all again, has no unit at the end."""
    said = half(METRES, "")
    assert "p has no unit in the study, and 'm' in 1 row of code 1, still to be run" in said
    assert (unit(terminal), values(terminal)) == ("m", [0, 1000, 2000, 3000])
    paste(terminal, said, "run", ". Before that")
    assert (unit(terminal), values(terminal)) == (None, [0, 1, 2, 3])


@pytest.mark.parametrize(("before", "shown"), [(METRES, "2000.0 m\n"), ("", "2000.0\n")])
def test_tasks_and_pages_have_the_unit_of_the_rows(
    terminal: Terminal, run: Run, before: str, shown: str
) -> None:
    """Where there is no output yet, a page has one if all rows do."""
    run(before, "--no-merge", factor=1000)
    (terminal.folder / "bad2").touch()
    run(KM, "--changed", "redo", "--no-merge", check=1)
    assert f"p       {shown}" in terminal.run("show", "out.h5", "seed=2").stdout
    assert "p       3.0 km\n" in terminal.run("show", "out.h5", "seed=3").stdout
    assert "[km]" not in page(terminal)
    (terminal.folder / "bad2").unlink()
    run(KM, "--changed", "redo", "--no-merge")
    assert "[km]" in page(terminal)


def test_a_page_has_the_unit_of_the_output(terminal: Terminal, half: Half) -> None:
    """Its values are from there, whatever was run since."""
    half(METRES, KM)
    assert "[m]" in page(terminal)


def page(terminal: Terminal) -> str:
    terminal.run("report", "out.h5", "-o", "page.html")
    return read_page(terminal.folder / "page.html").text
