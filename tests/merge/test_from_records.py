"""Records of a run folder become one output, whatever the results look like and whatever dies."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from h5sweep.base.plan import Plan, key_json, plan_product
from h5sweep.base.values import Array, ResultEncoder, result_header
from h5sweep.errors import DamagedError, StorageError, UsageError, WrongFolderError
from h5sweep.merge.from_records import build as merge
from h5sweep.merge.from_records.build import merge_run
from h5sweep.merge.from_records.output_plan import MergeReport
from h5sweep.output import record_forms
from h5sweep.output import record_rows as sources
from h5sweep.output.verify import verify_rows
from h5sweep.output.writer import OutputWriter
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import FRAME, RecordKind, RecordWriter
from h5sweep.state.extend_plan import adopt_output
from h5sweep.state.state import read_state
from written_records import NOW, write_failure, write_records

Result = dict[str, Any]
WHAT_IS_THERE = ["out.h5", "out.h5.audit.jsonl", "out.h5.run"]  # after a merge, sorted


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "out.h5")


def seeds(count: int) -> Plan:
    return plan_product({"seed": range(count)})


def merged(folder: RunFolder, results: dict[int, Result], **options: Any) -> MergeReport:
    """Record the results in two files, merge, and check what holds for every output."""
    plan = folder.load_plan() or seeds(max(results) + 1)
    tasks = list(results)
    write_records(folder, plan, {task: results[task] for task in tasks[::2]})
    write_records(folder, plan, {task: results[task] for task in tasks[1::2]})
    report = merge_run(folder, **options)
    assert verify_rows(folder.output) == []
    for engine in ("h5netcdf", "netcdf4"):
        with xr.open_dataset(folder.output, engine=engine) as dataset:
            dataset.load()
    return report


def rows_of(folder: RunFolder, name: str) -> list[Any]:
    """The values of a column, one array a task, whatever its layout."""
    with h5py.File(folder.output) as file:
        data = file[name].asstr()[:] if h5py.check_string_dtype(file[name].dtype) else file[name][:]
        about = dict(file[name].attrs)
        if "h5sweep_count" not in about:
            return list(data)
        ends = np.cumsum(file[about["h5sweep_count"].decode()][:])
        rows = np.split(data, ends[:-1])
        if "h5sweep_shape" not in about:
            return rows
        shapes = file[about["h5sweep_shape"].decode()][:]
        return [row.reshape(shape[shape >= 0]) for row, shape in zip(rows, shapes, strict=True)]


def assert_rows(folder: RunFolder, name: str, expected: list[Any]) -> None:
    rows = rows_of(folder, name)
    assert len(rows) == len(expected)
    for row, value in zip(rows, expected, strict=True):
        assert np.shape(row) == np.shape(value)
        np.testing.assert_array_equal(row, value)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("block_bytes", [64, 4 << 20])
def test_rows_are_in_order_of_tasks(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, compress: bool, block_bytes: int
) -> None:
    """Whatever file and block a result lies in, its row is where its task's number says."""
    monkeypatch.setattr(sources, "BLOCK_BYTES", block_bytes)
    results = {t: {"x": np.arange(5.0) + t, "name": f"n{t}"} for t in [7, 1, 5, 2, 9, 4, 0]}
    seen: list[tuple[int, int]] = []
    report = merged(folder, results, compress=compress, progress=lambda *s: seen.append(s))
    tasks = sorted(results)
    assert (report.tasks_merged, report.tasks_planned, report.notes) == (7, 10, ())
    assert_rows(folder, "task", tasks)
    assert_rows(folder, "x", [results[t]["x"] for t in tasks])
    assert_rows(folder, "name", [results[t]["name"] for t in tasks])
    assert seen[-1] == (14, 14)
    with h5py.File(folder.output) as file:
        assert file["x"].fletcher32 == compress


@pytest.mark.parametrize("compress", [False, True])
def test_ragged_results_are_contiguous_ragged_arrays(folder: RunFolder, compress: bool) -> None:
    """Arrays whose first axis varies lie one after the other, with CF counts."""
    sizes = [3, 0, 5, 1]
    results = {
        t: {"xy": np.arange(2.0 * n).reshape(n, 2) + t, "names": np.array(["ß"] * n, str), "e": t}
        for t, n in enumerate(sizes)
    }
    folder.create()
    folder.save_sweep({"dims": {"xy": ["turbine", "axis"], "names": ["turbine"]}})
    merged(folder, results, compress=compress)
    assert_rows(folder, "xy", [results[t]["xy"] for t in range(4)])
    assert_rows(folder, "names", [results[t]["names"] for t in range(4)])
    with xr.open_dataset(folder.output) as dataset:
        assert dataset["n_turbine"].values.tolist() == sizes
        assert dataset["n_turbine"].attrs["sample_dimension"] == "turbine"
        assert dataset["xy"].dims == ("turbine", "axis")
        assert dataset["names"].dims == ("turbine",)


