"""Groups of many files as the same groups of one, with all that is in them."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
from xxhash import xxh3_64_intdigest

from check_samples import set_flags
from foreign_samples import layout_of, write_groups, write_one
from h5sweep.errors import ChangedError, ConflictError, DamagedError, UnmergeableError
from h5sweep.hdf5 import read_uniform as alike
from h5sweep.hdf5.checksum import lookup3
from h5sweep.merge.groups import copier
from h5sweep.merge.groups.merge_groups import MergedGroups, is_in_groups
from h5sweep.merge.groups.open_groups import opened_groups, opened_output
from h5sweep.merge.groups.same_content import unequal_groups
from h5sweep.worker_files.inputs import Input, OnConflict
from h5sweep.worker_files.survey import Survey


class Merge:
    """Files in a folder, and the output beside it."""

    def __init__(self, folder: Path) -> None:
        self.inputs, self.output = folder / "in", folder / "out.h5"
        self.inputs.mkdir()
        self.survey = Survey()

    def plan(self, **settings: Any) -> MergedGroups:
        return MergedGroups(self.survey, self.survey.look_at_all([self.inputs]), **settings)

    def run(self, **settings: Any) -> MergedGroups:
        """Plan, write and verify."""
        groups = self.plan(**settings)
        self.output.unlink(missing_ok=True)
        self.taken = groups.write(self.output)
        groups.verify(self.output)
        return groups

    def holds(self, one: Input) -> bool:
        """Whether the output has all groups of a file."""
        with opened_output(self.output) as written:
            return is_in_groups(self.survey, one, written)


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    return Merge(tmp_path)


def content_of(path: Path) -> dict[str, Any]:
    """Everything h5py finds in a file, as text."""
    found: dict[str, Any] = {}

    def take(name: str, item: Any) -> None:
        attributes = {key: str(value) for key, value in item.attrs.items()}
        data = (str(item.dtype), item.maxshape, str(item[()])) if hasattr(item, "dtype") else None
        found[name] = attributes, data

    with h5py.File(path) as file:
        file.visititems(take)
    return found


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("count", [3, 40])
def test_groups_stay_groups(merge: Merge, count: int, libver: str) -> None:
    """The output holds the groups of all files, with attributes, dtypes and values."""
    first = write_groups(merge.inputs / "a.h5", range(count), libver=libver)
    second = write_groups(merge.inputs / "b.h5", range(count, 2 * count), libver=libver)
    merge.run()
    assert content_of(merge.output) == content_of(first) | content_of(second)
    assert [taken.tasks for taken in merge.taken] == [count, count]
    assert merge.taken[0].xxh3 == xxh3_64_intdigest(first.read_bytes())
    assert set(merge.taken[0].datasets) == {"layout", "aep"}


def test_every_kind_of_content_is_kept(merge: Merge) -> None:
    """Texts, compounds, filters, empty data, deep groups, soft links and second names."""
    path = merge.inputs / "a.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("task", track_order=True)
        group["z"], group["a"] = 1.0, 2.0
        group["texts"] = ["one", "two and more"]
        group["pair"] = np.zeros(3, [("a", "<i4"), ("b", ">f8", (2,))])
        group["nothing"] = h5py.Empty("f4")
        group["flags"] = np.array([True, False])
        group.create_dataset("packed", data=np.arange(1000), compression="gzip", shuffle=True)
        group.create_dataset("lzf", data=np.arange(1000), compression="lzf")
        group.create_dataset("scaled", data=np.arange(100), scaleoffset=0)
        group.create_dataset("grows", shape=(0, 3), maxshape=(None, 3), dtype="f8")
        group["deep/er/x"] = layout_of(1)
        group["deep"].attrs["note"] = "a group within"
        group["soft"] = h5py.SoftLink("deep/er/x")
        group["second"] = group["z"]
        group.attrs["list"] = [1, 2, 3]
        group.attrs["text"] = "größer"
    merge.run()
    found, expected = content_of(merge.output), content_of(path)
    assert found == expected
    with h5py.File(merge.output) as file:
        assert list(file["task"])[:2] == ["z", "a"]
        assert file["task"].get("soft", getlink=True).path == "deep/er/x"


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_groups_moved_as_bytes_are_as_the_library_wants_them(merge: Merge, libver: str) -> None:
    """Very many groups with groups in them and arrays of many lengths, below others.

    h5py reads, adds, removes and lists.
    """
    path = merge.inputs / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for seed in range(700):
            group = file.create_group(f"farm{seed % 2}/seed{seed}")
            group.attrs["seed"] = seed
            group["wake/deficit"], group["aep"] = np.arange(4.0) + seed, np.float32(seed)
            group["layout"] = np.arange(6 + seed % 35 * 2.0).reshape(-1, 2)
            group["odd"] = np.arange(1 + seed % 5, dtype="i1")
            group["wake"].attrs["model"] = "jensen" * (seed % 3)
            group["texts"] = ["one", "", "größer", f"more {seed}"][: 1 + seed % 4]
    merge.run()
    assert len(merge.survey.look_at(path).alike or ()) == 700  # not one of them by the library
    assert content_of(merge.output) == content_of(path)
    with h5py.File(merge.output, "a") as file:
        for seed in range(700, 1000):
            file[f"farm0/seed{seed}/aep"] = float(seed)
            del file[f"farm1/seed{2 * (seed - 700) + 1}"]
        file["farm0/seed8/more"] = 1.0
        file["farm0/seed8/aep"][()] = -1
    with h5py.File(merge.output) as file:
        assert len(file["farm0"]) == 650 and len(file["farm1"]) == 50
        assert set(file["farm0/seed8"]) == {"aep", "layout", "more", "odd", "texts", "wake"}
        assert file["farm0/seed10/wake/deficit"][:].tolist() == [10, 11, 12, 13]


def test_groups_that_are_alike_and_others_are_in_one_file(merge: Merge) -> None:
    """What is moved as bytes and what the library copies ends up side by side."""
    path = write_groups(merge.inputs / "a.h5", range(30))
    with h5py.File(path, "a") as file:
        file.attrs["run"] = "one"
        for seed in (4, 40):
            group = file.require_group(f"farm3_t1_s{seed}")
            group.create_dataset("packed", data=np.arange(100), compression="gzip")
            group["text"] = "any length"
    merge.run()
    assert content_of(merge.output) == content_of(path)
    with h5py.File(merge.output) as file:
        assert file.attrs["run"] == "one"


def test_a_file_with_one_task_becomes_a_group(merge: Merge) -> None:
    """Its name is the file's, all of it is there, and attributes of the root are the group's."""
    write_one(merge.inputs / "farm3_s4.h5", 4)
    with h5py.File(merge.inputs / "farm3_s4.h5", "a") as file:
        file["init"] = 0  # beside the values of a task it is one of them
    merge.run()
    with h5py.File(merge.output) as file:
        assert set(file["farm3_s4"]) == {"layout", "aep", "init"}
        assert file["farm3_s4"].attrs["seed"] == 4
    assert merge.taken[0].skipped == ()


def test_a_file_before_its_first_result_has_no_groups(merge: Merge) -> None:
    """What a worker leaves that was killed early makes no group."""
    write_groups(merge.inputs / "a.h5", range(3))
    with h5py.File(merge.inputs / "b.h5", "w") as file:
        file["init"] = 0
    merge.run()
    with h5py.File(merge.output) as file:
        assert len(file) == 3
    assert merge.taken[1].skipped == ("/init",)


@pytest.mark.parametrize("count", [3, 40])
def test_what_is_no_group_is_listed(merge: Merge, count: int) -> None:
    """Datasets at the root beside groups are not taken, and named."""
    write_groups(merge.inputs / "a.h5", range(count))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        file["init"] = 0
    merge.run()
    assert merge.taken[0].skipped == ("/init",)
    with h5py.File(merge.output) as file:
        assert "init" not in file and len(file) == count


@pytest.mark.parametrize("farms", [2, 10])
def test_groups_of_one_name_above_tasks_are_one_group(merge: Merge, farms: int) -> None:
    """Workers that share farms have different seeds of each: all of them are in the output."""
    expected: dict[str, Any] = {}
    for worker in range(2):
        path = merge.inputs / f"w{worker}.h5"
        with h5py.File(path, "w") as file:
            for farm in range(farms):
                for seed in (2 * worker, 2 * worker + 1):
                    file[f"farm{farm}/s{seed}/layout"] = layout_of(seed, 3 + seed)
        expected |= content_of(path)
    merge.run()
    assert content_of(merge.output) == expected
    assert [taken.tasks for taken in merge.taken] == [2 * farms, 2 * farms]


def test_groups_above_tasks_are_merged(merge: Merge) -> None:
    """Of deep paths each group is there once; where attributes differ the first are kept."""
    for name, seeds in (("a.h5", range(3)), ("b.h5", range(3, 6))):
        with h5py.File(merge.inputs / name, "w") as file:
            file.attrs["run"] = "one"
            for seed in seeds:
                file[f"farm0/type1/seed{seed}/aep"] = float(seed)
            file["farm0"].attrs["host"] = name
            file["farm0"].attrs[f"only in {name}"] = 1
            file["farm0/type1"].attrs["rotor"] = 120.0
    groups = merge.run()
    with h5py.File(merge.output) as file:
        assert set(file["farm0/type1"]) == {f"seed{seed}" for seed in range(6)}
        assert file["farm0"].attrs["host"] == "a.h5" and file.attrs["run"] == "one"
        assert file["farm0/type1"].attrs["rotor"] == 120.0
        assert {"only in a.h5", "only in b.h5"} < set(file["farm0"].attrs)
    (note,) = groups.notes
    assert "attribute host of /farm0 differs" in note and "a.h5 is kept" in note and "b.h5" in note
    assert [one.left_out for one in merge.taken] == [{}, {"/farm0@host": "b.h5"}]


@pytest.mark.parametrize("value", [61814.5, "text", [1, 2], h5py.Empty("f4")])
def test_the_attributes_of_the_root_are_verified(merge: Merge, value: Any) -> None:
    """One that is lost on the way is noticed."""
    write_groups(merge.inputs / "a.h5", range(2))
    with h5py.File(merge.inputs / "a.h5", "a") as file:
        file.attrs["worker"] = value
    groups = merge.run()
    with h5py.File(merge.output, "a") as file:
        del file.attrs["worker"]
    with pytest.raises(DamagedError, match="attribute worker of /"):
        groups.verify(merge.output)


def test_groups_that_pandas_wrote_are_kept(merge: Merge) -> None:
    """A DataFrame a task: its texts have no room for a zero at their end, and lose no letter."""
    frames = {f"s{seed}": pd.DataFrame({"x": [seed, 2], "aep": [0.5, 1.5]}) for seed in range(4)}
    for number, (name, frame) in enumerate(frames.items()):
        frame.to_hdf(merge.inputs / f"w{number % 2}.h5", key=name, format="fixed")
    merge.run()
    with h5py.File(merge.inputs / "w0.h5") as source, h5py.File(merge.output) as file:
        assert dict(file.attrs.items()).items() >= dict(source.attrs.items()).items()
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(pd.read_hdf(merge.output, name), frame)
    for one in merge.survey.look_at_all([merge.inputs]):
        assert merge.holds(one)


@pytest.mark.parametrize("count", [3, 40])
def test_equal_groups_are_there_once(merge: Merge, count: int) -> None:
    """A group that two files have is counted as a duplicate of the second."""
    write_groups(merge.inputs / "a.h5", range(count))
    write_groups(merge.inputs / "b.h5", range(1, count + 1))
    merge.run()
    assert [t.duplicates for t in merge.taken] == [0, count - 1]
    assert [t.tasks for t in merge.taken] == [count, count]


@pytest.mark.parametrize("what", ["value", "attribute", "dtype", "more", "shape", "length"])
@pytest.mark.parametrize("count", [3, 40])
def test_different_groups_of_one_path_stop(merge: Merge, count: int, what: str) -> None:
    """The error names the group and both files."""
    write_groups(merge.inputs / "a.h5", range(count))
    write_groups(merge.inputs / "b.h5", range(count))
    with h5py.File(merge.inputs / "b.h5", "a") as file:
        group = file["farm3_t1_s2"]
        if what == "value":
            group["layout"][0, 0] = -1
        elif what == "attribute":
            group.attrs["solver"] = "other"
        elif what in ("shape", "length"):
            values = group["layout"][:]
            del group["layout"]
            group["layout"] = values.T if what == "shape" else values[:-1]
            group["layout"].attrs["units"] = "m"
        elif what == "dtype":
            del group["aep"]
            group["aep"] = np.float32(2 / 8)
        else:
            group["more"] = 1.0
    with pytest.raises(ConflictError, match=r"/farm3_t1_s2 is in .*a\.h5 and in .*b\.h5"):
        merge.plan()


def write_deep(path: Path, count: int, cost: float = 0.0) -> Path:
    """Tasks of different shapes, in each of which there is a group that is alike in all."""
    with h5py.File(path, "w") as file:
        for seed in range(count):
            file[f"s{seed}/layout"] = np.ones(seed + 1)
            file[f"s{seed}/opt/history/cost"] = np.full(3, cost + seed)
    return path


def test_groups_that_are_alike_within_others_belong_to_them(merge: Merge) -> None:
    """A task whose inner group is like those of other tasks is written, found equal and proven."""
    count = 24
    first = write_deep(merge.inputs / "a.h5", count)
    write_deep(merge.inputs / "b.h5", count)
    with h5py.File(merge.inputs / "c.h5", "w") as file, h5py.File(first) as other:
        other.copy("s0", file, "t0")
    merge.run()
    assert content_of(merge.output).items() >= content_of(first).items()
    assert [taken.duplicates for taken in merge.taken] == [0, count, 0]
    assert merge.holds(merge.survey.look_at(first))


def test_another_value_within_such_a_group_is_seen(merge: Merge) -> None:
    """Two tasks that differ in nothing but their inner groups are different, every one of them."""
    count = 24
    write_deep(merge.inputs / "a.h5", count)
    other = write_deep(merge.inputs / "b.h5", count, cost=1.0)
    with pytest.raises(ConflictError, match=f"{count - 1} other groups"):
        merge.run()
    merge.run(on_conflict=OnConflict.FIRST)
    assert not merge.holds(merge.survey.look_at(other))


@pytest.mark.parametrize(
    ("choice", "aep"),
    [(OnConflict.FIRST, 1 / 8), (OnConflict.LAST, 99.0), (OnConflict.NEWEST, 1 / 8)],
)
def test_a_conflict_is_decided_as_told(merge: Merge, choice: OnConflict, aep: float) -> None:
    """First and last in the order of the inputs, or by time of change."""
    write_groups(merge.inputs / "a.h5", [0, 1])
    write_groups(merge.inputs / "b.h5", [1, 2])
    with h5py.File(merge.inputs / "b.h5", "a") as file:
        file["farm3_t1_s1/aep"][()] = 99.0
    os.utime(merge.inputs / "a.h5", (2e9, 2e9))
    os.utime(merge.inputs / "b.h5", (1e9, 1e9))
    merge.run(on_conflict=choice)
    with h5py.File(merge.output) as file:
        assert file["farm3_t1_s1/aep"][()] == aep and len(file) == 3


@pytest.mark.parametrize(
    ("choice", "taken", "left_out", "duplicates"),
    [
        (OnConflict.FIRST, "a", ["b"], [0, 0, 1]),
        (OnConflict.LAST, "c", ["b"], [1, 0, 0]),
        (OnConflict.NEWEST, "b", ["a", "c"], [0, 0, 0]),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_only_what_differs_from_the_taken_one_is_left_out(
    merge: Merge,
    count: int,
    choice: OnConflict,
    taken: str,
    left_out: list[str],
    duplicates: list[int],
) -> None:
    """Of three files the one that equals the taken one is a duplicate, wherever it stands."""
    for name, time in (("a", 1e9), ("b", 2e9), ("c", 1e9)):
        path = write_groups(merge.inputs / f"{name}.h5", range(count))
        with h5py.File(path, "a") as file:
            file.attrs["worker"] = name
            for group in file.values():
                group["aep"][()] = 2.0 if name == "b" else 1.0
        os.utime(path, (time, time))
    groups = merge.run(on_conflict=choice)
    found = {(c.taken, *c.left_out) for c in groups.conflicts}
    assert found == {tuple(f"{merge.inputs}/{name}.h5" for name in (taken, *left_out))}
    assert [one.duplicates for one in merge.taken] == [count * n for n in duplicates]
    with h5py.File(merge.output) as file:
        assert file.attrs["worker"] == "a"


def test_data_in_one_file_and_groups_in_another_stop(merge: Merge) -> None:
    """A path that is a task here and a group of tasks there cannot be both."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file["farm0/aep"] = 1.0
    with h5py.File(merge.inputs / "b.h5", "w") as file:
        file["farm0/seed1/aep"] = 1.0
    with pytest.raises(ConflictError, match="/farm0"):
        merge.plan()


