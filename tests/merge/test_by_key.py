"""Tasks of other programs' files become keyed records, and rows of the output."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
from xxhash import xxh3_64_intdigest

from foreign_samples import KEY, layout_of, write_compounds, write_groups, write_one, write_rows
from h5sweep import Recorder
from h5sweep.errors import (
    ChangedError,
    ConflictError,
    DamagedError,
    UnmergeableError,
    UsageError,
)
from h5sweep.merge.by_key import row_tasks
from h5sweep.merge.by_key.prove_rows import OutputRows
from h5sweep.merge.by_key.to_records import TakenIn, record_tasks
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import RecordFile, Scan
from h5sweep.runfolder.uniform_records import RecordRun, scan_stretches
from h5sweep.worker_files.inputs import Input, OnConflict
from h5sweep.worker_files.survey import Survey
from terminal import Terminal

NAMES = "farm_id,farm_type,seed"


class Merge:
    """Files in a folder, and the output beside it."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.output = folder / "in", folder / "out.h5"
        self.inputs.mkdir()
        self.survey = Survey()

    @property
    def folder(self) -> RunFolder:
        return RunFolder.of(self.output)

    def take(self, key: str | None = KEY, **settings: Any) -> TakenIn:
        found = self.survey.look_at_all([self.inputs])
        return record_tasks(self.survey, found, self.folder, key=key, **settings)

    def run(self, key: str | None = KEY, **settings: Any) -> dict[str, Any]:
        """Record and merge; the columns of the output, rows ordered by seed."""
        self.take(key, **settings)
        return self.columns()

    def columns(self) -> dict[str, Any]:
        merge_run(self.folder)
        with h5py.File(self.output) as file:
            order = np.argsort(file["seed"][:], kind="stable")
            names = [n for n, d in file.items() if isinstance(d, h5py.Dataset)]
            return {n: file[n][:][order] for n in names if len(file[n]) == len(order)}

    def holds(self, one: Input, key: str) -> bool:
        """Whether the output has all tasks of a file."""
        with OutputRows(self.output) as rows:
            return rows.hold(self.survey, one, key=key)


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    return Merge(tmp_path)


def assert_whole(columns: dict[str, Any], seeds: list[int]) -> None:
    assert columns["seed"].tolist() == seeds
    assert columns["farm_id"].tolist() == [3] * len(seeds)
    np.testing.assert_array_equal(columns["layout"], [layout_of(seed) for seed in seeds])
    assert columns["aep"].tolist() == [seed / 8 for seed in seeds]


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("key", [KEY, NAMES])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_groups_become_rows(merge: Merge, key: str, count: int, libver: str) -> None:
    """A group a task, with its key in the name or in attributes, few or many of them."""
    write_groups(merge.inputs / "a.h5", range(count), libver=libver)
    write_groups(merge.inputs / "b.h5", range(count, 2 * count), libver=libver)
    columns = merge.run(key)
    assert_whole(columns, list(range(2 * count)))
    assert set(columns["solver"]) == {b"slsqp"}


def test_units_are_kept(merge: Merge) -> None:
    """Units of a dataset are the units of its column."""
    write_groups(merge.inputs / "a.h5", range(3))
    merge.run()
    with h5py.File(merge.output) as file:
        assert file["layout"].attrs["units"] in ("m", b"m")


ATTRIBUTES: dict[str, Any] = {
    "crs": "EPSG:25832",
    "description": "größer als vorher",
    "scale": np.float32(0.1),
    "offset": np.array([1, 2], ">i2"),
    "is_final": np.True_,
    "authors": ["Ada", "Émilie"],
    "empty": "",
}