def test_columns_are_in_the_order_of_the_first_task(folder: RunFolder) -> None:
    """Whichever file was looked at first, and whoever returned the same in another order."""
    plan = seeds(200)
    later = {task: {"last": 1.0, "first": 2.0} for task in range(100, 200)}
    write_records(folder, plan, later)
    write_records(folder, plan, {task: {"first": 2.0, "last": 1.0} for task in range(100)})
    merge_run(folder)
    with h5py.File(folder.output) as file:
        assert file.attrs["h5sweep_columns"].decode() == "first last"


def test_ragged_columns_with_other_counts_have_their_own(folder: RunFolder) -> None:
    """Two columns of one declared dimension share its counts only if these are equal."""
    folder.create()
    folder.save_sweep({"dims": {"a": ["row"], "b": ["row"]}})
    merged(folder, {0: {"a": [1, 2], "b": [1]}, 1: {"a": [3], "b": [4, 5]}})
    assert_rows(folder, "a", [[1, 2], [3]])
    assert_rows(folder, "b", [[1], [4, 5]])


def test_shapes_that_vary_otherwise_are_flat(folder: RunFolder) -> None:
    """Arrays that vary in another axis or in their number of axes keep their shapes beside."""
    values = [np.ones((2, 3)), np.zeros((3, 2)), np.arange(4.0), np.array(5.0), np.empty((0, 7))]
    merged(folder, {t: {"x": value, "y": t} for t, value in enumerate(values)})
    assert_rows(folder, "x", values)


def test_results_without_elements(folder: RunFolder) -> None:
    """Columns of no elements at all are there, and nothing trips over them."""
    merged(folder, {t: {"none": np.empty((0, 3)), "x": 1.0} for t in range(3)})
    assert_rows(folder, "none", [np.empty((0, 3))] * 3)


def test_no_task_finished(folder: RunFolder) -> None:
    """A sweep in which everything failed has an output with failures and no rows."""
    plan = seeds(2)
    folder.create()
    folder.save_plan(plan)
    write_failure(folder, plan, 1, message="no")
    report = merge_run(folder)
    assert (report.tasks_merged, report.failures) == (0, 1)
    with xr.open_dataset(folder.output) as dataset:
        assert dataset.sizes["task"] == 0
    assert merge_run(folder).failures == 1


GAPS = [
    (1.5, np.nan),
    (2 + 1j, complex(np.nan, np.nan)),
    (5, -(2**63)),
    (np.uint8(5), 255),
    (True, -1),
    ("a", ""),
    (np.datetime64("2026-01-01", "s"), -(2**63)),
]


@pytest.mark.parametrize(("value", "fill"), GAPS)
def test_a_column_that_is_missing_in_some_tasks_is_filled(
    folder: RunFolder, value: Any, fill: Any
) -> None:
    """A task that did not return a value has the dtype's own gap, and a note says so."""
    report = merged(folder, {0: {"x": value, "y": 1}, 1: {"y": 2}, 2: {"y": 3}})
    with h5py.File(folder.output) as file:
        column = file["x"].asstr()[:] if fill == "" else file["x"][:]
        np.testing.assert_array_equal(column[1:], np.full(2, fill, column.dtype))
        has_attribute = "_FillValue" in file["x"].attrs
        assert has_attribute == (column.dtype.kind in "iu")
    assert any("x is missing in 2 tasks: filled with" in note for note in report.notes)


def test_a_ragged_column_that_is_missing_has_count_zero(folder: RunFolder) -> None:
    """A task without a ragged value has no elements there."""
    merged(folder, {0: {"x": [1.0, 2.0], "y": 1}, 1: {"y": 2}, 2: {"x": [3.0], "y": 1}})
    assert_rows(folder, "x", [[1, 2], [], [3]])


@pytest.mark.parametrize(("dtype", "fill"), [("i8", -(2**63) + 1), ("u2", 2**16 - 2)])
def test_the_gap_is_never_a_value(folder: RunFolder, dtype: str, fill: int) -> None:
    """If a task returned the outermost integer, another one marks the gaps."""
    limits = np.iinfo(dtype)
    outermost = np.array(limits.min or limits.max, dtype)
    merged(folder, {0: {"x": outermost, "y": 1}, 1: {"y": 2}})
    assert_rows(folder, "x", [int(outermost), fill])


