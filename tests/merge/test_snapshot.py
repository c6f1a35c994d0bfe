"""Results while a run goes on: snapshots, and what h5sweep.open makes of a run folder."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import h5sweep
from running import until
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", 2)
GATED = """
def may_go(token):
    try:
        os.unlink(f"tokens/{token}")
    except FileNotFoundError:
        return False
    return True

@h5sweep.sweep(seed=range(20), dims={"layout": ("turbine", "xy")})
def f(seed):
    while not any(may_go(token) for token in os.listdir("tokens")):
        time.sleep(0.005)
    return {"aep": seed / 7, "layout": np.full((1 + seed % 3, 2), seed), "name": f"s{seed}"}
"""
SQUARES = """
@h5sweep.sweep(seed=range({seeds}))
def f(seed):
    return {{"x": seed ** 2 + {plus}}}
"""


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def rows(path: Path) -> dict[int, tuple[object, ...]]:
    """Each row of a sweep of GATED, by its seed."""
    with h5sweep.open(path) as data:
        if not data.sizes["task"]:
            return {}
        ends = data.n_turbine.values.cumsum()[:-1]
        layouts = [layout.tolist() for layout in np.split(data["layout"].values, ends)]
        columns = (data.aep.values, layouts, data["name"].values, data.row_crc32.values)
        return dict(zip(data.seed.values.tolist(), zip(*columns, strict=True), strict=True))


def test_ten_snapshots_of_a_run_are_subsets_of_its_end(terminal: Terminal, study: Study) -> None:
    """Each has what was finished by then, with the values of the end; the run notices nothing."""
    study(GATED)
    output, found = terminal.folder / "out.h5", []
    (terminal.folder / "tokens").mkdir()
    run = terminal.start(*RUN)
    try:
        until(lambda: output.with_name("out.h5.run").exists())
        for number in range(2, 20, 2):
            let_two_end(terminal, number)
            terminal.run("merge", "out.h5", "--snapshot", "peek.h5")
            found.append(rows(terminal.folder / "peek.h5"))
            assert rows(output) == found[-1]  # h5sweep.open during the run
            assert len(found[-1]) == number and not output.exists()
        for token in "ab":
            (terminal.folder / "tokens" / token).touch()
        said = run.communicate(timeout=60)
        assert run.returncode == 0, said
    finally:
        run.kill()
        run.communicate()
    terminal.run("merge", "out.h5", "--snapshot", "peek.h5")
    found.append(rows(terminal.folder / "peek.h5"))
    shutil.rmtree(terminal.folder / "out.h5.run")
    final = rows(output)
    assert len(found) == 10 and len(final) == 20
    for part in found:
        assert part == {seed: final[seed] for seed in part}


def let_two_end(terminal: Terminal, number: int) -> None:
    for token in "ab":
        (terminal.folder / "tokens" / token).touch()
    output = terminal.folder / "out.h5"
    until(lambda: h5sweep.read_status(output).done == number, within_s=60)


def test_a_snapshot_changes_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that no plan has are numbered in it, and nowhere else; no file stays behind."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with h5sweep.Recorder(tmp_path / "own.h5") as recorder:
        recorder.write({"seed": 7}, x=12.5)
        before = contents(tmp_path)
        with h5sweep.open(tmp_path / "own.h5") as data:
            assert data.x.values.tolist() == [12.5]
        assert contents(tmp_path) == before
        recorder.write({"seed": 8}, x=13.5)
        with h5sweep.open(tmp_path / "own.h5") as data:
            assert data.seed.values.tolist() == [7, 8]
    assert not (tmp_path / "own.h5.run" / "plan.jsonl").exists()


def test_open_has_what_the_output_lacks(terminal: Terminal, study: Study) -> None:
    """New tasks, and new results of tasks that were run again; the output stays as it is."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN)
    study(SQUARES.format(seeds=5, plus=100))
    terminal.run(*RUN, "--no-merge", "--changed", "keep")
    output = terminal.folder / "out.h5"
    before = output.read_bytes()
    with h5sweep.open(output) as data:
        assert data.x.values.tolist() == [0, 1, 4, 109, 116]
        assert data.code.values.tolist() == [1, 1, 1, 2, 2]
        assert data.attrs["h5sweep_snapshot"] == "out.h5"
    terminal.run("redo", "out.h5", "seed=1")
    terminal.run(*RUN, "--no-merge", "--changed", "keep")
    with h5sweep.open(output) as data:
        assert data.x.values.tolist() == [0, 101, 4, 109, 116]
    assert output.read_bytes() == before


