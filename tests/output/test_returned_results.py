"""Labels that tasks return are in the output, and values that cannot be stored are named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import h5sweep
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "--no-report", "-j", 2)
LABELLED = """
import xarray as xr

@h5sweep.sweep(farm=range(2), seed=range(3))
def f(farm, seed):
    values = np.full((2, 3), farm + seed / 10)
    power = xr.DataArray(values, dims=("wd", "ws"), attrs={"units": "kW"})
    coords = {"wd": [0, 180], "ws": ("ws", [4.0, 8.0, 12.0], {"units": "m/s"})}
    return xr.Dataset({"power": power}, coords)
"""


def opened(folder: Path) -> xr.Dataset:
    with h5sweep.open(folder / "out.h5") as data:
        return data.load()


def test_labels_of_a_dataset_are_in_the_output(terminal: Terminal, study: Study) -> None:
    """Axes, coordinates and units; also after the run folder is gone, and of rows made then."""
    study(LABELLED)
    terminal.run(*RUN, "--only", "seed=0..1")
    for _ in range(2):
        data = opened(terminal.folder)
        assert data.power.dims == ("task", "wd", "ws")
        assert data.power.attrs["units"] == "kW"
        assert data.ws.attrs["units"] == "m/s"
        assert "wd_coord" not in data
        found = data.power.sel(wd=180, ws=8.0).values.tolist()
        assert found == [farm + seed / 10 for farm, seed in zip(data.farm, data.seed, strict=True)]
        shutil.rmtree(terminal.folder / "out.h5.run")
        terminal.run(*RUN)
    assert opened(terminal.folder).sizes["task"] == 6
    grid = opened(terminal.folder).h5sweep.to_grid()
    assert grid.power.sel(farm=1, seed=2, wd=0, ws=4.0) == pytest.approx(1.2)
    verified = terminal.run("verify", "out.h5", "--sample", 2).stdout
    assert "equal                    2" in verified


NESTED = """
import pandas as pd
import xarray as xr

@h5sweep.sweep(farm=range(2), seed=range(3))
def f(farm, seed):
    coords = {"wd": ("wd", [0, 180], {"units": "deg"})}
    powers = [
        xr.DataArray(np.full(2, farm + seed / 10 + n), coords, ["wd"], attrs={"units": "kW"})
        for n in range(2 + farm)
    ]
    nodes = {"/": xr.Dataset(attrs={"who": "me"}), "/n": xr.Dataset(attrs={"seed": seed})}
    columns = pd.Index(["north", "south"], name="site")
    table = pd.DataFrame([[1.0, 2.0]], pd.Index(["x"], name="row"), columns)
    return {
        "powers": powers, "tree": xr.DataTree.from_dict(nodes), "tables": [table] * 2, "wd": 5.0
    }