def test_a_full_byte_is_widened(folder: RunFolder) -> None:
    """A byte column with gaps and with all values in use is stored in two bytes."""
    values = np.arange(-128, 128, dtype=np.int8)
    merged(folder, {0: {"x": values, "y": 1}, 1: {"y": 2}})
    assert_rows(folder, "x", [values, np.full(256, -(2**15))])


def test_integers_among_floats_are_widened_if_that_is_exact(folder: RunFolder) -> None:
    """Integers that a float64 holds exactly share the column of the floats."""
    report = merged(folder, {0: {"n": 1}, 1: {"n": 2.5}, 2: {"n": 2**53}})
    assert_rows(folder, "n", [1.0, 2.5, 2.0**53])
    assert report.notes == ("n: int64 in 2 tasks, float64 in 1 task; widened to float64",)


def test_integers_that_a_float_would_round_have_their_own_column(folder: RunFolder) -> None:
    """An integer that float64 cannot hold is kept as it is, beside."""
    report = merged(
        folder, {0: {"n": 1.5}, 1: {"n": 2.5}, 2: {"n": 2**53 + 1}, 3: {"n": 2**63 - 1}}
    )
    rows = rows_of(folder, "n")
    assert rows[:2] == [1.5, 2.5]
    assert np.isnan(rows[2:]).all()
    assert_rows(folder, "n_int64", [-(2**63), -(2**63), 2**53 + 1, 2**63 - 1])
    assert "int64 is in the column n_int64" in report.notes[0]


def test_text_and_numbers_under_one_name_have_two_columns(folder: RunFolder) -> None:
    """Values of kinds that cannot be one column are in two, and none is lost."""
    when = np.datetime64("2026-01-01T00:00:00", "us")
    report = merged(folder, {0: {"x": 1.5}, 1: {"x": "none"}, 2: {"x": 2.5}, 3: {"x": when}})
    assert_rows(folder, "x_text", ["", "none", "", ""])
    assert rows_of(folder, "x")[2] == 2.5
    assert rows_of(folder, "x_time")[3] == when.astype(np.int64)
    assert "text is in the column x_text" in report.notes[0]


def test_time_units_are_joined_where_that_is_exact(folder: RunFolder) -> None:
    """Dates in two units share the finer one; those beyond its range get a column of their own."""
    early, late = np.datetime64("1900-01-01", "D"), np.datetime64("2026-01-01T01", "ns")
    far = np.datetime64("9999-01-01", "s")
    write_records(folder, seeds(3), {0: {"at": early}, 1: {"at": late}, 2: {"at": far}})
    merge_run(folder)
    with h5py.File(folder.output) as file:
        found = {name: file[name][:] for name in file if name.startswith("at")}
    assert len(found) == 2
    assert sum((column != -(2**63)).sum() for column in found.values()) == 3


def test_declared_dimensions_of_two_sizes_get_two_names(folder: RunFolder) -> None:
    """The same declared name for two sizes gives two dimensions and a note."""
    folder.create()
    folder.save_sweep({"dims": {"a": ["point"], "b": ["point"], "c": ["seed"]}})
    report = merged(folder, {0: {"a": [1, 2], "b": [1, 2, 3], "c": [1]}})
    with xr.open_dataset(folder.output) as dataset:
        assert dataset["a"].dims == ("task", "point")
        assert dataset["b"].dims == ("task", "b_point")
        assert dataset["c"].dims == ("task", "c_seed")
    assert any("b_point" in note for note in report.notes)


def kinds_of_columns(task: int) -> Result:
    """A result with every layout, and with columns that some tasks lack."""
    result: Result = {
        "x": task / 7,
        "flag": task % 2 == 0,
        "at": np.datetime64(task, "ms"),
        "name": f"ü{task}",
        "ragged": np.arange(task % 4, dtype=np.int16),
        "words": np.array(["w"] * (task % 3), str),
        "shaped": np.full((task % 3, task % 2 + 1), task),
        "mixed": f"text {task}" if task % 5 == 0 else task,
    }
    if task % 3:
        result |= {"sometimes": task, "maybe": task % 2 == 0}
    return result


