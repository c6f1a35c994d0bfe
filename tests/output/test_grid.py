"""Results as a grid over the parameters and as a table: every value at its key, gaps elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import h5sweep
from h5sweep.errors import UsageError
from h5sweep.output import grid
from terminal import Terminal

Results = dict[tuple[int, str], dict[str, Any]]
LACKING = (2, "b")


def result(number: int, kind: str) -> dict[str, Any]:
    """One task's result: arrays of one shape, of different lengths, of different shapes."""
    rng = np.random.default_rng([number, ord(kind)])
    return {
        "aep": number / 7,
        "steps": number,
        "ok": number == 1,
        "name": f"{kind}{number}",
        "when": np.datetime64("2024-01-31") + number,
        "grid": rng.random((2, 3)),
        "layout": rng.random((number + 1, 2)),
        "power": rng.random(number + 1),
        "paths": rng.random((number, 4 - number)) if number else rng.random(),
        "z": complex(number, 1),
    }


@pytest.fixture
def data(tmp_path: Path) -> Iterator[tuple[Any, Results]]:
    """Six tasks over number and kind, of which one has no result."""
    results = {(n, k): result(n, k) for n in range(3) for k in "ab" if (n, k) != LACKING}
    with h5sweep.Recorder(tmp_path / "own.h5") as recorder:
        for (number, kind), values in results.items():
            recorder.write({"number": number, "kind": kind}, **values)
    with h5sweep.open(tmp_path / "own.h5") as dataset:
        yield dataset, results


def test_each_value_is_at_its_key(data: tuple[Any, Results]) -> None:
    """Also each array, at the beginning of its cell, with NaN behind its end."""
    dataset, results = data
    cube = dataset.h5sweep.to_grid()
    assert cube.aep.dims == ("number", "kind")
    for (number, kind), values in results.items():
        cell = cube.sel(number=number, kind=kind)
        for name, value in values.items():
            found, expected = cell[name].values, np.asarray(value)
            if name == "when":
                assert found == expected
                continue
            expected = expected.reshape((1,) * (found.ndim - expected.ndim) + expected.shape)
            inside = tuple(map(slice, expected.shape))
            np.testing.assert_array_equal(found[inside], expected, err_msg=name)
            if found.dtype.kind == "f" and found.ndim:
                assert np.isnan(found).sum() == found.size - expected.size


def test_a_task_without_a_result_is_a_gap(data: tuple[Any, Results]) -> None:
    """NaN, NaT or an empty text; ints and bools are floats then."""
    cell = data[0].h5sweep.to_grid().sel(number=LACKING[0], kind=LACKING[1])
    assert cell["name"].item() == ""
    for name in ("aep", "steps", "ok", "when", "grid", "layout", "power", "paths", "z"):
        assert cell[name].isnull().all(), name


def test_a_full_grid_keeps_its_types(data: tuple[Any, Results]) -> None:
    """Where nothing is missing, ints stay ints and bools stay bools."""
    cube = data[0].isel(task=slice(0, 4)).drop_vars(["layout", "power", "paths"]).h5sweep.to_grid()
    assert cube.sizes["number"] == 2
    assert (cube.steps.dtype, cube.ok.dtype) == (np.int64, bool)


def test_a_grid_says_nothing_of_how_an_output_is_stored(data: tuple[Any, Results]) -> None:
    """A file made of it is not taken for an output."""
    cube = h5sweep.to_grid(data[0])
    about = [cube.attrs, *(variable.attrs for variable in cube.variables.values())]
    assert not [name for attrs in about for name in attrs if name.startswith("h5sweep_")]
    assert "row_crc32" not in cube


def test_a_table_has_what_tasks_returned(data: tuple[Any, Results]) -> None:
    """One row a task, key first, arrays in their cells with their shapes."""
    dataset, results = data
    table = dataset.h5sweep.to_dataframe()
    assert list(table.columns[:2]) == ["number", "kind"]
    assert list(table.columns[-3:]) == ["code", "duration_s", "finished_at"]
    assert not {"n_layout", "paths_shape"} & set(table.columns)
    for row in table.itertuples():
        for name, value in results[row.number, row.kind].items():
            found = getattr(row, name)
            np.testing.assert_array_equal(np.asarray(found, np.asarray(value).dtype), value)
            assert np.shape(found) == np.shape(value)


def test_rows_that_do_not_fit_their_arrays_are_refused(data: tuple[Any, Results]) -> None:
    """Some of the rows with all of the arrays would give each task another's array."""
    for make in (h5sweep.to_grid, h5sweep.to_dataframe):
        with pytest.raises(UsageError, match="select rows behind to_grid"):
            make(data[0].isel(task=[1, 2]))
        with pytest.raises(UsageError, match=r"take one that h5sweep\.open has given"):
            make(h5sweep.to_grid(data[0]))


def test_a_grid_that_is_nearly_empty_is_refused(
    data: tuple[Any, Results], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before memory runs out, with what to do instead."""
    monkeypatch.setattr(grid, "_MOST_CELLS", 5)
    monkeypatch.setattr(grid, "_MOST_CELLS_PER_ROW", 1)
    with pytest.raises(UsageError, match=r"number \(3\) × kind \(2\) would have 6 cells for 5"):
        h5sweep.to_grid(data[0])


def test_no_rows_are_an_empty_grid_and_table(tmp_path: Path, study: Callable[[str], Path]) -> None:
    """Before the first result there is nothing in them."""
    with h5sweep.Recorder(tmp_path / "own.h5") as recorder:
        recorder.write({"seed": 1}, x=np.zeros(3))
    with h5sweep.open(tmp_path / "own.h5") as dataset:
        nothing = dataset.isel(task=slice(0, 0))
        assert nothing.h5sweep.to_grid().sizes["seed"] == 0
        assert len(nothing.h5sweep.to_dataframe()) == 0


def test_times_that_xarray_does_not_have_are_numbers(tmp_path: Path) -> None:
    """They cost no other column; units stay, under names by which nobody decodes."""
    far = np.datetime64(10**12, "D")
    with h5sweep.Recorder(tmp_path / "own.h5") as recorder:
        for seed in range(2):
            when = np.datetime64("2026-01-01") + seed
            recorder.write({"seed": seed}, far=far + seed, when=when, aep=seed / 2)
    Terminal(tmp_path).run("merge", "own.h5")
    files = ["--netcdf-grid", "grid.nc", "--csv", "own.csv", "--zarr", "grid.zarr"]
    Terminal(tmp_path).run("export", "own.h5", *files)
    with h5sweep.open(tmp_path / "own.h5") as data:
        assert data.far.values.tolist() == [10**12, 10**12 + 1]
        assert data.far.attrs["units_"] == "days since 1970-01-01"
        assert data.when.dtype.kind == "M"
        assert data.aep.values.tolist() == [0.0, 0.5]
        grid = data.h5sweep.to_grid()
    with xr.open_dataset(tmp_path / "grid.nc") as back:
        assert back.equals(grid)