"""


def test_labels_inside_lists_and_trees_are_in_the_output(terminal: Terminal, study: Study) -> None:
    """Also in a snapshot and of rows that only the output has. An axis has the name of a value."""
    study(NESTED)
    terminal.run(*RUN, "--no-merge", "--only", "seed=0..1")
    for _ in range(2):
        for data in (opened(terminal.folder), opened(terminal.folder).h5sweep.to_grid()):
            assert data.powers.dims[-2:] == ("powers_item", "wd_")
            assert data.powers.attrs["units"] == "kW"
            assert data.wd_.attrs == {"long_name": "wd", "units": "deg"}
            assert data.wd_.values.tolist() == [0, 180]
            assert data.tables_north.dims[-2:] == ("tables_item", "row")
            assert data.tables_north.attrs["site"] == "north"
            assert data.tables_south.sel(row="x").values.ravel().tolist()[:2] == [2.0, 2.0]
            assert data.tree_who.values.ravel().tolist()[0] == "me"
            assert data.wd.values.ravel().tolist()[0] == 5.0
        terminal.run(*RUN)
        shutil.rmtree(terminal.folder / "out.h5.run")
        study(NESTED.replace("range(3)", "range(4)"))
        terminal.run(*RUN, "--changed", "keep")
    table = opened(terminal.folder).h5sweep.to_dataframe()
    assert len(table) == 8
    for row in table.itertuples():
        first = row.farm + row.seed / 10
        np.testing.assert_array_equal(row.powers, [[first + n] * 2 for n in range(2 + row.farm)])
        assert row.tree_n_seed == row.seed
    terminal.run("export", "out.h5", "--netcdf-grid", "grid.nc")
    with xr.open_dataset(terminal.folder / "grid.nc") as grid:
        assert grid.powers.sel(farm=1, seed=2, wd_=180).values.tolist() == [1.2, 2.2, 3.2]
        assert grid.powers.units == "kW"


def test_an_axis_has_coordinates_only_if_they_hold_for_all_rows(
    terminal: Terminal, study: Study
) -> None:
    """Else each row has its own, and a note says so."""
    study(LABELLED.replace("[0, 180]", "[0, 180 + seed]"))
    said = terminal.run(*RUN).stderr
    assert "the coordinates of wd are not the same in all tasks: wd_coord has those of each" in said
    returned = "return xr"
    some = LABELLED.replace(returned, f"if seed: return {{'power': values}}\n    {returned}")
    study(some)
    said = terminal.run("run", "study.py", "-o", "some.h5").stderr
    assert "the coordinates of wd are not there in all tasks: wd_coord has those of each" in said
    data = opened(terminal.folder)
    assert "wd" not in data.indexes
    assert "ws" in data.indexes
    assert data.wd_coord.values[:, 1].tolist() == [180, 181, 182] * 2


def test_a_label_that_differs_between_rows_is_none_of_the_column(
    terminal: Terminal, study: Study
) -> None:
    """Also where new rows differ from those that only the output has."""
    study(LABELLED)
    terminal.run(*RUN, "--only", "seed=0..1")
    shutil.rmtree(terminal.folder / "out.h5.run")
    study(LABELLED.replace('"kW"', '"MW"'))
    said = terminal.run(*RUN).stderr
    assert "the attribute units of power differs between tasks ('MW', 'kW')" in said
    assert "units" not in opened(terminal.folder).power.attrs
    said = terminal.run(*RUN, "--changed", "redo").stderr
    assert opened(terminal.folder).power.attrs["units"] == "MW"


def test_a_unit_that_is_returned_counts_before_one_declared(
    terminal: Terminal, study: Study
) -> None:
    study(LABELLED.replace("seed=range(3)", 'seed=range(3), units={"power": "MW"}'))
    said = terminal.run(*RUN).stderr
    assert "power is returned in kW, and the study declares MW: the column says kW" in said
    assert opened(terminal.folder).power.attrs["units"] == "kW"


def test_rows_without_labels_have_none(terminal: Terminal, study: Study) -> None:
    """Those of rows that only the output has hold for these, however often it is merged again."""
    study(LABELLED)
    for seeds in ("0", "0..1"):
        terminal.run(*RUN, "--only", f"seed={seeds}")
        shutil.rmtree(terminal.folder / "out.h5.run")
    assert opened(terminal.folder).power.attrs["units"] == "kW"
    study(LABELLED.replace("return xr", "return {'power': values / 1000}\n    return xr"))
    said = terminal.run(*RUN).stderr
    assert "units of power differs between tasks ('kW' in some tasks, and none in others)" in said
    assert (
        "axes of power are not the same in all tasks (wd, ws in some, and none in others)" in said
    )
    data = opened(terminal.folder)
    assert "units" not in data.power.attrs
    assert data.power.dims != ("task", "wd", "ws")
    shutil.rmtree(terminal.folder / "out.h5.run")
    terminal.run(*RUN, "--changed", "redo")
    assert "units" not in opened(terminal.folder).power.attrs


def test_labels_that_were_returned_can_be_changed(terminal: Terminal, study: Study) -> None:
    """Those of records and of an output without them; and taken back."""
    study(LABELLED)
    terminal.run(*RUN)
    relabel = ["--rename", "power=pw", "--units", "pw=W", "--dims", "pw=dir,ws"]
    said = terminal.run("relabel", "out.h5", *relabel, "--rename", "wd_coord=dir_coord").stderr
    assert "is returned" not in said
    terminal.run("relabel", "out.h5", "--dims", "dir_coord=dir")
    for _ in range(2):
        data = opened(terminal.folder)
        assert data.pw.attrs["units"] == "W"
        assert data.pw.sel(dir=180, ws=8.0).dims == ("task",)
        terminal.run("merge", "out.h5")
    for _ in range(2):
        terminal.run("relabel", "out.h5", "--undo")
    assert opened(terminal.folder).power.attrs["units"] == "kW"
    assert opened(terminal.folder).power.sel(wd=180, ws=8.0).dims == ("task",)


COORDS = """
@h5sweep.sweep(seed=range(3), dims={"power": ("wd",)}, coords={"wd": range(0, 360, 90)})
def f(seed):
    return {"power": np.arange(4.0) + seed}