@pytest.mark.parametrize("what", ["external", "virtual", "storage", "reference"])
def test_what_leads_elsewhere_is_refused(merge: Merge, what: str) -> None:
    """Nothing outside the file is followed, and nothing is copied that would lead nowhere."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        group = file.create_group("task")
        group["aep"] = 1.0
        if what == "external":
            group["out"] = h5py.ExternalLink("other.h5", "/x")
        elif what == "virtual":
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
            group.create_virtual_dataset("out", layout)
        elif what == "storage":
            group.create_dataset("out", (3,), "f8", external=[("raw.bin", 0, 24)])
        else:
            group["out"] = group["aep"].ref
    with pytest.raises(UnmergeableError, match=r"a\.h5: /task/out"):
        merge.plan()


def test_a_file_that_was_not_closed_is_copied(merge: Merge) -> None:
    """What its writer left open, and is whole, is read all the same."""
    path = write_groups(merge.inputs / "a.h5", range(12), libver="latest")
    content = bytearray(path.read_bytes())
    content[11] |= 1
    content[44:48] = lookup3(bytes(content[:44])).to_bytes(4, "little")
    path.write_bytes(content)
    merge.run()
    assert merge.taken[0].source.is_suspect
    with h5py.File(merge.output) as file:
        assert len(file) == 12


def test_a_child_without_memory_names_the_file(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the library cannot copy with the memory it was given stops the merge, by name."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        file.create_dataset("task/x", data=np.zeros(1 << 20), chunks=(1 << 20,))
    monkeypatch.setattr(copier, "MEMORY_BYTES", 1 << 20)
    with pytest.raises(DamagedError, match=r"a\.h5"):
        merge.plan().write(merge.output)


def test_a_file_that_was_not_closed_may_be_larger_than_memory(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads it where it lies: it is neither in memory nor copied."""
    path = merge.inputs / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["task/layout"] = np.arange(3_000_000.0)
    set_flags(path, 1)
    monkeypatch.setattr(copier, "MEMORY_BYTES", 48 << 20)
    merge.run()
    with h5py.File(merge.output) as file:
        assert file["task/layout"][-1] == 2_999_999
    assert {found.name for found in merge.output.parent.iterdir()} == {"in", "out.h5"}


