"""Random folders of sound files: what a merge takes is in its output, whatever the values."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import h5sweep
from cases import some_of
from h5sweep import Policy, merge_files
from h5sweep.errors import UnmergeableError, UsageError
from h5sweep.runfolder.audit import read_entries
from random_folders import POINTING, content_of, write_folder

SEEDS = [*range(6), 1000, 1005, 1008, 1017, 1041, 1106]  # the last: tasks with groups inside
PADDED = np.dtype([("n", "|i1"), ("x", "<f8")], align=True)


@pytest.mark.parametrize(
    "case",
    some_of([*((seed, ()) for seed in SEEDS), *((seed, POINTING) for seed in range(6))], 4),
    ids=str,
)
def test_everything_in_sound_files_is_in_the_output(
    tmp_path: Path, case: tuple[int, tuple[str, ...]]
) -> None:
    """Every value and attribute is there bit by bit, at its place or in the group of its file.

    Of columns that were joined only the names are compared here; attributes that differ between
    files are in the audit trail.
    """
    folder = write_folder(tmp_path / "in", *case)
    report = merge_files(folder, tmp_path / "out.h5")
    found = content_of(tmp_path / "out.h5")
    inputs = read_entries(tmp_path / "out.h5")[-1].inputs
    left_out = {place for one in inputs for place in one.left_out}
    for path in sorted(folder.iterdir()):
        for place, value in content_of(path).items():
            inside = f"/{path.stem}{place.removeprefix('/') if place[1] == '@' else place}"
            if found.get(place) == value or found.get(inside) == value:
                continue
            is_joined = report.way in ("columns", "both")
            assert (is_joined and place in found) or place in left_out, (path.name, place)


def test_what_lies_between_the_members_of_a_compound_is_no_value(tmp_path: Path) -> None:
    """Groups of two files are equal if their values are, whatever the bytes between these."""
    (tmp_path / "in").mkdir()
    for name, gap in [("a", 1), ("b", 2)]:
        rows = np.full(3 * PADDED.itemsize, gap, np.uint8).view(PADDED)
        rows["n"], rows["x"] = 5, 1.5
        with h5py.File(tmp_path / "in" / f"{name}.h5", "w") as file:
            file["task/rows"] = rows
            file["task"].attrs["row"] = rows[0]
    assert merge_files(tmp_path / "in", tmp_path / "out.h5").tasks == 1


@pytest.mark.parametrize("names", [["rows"], ["aep", "rows"]])
def test_columns_of_compounds_with_texts_are_merged_as_advised(
    tmp_path: Path, names: list[str]
) -> None:
    """They cannot be joined as they are; with a key each row is a task, or they are left out."""
    (tmp_path / "in").mkdir()
    kind = np.dtype([("seed", "<i8"), ("site", h5py.string_dtype())])
    for worker in range(2):
        rows = np.array([(2 * worker + row, f"site {row}") for row in range(2)], kind)
        with h5py.File(tmp_path / "in" / f"worker_{worker}.h5", "w") as file:
            for name in names:
                data = rows if name == "rows" else [1.5, 2.5]
                file.create_dataset(name, data=data, maxshape=(None,))
    with pytest.raises(UsageError, match=r"give --key.*--skip rows$"):
        merge_files(tmp_path / "in", tmp_path / "out.h5")
    if "aep" in names:
        policy = Policy(skip=frozenset({"rows"}))
        merge_files(tmp_path / "in", tmp_path / "out.h5", policy=policy)
        with h5py.File(tmp_path / "out.h5") as output:
            assert output["aep"][()].tolist() == [1.5, 2.5] * 2
    else:
        merge_files(tmp_path / "in", tmp_path / "out.h5", key="seed")
        with h5sweep.open(tmp_path / "out.h5") as found:
            assert found["site"].values.tolist() == ["site 0", "site 1"] * 2


@pytest.mark.parametrize("widths", [(4, 4), (4, 8), (8, 4)])
def test_files_of_narrow_addresses_are_merged_as_advised(
    tmp_path: Path, widths: tuple[int, int]
) -> None:
    """The library cannot copy their groups, which is said; with a key all values are there."""
    (tmp_path / "in").mkdir()
    for task in range(2):
        creating = h5py.h5p.create(h5py.h5p.FILE_CREATE)
        creating.set_sizes(*widths)
        path = tmp_path / "in" / f"task_{task}.h5"
        with h5py.File(h5py.h5f.create(bytes(path), fcpl=creating)) as file:
            file["aep"], file["site"], file["note"] = 1.5 + task, f"site {task}", "x" * task
    with pytest.raises(UnmergeableError, match="merge with --key instead"):
        merge_files(tmp_path / "in", tmp_path / "out.h5")
    merge_files(tmp_path / "in", tmp_path / "out.h5", key="task_{seed}")
    with h5sweep.open(tmp_path / "out.h5") as found:
        assert found["aep"].values.tolist() == [1.5, 2.5]
        assert found["site"].values.tolist() == ["site 0", "site 1"]
        assert found["note"].values.tolist() == ["", "x"]
