"""What a merge leaves out: decided in one place, never in silence, never removed with a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep import Policy, check_files, merge_files, salvage_files
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import ConflictError, SweepError, UsageError
from h5sweep.merge.report import closing_lines
from h5sweep.runfolder.audit import read_entries
from h5sweep.worker_files.skipped_names import parse_names
from terminal import Terminal

GROWS: dict[str, Any] = {"maxshape": (None,), "chunks": (8,)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "temp"
    path.mkdir()
    return path


def write(path: Path, **datasets: Any) -> None:
    """A file of datasets by name; those in groups are written with two underscores."""
    with h5py.File(path, "w") as file:
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value


def write_rows(path: Path, seeds: range, **beside: Any) -> None:
    """A file of columns that grow, and datasets beside them."""
    write(path, **beside)
    with h5py.File(path, "a") as file:
        for name in ("seed", "aep"):
            file.create_dataset(
                name, data=np.array(seeds, "i4" if name == "seed" else "f8"), **GROWS
            )


def merged(folder: Path, skip: str = "", **options: Any) -> Path:
    """The output of a merge."""
    output = folder.parent / "out.h5"
    policy = Policy(skip=parse_names(skip))
    merge_files(folder, output, policy=policy, **options)
    return output


def objects(path: Path) -> set[str]:
    found: set[str] = set()
    with h5py.File(path) as file:
        file.visit(lambda name: found.add(name) if isinstance(file[name], h5py.Dataset) else None)
    return found


def tasks_checked(folder: Path, **options: Any) -> int:
    return sum(file.contents.tasks or 0 for file in check_files(folder, **options).files)


def names_to_skip(error: SweepError) -> str:
    """What the message says to leave out."""
    found = re.search(r"--skip ([^\s;:]+)", str(error))
    assert found, str(error)
    return found[1].rstrip(",.")


# Marks of a worker's start --------------------------------------------------------------------


def test_an_init_that_holds_data_is_a_result(terminal: Terminal) -> None:
    """A dataset that a task can have produced is merged, whatever it is called, before files go."""
    folder = terminal.folder / "temp"
    folder.mkdir()
    start = np.arange(18.0).reshape(9, 2)
    for number in range(3):
        write(folder / f"w{number}.h5", init=start + number, layout=np.ones(4))
    done = terminal.run("merge", folder, "-o", "out.h5", "--remove-merged")
    assert "removed 3 files" in done.stderr and not list(folder.iterdir())
    with h5py.File(terminal.folder / "out.h5") as file:
        for number in range(3):
            np.testing.assert_array_equal(file[f"w{number}/init"][()], start + number)


@pytest.mark.parametrize("key", [None, "seed"])
def test_a_column_called_init_is_a_column(folder: Path, key: str | None) -> None:
    """It is there with a key and without."""
    for number in range(2):
        write(folder / f"w{number}.h5", init=np.arange(3.0), seed=np.arange(3) + 3 * number)
    with h5py.File(merged(folder, key=key)) as file:
        assert file["init"][:].tolist() == [0.0, 1.0, 2.0] * 2


def test_the_only_row_of_a_column_called_init_is_data(folder: Path) -> None:
    """A table of one row beside tables of more loses nothing."""
    write(folder / "w0.h5", init=np.array([0.5]), seed=np.array([0]))
    write(folder / "w1.h5", init=np.array([1.5, 2.5]), seed=np.array([1, 2]))
    with h5py.File(merged(folder)) as file:
        assert file["init"][:].tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("key", [None, "seed"])
def test_a_mark_beside_the_first_row_of_columns_is_no_column(folder: Path, key: str | None) -> None:
    """A worker that was killed after one row leaves columns as long as its mark."""
    for number, rows in enumerate((3, 1)):
        seeds = range(10 * number, 10 * number + rows)
        write_rows(folder / f"w{number}.h5", seeds, init=np.array([0.0]))
    with h5py.File(merged(folder, key=key)) as file:
        assert file["seed"][:].tolist() == [0, 1, 2, 10] and "init" not in file


@pytest.mark.parametrize("key", [None, "w{worker:d}"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_single_value_of_a_task_may_be_called_init(
    folder: Path, key: str | None, shape: tuple[int, ...]
) -> None:
    """Where a file is a task, nothing tells a mark from a result, so it is merged."""
    for number in range(2):
        write(folder / f"w{number}.h5", init=np.full(shape, 0.25 + number), aep=1.5, x=np.ones(4))
    with h5py.File(merged(folder, key=key)) as file:
        found = file["init"][:] if key else [file[f"w{n}/init"][()] for n in range(2)]
        assert np.ravel(found).tolist() == [0.25, 1.25]


@pytest.mark.parametrize("style", ["groups", "rows"])
@pytest.mark.parametrize("has_key", [False, True])
def test_the_value_of_a_mark_is_in_the_audit_trail(folder: Path, style: str, has_key: bool) -> None:
    """A single `init` is no result; its value and attributes are kept, so that its file may go."""
    for number in range(2):
        path = folder / f"w{number}.h5"
        if style == "rows":
            write_rows(path, range(3 * number, 3 * number + 3), init=7 + number)
        else:
            write(path, init=7 + number, **{f"w{number}__aep": 1.5})
        with h5py.File(path, "a") as file:
            file["init"].attrs["host"] = "node1"
    key = {"rows": "seed"}.get(style, "w{worker:d}") if has_key else None
    output = merged(folder, key=key)
    entry = read_entries(output)[-1]
    left_out = [one.left_out for one in entry.inputs if one.path.endswith(".h5")]
    assert left_out == [{"/init": f"{7 + n}", "/init@host": "node1"} for n in range(2)]
    assert not any("init" in name for name in objects(output))
    removable = [item.path.name for item in find_removable(output).removable]
    assert {"w0.h5", "w1.h5"} <= set(removable)


@pytest.mark.parametrize("is_value", [False, True])
def test_salvage_and_merge_agree_about_marks(folder: Path, is_value: bool) -> None:
    """Neither takes a mark for a value; beside the values of a task both take it for one."""
    write(folder / "w0.h5", init=0, **{"aep" if is_value else "w0__aep": 1.5})
    accept = {"accept": "unverified"}  # no other file says which values there should be
    found = salvage_files(folder, key="w{worker:d}", to=folder.parent / "records", **accept)
    assert [len(one.taken) for one in found.files] == [1]
    output = merged(folder, key="w{worker:d}")
    assert ("init" in objects(output)) is is_value
    merge_files([folder, folder.parent / "records"], output, key="w{worker:d}")


# Datasets beside groups ------------------------------------------------------------------------


def test_a_task_with_groups_below_it_is_kept_whole(folder: Path) -> None:
    """Datasets at the root and in groups of one file are one task, in files of the same names."""
    for number in range(3):
        write(folder / f"w{number}.h5", aep=1.0 * number, x=np.arange(5), sub__inner=number)
    assert tasks_checked(folder) == 3
    output = merged(folder)
    names = {f"w{n}/{name}" for n in range(3) for name in ("aep", "x", "sub/inner")}
    assert objects(output) == names
    assert len(find_removable(output).removable) == 3
    keyed = merge_files(folder, folder.parent / "keyed.h5", key="w{worker:d}")
    assert keyed.tasks == 3
    with h5py.File(keyed.output) as file:
        assert file["sub_inner"][:].tolist() == [0, 1, 2]


def test_datasets_beside_groups_of_tasks_are_kept(folder: Path) -> None:
    """What each worker says once is in the output once, and no task."""
    for number in range(2):
        write(folder / f"w{number}.h5", meta=np.arange(4), **{f"s{number}__aep": 1.5})
    output = merged(folder)
    assert objects(output) == {"meta", "s0/aep", "s1/aep"}
    assert sum(one.tasks for one in read_entries(output)[-1].inputs) == tasks_checked(folder) == 2
    assert len(find_removable(output).removable) == 2


def test_many_groups_have_datasets_beside_them_too(folder: Path) -> None:
    """So it is where groups are alike and moved as bytes."""
    write(folder / "w0.h5", meta="about", **{f"s{n}__aep": 1.0 * n for n in range(40)})
    output = merged(folder)
    with h5py.File(output) as file:
        assert file["meta"].asstr()[()] == "about" and len(file) == 41
    assert len(find_removable(output).removable) == 1


def test_datasets_that_differ_stop_a_merge_and_the_step_works(folder: Path) -> None:
    """The message names --skip, which merges the rest; the files stay, with the reason."""
    for number in range(2):
        write(folder / f"w{number}.h5", meta=number, **{f"s{number}__aep": 1.5})
    with pytest.raises(ConflictError, match="/meta is in") as caught:
        merged(folder)
    output = merged(folder, names_to_skip(caught.value))
    assert objects(output) == {"s0/aep", "s1/aep"}
    report = find_removable(output)
    assert not report.removable
    assert {kept.why for kept in report.kept} == {
        "/meta was left out by --skip and exists nowhere else"
    }


@pytest.mark.parametrize("count", [2, 40])
def test_a_dataset_that_is_in_no_task_is_not_lost_with_a_key(folder: Path, count: int) -> None:
    """The merge stops and says how to leave it out; check counts the same then."""
    write(folder / "w0.h5", meta=3, x=np.arange(3), **{f"s{n}__aep": 1.5 for n in range(count)})
    with pytest.raises(UsageError, match="/meta, /x are in no task") as caught:
        merged(folder, key="s{seed:d}")
    skip = names_to_skip(caught.value)
    output = merged(folder, skip, key="s{seed:d}")
    with h5py.File(output) as file:
        assert len(file["seed"]) == count
    assert tasks_checked(folder, key="s{seed:d}", skip=parse_names(skip)) == count
    (kept,) = [kept for kept in find_removable(output).kept if kept.path.name == "w0.h5"]
    assert "/meta, /x" in kept.why


def test_a_group_that_is_in_no_task_is_left_out_as_the_message_says(folder: Path) -> None:
    """A group of settings beside groups of tasks."""
    write(folder / "w0.h5", settings__tolerance=1e-6, s1__aep=1.5, s2__aep=2.5)
    with pytest.raises(UsageError, match="/settings") as caught:
        merged(folder, key="s{seed:d}")
    output = merged(folder, names_to_skip(caught.value), key="s{seed:d}")
    with h5py.File(output) as file:
        assert file["aep"][:].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("names", [("coarse", "fine"), ("coarse/rows", "fine/rows")])
def test_one_of_two_tables_with_the_key_is_left_out_as_the_message_says(
    names: tuple[str, str], folder: Path
) -> None:
    """Two datasets of compounds have the key in their fields: the merge takes the other."""
    kind = np.dtype([("seed", "i8"), ("aep", "f8")])
    tables = (np.array([(1, 1.5), (2, 2.5)], kind), np.array([(1, 7.5), (2, 8.5)], kind))
    write(folder / "w0.h5", **dict(zip(names, tables, strict=True)))
    with pytest.raises(UsageError, match=f"in /{names[0]} and in /{names[1]}") as caught:
        merged(folder, key="seed")
    output = merged(folder, names_to_skip(caught.value), key="seed")
    with h5py.File(output) as file:
        assert file["aep"][:].tolist() == [1.5, 2.5]


def test_salvage_leaves_out_what_it_is_told(folder: Path) -> None:
    """Names are left out by salvage as by a merge."""
    write(folder / "w0.h5", s1__aep=1.5, s1__meta=2, s2__aep=2.5, s2__meta=3)
    (found,) = salvage_files(folder, key="s{seed:d}", skip=parse_names("meta")).files
    assert [set(one.names) for one in found.taken] == [{"aep"}] * 2


def test_what_is_skipped_in_a_task_is_not_in_its_copy(folder: Path) -> None:
    """Also where the HDF5 library copies whole groups, and where groups are alike."""
    for count, name in ((2, "few"), (40, "many")):
        tasks = {f"{name}{n}__{what}": 1.5 for n in range(count) for what in ("aep", "meta")}
        write(folder / f"{name}.h5", **tasks)
    write(folder / "one.h5", aep=1.5, meta=np.arange(3))
    output = merged(folder, "meta")
    assert {name.rpartition("/")[2] for name in objects(output)} == {"aep"}
    assert len(objects(output)) == 43


def test_a_value_that_no_result_can_have_is_left_out_as_the_message_says(folder: Path) -> None:
    """The step that is named merges the rest."""
    write(folder / "w0.h5", s1__aep=1.5, s1__name=np.bytes_(b"\xff\xfe"))
    with pytest.raises(SweepError, match="not UTF-8") as caught:
        merged(folder, key="s{seed:d}")
    with h5py.File(merged(folder, names_to_skip(caught.value), key="s{seed:d}")) as file:
        assert file["aep"][:].tolist() == [1.5] and "name" not in file


# Columns, and datasets beside them ---------------------------------------------------------------


def test_datasets_beside_columns_are_kept(folder: Path) -> None:
    """Single values and datasets of another length are there once if all files agree."""
    for number in range(2):
        write_rows(folder / f"w{number}.h5", range(3), version=3, grid=np.arange(9), note="text")
    output = merged(folder)
    with h5py.File(output) as file:
        assert set(file) == {"seed", "aep", "version", "grid", "note"}
        assert file["version"][()] == 3 and file["note"].asstr()[()] == "text"
        assert file["grid"][:].tolist() == list(range(9)) and len(file["seed"]) == 6
    assert len(find_removable(output).removable) == 2
    assert sum(one.tasks for one in read_entries(output)[-1].inputs) == 6


@pytest.mark.parametrize("key", [None, "seed"])
def test_datasets_beside_columns_that_cannot_be_kept_stop_a_merge(
    folder: Path, key: str | None
) -> None:
    """They differ between workers, or a row is a task; --skip leaves them out, once said."""
    for number in range(2):
        write_rows(folder / f"w{number}.h5", range(3 * number, 3 * number + 3), worker=number)
    with pytest.raises(SweepError, match="/worker") as caught:
        merged(folder, key=key)
    assert names_to_skip(caught.value) == "worker"
    output = folder.parent / "out.h5"
    policy = Policy(skip=parse_names("worker"))
    report = merge_files(folder, output, key=key, policy=policy)
    lines = [line for line in closing_lines(report) if "/worker" in line]
    assert lines == ["skipped by --skip: /worker in 2 files"]
    with h5py.File(output) as file:
        assert file["seed"][:].tolist() == list(range(6)) and "worker" not in file


def test_a_dataset_that_grows_beside_others_that_do_not_is_part_of_a_task(folder: Path) -> None:
    """A history of each task is no table over which its other values are forgotten."""
    for number in range(2):
        write(folder / f"w{number}.h5", aep=1.0 * number, layout=np.ones((9, 2)))
        with h5py.File(folder / f"w{number}.h5", "a") as file:
            file.create_dataset("history", data=np.arange(3.0), maxshape=(None,))
    assert tasks_checked(folder) == 2
    assert objects(merged(folder)) == {
        f"w{n}/{name}" for n in range(2) for name in ("aep", "layout", "history")
    }


# Attributes alone --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "s{seed:d}"])
def test_groups_with_attributes_alone_are_tasks(folder: Path, key: str | None) -> None:
    """Beside files with datasets as well; all commands count them."""
    write(folder / "w0.h5", s0__aep=0.5)
    with h5py.File(folder / "w1.h5", "w") as file:
        for seed in (1, 2):
            file.create_group(f"s{seed}").attrs["aep"] = seed + 0.5
    assert tasks_checked(folder, key=key) == 3
    output = merged(folder, key=key)
    assert sum(one.tasks for one in read_entries(output)[-1].inputs) == 3
    with h5py.File(output) as file:
        if key:
            assert file["aep"][:].tolist() == [0.5, 1.5, 2.5]
        else:
            assert file["s2"].attrs["aep"] == 2.5
    removable = {item.path.name for item in find_removable(output).removable}
    assert {"w0.h5", "w1.h5"} <= removable