def test_large_groups_that_are_alike_are_compared_a_few_at_a_time(merge: Merge) -> None:
    """Beside the file itself only a little of it is in memory."""
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        for seed in range(40):
            file[f"s{seed}/layout"] = np.full(125_000, float(seed))
    groups = merge.run()
    tracemalloc.start()
    groups.verify(merge.output)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (merge.inputs / "a.h5").stat().st_size + (40 << 20)


def test_a_large_file_is_merged_with_little_memory(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file of groups nor the output is ever in memory as a whole."""
    monkeypatch.setattr(alike, "MOST_FILE_BYTES", 1 << 20)
    with h5py.File(merge.inputs / "a.h5", "w") as file:
        for seed in range(300):
            file[f"s{seed}/layout"] = np.full((1000, 30), float(seed))
    tracemalloc.start()
    merge.run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content_of(merge.output) == content_of(merge.inputs / "a.h5")
    assert peak < (merge.inputs / "a.h5").stat().st_size * 0.8
    assert merge.taken[0].xxh3 == xxh3_64_intdigest((merge.inputs / "a.h5").read_bytes())


def test_a_large_file_that_is_cut_meanwhile_is_noticed(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there any more was changed by somebody, and is no bug."""
    monkeypatch.setattr(alike, "MOST_FILE_BYTES", 0)
    path = write_groups(merge.inputs / "a.h5", range(40))
    (one,) = merge.survey.look_at_all([merge.inputs])
    with pytest.raises(ChangedError, match=r"a\.h5"), opened_groups(merge.survey, one) as tasks:
        os.truncate(path, path.stat().st_size // 2)
        list(unequal_groups(tasks, tasks, list(tasks.roots)))


@pytest.mark.parametrize("count", [3, 40])
def test_a_wrong_byte_in_the_output_is_seen(merge: Merge, count: int) -> None:
    """Verification compares the values in the output with those in the sources."""
    write_groups(merge.inputs / "a.h5", range(count))
    groups = merge.run()
    with h5py.File(merge.output) as file:
        offset = file["farm3_t1_s1/layout"].id.get_offset()
    content = bytearray(merge.output.read_bytes())
    content[offset] ^= 0xFF
    merge.output.write_bytes(content)
    with pytest.raises(DamagedError, match="/farm3_t1_s1"):
        groups.verify(merge.output)


def test_a_missing_group_in_the_output_is_seen(merge: Merge) -> None:
    """Verification notices a group that is not there."""
    write_groups(merge.inputs / "a.h5", range(3))
    groups = merge.run()
    with h5py.File(merge.output, "a") as file:
        del file["farm3_t1_s1"]
    with pytest.raises(DamagedError, match="/farm3_t1_s1"):
        groups.verify(merge.output)


def test_a_changed_file_is_noticed(merge: Merge) -> None:
    """A file that is written after it was looked at stops the merge."""
    path = write_groups(merge.inputs / "a.h5", range(3))
    groups = merge.plan()
    os.utime(path, (1e9, 1e9))
    with pytest.raises(ChangedError, match=r"a\.h5"):
        groups.write(merge.output)


@pytest.mark.parametrize("count", [3, 40])
def test_adds_to_a_file_that_is_there(merge: Merge, count: int) -> None:
    """Columns that are in the output already stay there."""
    write_groups(merge.inputs / "a.h5", range(count))
    groups = merge.plan()
    with h5py.File(merge.output, "w") as file:
        file["seed"] = np.arange(9)
    groups.write(merge.output)
    groups.verify(merge.output)
    with h5py.File(merge.output) as file:
        assert file["seed"][:].tolist() == list(range(9)) and len(file) == count + 1


@pytest.mark.parametrize("count", [3, 40])
def test_knows_what_is_in_an_output(merge: Merge, count: int) -> None:
    """A file is in an output if every group of it is there with its content."""
    path = write_groups(merge.inputs / "a.h5", range(count))
    merge.run()
    (one,) = merge.survey.look_at_all([merge.inputs])
    assert merge.holds(one)
    with h5py.File(path, "a") as file:
        file["farm3_t1_s1/aep"][()] = 99.0
    (one,) = merge.survey.look_at_all([merge.inputs])
    assert not merge.holds(one)