@pytest.mark.parametrize("tool", ["ncdump", "h5dump"])
@pytest.mark.parametrize("tasks", [0, 20])
@pytest.mark.parametrize("compress", [False, True])
def test_command_line_tools_open_every_layout(
    folder: RunFolder, tool: str, tasks: int, compress: bool
) -> None:
    """ncdump and h5dump print outputs with every layout, compressed or not, and without a row."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    write_records(folder, seeds(20), {task: kinds_of_columns(task) for task in range(tasks)})
    merge_run(folder, compress=compress)
    shown = subprocess.run([tool, folder.output], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "row_crc32" in shown.stdout


@pytest.mark.parametrize("forget", ["records", "folder"])
@pytest.mark.parametrize("kept", [range(10), range(0, 20, 7), range(20)])
def test_rows_whose_records_are_gone_are_kept(folder: RunFolder, forget: str, kept: range) -> None:
    """A later merge keeps what the output holds, also when the whole run folder was removed."""
    plan = seeds(20)
    folder.create()
    folder.save_plan(plan)
    merged(folder, {task: kinds_of_columns(task) for task in kept})
    if forget == "records":
        for path in folder.record_paths():
            path.unlink()
    else:
        subprocess.run(["rm", "-r", folder.path], check=True)
        plan = plan_product({"seed": range(19, -1, -1)})
        folder.create()
        folder.save_plan(plan)
    new = {task: kinds_of_columns(plan.key(task)["seed"]) for task in range(20)}
    new = {task: result for task, result in new.items() if plan.key(task)["seed"] not in kept}
    report = merged(folder, new) if new else merge_run(folder)
    assert (report.tasks_merged, report.tasks_kept) == (20, len(kept))

    whole = RunFolder(folder.output.with_name("whole.h5"))
    whole.create()
    whole.save_plan(plan)
    merged(whole, {task: kinds_of_columns(plan.key(task)["seed"]) for task in range(20)})
    with h5py.File(folder.output) as first, h5py.File(whole.output) as second:
        assert set(first) == set(second)
        for name, dataset in second.items():
            if isinstance(dataset, h5py.Dataset) and name not in ("finished_at", "duration_s"):
                np.testing.assert_array_equal(first[name][()], dataset[()], err_msg=name)
        assert first.attrs["history"].count(b"merged") == 2
        assert first.attrs["date_created"] <= first.attrs["date_modified"]


def test_tasks_of_the_output_that_the_plan_lacks_are_appended(folder: RunFolder) -> None:
    """A new, smaller sweep over an old output drops no row of it."""
    merged(folder, {task: {"x": task} for task in range(4)})
    subprocess.run(["rm", "-r", folder.path], check=True)
    plan = plan_product({"seed": [2, 9]})
    folder.create()
    folder.save_plan(plan)
    adopted = adopt_output(folder, plan)
    assert adopted.columns[0].values == (2, 9, 0, 1, 3)
    assert list(read_state(folder, adopted).missing_tasks()) == [1]
    assert folder.load_plan() == adopted
    assert adopt_output(folder, adopted) is adopted


def test_an_output_of_another_sweep_is_refused(folder: RunFolder) -> None:
    """An output over other parameters is neither adopted nor replaced."""
    merged(folder, {0: {"x": 1}})
    before = folder.output.read_bytes()
    subprocess.run(["rm", "-r", folder.path], check=True)
    plan = plan_product({"farm": ["a"]})
    write_records(folder, plan, {0: {"x": 1}})
    with pytest.raises(WrongFolderError, match="another sweep"):
        merge_run(folder)
    assert folder.output.read_bytes() == before


def record_by_key(
    folder: RunFolder, results: list[tuple[dict[str, Any], Result]], start: float = NOW
) -> None:
    """Record results as a recorder does, which knows keys and no plan."""
    folder.create()
    writer = RecordWriter(folder.new_record_path("recorder"))
    encoder = ResultEncoder(["seed", "gain"])
    for number, (key, result) in enumerate(results):
        schema, data = encoder.encode(result)
        header = result_header(schema, key_json(key).encode())
        writer.append(RecordKind.DONE, 2**64 - 1, header, data, finished_at=start + number)
    writer.close()


def test_recorded_keys_without_a_plan_are_numbered(folder: RunFolder) -> None:
    """Results that carry their keys are numbered in the order they were finished."""
    keys = [{"seed": seed, "gain": gain} for seed in (5, 3) for gain in (0.5, float("inf"))]
    record_by_key(folder, [(key, {"x": float(n)}) for n, key in enumerate(keys)])
    assert merge_run(folder).tasks_merged == 4
    plan = folder.load_plan()
    assert plan is not None
    assert list(plan.keys()) == keys
    later = [(keys[0], {"x": 9.0}), ({"seed": 1, "gain": 2}, {"x": 7.0})]
    record_by_key(folder, later, NOW + 10)
    report = merge_run(folder)
    assert (report.tasks_merged, report.tasks_planned) == (5, 5)
    assert_rows(folder, "x", [9.0, 1.0, 2.0, 3.0, 7.0])
    assert_rows(folder, "gain", [0.5, np.inf, 0.5, np.inf, 2.0])


def test_recorded_keys_of_another_sweep_are_left_out(folder: RunFolder) -> None:
    """Results over other parameters than the plan's are named and do not stop the others."""
    write_records(folder, seeds(2), {0: {"x": 1.0}})
    record_by_key(folder, [({"seed": 1, "gain": 2.0}, {"x": 7.0})])
    report = merge_run(folder)
    assert (report.tasks_merged, report.tasks_left_out) == (1, 1)
    assert "gain=2.0" in " ".join(report.notes)