"""


def test_declared_coordinates_are_those_of_the_axis(terminal: Terminal, study: Study) -> None:
    """Numbers, texts and times; they stay when the run folder is gone."""
    study(COORDS)
    terminal.run(*RUN, "--only", "seed=0")
    assert opened(terminal.folder).power.sel(wd=270).values.tolist() == [3.0]
    shutil.rmtree(terminal.folder / "out.h5.run")
    study(COORDS.replace(", coords={", ", units={").replace("range(0, 360, 90)", '"deg"'))
    terminal.run(*RUN)
    data = opened(terminal.folder)
    assert data.power.sel(wd=270).values.tolist() == [3.0, 4.0, 5.0]
    assert data.wd.attrs["units"] == "deg"


@pytest.mark.parametrize(
    ("given", "selected"),
    [
        ('list("abcd")', "d"),
        ("np.arange(4) / 3", 1.0),
        ('np.arange("2026-01-01", "2026-01-05", dtype="M8[D]")', np.datetime64("2026-01-04")),
    ],
)
def test_coordinates_may_be_texts_numbers_or_times(
    terminal: Terminal, study: Study, given: str, selected: object
) -> None:
    study(COORDS.replace("range(0, 360, 90)", given))
    terminal.run(*RUN)
    assert opened(terminal.folder).power.sel(wd=selected).values.tolist() == [3.0, 4.0, 5.0]


def test_other_coordinates_stop_a_run_unless_all_is_run_again(
    terminal: Terminal, study: Study
) -> None:
    """Rows are never relabelled in silence, nor by a merge between."""
    study(COORDS)
    terminal.run(*RUN)
    study(COORDS.replace("360, 90", "720, 180"))
    said = terminal.run(*RUN, check=2).stderr
    assert "wd is 0, 180, 360, … (4 values) in the study but 0, 90, 180, … (4 values)" in said
    terminal.run(*RUN, "--changed", "redo", "--no-merge")
    terminal.run("merge", "out.h5")
    assert opened(terminal.folder).power.sel(wd=540).values.tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("coords", "words"),
    [
        ('{"wd": range(3)}', "coords has 3 values for wd, whose length has 4"),
        ('{"ws": range(3)}', "coords names ws, which is no axis of a result"),
    ],
)
def test_coordinates_that_fit_no_axis_are_told(
    terminal: Terminal, study: Study, coords: str, words: str
) -> None:
    study(COORDS.replace('{"wd": range(0, 360, 90)}', coords))
    assert words in terminal.run(*RUN).stderr
    assert not set(opened(terminal.folder).indexes) & {"wd", "ws"}


@pytest.mark.parametrize(
    ("coords", "words"),
    [
        ("[1]", "coords=[1]: coords says something of results"),
        ('{"w d": [1]}', "'w d' cannot be the name of an axis"),
        ('{"wd": [[1], [2]]}', "give a list of numbers, texts or times"),
        ('{"wd": 5}', "give a list of numbers, texts or times"),
    ],
)
def test_coordinates_that_are_none_are_refused(
    terminal: Terminal, study: Study, coords: str, words: str
) -> None:
    study(COORDS.replace('{"wd": range(0, 360, 90)}', coords))
    assert words in terminal.run(*RUN, check=2).stderr


PARTLY = """
@h5sweep.sweep(seed=range(4))
def f(seed):
    return {"aep": seed / 2, "model": print if seed == 2 else 1.0}
"""


def test_a_value_that_cannot_be_stored_is_named_wherever_one_looks(
    terminal: Terminal, study: Study
) -> None:
    """In the run, status, missing and the row; the result is kept and nothing is missing."""
    study(PARTLY)
    note = "model is builtin_function_or_method <built-in function print>: return numbers"
    first = "1 result lacks values that could not be stored, first seed=2: "
    assert first + note in terminal.run(*RUN).stderr
    assert first + note in terminal.run("status", "out.h5").stdout
    missing = terminal.run("missing", "out.h5")
    assert f"seed=2 is done, but not stored: {note}" in missing.stderr
    assert missing.stdout == ""
    assert terminal.json("status", "out.h5")["not_stored"].startswith(first)
    data = opened(terminal.folder)
    assert data.aep.values.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert data.not_stored.values[2].startswith(note)
    assert set(data.not_stored.values[[0, 1, 3]]) == {""}
    assert np.isnan(data.model.values[2])
    shown = terminal.run("show", "out.h5", "seed=2").stdout
    assert note in shown
    assert "attempts" not in shown
    assert "equal" in terminal.run("replay", "out.h5", "seed=2").stdout
    # Run again with code that returns a number, there is nothing to be said any more.
    study(PARTLY.replace("print", "2.0"))
    terminal.run(*RUN, "--changed", "redo")
    assert "lacks" not in terminal.run("status", "out.h5").stdout
    assert "not stored" not in terminal.run("missing", "out.h5").stderr


def test_a_trial_says_what_would_not_be_stored(terminal: Terminal, study: Study) -> None:
    study(PARTLY)
    assert "not stored: model is" in terminal.run(*RUN[:2], "--try", 4).stderr


def test_an_attribute_that_has_no_place_is_named(terminal: Terminal, study: Study) -> None:
    """As a value is; the value itself is kept."""
    study("""
        import xarray as xr

        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"aep": xr.DataArray(seed, attrs={"units": "GWh", "log": "x" * 70_000 * seed})}
    """)
    note = "seed=1: the attribute 'log' of aep is too long"
    assert (
        f"1 result lacks values that could not be stored, first {note}" in terminal.run(*RUN).stderr
    )
    assert (
        "seed=1 is done, but not stored: the attribute" in terminal.run("missing", "out.h5").stderr
    )
    data = opened(terminal.folder)
    assert data.aep.values.tolist() == [0, 1]
    assert data.aep.attrs["units"] == "GWh"


def test_a_result_of_nothing_but_none_is_a_row_of_gaps(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            there = {"aep": seed / 2, "steps": list(range(seed))}
            return {**({"aep": None, "steps": None} if seed == 2 else there), "rounds": None}
    """)
    terminal.run(*RUN)
    np.testing.assert_array_equal(opened(terminal.folder).aep, [0.0, 0.5, np.nan, 1.5])
    assert terminal.json("missing", "out.h5")["missing"] == []
    assert "seed=2: equal" in terminal.run("replay", "out.h5", "seed=2").stdout


