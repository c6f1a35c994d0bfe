"""What a merge is given: each file judged by its own bytes, though many are alike."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from check_samples import flip, set_flags, write_columns
from h5sweep import findings
from h5sweep.errors import ChangedError
from h5sweep.inputs import Survey


def test_files_are_in_natural_order(tmp_path: Path) -> None:
    """Worker 10 comes behind worker 9, in whatever order they are found."""
    for name in ("w10.h5", "w9.h5", "w010b.h5", "a/w1.h5", "w100.h5"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        write_columns(path)
    names = [str(one.path.relative_to(tmp_path)) for one in Survey().look_at_all([tmp_path])]
    assert names == ["a/w1.h5", "w9.h5", "w10.h5", "w010b.h5", "w100.h5"]


def test_each_file_is_there_once(tmp_path: Path) -> None:
    """A second name of a file is not another file, and what is left out stays out."""
    write_columns(tmp_path / "w1.h5")
    write_columns(tmp_path / "w2.h5")
    os.link(tmp_path / "w1.h5", tmp_path / "w3.h5")
    found = Survey().look_at_all([tmp_path], leave_out=[tmp_path / "w2.h5"])
    assert [one.path.name for one in found] == ["w1.h5"]


@pytest.mark.parametrize("rows", [20, 9000])
def test_files_that_are_alike_share_a_structure(rows: int, tmp_path: Path) -> None:
    """Small or large, what equals a sound file outside its data is as sound."""
    for number in range(3):
        write_columns(tmp_path / f"w{number}.h5", rows)
        with h5py.File(tmp_path / f"w{number}.h5", "r+") as file:
            file["aep"][:] = np.random.default_rng(number).random(rows)
    found = Survey().look_at_all([tmp_path])
    assert len({one.family for one in found}) == 1 and found[0].family is not None
    assert all(one.is_readable and not one.is_suspect for one in found)


@pytest.mark.parametrize("rows", [20, 9000])
def test_a_row_that_was_never_written_is_found_in_any_of_them(rows: int, tmp_path: Path) -> None:
    """The data of a file are looked at, though it is like one that is sound."""
    for number in range(3):
        write_columns(tmp_path / f"w{number}.h5", rows)
    with h5py.File(tmp_path / "w1.h5", "r+") as file:
        for name in file:
            file[name][-2:] = 0
    codes = [[f.code for f in one.findings] for one in Survey().look_at_all([tmp_path])]
    assert codes == [[], [findings.BOGUS_TAIL.code], []]


def test_every_byte_of_the_structure_counts(tmp_path: Path) -> None:
    """A file that differs from its siblings outside its data is judged by itself."""
    for number in range(2):
        write_columns(tmp_path / f"w{number}.h5", libver="latest")
    with h5py.File(tmp_path / "w0.h5") as file:
        data = [file[name].id.get_chunk_info(n) for name in file for n in range(5)]
    spans = [(info.byte_offset, info.byte_offset + info.size) for info in data]
    size = (tmp_path / "w0.h5").stat().st_size
    outside = [at for at in range(size) if not any(a <= at < b for a, b in spans)]
    survey = Survey()
    sound = survey.look_at(tmp_path / "w0.h5")
    for place in outside[:: len(outside) // 50]:
        flip(tmp_path / "w1.h5", place)
        one = survey.look_at(tmp_path / "w1.h5")
        assert one.family is not sound.family or one.findings, place
        flip(tmp_path / "w1.h5", place)
    assert survey.look_at(tmp_path / "w1.h5").family is sound.family


def test_a_file_that_was_not_closed_is_readable_and_suspect(tmp_path: Path) -> None:
    """That its writer died says nothing against what is whole in it."""
    write_columns(tmp_path / "w0.h5", libver="latest")
    set_flags(tmp_path / "w0.h5", 1)
    (one,) = Survey().look_at_all([tmp_path])
    assert one.is_readable and one.is_suspect


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_changed_file_is_not_opened(compression: str | None, tmp_path: Path) -> None:
    """Whoever opens a file gets what was looked at, or ChangedError."""
    path = tmp_path / "w0.h5"
    write_columns(path, 9000, compression=compression)
    survey = Survey()
    (one,) = survey.look_at_all([tmp_path])
    with survey.opened(one) as layout:
        assert {name for name, _ in layout.tree.datasets} == {"/farm_id", "/seed", "/aep"}
    os.utime(path, ns=(0, one.modified_ns + 1))
    with pytest.raises(ChangedError), survey.opened(one):
        pass