def test_rows_without_records_are_in_a_snapshot(terminal: Terminal, study: Study) -> None:
    """What only the output has is taken from there, by the code that it names."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN)
    for path in (terminal.folder / "out.h5.run" / "records").iterdir():
        path.unlink()
    study(SQUARES.format(seeds=4, plus=100))
    terminal.run(*RUN, "--no-merge", "--changed", "keep")
    with h5sweep.open(terminal.folder / "out.h5") as data:
        assert data.x.values.tolist() == [0, 1, 4, 109]
        assert data.code.values.tolist() == [1, 1, 1, 2]


def test_an_output_that_has_everything_is_opened_itself(terminal: Terminal, study: Study) -> None:
    """Also if its records are gone, or if a task has failed since."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN)

    def is_itself() -> bool:
        with h5sweep.open(terminal.folder / "out.h5") as data:
            return "h5sweep_snapshot" not in data.attrs and data.sizes["task"] == 3

    assert is_itself()
    study(SQUARES.format(seeds=4, plus="[][seed]"))
    terminal.run(*RUN, "--no-merge", "--changed", "keep", check=1)
    assert is_itself()
    for path in (terminal.folder / "out.h5.run" / "records").iterdir():
        path.unlink()
    assert is_itself()


def test_a_run_without_a_result_gives_no_rows(terminal: Terminal, study: Study) -> None:
    """That is no error: there are columns of keys and no rows."""
    study(SQUARES.format(seeds=3, plus="[][seed]"))
    terminal.run(*RUN, "--no-merge", check=1)
    with h5sweep.open(terminal.folder / "out.h5") as data:
        assert data.sizes["task"] == 0 and "seed" in data


def test_a_snapshot_replaces_snapshots_only(terminal: Terminal, study: Study) -> None:
    """Not its output, not another output, not any other file."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN)
    shutil.copy(terminal.folder / "out.h5", terminal.folder / "other.h5")
    before = contents(terminal.folder)
    for name in ("out.h5", "other.h5", "study.py", "out.h5.run"):
        said = terminal.run("merge", "out.h5", "--snapshot", name, check=2).stderr
        assert "is not a snapshot: name a file that is not there" in said or "is a study" in said
    assert contents(terminal.folder) == before
    (terminal.folder / "out.h5").unlink()  # as before the first merge
    said = terminal.run("merge", "out.h5", "--snapshot", "out.h5", check=2).stderr
    assert "out.h5 is for the run to write: give the snapshot another name" in said
    said = terminal.run("merge", "out.h5", "--snapshot", "x.h5", "-o", "y.h5", check=2).stderr
    assert "--snapshot is for the output of a run: leave out -o" in said


def test_a_run_continues_from_a_snapshot(terminal: Terminal, study: Study) -> None:
    """It is an output like any other, which knows where it is from."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN, "--no-merge")
    said = terminal.json("merge", "out.h5", "--snapshot", "peek.h5", check=0)
    assert (said["way"], said["output"], said["tasks"]) == ("snapshot", "peek.h5", 3)
    done = terminal.run("run", "study.py", "-o", "peek.h5").stderr
    assert "3 kept, 0 to do" in done


def test_a_snapshot_goes_to_another_process(terminal: Terminal, study: Study) -> None:
    """As a dataset of an output does: joblib, multiprocessing and Dask pickle what they hand on."""
    study(SQUARES.format(seeds=3, plus=0))
    terminal.run(*RUN, "--no-merge")
    with h5sweep.open(terminal.folder / "out.h5") as data:
        assert "h5sweep_snapshot" in data.attrs
        for given in (data, data.load()):
            got = pickle.loads(pickle.dumps(given))
            assert got.x.values.tolist() == [0, 1, 4]