def test_nothing_to_merge(folder: RunFolder) -> None:
    """A folder without plan, records and output is the caller's mistake."""
    with pytest.raises(UsageError, match="nothing to merge"):
        merge_run(folder)
    assert not folder.output.exists()


def test_a_damaged_output_is_not_replaced(folder: RunFolder) -> None:
    """An output that HDF5 cannot open stays as it is, and the message says what to do."""
    merged(folder, {0: {"x": 1.0}})
    os.truncate(folder.output, 1000)
    with pytest.raises(DamagedError, match="Move it away"):
        merge_run(folder)
    assert folder.output.stat().st_size == 1000


def test_a_row_that_rotted_is_not_kept_as_sound(folder: RunFolder) -> None:
    """If a row to be kept fails its checksum, the others are kept and the old file stays."""
    merged(folder, {0: {"x": 1.0}, 1: {"x": 2.0}})
    for path in folder.record_paths():
        path.unlink()
    with h5py.File(folder.output) as file:
        offset = file["x"].id.get_offset()
    identity = os.stat(folder.output)
    with folder.output.open("r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff")
    os.utime(folder.output, ns=(identity.st_atime_ns, identity.st_mtime_ns))
    rotted = folder.output.read_bytes()

    report = merge_run(folder)

    assert (report.tasks_merged, report.tasks_left_out) == (1, 1)
    with h5py.File(folder.output) as file:
        assert (file["task"][:].tolist(), file["x"][:].tolist()) == ([1], [2.0])
    aside = folder.output.with_name("out.old-1.h5")
    assert aside.read_bytes() == rotted
    assert any("seed=0" in note and str(aside) in note for note in report.notes)
    state = read_state(folder, folder.load_plan())
    assert 0 in state.missing_tasks()
    assert 1 not in state.missing_tasks()


def test_what_somebody_added_to_the_output_is_kept_aside(folder: RunFolder) -> None:
    """A merge cannot take over what it does not know, so the file that has it stays."""
    folder.create()
    folder.save_plan(plan := seeds(4))
    merged(folder, {0: {"x": 1.0, "y": np.zeros(3)}, 1: {"x": 2.0, "y": np.zeros(4)}})
    with h5py.File(folder.output, "r+") as file:
        file["my_ranking"] = [1, 0]
        file.attrs["my_comment"] = "the good one"
    write_records(folder, plan, {2: {"x": 3.0, "y": np.zeros((2, 2))}})

    report = merge_run(folder)

    aside = folder.output.with_name("out.old-1.h5")
    assert any("my_ranking, my_comment" in n and str(aside) in n for n in report.notes)
    with h5py.File(aside) as file:
        assert file["my_ranking"][:].tolist() == [1, 0]
    with h5py.File(folder.output) as file:
        assert "my_ranking" not in file
    write_records(folder, plan, {3: {"x": 4.0}})
    assert not any("did not come from the sweep" in note for note in merge_run(folder).notes)
    assert not folder.output.with_name("out.old-2.h5").exists()


def test_damage_and_duplicates_are_noted(folder: RunFolder) -> None:
    """A damaged record costs its own task only, and a second result of a task is counted."""
    plan = seeds(3)
    path = write_records(folder, plan, {0: {"x": 1.0}, 1: {"x": 12.34}, 2: {"x": 3.0}})
    write_records(folder, plan, {2: {"x": 3.0}})
    data = bytearray(path.read_bytes())
    where = data.index(np.float64(12.34).tobytes())
    data[where] ^= 0xFF
    path.write_bytes(data)
    report = merge_run(folder)
    assert_rows(folder, "x", [1.0, 3.0])
    assert any("damaged (content), the result of task 1" in note for note in report.notes)
    assert any("1 result recorded again" in note for note in report.notes)