def test_not_even_one_value_is_there(terminal: Terminal, study: Study) -> None:
    """All tasks return None for everything: rows without columns, and done."""
    study("@h5sweep.sweep(seed=range(3))\ndef f(seed):\n    return {'aep': None}\n")
    terminal.run(*RUN)
    assert opened(terminal.folder).seed.values.tolist() == [0, 1, 2]
    terminal.run(*RUN)


def test_tuples_are_named_by_the_annotation(terminal: Terminal, study: Study) -> None:
    """Also of a function that is given objects and constants."""
    study("""
        import datetime
        from typing import Annotated

        days = [datetime.date(2026, 3, 1), datetime.date(2026, 3, 2)]

        @h5sweep.sweep(day=days, constants={"scale": 2.0})
        def f(day, scale) -> tuple[Annotated[float, "aep"], int]:
            return day.day * scale, 7
    """)
    terminal.run(*RUN)
    data = opened(terminal.folder)
    assert data.aep.values.tolist() == [2.0, 4.0]
    assert data.result_1.values.tolist() == [7, 7]


def test_labels_are_part_of_a_record(terminal: Terminal, study: Study) -> None:
    """A key that says "key" among the attributes does not disturb who reads headers quickly."""
    study("""
        import xarray as xr

        @h5sweep.sweep(seed=range(40))
        def f(seed):
            said = {"key": "x", "note": 'a,"key":b', "data": 3}
            return {"aep": xr.DataArray(float(seed), attrs=said)}
    """)
    terminal.run(*RUN)
    data = opened(terminal.folder)
    assert data.aep.values.tolist() == list(range(40))
    assert data.aep.attrs["note"] == 'a,"key":b'
    assert json.loads(terminal.run("show", "out.h5", "seed=3", "--json").stdout)


def test_labels_go_with_records_that_are_merged_elsewhere(terminal: Terminal, study: Study) -> None:
    """Also if only the record files of a run are left; `show` has the unit of a task."""
    study(LABELLED)
    terminal.run(*RUN, "--no-merge")
    assert "in kW" in terminal.run("show", "out.h5", "farm=1", "seed=2").stdout
    terminal.run("merge", "out.h5.run/records", "-o", "other.h5", "--key", "{farm:d}_{seed:d}")
    with h5sweep.open(terminal.folder / "other.h5") as data:
        found = data.power.sel(wd=180, ws=8.0)
        assert found.values.tolist() == (data.farm + data.seed / 10).values.tolist()
        assert found.sizes["task"] == 6
        assert data.power.units == "kW"
    terminal.run("merge", "other.h5", "-o", "third.h5", "--key", "{farm:d}_{seed:d}")
    with h5sweep.open(terminal.folder / "third.h5") as data:
        assert data.power.sel(wd=180, ws=8.0).values.tolist() == found.values.tolist()
        assert data.power.units == "kW"


def test_a_recorder_takes_labels_and_refuses_what_cannot_be_stored(tmp_path: Path) -> None:
    with h5sweep.Recorder(tmp_path / "out.h5") as recorder:
        power = xr.DataArray([1.0, 2.0], {"wd": [0, 180]}, ["wd"], attrs={"units": "kW"})
        recorder.write({"seed": 1}, power=power)
        with pytest.raises(TypeError, match="model is function"):
            recorder.write({"seed": 2}, power=power, model=lambda: 1)
    Terminal(tmp_path).run("merge", "out.h5")
    data = opened(tmp_path)
    assert data.power.sel(wd=180).item() == 2.0
    assert data.power.units == "kW"
    assert data.seed.values.tolist() == [1]
