"""Results in files of other kinds: every value of every row, whole or not at all."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas
import pytest
import xarray

import h5sweep
from h5sweep.errors import StorageError, UsageError
from h5sweep.merge.export import KINDS, export_results
from running import tmpfs
from terminal import Terminal

RESULTS = {
    (0, "a"): {"aep": 0.1, "steps": 2**60 + 1, "layout": np.ones((2, 2)), "note": 'x, "y"\n'},
    (0, "b"): {"aep": float("nan"), "layout": np.zeros((1, 2)), "ok": True},
    (1, "a"): {"aep": float("inf"), "steps": -3, "layout": np.full((3, 2), np.nan), "z": 1 + 2j},
}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Three of the four tasks of a product, recorded and not merged."""
    path = tmp_path / "own.h5"
    with h5sweep.Recorder(path) as recorder:
        for (number, kind), values in RESULTS.items():
            recorder.write({"number": number, "kind": kind}, **values)
    return path


def test_csv_has_every_value(output: Path, tmp_path: Path) -> None:
    """Ints with all their digits, arrays as JSON, nothing where there is nothing or NaN."""
    export_results(output, "csv", tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        first, second, third = csv.DictReader(file)
    assert list(first)[:2] == ["number", "kind"]
    assert (first["number"], first["kind"], first["aep"]) == ("0", "a", "0.1")
    assert (first["steps"], second["steps"], third["steps"]) == (str(2**60 + 1), "", "-3")
    assert (second["aep"], third["aep"], second["ok"], first["ok"]) == ("", "inf", "True", "")
    assert json.loads(first["layout"]) == [[1, 1], [1, 1]]
    assert json.loads(third["layout"]) == [[None, None]] * 3
    assert (first["note"], third["z"]) == ('x, "y"\n', "[1.0, 2.0]")
    assert first["finished_at"].endswith("Z") and first["code"] == "0"


def test_csv_of_many_blocks_keeps_rows_together(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read a block at a time; each keeps its own key."""
    export_results(output, "csv", tmp_path / "x.csv")
    monkeypatch.setattr("h5sweep.output.csv_rows._ROWS_AT_ONCE", 2)
    export_results(output, "csv", tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text() == (tmp_path / "x.csv").read_text()


def test_parquet_has_every_row(output: Path, tmp_path: Path) -> None:
    """Arrays are lists of lists."""
    export_results(output, "parquet", tmp_path / "x.parquet")
    table = pandas.read_parquet(tmp_path / "x.parquet")
    assert table.number.tolist() == [0, 0, 1] and table.kind.tolist() == ["a", "b", "a"]
    assert [np.array(list(map(list, cell))).shape for cell in table["layout"]] == [
        (2, 2),
        (1, 2),
        (3, 2),
    ]


def test_the_grid_is_netcdf(output: Path, tmp_path: Path) -> None:
    """It reads back as what to_grid gives, and is not taken for an output."""
    export_results(output, "netcdf_grid", tmp_path / "x.nc")
    with (
        h5sweep.open(output) as data,
        xarray.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as back,
    ):
        assert back.equals(h5sweep.to_grid(data))
        assert back.aep.sel(number=0, kind="a") == 0.1
        assert "h5sweep_format" not in back.attrs


def test_the_grid_is_a_zarr_store(output: Path, tmp_path: Path) -> None:
    """It reads back as what to_grid gives."""
    export_results(output, "zarr", tmp_path / "x.zarr")
    with h5sweep.open(output) as data, xarray.open_zarr(tmp_path / "x.zarr") as back:
        assert back.equals(h5sweep.to_grid(data))
        assert back.aep.sel(number=0, kind="a") == 0.1


def test_a_store_that_cannot_be_written_leaves_nothing(output: Path, tmp_path: Path) -> None:
    """A folder that is there stays as it is, and a full disk leaves no half of a store."""
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(UsageError, match="is a folder, which is never replaced"):
        export_results(output, "zarr", tmp_path / "x.zarr", force=True)
    with tmpfs(tmp_path / "small", "size=16k"):
        with pytest.raises(StorageError):
            export_results(output, "zarr", tmp_path / "small" / "x.zarr")
        assert list((tmp_path / "small").iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_dash_is_no_file(
    output: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere it is standard output: no file of that name is made."""
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match="not to standard output: name one"):
        export_results(output, kind, Path("-"))
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_replaced_unasked(output: Path, tmp_path: Path, kind: str) -> None:
    """An existing file needs force, and an output is never replaced."""
    target = tmp_path / "there"
    target.write_text("mine")
    with pytest.raises(UsageError, match="exists: give another name"):
        export_results(output, kind, target)
    assert target.read_text() == "mine"
    if kind != "zarr":  # a folder, which never takes the place of anything
        export_results(output, kind, target, force=True)
        assert target.read_bytes() != b"mine"
    with pytest.raises(UsageError, match="is the output of a run"):
        export_results(output, kind, output, force=True)


@pytest.mark.parametrize(
    ("kind", "module"), [("parquet", "pyarrow"), ("netcdf_grid", "h5netcdf"), ("zarr", "zarr")]
)
def test_what_is_not_installed_is_named(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str
) -> None:
    """With the extra to install; nothing is written."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        UsageError, match=rf"{module}.*pip install 'h5sweep\[(parquet|xarray|zarr)\]'"
    ):
        export_results(output, kind, tmp_path / "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.h5.run"]


def test_rows_that_were_changed_are_not_exported(
    terminal: Terminal, study: Callable[[str], Path]
) -> None:
    """An output that somebody has edited is damaged, and no file is made of it."""
    study('@h5sweep.sweep(seed=range(3))\ndef f(seed): return {"x": seed}\n')
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    terminal.run("export", "out.h5", "--csv", "x.csv")
    (terminal.folder / "x.csv").unlink()
    for path in (terminal.folder / "out.h5.run" / "records").iterdir():
        path.unlink()
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        file["x"][1] = 7
    said = terminal.run("export", "out.h5", "--csv", "x.csv", check=3).stderr
    assert "out.h5 has changed since it was merged, in 1 row" in said
    assert not (terminal.folder / "x.csv").exists()


def test_what_is_no_output_is_refused(terminal: Terminal) -> None:
    """A study, a file of another program, nothing; and no option at all."""
    (terminal.folder / "study.py").touch()
    with h5py.File(terminal.folder / "other.h5", "w") as file:
        file["x"] = [1, 2]
    for name, words in (
        ("study.py", "is a study"),
        ("other.h5", "is not the output of a run"),
        ("nothing.h5", "there is no run folder"),
    ):
        assert words in terminal.run("export", name, "--csv", "x.csv", check=2).stderr
    assert "say what to write" in terminal.run("export", "other.h5", check=2).stderr