def test_a_write_that_goes_wrong_is_noticed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the new file does not read back as written, the old output stays."""
    merged(folder, {0: {"x": 1.0}})
    before = folder.output.read_bytes()
    write_records(folder, seeds(1), {0: {"x": 1.0}})
    write = OutputWriter.write

    def lose_one(self: OutputWriter, name: str, first: int, values: Any) -> None:
        if name != "x":
            write(self, name, first, values)

    monkeypatch.setattr(OutputWriter, "write", lose_one)
    with pytest.raises(DamagedError, match="x does not read back"):
        merge_run(folder)
    assert folder.output.read_bytes() == before
    assert sorted(p.name for p in folder.output.parent.iterdir()) == WHAT_IS_THERE


def flip_byte_of(path: Path, value: float) -> None:
    """Damage the one place of a file that holds this value."""
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(value).tobytes())] ^= 0xFF
    path.write_bytes(content)


def many_results(kind: str) -> dict[int, Result]:
    """Records of one size, taken many at a time; only those of `numbers` become rows verbatim."""
    others: dict[str, Callable[[int], Result]] = {
        "numbers": lambda task: {"n": task},
        "text": lambda task: {"name": f"{task:05}"},
        "two dtypes": lambda task: {"n": task if task % 2 else task + 0.5},
        "two shapes": lambda task: {"n": np.full((2, 3) if task % 2 else (3, 2), task)},
    }
    return {task: {"x": task / 7, **others[kind](task)} for task in range(200)}


@pytest.mark.parametrize("kind", ["numbers", "text", "two dtypes", "two shapes"])
@pytest.mark.parametrize("compress", [False, True])
def test_damaged_data_among_many_records_cost_one_task(
    folder: RunFolder, kind: str, compress: bool
) -> None:
    """Data that do not have the checksum of their record are left out, however they are merged."""
    path = write_records(folder, seeds(200), many_results(kind))
    flip_byte_of(path, 78 / 7)
    report = merge_run(folder, compress=compress)
    assert report.tasks_merged == 199
    assert any("damaged (content), the result of task 78" in note for note in report.notes)
    assert_rows(folder, "x", [task / 7 for task in range(200) if task != 78])
    assert verify_rows(folder.output) == []


@pytest.mark.parametrize("kind", ["numbers", "two dtypes"])
def test_a_record_that_changes_during_a_merge_is_noticed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What was sound when it was scanned and is not when it is copied does not get in."""
    path = write_records(folder, seeds(200), many_results(kind))
    write, values = merge.Merge.write, [78 / 7]

    def change_before(self: merge.Merge, output: Path) -> None:
        while values:
            flip_byte_of(path, values.pop())
        write(self, output)

    monkeypatch.setattr(merge.Merge, "write", change_before)
    report = merge_run(folder)
    assert report.tasks_merged == 199
    assert any("damaged (content), the result of task 78" in note for note in report.notes)