def assert_described(dataset: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        found = dataset.attrs[name]
        found = found.decode() if isinstance(found, bytes) else found
        np.testing.assert_array_equal(found, value)
        if isinstance(value, np.generic):
            assert found.dtype == value.dtype


def describe_groups(path: Path, **attributes: Any) -> None:
    with h5py.File(path, "a") as file:
        for group in file.values():
            group["layout"].attrs.update(attributes)


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("key", [KEY, NAMES])
def test_attributes_of_datasets_go_with_their_columns(merge: Merge, key: str, count: int) -> None:
    """What all tasks say of a dataset is said of its column, whatever its type."""
    for number, name in enumerate("ab"):
        path = write_groups(
            merge.inputs / f"{name}.h5", range(number * count, count * number + count)
        )
        describe_groups(path, **ATTRIBUTES)
    taken = merge.take(key)
    merge_run(merge.folder)
    with h5py.File(merge.output) as file:
        assert_described(file["layout"], {**ATTRIBUTES, "units": "m"})
        assert not file["aep"].attrs.keys() & ATTRIBUTES.keys()
    assert [one.left_out for one in taken.taken] == [{}, {}] and taken.notes == ()


def test_attributes_of_columns_and_of_keys_go_with_them(merge: Merge) -> None:
    """In files of columns a parameter may have units too."""
    for name, seeds in (("a", [1, 2]), ("b", [3])):
        with h5py.File(write_rows(merge.inputs / f"{name}.h5", seeds), "a") as file:
            file["layout"].attrs.update(ATTRIBUTES)
            file["seed"].attrs["units"] = "1"
    merge.run(NAMES)
    with h5py.File(merge.output) as file:
        assert_described(file["layout"], ATTRIBUTES)
        assert_described(file["seed"], {"units": "1"})


def test_attributes_of_a_compound_go_with_its_members(merge: Merge) -> None:
    """Each member is a column, and what is said of all is said of each."""
    with h5py.File(merge.inputs / "farm3_t1_s0.h5", "w") as file:
        file["pair"] = np.array((4, 2.5), [("n", "<i4"), ("x", "<f8")])
        file["pair"].attrs["source"] = "model"
    merge.run()
    with h5py.File(merge.output) as file:
        assert_described(file["pair_n"], {"source": "model"})
        assert_described(file["pair_x"], {"source": "model"})


@pytest.mark.parametrize("count", [3, 40])
def test_attributes_that_differ_between_files_are_in_the_audit_trail(
    merge: Merge, count: int
) -> None:
    """No column says what holds for some of its rows only; one note names all such attributes."""
    for number, crs in enumerate(["A", "B"]):
        path = write_groups(
            merge.inputs / f"{crs}.h5", range(number * count, count * number + count)
        )
        describe_groups(path, crs=crs, units="m" * (number + 1), same=1)
    taken = merge.take()
    merge_run(merge.folder)
    with h5py.File(merge.output) as file:
        assert not file["layout"].attrs.keys() & {"crs", "units"}
        assert file["layout"].attrs["same"] == 1
    assert [one.left_out for one in taken.taken] == [
        {"layout@crs": "A", "layout@units": "m"},
        {"layout@crs": "B", "layout@units": "mm"},
    ]
    (note,) = taken.notes
    assert "units of layout" in note and "crs of layout" in note


@pytest.mark.parametrize("count", [3, 40])
def test_attributes_that_differ_between_tasks_are_in_the_audit_trail(
    merge: Merge, count: int
) -> None:
    """Each with the path of its dataset; tasks that have none are not among them."""
    path = write_groups(merge.inputs / "a.h5", range(count))
    with h5py.File(path, "a") as file:
        for seed in range(count - 1):
            file[f"farm3_t1_s{seed}/layout"].attrs["rounds"] = seed % 2
    taken = merge.take()
    merge_run(merge.folder)
    with h5py.File(merge.output) as file:
        assert "rounds" not in file["layout"].attrs
    (one,) = taken.taken
    assert one.left_out == {
        f"/farm3_t1_s{seed}/layout@rounds": str(seed % 2) for seed in range(count - 1)
    }
    (note,) = taken.notes
    assert "differ between tasks" in note and "rounds of layout" in note


def test_attributes_of_groups_among_others_that_are_alike_are_told_apart(merge: Merge) -> None:
    """Each value is in the audit trail under its own task, also where a few groups are unlike."""
    path = write_groups(merge.inputs / "a.h5", range(40))
    with h5py.File(path, "a") as file:
        for seed in range(40):
            group = file[f"farm3_t1_s{seed}"]
            group["layout"].attrs["round"] = seed
            if seed % 10 == 5:
                group.create_dataset("more", data=np.arange(5.0), chunks=(5,))
    (taken,) = merge.take().taken
    assert taken.left_out == {f"/farm3_t1_s{n}/layout@round": str(n) for n in range(40)}


@pytest.mark.parametrize("count", [3, 40])
def test_attributes_that_no_column_can_have_are_in_the_audit_trail(
    merge: Merge, count: int
) -> None:
    """A fill value would make gaps of values; lists of any length and large ones have no place."""
    path = write_groups(merge.inputs / "a.h5", range(count))
    lists = np.empty(1, h5py.vlen_dtype("i4"))
    lists[0] = np.array([1, 2], "i4")
    describe_groups(path, _FillValue=-1.0, nothing=h5py.Empty("f8"), lists=lists)
    taken = merge.take()
    merge_run(merge.folder)
    with h5py.File(merge.output) as file:
        assert not file["layout"].attrs.keys() & {"_FillValue", "nothing", "lists"}
    found = taken.taken[0].left_out
    assert (found["layout@_FillValue"], found["layout@nothing"]) == ("-1.0", "nothing")
    assert "0100000002000000" in found["layout@lists"]
    (note,) = taken.notes
    assert "the output has no place" in note and "_FillValue of layout" in note


def test_attributes_that_netcdf_would_refuse_the_file_for_are_not_kept(merge: Merge) -> None:
    """The output opens in every reader, whatever the files say of their datasets."""
    names = ["a/b", " x", "x ", "\x7f", "x" * 300, "table"]
    path = write_groups(merge.inputs / "a.h5", range(3))
    describe_groups(path, **{name: np.eye(2) if name == "table" else 1 for name in names}, ok=1)
    taken = merge.take()
    merge_run(merge.folder)
    assert taken.taken[0].left_out.keys() == {f"layout@{name}" for name in names}
    with netCDF4.Dataset(merge.output) as file:
        assert {"ok", "units"} <= set(file["layout"].ncattrs())
    with h5py.File(merge.output) as output:
        assert not output["layout"].attrs.keys() & set(names)


def test_what_later_files_say_is_compared_with_what_earlier_ones_said(merge: Merge) -> None:
    """One by one as all at once; what has once differed is never said of the column again."""
    paths = [merge.inputs / f"{name}.h5" for name in "abc"]
    for seed, crs in enumerate("ABA"):
        write_groups(paths[seed], [seed])
        describe_groups(paths[seed], crs=crs)
    found = []
    for path in paths:
        one = merge.survey.look_at(path)
        taken = record_tasks(merge.survey, [one], merge.folder, key=KEY)
        merge_run(merge.folder)
        with h5py.File(merge.output) as file:
            found.append((file["layout"].attrs.get("crs"), taken.taken[0].left_out))
    assert found == [("A", {}), (None, {"layout@crs": "B"}), (None, {"layout@crs": "A"})]


PACKED: list[dict[str, Any]] = [
    {"scale_factor": 0.1},
    {"missing_value": 2},
    {"units": "days since 2000-01-01"},
]


@pytest.mark.parametrize("attributes", PACKED, ids=lambda found: next(iter(found)))
@pytest.mark.parametrize("later", ["files", "tasks", "merges", "merges without it"])
def test_what_values_are_decoded_by_holds_for_all_rows_or_none(
    merge: Merge, later: str, attributes: dict[str, Any]
) -> None:
    """What xarray reads is what it reads in the files, also of those that lack the attribute."""
    names = ["a", "a"] if later == "tasks" else ["a", "b"]
    paths = [merge.inputs / f"{name}.h5" for name in names]
    lacking = 0 if later == "merges" else 1
    for seed, path in enumerate(paths):
        with h5py.File(path, "a") as file:
            group = file.create_group(f"farm3_t1_s{seed}")
            group["x"] = np.arange(1, 4) + 10 * seed
            if seed != lacking:
                group["x"].attrs.update(attributes)
        if later.startswith("merges"):
            record_tasks(merge.survey, [merge.survey.look_at(path)], merge.folder, key=KEY)
            merge_run(merge.folder)
    if not later.startswith("merges"):
        merge.run()
    with xarray.open_dataset(merge.output) as found:
        assert found["x"].values.tolist() == [[1, 2, 3], [11, 12, 13]]


def test_what_all_values_are_decoded_by_is_kept(merge: Merge) -> None:
    """Packed values stay packed, with what unpacks them, also where a file lacks the column."""
    for seed in range(3):
        path = write_rows(merge.inputs / f"{seed}.h5", [seed])
        with h5py.File(path, "a") as file:
            if seed < 2:
                file["x"] = [seed]
                file["x"].attrs.update(scale_factor=0.5, add_offset=3.0)
    merge.run(NAMES)
    with xarray.open_dataset(merge.output) as found:
        np.testing.assert_array_equal(found["x"], [3.0, 3.5, np.nan])


def test_an_output_says_itself_of_what_type_its_columns_are(merge: Merge) -> None:
    """A number is no truth for what a file says of it, in a key least of all; nor is a gap."""
    for name, seeds in (("a", [1, 2]), ("b", [3, 4])):
        with h5py.File(write_rows(merge.inputs / f"{name}.h5", seeds), "a") as file:
            file["seed"].attrs["dtype"] = "bool"
            if name == "a":
                file["is_good"] = np.array([0, 1], "i1")
                file["is_good"].attrs["dtype"] = "bool"
                file["name"] = np.array([b"x", b"y"])
                file["name"].attrs["_Encoding"] = "utf-8"
    merge.run(NAMES)
    shutil.rmtree(merge.folder.path)
    merge.run(NAMES)
    with xarray.open_dataset(merge.output) as found:
        assert found["seed"].values.tolist() == [1, 2, 3, 4]
        np.testing.assert_array_equal(found["is_good"], [0, 1, np.nan, np.nan])
        assert found["name"].values.tolist()[:2] == ["x", "y"]


def test_attributes_outlive_the_run_folder_and_a_run(terminal: Terminal) -> None:
    """They are taken over from an earlier output, also one among the inputs, and by `run`."""
    write_groups(terminal.folder / "a.h5", [0])
    describe_groups(terminal.folder / "a.h5", crs="A", units="km")
    write_groups(terminal.folder / "b.h5", [1])
    describe_groups(terminal.folder / "b.h5", crs="A", units="km")
    terminal.run("merge", "a.h5", "-o", "one.h5", "--key", KEY)
    terminal.run("merge", "one.h5", "-o", "two.h5")
    shutil.rmtree(terminal.folder / "two.h5.run")
    terminal.run("merge", "b.h5", "-o", "two.h5", "--key", KEY)
    terminal.run("merge", "two.h5.run", "-o", "three.h5")
    terminal.write(
        "study.py",
        """
        import h5sweep
        import numpy as np

        @h5sweep.sweep(farm_id=[3], farm_type=[1], seed=range(3), units={"aep": "GW h"})
        def study(farm_id, farm_type, seed):
            return {"layout": np.zeros((5, 2)), "aep": 0.0}
        """,
    )
    terminal.run("run", "study.py", "-o", "three.h5")
    for name in ("one", "two", "three"):
        with h5py.File(terminal.folder / f"{name}.h5") as file:
            assert_described(file["layout"], {"crs": "A", "units": "km"})
    with h5py.File(terminal.folder / "three.h5") as file:
        assert_described(file["aep"], {"units": "GW h"})


def test_a_run_says_what_may_not_fit_its_results(terminal: Terminal) -> None:
    """Units of its own, and attributes by which readers make other values of what they read."""
    write_groups(terminal.folder / "a.h5", [0])
    describe_groups(terminal.folder / "a.h5", units="km", scale_factor=0.5)
    terminal.run("merge", "a.h5", "-o", "out.h5", "--key", KEY)
    terminal.write(
        "study.py",
        """
        import h5sweep
        import numpy as np

        @h5sweep.sweep(farm_id=[3], farm_type=[1], seed=range(2), units={"layout": "m"})
        def study(farm_id, farm_type, seed):
            return {"layout": np.zeros((5, 2)), "aep": 0.0}
        """,
    )
    said = terminal.run("run", "study.py", "-o", "out.h5", check=2).stderr
    assert "units: layout is 'm' in the study but 'km' in the 1 result of out.h5" in said
    study = terminal.folder / "study.py"
    study.write_text(study.read_text().replace('"m"', '"km"'))
    said = terminal.run("run", "study.py", "-o", "out.h5").stderr
    assert "layout has the scale_factor 0.5 of merged files" in said


@pytest.mark.parametrize(
    "settings", [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}]
)
def test_rows_become_rows(merge: Merge, settings: dict[str, Any]) -> None:
    """Columns that hold the key among them."""
    write_rows(merge.inputs / "a.h5", list(range(30)), **settings)
    write_rows(merge.inputs / "b.h5", list(range(30, 45)), **settings)
    assert_whole(merge.run(NAMES), list(range(45)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"maxshape": (None,), "chunks": (8,)}, {"compression": "gzip", "fletcher32": True}],
)
def test_rows_of_compounds_become_rows(
    merge: Merge, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """A dataset that holds the key in its fields, read a few rows at a time."""
    monkeypatch.setattr(row_tasks, "BLOCK_BYTES", 1 << 10)
    write_compounds(merge.inputs / "a.h5", list(range(30)), **settings)
    write_compounds(merge.inputs / "b.h5", list(range(30, 45)), **settings)
    write_rows(merge.inputs / "c.h5", [45, 46])
    assert_whole(merge.run(NAMES), list(range(47)))


def test_two_datasets_of_compounds_with_the_key_are_named(merge: Merge) -> None:
    """Which of them holds the results cannot be told."""
    with h5py.File(write_compounds(merge.inputs / "a.h5", [1, 2]), "a") as file:
        file["more"] = file["run/results"][...]
    with pytest.raises(UsageError, match=r"the key is in /more and in /run/results"):
        merge.run(NAMES)


def test_a_narrow_column_of_large_chunks_does_not_fill_the_memory(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read a few at a time, though a chunk of one column is as long as the file."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file["seed"] = np.arange(2000)
        file.create_dataset("kind", data=np.zeros(2000, "i1"), chunks=(2000,))
        file.create_dataset("layout", data=np.ones((2000, 500)), chunks=(10, 500))
    monkeypatch.setattr(row_tasks, "BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr(row_tasks, "MOST_BLOCK_BYTES", 1 << 20)
    found = merge.survey.look_at_all([merge.inputs])
    tracemalloc.start()
    record_tasks(merge.survey, found, merge.folder, key="seed")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * (merge.inputs / "a.h5").stat().st_size


def test_a_single_row_is_a_row(merge: Merge) -> None:
    """A worker that was killed after its first row leaves columns of one, also beside `init`."""
    with h5py.File(write_rows(merge.inputs / "a.h5", [1]), "a") as file:
        file["init"] = 0
    write_rows(merge.inputs / "b.h5", [2, 3])
    assert_whole(merge.run(NAMES), [1, 2, 3])


def test_records_of_one_size_lie_together(merge: Merge) -> None:
    """Texts of two lengths by turns do not keep a reader from taking records many at a time."""
    with h5py.File(merge.inputs / "w.h5", "w") as file:
        file["seed"] = np.arange(200)
        file["word"] = ["calm" if seed % 2 else "stormy" for seed in range(200)]
        file["x"] = np.arange(200.0)
    found = merge.run("seed")
    assert found["x"].tolist() == list(range(200))
    assert found["word"].tolist() == [b"stormy", b"calm"] * 100
    (path,) = merge.folder.record_paths()
    with RecordFile(path) as file:
        runs = [len(run) for run in scan_stretches(file, Scan()) if isinstance(run, RecordRun)]
    assert runs == [100, 100]


def test_nothing_counts_that_is_refused_at_the_end(merge: Merge) -> None:
    """What raises once all is read leaves no record."""

    def refuse() -> None:
        raise UsageError("no")

    write_rows(merge.inputs / "w.h5", [1, 2, 3])
    with pytest.raises(UsageError, match="no"):
        merge.take(NAMES, before_it_counts=refuse)
    assert merge.folder.record_paths() == []


def test_rows_with_nothing_but_a_key_are_named(merge: Merge) -> None:
    """There is no result in them."""
    with h5py.File(write_rows(merge.inputs / "a.h5", [1, 2]), "a") as file:
        del file["layout"], file["aep"]
    with pytest.raises(UnmergeableError, match=r"a\.h5: / has a key but no values"):
        merge.run(NAMES)


@pytest.mark.parametrize("key", [KEY, NAMES])
def test_a_file_is_a_task(merge: Merge, key: str) -> None:
    """The key is in the name of the file, or in attributes of its root."""
    for seed in range(4):
        write_one(merge.inputs / f"farm3_t1_s{seed}.h5", seed)
    assert_whole(merge.run(key), list(range(4)))


def test_the_key_is_in_the_path(merge: Merge) -> None:
    """Groups in groups, each with a part of the key."""
    with h5py.File(merge.inputs / "deep.h5", "w") as file:
        for seed in range(12):
            group = file.create_group(f"farm3/type1/seed{seed}")
            group["layout"], group["aep"] = layout_of(seed), seed / 8
    assert_whole(merge.run("farm{farm_id:d}/type{farm_type:d}/seed{seed:d}"), list(range(12)))


def test_groups_in_a_task_belong_to_it(merge: Merge) -> None:
    """What lies deeper in the group of a task is called after the way there."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        for seed in range(3):
            file[f"farm3_t1_s{seed}/wake/deficit"] = seed / 2
    assert merge.run()["wake_deficit"].tolist() == [0, 0.5, 1]


def test_mixed_shapes_are_one_output(merge: Merge) -> None:
    """Groups, rows, one-task files, an output and a record file, each with other tasks."""
    write_groups(merge.inputs / "groups.h5", [0, 1])
    write_rows(merge.inputs / "rows.h5", [2, 3])
    write_one(merge.inputs / "one.h5", 4)
    for seed, name in ((5, "other.h5"), (6, "gone.h5")):
        with Recorder(merge.inputs / name) as recorder:
            key = {"farm_id": 3, "farm_type": 1, "seed": seed}
            recorder.write(key, layout=layout_of(seed), aep=seed / 8)
    merge_run(RunFolder.of(merge.inputs / "gone.h5"))
    for path in RunFolder.of(merge.inputs / "gone.h5").record_paths():
        path.unlink()
    assert_whole(merge.run(NAMES), list(range(7)))


def test_keys_of_our_own_files_need_no_naming(merge: Merge) -> None:
    """A record file says what the key is, also for groups of other programs."""
    write_groups(merge.inputs / "groups.h5", [0, 1])
    with Recorder(merge.inputs / "other.h5") as recorder:
        recorder.write({"farm_id": 3, "farm_type": 1, "seed": 2}, layout=layout_of(2), aep=2 / 8)
    assert_whole(merge.run(None), [0, 1, 2])


def test_a_run_computes_what_is_missing(terminal: Terminal) -> None:
    """After a merge of somebody's groups, `run` starts the tasks that were not among them."""
    write_groups(terminal.folder / "mine.h5", range(10))
    survey = Survey()
    folder = RunFolder.of(terminal.folder / "out.h5")
    found = survey.look_at_all([terminal.folder / "mine.h5"])
    record_tasks(survey, found, folder, key=KEY)
    assert terminal.json("status", "out.h5")["done"] == 10
    terminal.write(
        "study.py",
        """
        import numpy as np
        from h5sweep import sweep
        @sweep(farm_id=[3], farm_type=[1], seed=range(13))
        def study(farm_id, farm_type, seed):
            open(f"ran{seed}", "w").close()
            return {"layout": np.arange(10.0).reshape(5, 2) + seed, "aep": seed / 8}
        """,
    )
    terminal.run("run", "study.py", "-o", "out.h5")
    assert sorted(p.name for p in terminal.folder.glob("ran*")) == ["ran10", "ran11", "ran12"]
    with h5py.File(terminal.folder / "out.h5") as file:
        assert sorted(file["seed"][:]) == list(range(13))


def test_every_kind_of_value(merge: Merge) -> None:
    """Numbers of any width and byte order, bools, enumerations, texts, compounds, nothing."""
    colours = h5py.enum_dtype({"RED": 1, "BLUE": 7}, "i2")
    pair = np.array((4, 2.5), [("n", "<i4"), ("x", ">f8")])
    values: dict[str, Any] = {
        "big": np.arange(3, dtype=">i2"),
        "tiny": np.uint8(200),
        "half": np.float16(1.5),
        "single": np.float32([1.5, 2.5]),
        "flag": np.array([True, False]),
        "number": 3 + 4j,
        "text": "größer",
        "texts": ["one", "two and more"],
        "fixed": np.array([b"ab", b"c"]),
        "none": np.empty((0, 2)),
        "pair": pair,
        "odd name": 1.0,
        "duration_s": 2.0,
    }
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        group = file.create_group("farm3_t1_s0")
        for name, value in values.items():
            group[name] = value
        group.create_dataset("colour", data=[1, 7], dtype=colours)
        group["scaled"] = np.arange(4, dtype="<u8") + 2**63
        group["nothing"] = h5py.Empty("f8")
    taken = merge.take()
    columns = merge.columns()
    assert columns["big"].tolist() == [[0, 1, 2]] and columns["tiny"].tolist() == [200]
    assert columns["half"].tolist() == [1.5] and columns["single"].tolist() == [[1.5, 2.5]]
    assert columns["flag"].tolist() == [[1, 0]] and columns["number"].tolist() == [3 + 4j]
    assert columns["text"][0].decode() == "größer" and columns["fixed"].tolist() == [[b"ab", b"c"]]
    assert columns["texts"].tolist() == [[b"one", b"two and more"]]
    assert columns["pair_n"].tolist() == [4] and columns["pair_x"].tolist() == [2.5]
    assert columns["odd_name"].tolist() == [1] and columns["duration_s_"].tolist() == [2]
    assert columns["colour"].tolist() == [[1, 7]] and columns["scaled"][0, 0] == 2**63
    assert any("nothing is empty at" in note for note in taken.notes)
    assert any("odd name is named odd_name" in note for note in taken.notes)


@pytest.mark.parametrize("count", [3, 40])
def test_attributes_that_are_no_values_are_in_the_audit_trail(merge: Merge, count: int) -> None:
    """One that holds nothing or has the name of a dataset, in a few groups and in many alike."""
    write_groups(merge.inputs / "a.h5", range(count))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        for group in file.values():
            group.attrs["nothing"] = h5py.Empty("f8")
            group.attrs["aep"] = f"of {group.name}"
    taken = merge.take()
    assert [note.partition(":")[0] for note in taken.notes] == [
        f"the attribute {name} is only in the audit trail" for name in ("nothing", "aep")
    ]
    left_out, places = taken.taken[0].left_out, [f"/farm3_t1_s{seed}" for seed in range(count)]
    assert left_out == {f"{place}@nothing": "nothing" for place in places} | {
        f"{place}@aep": f"of {place}" for place in places
    }
    assert "nothing" not in merge.columns() and len(merge.columns()["layout"]) == count


def test_attributes_of_what_is_no_task_are_one_note(merge: Merge) -> None:
    """However many a program has at the root, as PyTables does."""
    write_groups(merge.inputs / "a.h5", range(2))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        for number in range(8):
            file.attrs[f"about_{number}"] = number
    taken = merge.take()
    names = ", ".join(f"about_{number}" for number in range(5))
    assert taken.notes == (f"the attributes {names} and 3 more of / are only in the audit trail",)
    assert taken.taken[0].left_out == {f"/@about_{n}": f"{n}" for n in range(8)}


def test_links_within_the_file_are_followed(merge: Merge) -> None:
    """A dataset under a second name, and one behind a soft link, are values like others."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file["farm3_t1_s0/layout"] = layout_of(0)
        file["farm3_t1_s1/layout"] = file["farm3_t1_s0/layout"]
        file["farm3_t1_s2/layout"] = h5py.SoftLink("/farm3_t1_s0/layout")
    columns = merge.run()
    np.testing.assert_array_equal(columns["layout"], [layout_of(0)] * 3)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("external", "/farm3_t1_s0/out points to another file"),
        ("dangling", "not a dataset of the file"),
        ("virtual", "virtual dataset"),
        ("storage", "external storage"),
        ("list", "lists of any length"),
        ("bytes", "not UTF-8"),
        ("unusual", "of unusual bits"),
    ],
)
def test_what_cannot_be_taken_is_named(merge: Merge, damage: str, words: str) -> None:
    """Nothing outside the file is ever read, and what has no place in a result stops the merge."""
    path = merge.inputs / "a.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("farm3_t1_s0")
        group["aep"] = 1.0
        if damage == "external":
            group["out"] = h5py.ExternalLink("other.h5", "/x")
        elif damage == "dangling":
            group["out"] = h5py.SoftLink("/nowhere")
        elif damage == "virtual":
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
            group.create_virtual_dataset("out", layout)
        elif damage == "storage":
            group.create_dataset("out", (3,), "f8", external=[("raw.bin", 0, 24)])
        elif damage == "list":
            group.create_dataset("out", (1,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        elif damage == "bytes":
            group["out"] = np.bytes_(b"\xff\xfe")
        else:
            kind = h5py.h5t.NATIVE_INT32.copy()
            kind.set_precision(20)
            h5py.h5d.create(group.id, b"out", kind, h5py.h5s.create(h5py.h5s.SCALAR))
    with pytest.raises(UnmergeableError, match=words) as raised:
        merge.take()
    assert str(path) in str(raised.value) and "/farm3_t1_s0" in str(raised.value)
    assert merge.folder.record_paths() == []


def test_a_pattern_that_fits_nothing_says_what_there_is(merge: Merge) -> None:
    """The error names groups that are there, and how to write a key."""
    write_groups(merge.inputs / "a.h5", range(3))
    for key in ("case_{n:d}", "nothing,here"):
        with pytest.raises(UsageError, match=r"farm3_t1_s0.*--key"):
            merge.take(key)


def test_without_a_key_it_says_how_to_give_one(merge: Merge) -> None:
    """Files of other programs alone do not say what the key is."""
    write_groups(merge.inputs / "a.h5", range(3))
    with pytest.raises(UsageError, match="give --key"):
        merge.take(None)


@pytest.mark.parametrize("count", [3, 40])
def test_groups_without_a_key_are_named(merge: Merge, count: int) -> None:
    """A group with data that is no task stops the merge, unless it is to be skipped."""
    write_groups(merge.inputs / "a.h5", range(count))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        file["settings/tolerance"] = 1e-6
        file["init"] = 0
    with pytest.raises(UsageError, match="/settings"):
        merge.take()
    taken = merge.take(skip_unmatched=True).taken[0]
    assert set(taken.skipped) == {"/settings", "/settings/tolerance", "/init"}
    assert taken.tasks == count


@pytest.mark.parametrize("count", [3, 40])
def test_groups_without_data_are_no_results(merge: Merge, count: int) -> None:
    """A group whose writer was killed before its first dataset is named, and its task missing."""
    write_groups(merge.inputs / "a.h5", range(count))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        for seed in range(100, 100 + count):
            file.create_group(f"farm3_t1_s{seed}").attrs.update(solver="slsqp")
    taken = merge.take()
    assert taken.taken[0].tasks == count and len(taken.taken[0].skipped) == count
    assert any("/farm3_t1_s100" in note for note in taken.notes)
    assert_whole(merge.columns(), list(range(count)))


@pytest.mark.parametrize("what", ["init", "nothing"])
def test_a_file_before_its_first_result_has_no_tasks(merge: Merge, what: str) -> None:
    """What a worker leaves that was killed early does not stop the others."""
    write_groups(merge.inputs / "a.h5", range(3))
    with h5py.File(merge.inputs / "b.h5", "w") as file:
        if what == "init":
            file["init"] = 0
    assert [taken.tasks for taken in merge.take().taken] == [3, 0]


@pytest.mark.parametrize("count", [3, 40])
def test_results_may_all_be_attributes(merge: Merge, count: int) -> None:
    """Where no group has a dataset, attributes are the results."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        for seed in range(count):
            file.create_group(f"farm3_t1_s{seed}").attrs["aep"] = seed / 8
    assert merge.run()["aep"].tolist() == [seed / 8 for seed in range(count)]


@pytest.mark.parametrize("count", [3, 40])
def test_equal_tasks_are_recorded_once(merge: Merge, count: int) -> None:
    """A task that two files have with equal values is one row and a counted duplicate."""
    write_groups(merge.inputs / "a.h5", range(count))
    write_groups(merge.inputs / "b.h5", range(1, count + 1))
    taken = merge.take()
    assert [t.duplicates for t in taken.taken] == [0, count - 1]
    assert_whole(merge.columns(), list(range(count + 1)))


def write_conflict(merge: Merge) -> None:
    write_groups(merge.inputs / "a.h5", [0, 1])
    write_groups(merge.inputs / "b.h5", [1, 2])
    with h5py.File(merge.inputs / "b.h5", "a") as file:
        file["farm3_t1_s1/aep"][()] = 99.0
    os.utime(merge.inputs / "a.h5", (2e9, 2e9))
    os.utime(merge.inputs / "b.h5", (1e9, 1e9))


def test_different_results_for_one_task_stop(merge: Merge) -> None:
    """The error names both places, and nothing was recorded."""
    write_conflict(merge)
    with pytest.raises(ConflictError, match="seed=1") as raised:
        merge.take()
    for name in ("a.h5", "b.h5"):
        assert f"{merge.inputs / name}, /farm3_t1_s1" in str(raised.value)
    assert merge.folder.record_paths() == []


@pytest.mark.parametrize(
    ("choice", "aep"),
    [(OnConflict.FIRST, 1 / 8), (OnConflict.LAST, 99.0), (OnConflict.NEWEST, 1 / 8)],
)
def test_a_conflict_is_decided_as_told(merge: Merge, choice: OnConflict, aep: float) -> None:
    """First and last in the order of the inputs, or by time of change; twice the same."""
    write_conflict(merge)
    for _ in range(2):
        assert merge.run(on_conflict=choice)["aep"].tolist() == [0, aep, 2 / 8]
    assert len(merge.folder.record_paths()) == 1


def test_two_groups_of_one_file_conflict(merge: Merge) -> None:
    """The end of a path is the key, so one file can have two groups for one task."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file["x/farm3_t1_s0/aep"] = 1.0
        file["y/farm3_t1_s0/aep"] = 2.0
    with pytest.raises(ConflictError, match=r"/x/farm3_t1_s0.*/y/farm3_t1_s0"):
        merge.take()
    assert merge.run(on_conflict=OnConflict.LAST)["aep"].tolist() == [2]


@pytest.mark.parametrize("count", [3, 40])
def test_the_same_command_again_adds_nothing(merge: Merge, count: int) -> None:
    """Tasks that the run folder has are not recorded again, and another file adds its own."""
    write_groups(merge.inputs / "a.h5", range(count))
    merge.take()
    again = merge.take()
    assert again.records == () and "already" in again.notes[-1]
    write_groups(merge.inputs / "b.h5", range(count, count + 2))
    assert len(merge.take().records) == 1
    assert_whole(merge.columns(), list(range(count + 2)))


def test_what_only_the_output_has_is_compared_with_it(merge: Merge) -> None:
    """After the records are gone, equal tasks are known and different ones are a conflict."""
    write_groups(merge.inputs / "a.h5", range(3))
    merge.run()
    for path in merge.folder.record_paths():
        path.unlink()
    assert merge.take().records == ()
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        file["farm3_t1_s2/aep"][()] = 99.0
    with pytest.raises(ConflictError, match="seed=2"):
        merge.take()


def test_a_kill_before_the_plan_is_saved_loses_nothing(merge: Merge) -> None:
    """Records whose plan was not written are found by their keys."""
    write_groups(merge.inputs / "a.h5", range(3))
    merge.take()
    merge.folder.plan_path.unlink()
    assert_whole(merge.columns(), [0, 1, 2])


def test_unfinished_files_of_a_kill_are_removed(merge: Merge) -> None:
    """What a killed merge left behind is gone after the next."""
    write_groups(merge.inputs / "a.h5", range(3))
    merge.folder.create()
    left = merge.folder.records_path / ".foreign_1_abcd.records.part"
    left.write_bytes(b"half a record")
    merge.take()
    assert not left.exists()


def test_a_changed_file_is_noticed(merge: Merge) -> None:
    """A file that is written after it was looked at stops the merge."""
    path = write_groups(merge.inputs / "a.h5", range(3))
    found = merge.survey.look_at_all([merge.inputs])
    os.utime(path, (1e9, 1e9))
    with pytest.raises(ChangedError, match=r"a\.h5"):
        record_tasks(merge.survey, found, merge.folder, key=KEY)


@pytest.mark.parametrize("count", [3, 40])
def test_the_checksum_is_that_of_the_whole_file(merge: Merge, count: int) -> None:
    """Each input's CRC-32 is noted as it was read."""
    path = write_groups(merge.inputs / "a.h5", range(count))
    taken = merge.take().taken[0]
    assert taken.xxh3 == xxh3_64_intdigest(path.read_bytes())
    assert taken.datasets == ("aep", "layout") and taken.attributes == ("solver",)


@pytest.mark.parametrize("name", ["größe ü", "a" * 10_000, "..", "a b\tc"])
def test_odd_names_are_keys(merge: Merge, name: str) -> None:
    """Any text that HDF5 takes for a name can be a key."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file.create_group(name)["aep"] = 1.0
    merge.take("{name}")
    merge_run(merge.folder)
    with h5py.File(merge.output) as file:
        assert file["name"].asstr()[0] == name


def test_values_of_a_wrong_type_are_named(merge: Merge) -> None:
    """A key that the plan has as a number and a file as a text is a mistake in --key."""
    write_groups(merge.inputs / "a.h5", range(3))
    merge.take()
    with h5py.File(merge.inputs / "b.h5", "w") as file:
        file["farm3_tx_s9/aep"] = 1.0
    with pytest.raises(UsageError, match=r"b\.h5.*farm_type.*int"):
        merge.take("farm{farm_id:d}_t{farm_type}_s{seed:d}")


def test_damaged_data_are_never_taken(merge: Merge) -> None:
    """A chunk whose checksum is wrong stops the merge and names the file."""
    path = merge.inputs / "a.h5"
    with h5py.File(path, "w") as file:
        data = np.arange(100.0)
        dataset = file.create_dataset("farm3_t1_s0/x", data=data, chunks=(100,), fletcher32=True)
        offset = dataset.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"a\.h5: /farm3_t1_s0/x: wrong checksum"):
        merge.take()


@pytest.mark.parametrize("count", [3, 40])
def test_knows_what_is_in_an_output(merge: Merge, count: int) -> None:
    """A file is in an output if every task of it is there with its values."""
    path = write_groups(merge.inputs / "a.h5", range(count))
    merge.run()
    (one,) = merge.survey.look_at_all([merge.inputs])
    assert merge.holds(one, KEY)
    with h5py.File(path, "a") as file:
        file["farm3_t1_s1/aep"][()] = 99.0
    (one,) = merge.survey.look_at_all([merge.inputs])
    assert not merge.holds(one, KEY)
    write_groups(path, [count + 7])
    (one,) = merge.survey.look_at_all([merge.inputs])
    assert not merge.holds(one, NAMES)


def test_texts_of_attributes_stay_texts(terminal: Terminal) -> None:
    """What h5py read as `str` in a worker file it reads as `str` in the output."""
    for number in range(2):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            file["aep"] = 1.5
            file["aep"].attrs.update(units="GW h", long_name="Ærø")
    terminal.run("merge", "w0.h5", "w1.h5", "-o", "out.h5", "--key", "w{worker:d}")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["aep"].attrs["units"] == "GW h"
        assert file["aep"].attrs["long_name"] == "Ærø"


def test_complex_values_beside_integers_are_merged_without_a_warning(terminal: Terminal) -> None:
    """They become one column, also when they are merged again and when files are to go."""
    for number, value in enumerate((3, 1 + 2j)):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            file["z"] = value
    words = ("merge", "w0.h5", "w1.h5", "-o", "out.h5", "--key", "w{worker:d}")
    said = terminal.run(*words).stderr + terminal.run(*words).stderr
    said += terminal.run("clean", "out.h5").stderr
    assert "Warning" not in said
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["z"][:].tolist() == [3, 1 + 2j]
