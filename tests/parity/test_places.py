"""Where tasks are in files that mislead: what a refusal advises, done exactly, loses no result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5sweep
from h5sweep import Policy
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import UsageError
from h5sweep.worker_files.skipped_names import parse_names
from readers import rows_of
from salvage_checks import read_results

NAMES, PATTERN, NESTED = "farm_id,seed", "farm{farm_id:d}_s{seed:d}", "farm{farm_id:d}/s{seed:d}"
ROW = np.dtype([("farm_id", "i4"), ("seed", "i4"), ("aep", "f8")])
Values = dict[Any, list[str]]


@pytest.fixture
def night(tmp_path: Path) -> Path:
    path = tmp_path / "night"
    path.mkdir()
    return path


def counted(night: Path, key: str, skip: str = "") -> int:
    report = h5sweep.check_files(night, key=key, processes=1, skip=parse_names(skip))
    assert not any(found.message for file in report.files for found in file.findings)
    return int(report.totals["tasks"] or 0)


def merged(night: Path, key: str, skip: str = "") -> Values:
    output = night.parent / "swept.h5"
    h5sweep.merge_files(night, output, key=key, policy=Policy(skip=parse_names(skip)))
    return {key: sorted(values) for key, values in rows_of(output).items()}


def salvaged(night: Path, key: str, skip: str = "") -> Values:
    report = h5sweep.salvage_files(
        night, to=night.parent / "to", key=key, accept="unverified", skip=parse_names(skip)
    )
    found = read_results(report.files[0].records)
    return {key: sorted(values) for key, values in found.items()}


def advised(night: Path, key: str) -> str:
    """The names that a refused merge says are to be skipped."""
    with pytest.raises(UsageError) as refusal:
        merged(night, key)
    match = re.search(r"--skip (\S+)", str(refusal.value))
    assert match is not None
    return match[1]


def test_columns_at_the_root_are_left_out_and_no_value_of_a_group(night: Path) -> None:
    """Groups and columns have values of the same name."""
    with h5py.File(night / "w.h5", "w") as file:
        for number in range(3):
            group = file.create_group(f"run{number}")
            group.attrs.update(farm_id=1, seed=number)
            group["aep"] = float(number)
        file["farm_id"], file["seed"], file["aep"] = np.full(3, 4), np.arange(3), np.arange(3.0)
    names = advised(night, NAMES)
    wanted = {(1, number): ["aep"] for number in range(3)}
    assert merged(night, NAMES, names) == wanted == salvaged(night, NAMES, names)
    assert counted(night, NAMES, names) == 3


def test_what_stands_beside_tasks_in_their_group_is_left_out_alone(night: Path) -> None:
    """A group that holds tasks is not left out for a dataset beside them."""
    with h5py.File(night / "w.h5", "w") as file:
        for name in ("farm1/s0", "farm1/s1", "farm2/s0"):
            file[f"{name}/aep"] = 1.5
        file["farm1/site"], file["other/aep"] = 7, 2.5
    wanted = {key: ["aep"] for key in ((1, 0), (1, 1), (2, 0))}
    names = advised(night, NESTED)
    assert merged(night, NESTED, names) == wanted == salvaged(night, NESTED, names)


def test_datasets_in_a_group_may_be_tasks_by_their_paths(night: Path) -> None:
    """A group whose datasets are tasks is no group without a key."""
    with h5py.File(night / "w.h5", "w") as file:
        for number in range(3):
            file[f"farm1/s{number}"] = np.arange(3.0) + number
    wanted = {(1, number): ["value"] for number in range(3)}
    assert merged(night, NESTED) == wanted == salvaged(night, NESTED)


@pytest.mark.parametrize("kind", ["columns", "compounds"])
def test_datasets_with_the_key_in_their_names_are_no_columns(night: Path, kind: str) -> None:
    """An index of other tasks, as long as the values, does not make rows of them."""
    with h5py.File(night / "w.h5", "w") as file:
        for number in range(3):
            file[f"farm1_s{number}"] = np.arange(3.0) + number
        if kind == "columns":
            file["farm_id"], file["seed"] = np.full(3, 8), np.arange(3)
        else:
            file["index"] = np.array([(8, number, 0.0) for number in range(3)], ROW)
    wanted = {(1, number): ["value"] for number in range(3)}
    names = advised(night, PATTERN)
    assert merged(night, PATTERN, names) == wanted == salvaged(night, PATTERN)
    assert counted(night, PATTERN) == 3


def test_single_values_may_have_several_axes(night: Path) -> None:
    """MATLAB has no others."""
    with h5py.File(night / "w.h5", "w") as file:
        for number in range(2):
            for name, value in (("farm_id", 1), ("seed", number), ("aep", 2.5)):
                file[f"run{number}/{name}"] = np.array([[value]])
    wanted = {(1, number): ["aep"] for number in range(2)}
    assert merged(night, NAMES) == wanted == salvaged(night, NAMES)


@pytest.mark.parametrize("count", [3, 40])
def test_a_value_that_no_key_may_have_is_no_failure_of_a_check(count: int, night: Path) -> None:
    """It is refused by a merge, which names its group, and counted as before by a check."""
    with h5py.File(night / "w.h5", "w") as file:
        for number in range(count):
            file[f"run{number}/aep"] = 1.5
            key = {"farm_id": 1, "seed": np.nan if number == 2 else float(number)}
            file[f"run{number}"].attrs.update(key)
    assert counted(night, NAMES) == count
    with pytest.raises(UsageError, match=r"w\.h5: /run2: seed is nan"):
        merged(night, NAMES)


def test_a_row_with_a_value_that_no_key_may_have_is_named(night: Path) -> None:
    """A file may have millions of them."""
    with h5py.File(night / "w.h5", "w") as file:
        file["farm_id"], file["seed"], file["aep"] = [1, 1, 1], [0.0, 1.0, np.nan], [1.5] * 3
    with pytest.raises(UsageError, match=r"w\.h5: row 2 of /: seed is nan"):
        merged(night, NAMES)


def test_a_row_that_was_being_appended_is_not_counted(night: Path) -> None:
    """The key came first, and the value never."""
    with h5py.File(night / "w.h5", "w") as file:
        for name, rows in (("farm_id", 5), ("seed", 5), ("aep", 4)):
            file.create_dataset(name, data=np.arange(rows) + 1, maxshape=(None,))
    report = h5sweep.check_files(night, key=NAMES, processes=1)
    assert report.totals["tasks"] == 4 == len(salvaged(night, NAMES))


def test_a_lost_table_beside_another_is_told(night: Path) -> None:
    """What is in one dataset of compounds says nothing of the other."""
    path = night / "w.h5"
    with h5py.File(path, "w") as file:
        for number in range(2):
            file[f"part/t{number}"] = np.array([(number, row, 0.5) for row in range(4)], ROW)
        at = h5py.h5o.get_info(file["part/t1"].id).addr
    content = bytearray(path.read_bytes())
    content[at : at + 16] = bytes(16)
    path.write_bytes(content)
    report = h5sweep.salvage_files(night, to=night.parent / "to", key=NAMES, use_library=False)
    assert any("t1" in loss.place for loss in report.files[0].losses)


def test_a_table_of_one_row_is_a_table_like_others(night: Path) -> None:
    """Columns in a group are rows, however many a worker has written; so their values fit."""
    for number, rows in enumerate((5, 1)):
        with h5py.File(night / f"worker_{number}.h5", "w") as file:
            file["results/farm_id"] = np.full(rows, number)
            file["results/seed"] = np.arange(rows)
            file["results/aep"] = np.arange(rows) / 2
    h5sweep.merge_files(night, night.parent / "swept.h5", key=NAMES)
    rows = rows_of(night.parent / "swept.h5")
    assert len(rows) == counted(night, NAMES) == 6
    assert all(np.shape(values["aep"]) == () for values in rows.values())


def test_a_stray_is_named_by_its_path_where_a_task_has_its_name(night: Path) -> None:
    """Skipping what a refusal names leaves every value of the tasks where it is."""
    with h5py.File(night / "a.h5", "w") as file:
        for name in ("farm_id", "seed", "aep"):
            file[f"results/{name}"] = np.arange(1, 5)
        file["other/aep"] = np.arange(3.0)
    skip = advised(night, NAMES)
    assert skip.rstrip(",") == "/other/aep"
    assert merged(night, NAMES, skip) == {(n, n): ["aep"] for n in range(1, 5)}
    assert salvaged(night, NAMES, skip) == {(n, n): ["aep"] for n in range(1, 5)}


def test_a_group_begun_beside_many_that_are_alike_keeps_its_file(night: Path) -> None:
    """What is only begun is in no row: its file is not safe to remove, and a note says so."""
    with h5py.File(night / "a.h5", "w") as file:
        for number in range(13):
            file[f"farm3_s{number}/aep"] = number / 2
        file["farm3_s12"].create_dataset("more", data=np.arange(99.0), chunks=(9,))
        file.create_group("farm3_s99").attrs["solver"] = "slsqp"
    report = h5sweep.merge_files(night, night.parent / "swept.h5", key=PATTERN)
    assert report.tasks == counted(night, PATTERN) == 13
    assert any("groups without data left out: 1" in note for note in report.notes)
    removable = find_removable(report.output).removable
    assert night / "a.h5" not in [item.path for item in removable]