def test_a_record_that_keeps_changing_stops_the_merge(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second change during the second attempt is an error, and the old output stays."""
    path = write_records(folder, seeds(200), many_results("numbers"))
    merge_run(folder)
    before = folder.output.read_bytes()
    write, values = merge.Merge.write, [79 / 7, 78 / 7]

    def change_before(self: merge.Merge, output: Path) -> None:
        flip_byte_of(path, values.pop())
        write(self, output)

    monkeypatch.setattr(merge.Merge, "write", change_before)
    with pytest.raises(DamagedError, match="changed while it was merged"):
        merge_run(folder)
    assert folder.output.read_bytes() == before


WRONG_WRITES: dict[str, Callable[[Array], Array]] = {
    "never written": lambda values: values[:0],
    "written to the wrong place": lambda values: np.roll(values, 1, axis=0),
    "one bit lost": lambda values: np.concatenate([values[:-1], values[-1:] + 1]),
}


@pytest.mark.parametrize("name", ["x", "n"])
@pytest.mark.parametrize("how", list(WRONG_WRITES))
def test_a_block_that_is_written_wrongly_is_noticed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    """Of many rows too, and the message names the column."""
    write_records(folder, seeds(200), many_results("numbers"))
    write = OutputWriter.write

    def go_wrong(self: OutputWriter, column: str, first: int, values: Any) -> None:
        write(self, column, first, WRONG_WRITES[how](values) if column == name else values)

    monkeypatch.setattr(OutputWriter, "write", go_wrong)
    with pytest.raises(DamagedError, match=f"{name} does not read back"):
        merge_run(folder)
    assert not folder.output.exists()


def test_what_overwrites_a_block_later_is_noticed(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that changes in the new file after all was written keeps it from taking its place."""
    write_records(folder, seeds(200), many_results("numbers"))
    write = merge.Merge.write

    def change_after(self: merge.Merge, output: Path) -> None:
        write(self, output)
        flip_byte_of(output, 150 / 7)

    monkeypatch.setattr(merge.Merge, "write", change_after)
    with pytest.raises(DamagedError, match="x does not read back"):
        merge_run(folder)
    assert not folder.output.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("checks_space", [True, False])
def test_a_full_disk_leaves_the_old_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks_space: bool
) -> None:
    """Without room for the new output there is an error, the old output, and no left-over."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk])
    if mounted.returncode:
        pytest.skip("mount is not permitted here")
    try:
        folder = RunFolder(disk / "out.h5")
        plan = seeds(20)
        write_records(folder, plan, {0: {"x": np.zeros(1000)}})
        merge_run(folder)
        before = folder.output.read_bytes()
        write_records(folder, plan, {t: {"x": np.zeros(10_000)} for t in range(1, 20)})
        if not checks_space:
            monkeypatch.setattr(merge.Merge, "require_space", lambda _: None)
        reason = "B free: make space" if checks_space else "No space left"
        with pytest.raises(StorageError, match=reason):
            merge_run(folder)
        assert folder.output.read_bytes() == before
        assert not list(disk.glob(".*"))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# Not ru_maxrss, which a process has from its parent.
MERGE_CODE = """
import re, sys
from pathlib import Path
from h5sweep.runfolder.layout import RunFolder
from h5sweep.merge.from_records.build import merge_run
from h5sweep.merge.from_records.output_plan import MergeReport
merge_run(RunFolder.of(sys.argv[1]))
peak_kb = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
print(int(peak_kb) // 1024)
"""


def test_memory_does_not_grow_with_the_data(folder: RunFolder) -> None:
    """600 MB of records are merged in less than 300 MB of memory."""
    plan = seeds(600)
    folder.create()
    folder.save_plan(plan)
    block = np.random.default_rng(0).random(125_000)
    write_records(folder, plan, {task: {"x": block, "n": task} for task in range(600)})
    done = subprocess.run(
        [sys.executable, "-c", MERGE_CODE, folder.output],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 300
    with h5py.File(folder.output) as file:
        assert np.array_equal(file["x"][599], block)


def test_killed_at_any_moment_the_output_is_whole(folder: RunFolder) -> None:
    """SIGKILL of a merge leaves the old output or the new one; the next merge finishes the job."""
    plan = seeds(4000)
    write_records(folder, plan, {t: {"x": np.full(300, float(t))} for t in range(2000)})
    merge_run(folder)
    write_records(folder, plan, {t: {"x": np.full(300, float(t))} for t in range(2000, 4000)})
    chance = random.Random(7)
    seen = set()
    for _ in range(12):
        merging = subprocess.Popen(
            [sys.executable, "-c", MERGE_CODE, folder.output], stdout=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(0.15, 0.6))
        merging.send_signal(signal.SIGKILL)
        merging.wait()
        assert verify_rows(folder.output) == []
        with h5py.File(folder.output) as file:
            seen.add(len(file["task"]))
    assert seen <= {2000, 4000}
    assert merge_run(folder).tasks_merged == 4000
    assert_rows(folder, "x", [np.full(300, float(t)) for t in range(4000)])
    assert sorted(p.name for p in folder.output.parent.iterdir()) == WHAT_IS_THERE


KILL_CODE = """
import os, signal, sys
from h5sweep.disk import durable
from h5sweep.merge.from_records import build as merge
from h5sweep.runfolder.layout import RunFolder
from h5sweep.output.writer import OutputWriter

owners = {"durable": durable, "merge": merge, "run": merge.Merge, "writer": OutputWriter}
owner, _, function = sys.argv[2].partition(".")
setattr(owners[owner], function, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
merge.merge_run(RunFolder.of(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("moment", "rows"),
    [
        ("writer.create_columns", 2),
        ("writer.allocate", 2),
        ("writer.write", 2),
        ("writer.write_provenance", 2),
        ("durable.sync_file", 2),
        ("run.verify", 2),
        ("durable.sync_folder", 4),
        ("merge.append_entry", 4),
        ("merge.note_merged", 4),
    ],
)
def test_killed_between_any_two_steps_the_output_is_whole(
    folder: RunFolder, moment: str, rows: int
) -> None:
    """Before the rename the old output is there, after it the new one; a merge then completes."""
    plan = seeds(4)
    write_records(folder, plan, {task: {"x": float(task)} for task in range(2)})
    merge_run(folder)
    write_records(folder, plan, {task: {"x": float(task)} for task in range(2, 4)})
    killed = subprocess.run([sys.executable, "-c", KILL_CODE, folder.output, moment])
    assert killed.returncode == -signal.SIGKILL
    assert_rows(folder, "x", [float(task) for task in range(rows)])
    assert verify_rows(folder.output) == []
    assert merge_run(folder).tasks_merged == 4
    assert_rows(folder, "x", [0.0, 1.0, 2.0, 3.0])
    assert sorted(p.name for p in folder.output.parent.iterdir()) == WHAT_IS_THERE


def test_frame_fields_are_those_of_records() -> None:
    """The fields that a merge reads from frames lie where records.py packs them."""
    packed = FRAME.pack(b"\xabh5r", 7, 1, 2, 33, 44, 5.5, 6.5, b"mark", 88, 9)
    frame = np.frombuffer(packed, sources.FRAME_DTYPE)[0]
    assert frame.tolist() == (b"\xabh5r", 7, 1, 2, 33, 44, 5.5, 6.5, 0x6B72616D, 88)


def test_many_shapes_are_forgotten_and_found_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More schemas than are remembered at once cost time, never a result."""
    monkeypatch.setattr(record_forms, "_FORMS_REMEMBERED", 3)
    values = [np.arange(float(task % 13)) for task in range(60)]
    merged(folder, {task: {"x": value} for task, value in enumerate(values)})
    assert_rows(folder, "x", values)


def test_gaps_in_a_column_of_many_shapes_are_kept(folder: RunFolder) -> None:
    """Rows of an output whose column varies in shape, with gaps, are kept by the next merge."""
    results: dict[int, Result] = {
        0: {"x": np.ones((2, 3)), "n": 0},
        1: {"n": 1},
        2: {"x": np.full((1, 4), 2.0), "n": 2},
        3: {"x": 5.0, "n": 3},
        4: {"x": np.zeros((0, 2)), "n": 4},
    }
    folder.create()
    folder.save_plan(seeds(6))
    merged(folder, results)
    for path in folder.record_paths():
        path.unlink()
    merged(folder, {5: {"x": np.full((3, 1), 7.0), "n": 5}})
    with h5py.File(folder.output) as file:
        assert file["n"][:].tolist() == [0, 1, 2, 3, 4, 5]
        assert file["x"][:].tolist() == [1.0] * 6 + [2.0] * 4 + [5.0] + [7.0] * 3
        assert file["x_shape"][:].tolist() == [[2, 3], [-1, -1], [1, 4], [-1, -1], [0, 2], [3, 1]]


def test_stray_keys_do_not_keep_the_others_from_being_merged(folder: RunFolder) -> None:
    """Results under other parameters than most are left out and named; the rest is merged."""
    folder.create()
    with RecordWriterOf(folder) as write:
        for farm in range(5):
            write({"farm": farm}, x=float(farm))
        write({"farm": 6, "extra": 2}, x=1.0)
        write({"farm": "7"}, x=1.0)
    report = merge_run(folder)
    assert (report.tasks_merged, report.tasks_left_out) == (5, 2)
    assert "farm=6, extra=2" in " ".join(report.notes)


def test_results_recorded_during_a_merge_are_told(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a recorder adds meanwhile is neither merged nor left out: merge again, and it is."""
    folder.create()
    save_plan = RunFolder.save_plan
    with RecordWriterOf(folder) as write:
        write({"farm": 0}, x=0.0)

        def record_meanwhile(self: RunFolder, plan: Plan) -> None:
            save_plan(self, plan)
            write({"farm": 1}, x=1.0)

        monkeypatch.setattr(RunFolder, "save_plan", record_meanwhile)
        report = merge_run(folder)
        assert (report.tasks_merged, report.tasks_left_out) == (1, 0)
        assert report.notes == ("1 result recorded during this merge: run the same command again",)
        monkeypatch.undo()
        assert merge_run(folder).tasks_merged == 2


class RecordWriterOf:
    """Records under keys, as recorders do, but without their checks."""

    def __init__(self, folder: RunFolder) -> None:
        self._writer = RecordWriter(folder.new_record_path("recorder"))

    def __enter__(self) -> RecordWriterOf:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, key: dict[str, Any], **result: Any) -> None:
        schema, data = ResultEncoder(key).encode(result)
        header = result_header(schema, key_json(key).encode())
        self._writer.append(RecordKind.DONE, 2**64 - 1, header, data, finished_at=NOW)
