"""Thousands of files with a group or a task each: merged many at once, and as if one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep import merge_files
from h5sweep.errors import ConflictError, DamagedError, SweepError
from h5sweep.merge.groups.merge_groups import MergedGroups
from h5sweep.merge.groups.open_groups import InputGroups
from h5sweep.merge.policy import Policy
from h5sweep.worker_files import read_at_once, survey
from h5sweep.worker_files.read_at_once import read_files

Write = Callable[[Path, np.random.Generator, int], None]


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old, as those of a run that has ended."""
    monkeypatch.setattr(read_at_once, "SETTLED_NS", -1_000_000_000)


def write_group(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["made_by"] = "a study"
        fill(file.create_group(f"farm{number // 10}_s{number}"), random, number)


def write_new_group(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w", libver="latest") as file:
        fill(file.create_group(f"s{number:04}"), random, number)


def write_three_groups(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w") as file:
        for place in range(3):
            fill(file.create_group(f"s{number}_{place}"), random, number)


def write_stamped_group(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["begun"] = f"2026-11-18T{number:06}"
        fill(file.create_group(f"s{number}"), random, number)


def write_task(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w") as file:
        fill(file, random, number)


def write_bare_task(path: Path, random: np.random.Generator, number: int) -> None:
    with h5py.File(path, "w") as file:
        file["aep"], file["layout"] = random.random(), random.random((4, 2))


def fill(group: Any, random: np.random.Generator, number: int) -> None:
    """Arrays of different lengths, texts of either kind, and a group inside."""
    group.attrs["seed"] = number
    group.attrs["solver"] = "slsqp" * (number % 4)
    group["aep"] = random.random()
    group["layout"] = random.random((1 + random.integers(5), 2))
    group["layout"].attrs["units"] = "m"
    group["names"] = [f"turbine {number}", "", "x" * int(random.integers(20))]
    group.create_group("inner")["power"] = random.random(3).astype("f4")


WAYS: dict[str, Write] = {
    "group": write_group,
    "new": write_new_group,
    "three": write_three_groups,
    "stamps": write_stamped_group,
    "task": write_task,
    "bare": write_bare_task,
}


def make_folder(folder: Path, write: Write, count: int, seed: int = 1) -> Path:
    folder.mkdir()
    random = np.random.default_rng(seed)
    for number in range(count):
        write(folder / f"w{number:04}.h5", random, number)
    return folder


def tasks_of(paths: list[Path], *, is_one: bool) -> dict[str, Any]:
    """All that h5py finds, under the paths that a merged file has it under."""
    found: dict[str, Any] = {}
    for path in paths:
        with h5py.File(path, "r") as file:
            above = f"{path.stem}/" if is_one else ""
            if is_one:
                found[path.stem] = described(file)
            file.visititems(lambda name, one, at=above: found.update({at + name: described(one)}))
    return found


def described(one: Any) -> list[Any]:
    words = [sorted((name, str(value)) for name, value in one.attrs.items())]
    if isinstance(one, h5py.Dataset):
        words += [str(one.dtype), one.shape, one[()].tolist()]
    return words


def singles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many inputs were opened by themselves."""
    opened, by_itself = [], InputGroups.opened

    def note(self: InputGroups, number: int) -> Any:
        opened.append(number)
        return by_itself(self, number)

    monkeypatch.setattr(InputGroups, "opened", note)
    return opened


@pytest.mark.parametrize("way", WAYS)
def test_the_output_has_what_every_file_has(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value, attribute and shape is as h5py reads it in its file."""
    folder = make_folder(tmp_path / "in", WAYS[way], 150)
    opened = singles(monkeypatch)
    report = merge_files(folder, tmp_path / "out.h5")
    assert report.tasks == (450 if way == "three" else 150)
    if way != "task":  # of which texts lie in heaps, so that none is like another
        assert len(opened) <= 2  # for attributes of the root, which the library copies
    with h5py.File(tmp_path / "out.h5", "r") as out:
        found: dict[str, Any] = {}
        out.visititems(lambda name, one: found.update({name: described(one)}))
    assert found == tasks_of(sorted(folder.iterdir()), is_one=way in ("task", "bare"))


@pytest.mark.parametrize("way", WAYS)
def test_a_merge_says_the_same_one_by_one(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same groups, attributes, notes and counts as when each file is opened by itself."""
    folder = make_folder(tmp_path / "in", WAYS[way], 60)
    at_once = merge_files(folder, tmp_path / "a.h5")
    monkeypatch.setattr(survey, "MOST_AT_ONCE", 1)
    monkeypatch.setattr(read_at_once, "SETTLED_NS", 2_000_000_000)
    one_by_one = merge_files(folder, tmp_path / "b.h5")
    for name in ("tasks", "duplicates", "way", "notes", "conflicts"):
        assert getattr(at_once, name) == getattr(one_by_one, name), name
    with h5py.File(tmp_path / "a.h5") as first, h5py.File(tmp_path / "b.h5") as second:
        assert first.attrs.keys() == second.attrs.keys()
        assert {*first} == {*second}


@pytest.mark.parametrize("way", ["group", "task"])
@pytest.mark.parametrize("seed", range(6))
def test_random_damage_never_gives_other_values(way: str, seed: int, tmp_path: Path) -> None:
    """A merge refuses, or leaves the file out, or has what h5py reads in it now."""
    folder = make_folder(tmp_path / "in", WAYS[way], 40, seed)
    random = np.random.default_rng(seed)
    for path in random.choice(np.array(sorted(folder.iterdir())), 4, replace=False):
        content = bytearray(path.read_bytes())
        content[int(random.integers(len(content)))] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
    try:
        merge_files(folder, tmp_path / "out.h5")
    except SweepError:
        return
    with h5py.File(tmp_path / "out.h5", "r") as out:
        found: dict[str, Any] = {}
        out.visititems(lambda name, one: found.update({name: described(one)}))
    for path in folder.iterdir():
        try:
            expected = tasks_of([path], is_one=way == "task")
        except (RuntimeError, OSError, KeyError):
            continue  # what h5py cannot read, it cannot tell either
        assert {k: v for k, v in found.items() if k in expected} == expected


def test_one_damaged_file_is_named(tmp_path: Path) -> None:
    """And not the others that were read together with it."""
    folder = make_folder(tmp_path / "in", write_group, 50)
    path = folder / "w0030.h5"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"GCOL", b"GCOX"))
    with pytest.raises(DamagedError, match="w0030"):
        merge_files(folder, tmp_path / "out.h5")


def test_a_file_that_changes_between_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output has what is in it at the end."""
    folder = make_folder(tmp_path / "in", write_bare_task, 50)
    writes = MergedGroups.write

    def change_first(self: MergedGroups, *arguments: Any) -> Any:
        monkeypatch.setattr(MergedGroups, "write", writes)
        with h5py.File(folder / "w0007.h5", "r+") as file:
            file["aep"][()] = 7.0
        return writes(self, *arguments)

    monkeypatch.setattr(MergedGroups, "write", change_first)
    merge_files(folder, tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5", "r") as out:
        assert out["w0007/aep"][()] == 7.0


def test_groups_of_one_name_are_compared(tmp_path: Path) -> None:
    """Equal ones are there once, and different ones stop the merge, in whatever files they are."""
    folder = make_folder(tmp_path / "in", write_group, 50)
    (folder / "x.h5").write_bytes((folder / "w0007.h5").read_bytes())
    report = merge_files(folder, tmp_path / "out.h5")
    assert (report.tasks, report.duplicates) == (50, 1)
    with h5py.File(folder / "x.h5", "r+") as file:
        file["farm0_s7/aep"][()] = -1.0
    with pytest.raises(ConflictError, match=r"farm0_s7 is in .*w0007.h5 and in .*x.h5"):
        merge_files(folder, tmp_path / "other.h5")


def test_a_name_that_is_to_be_left_out_is(tmp_path: Path) -> None:
    """Also where most files do not have it."""
    folder = make_folder(tmp_path / "in", write_group, 30)
    merge_files(folder, tmp_path / "out.h5", policy=Policy(skip=frozenset({"farm0_s7"})))
    with h5py.File(tmp_path / "out.h5", "r") as out:
        assert len(out) == 29 and "farm0_s7" not in out


def test_a_large_file_is_not_read_as_a_small_one(tmp_path: Path) -> None:
    """Whatever is larger than what is read at once is left to those who read it in pieces."""
    (tmp_path / "a").write_bytes(bytes(65_537))
    (tmp_path / "b").write_bytes(bytes(65_536))
    large, small = read_files([str(tmp_path / "a"), str(tmp_path / "b")])
    assert large is None and small is not None
