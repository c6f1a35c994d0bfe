"""Column files that may share tasks: without a key all rows are kept, and never without a word."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from h5sweep import merge_files
from h5sweep.errors import ConflictError
from terminal import Terminal

FARM = {"farm_id": np.full(4, 1)}
LARGE = np.arange(4) * 2**60  # of more values than can be counted


def write(folder: Path, number: int, *, grows: bool = False, **columns: object) -> None:
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / f"w{number}.h5", "w") as file:
        for name, values in columns.items():
            if grows:
                file.create_dataset(name, data=values, maxshape=(None,))
            else:
                file[name] = values


@pytest.mark.parametrize("shift", [0.0, 9.0], ids=["equal", "different"])
def test_a_row_that_two_files_have_is_said_and_the_advice_works(
    terminal: Terminal, shift: float
) -> None:
    """All rows are kept; the key that is advised takes each task once, or names both places."""
    for number in range(2):
        seed = np.arange(4) + 3 * number
        write(terminal.folder / "in", number, **FARM, seed=seed, aep=seed + shift * number)
    done = terminal.run("merge", "in", "-o", "kept.h5")
    assert "1 row may occur twice: farm_id=1, seed=3 is in in/w0.h5 and in in/w1.h5" in done.stderr
    assert "wrote kept.h5 (8 rows from 2 files; " in done.stderr
    assert len(h5py.File(terminal.folder / "kept.h5")["seed"]) == 8
    advice = re.search(r"(--key) (\S+) with another -o", done.stderr)
    assert advice is not None
    words = ("merge", "in", "-o", "other.h5", *advice.groups())
    done = terminal.run(*words, check=3 if shift else 0)
    if shift:
        assert "two different results for farm_id=1, seed=3" in done.stderr
        terminal.run(*words, "--on-conflict", "last")
    else:
        assert "7 tasks from 2 files, 1 more was an equal duplicate" in done.stderr
    assert len(h5py.File(terminal.folder / "other.h5")["seed"]) == 7


APART = {
    "integers": lambda n: {"farm_id": np.full(4, n), "seed": np.arange(4)},
    "large integers": lambda n: {"farm_id": np.full(4, n), "seed": LARGE},
    "texts": lambda n: {"farm": [f"farm{n}"] * 4, "seed": np.arange(4)},
    "fixed texts": lambda n: {"farm": np.full(4, b"farm%d" % n), "seed": np.arange(4)},
}


@pytest.mark.parametrize("kind", APART)
def test_rows_that_a_column_tells_apart_are_not_suspected(tmp_path: Path, kind: str) -> None:
    """A seed that every file has is no duplicate where the farm differs; that it was looked for
    is in the report."""
    for number in range(3):
        write(tmp_path / "in", number, **APART[kind](number), aep=np.zeros(4))
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert report.notes == () and report.tasks == 12
    assert report.once_by in (("farm_id", "seed"), ("farm", "seed"))


SHARED = {
    "integers": lambda n: {"seed": np.arange(4)},
    "large integers": lambda n: {"seed": LARGE},
    "texts": lambda n: {"farm": ["a", "b", "c", f"d{n}"]},
}


@pytest.mark.parametrize("kind", SHARED)
def test_a_suspicion_drops_no_row(tmp_path: Path, kind: str) -> None:
    """The files may be of farms that nothing names: whether rows are the same, the user says."""
    for number in range(3):
        write(tmp_path / "in", number, **SHARED[kind](number), aep=np.arange(4) + 0.1 * number)
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    (note,) = report.notes
    assert note.startswith("6 rows" if kind == "texts" else "8 rows") and "all are kept" in note
    assert (report.tasks, report.once_by) == (12, ())


NOT_LOOKED_FOR = {
    "no integer or text column tells rows apart": {"speed": [0.5, 1.5]},
    r"farm_id does not tell the rows of .*w0\.h5 apart": {"farm_id": [7, 7], "speed": [0.5, 1.5]},
}


@pytest.mark.parametrize("why", NOT_LOOKED_FOR)
def test_that_nothing_was_looked_for_is_said_and_the_advice_works(tmp_path: Path, why: str) -> None:
    """Where no column can be taken for a key, one sentence says so; a named one is taken."""
    columns = {name: np.array(values) for name, values in NOT_LOOKED_FOR[why].items()}
    for number in range(2):
        speed = np.array(NOT_LOOKED_FOR[why]["speed"]) + number
        columns = {**columns, "speed": speed, "yields": 2 * speed}
        # Numbers alone are columns only if they grow: else they may be the arrays of one task.
        write(tmp_path / "in", number, grows=True, **columns)
    (note,) = merge_files(tmp_path / "in", tmp_path / "out.h5").notes
    assert re.search(f"no search for duplicates: {why}", note)
    report = merge_files(tmp_path / "in", tmp_path / "other.h5", key="speed")
    assert (report.tasks, report.duplicates) == (3, 1)


def test_a_single_file_is_not_looked_into(tmp_path: Path) -> None:
    """Rows of one file are what its program wrote, whatever they hold."""
    write(tmp_path / "in", 0, speed=np.zeros(3), aep=np.zeros(3))
    write(tmp_path / "in", 1, speed=np.zeros(0), aep=np.zeros(0))
    assert merge_files(tmp_path / "in", tmp_path / "out.h5").notes == ()


def test_rows_of_equal_files_are_said_once(tmp_path: Path) -> None:
    """A copy of a file is named, and its rows are not told a second time."""
    for number in range(2):
        write(tmp_path / "in", number, seed=np.arange(3), aep=np.arange(3.0))
    (note,) = merge_files(tmp_path / "in", tmp_path / "out.h5").notes
    assert "is equal to" in note


def test_fields_of_compounds_are_looked_at(tmp_path: Path) -> None:
    """A table of one dataset has its key in fields; the advice names them."""
    for number in range(2):
        rows = np.zeros(3, [("seed", "i4"), ("kind", "S3"), ("aep", "f8")])
        rows["seed"], rows["aep"] = np.arange(3) + 2 * number, np.arange(3) + 2 * number
        (tmp_path / "in").mkdir(exist_ok=True)
        with h5py.File(tmp_path / f"in/w{number}.h5", "w") as file:
            file.create_dataset("table", data=rows, maxshape=(None,))
    (note,) = merge_files(tmp_path / "in", tmp_path / "out.h5").notes
    assert "1 row may occur twice: kind=, seed=2" in note and "--key kind,seed" in note
    report = merge_files(tmp_path / "in", tmp_path / "other.h5", key="kind,seed")
    assert (report.tasks, report.duplicates) == (5, 1)


def test_a_file_written_anew_under_an_old_name_is_looked_at_too(tmp_path: Path) -> None:
    """Added to an output that has some of its rows, it is not added in silence."""
    for number in range(2):
        write(tmp_path / "in", number, seed=np.arange(3) + 3 * number, aep=np.arange(3.0))
    merge_files(tmp_path / "in", tmp_path / "out.h5")
    write(tmp_path / "in", 1, seed=np.array([9, 4]), aep=np.array([0.5, 1.0]))
    report = merge_files([tmp_path / "out.h5", tmp_path / "in"], tmp_path / "out.h5")
    assert any("all its rows are added" in note for note in report.notes)
    assert any("1 row may occur twice: seed=4" in note for note in report.notes)
    with pytest.raises(ConflictError, match="seed=1"):
        write(tmp_path / "in", 2, seed=np.array([1]), aep=np.array([7.0]))
        merge_files(tmp_path / "in", tmp_path / "other.h5", key="seed")
