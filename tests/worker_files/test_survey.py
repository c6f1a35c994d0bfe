"""What a merge is given: each file judged by its own bytes, though many are alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from check_samples import flip, set_flags, write_columns
from h5sweep.disk.find_files import absolute
from h5sweep.errors import ChangedError
from h5sweep.worker_files import findings
from h5sweep.worker_files import survey as inputs
from h5sweep.worker_files.inputs import Input
from h5sweep.worker_files.read_at_once import read_files
from h5sweep.worker_files.survey import Survey

pytestmark = pytest.mark.usefixtures("way")


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


def test_a_path_out_of_a_link_is_where_it_leads(tmp_path: Path) -> None:
    """`link/..` is the folder above what the link leads to; two files there are two."""
    for name in ("in", "real/sub"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in/link").symlink_to(tmp_path / "real/sub")
    write_columns(tmp_path / "in/w.h5")
    write_columns(tmp_path / "real/w.h5", 24)
    found = Survey().look_at_all([f"{tmp_path}/in/w.h5", f"{tmp_path}/in/link/../w.h5"])
    expected = [str(tmp_path / "real/w.h5"), str(tmp_path / "in/w.h5")]
    assert sorted(absolute(one.name, "/") for one in found) == sorted(expected)


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


ODD = {
    "larger": lambda path: write_columns(path, 24),
    "of another structure and equal size": lambda path: flip(path, 0),
    "with a row that was never written": lambda path: _empty_last_row(path),
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": lambda path: os.truncate(path, 0),
    "no file": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "a link to another": lambda path: (path.unlink(), path.symlink_to("w000.h5")),
    "a second name of the next": lambda path: (
        path.unlink(),
        os.link(path.with_name("w101.h5"), path),
    ),
}


def _empty_last_row(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        for name in file:
            file[name][-1] = 0


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_one_among_many_that_is_unlike_them_is_judged_by_itself(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is, it and all others are found as if each were looked at alone."""
    for number in range(150):
        write_columns(tmp_path / f"w{number:03}.h5")
        with h5py.File(tmp_path / f"w{number:03}.h5", "r+") as file:
            file["aep"][:] = np.random.default_rng(number).random(20)
    odd(tmp_path / "w100.h5")
    found = [_facts(one) for one in Survey().look_at_all([tmp_path])]
    monkeypatch.setattr(inputs, "MOST_AT_ONCE", 1)
    assert found == [_facts(one) for one in Survey().look_at_all([tmp_path])]
    assert len(found) >= 149


def _facts(one: Input) -> tuple[object, ...]:
    kept = one.family.kept_rows([one.kept_as]).tobytes() if one.family and one.is_kept else None
    return one.name, one.size_bytes, one.modified_ns, one.findings, one.contents, kept, one.xxh3


def test_what_is_kept_of_a_file_is_its_own(tmp_path: Path, way: str) -> None:
    """Of many that are alike, each keeps its own data and checksum."""
    for number in range(150):
        write_columns(tmp_path / f"w{number:03}.h5")
        with h5py.File(tmp_path / f"w{number:03}.h5", "r+") as file:
            file["aep"][:] = number
            if number % 7 == 0:
                file["aep"][-1] = 0.0  # a row that might never have been written
    for number, one in enumerate(Survey().look_at_all([tmp_path])):
        content = one.path.read_bytes()
        assert one.is_kept and one.family is not None
        own = b"".join(content[a:b] for a, b in one.family.holes.spans)
        assert one.family.kept_rows([one.kept_as]).tobytes() == own, number
        assert one.family.kept_source(one.kept_as).content == content
        assert one.xxh3 == xxh3_64_intdigest(content)


def test_files_that_are_alike_are_read_at_once(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of them are looked at one by one."""
    for number in range(100):
        write_columns(tmp_path / f"w{number:03}.h5")
    looked_at, look = [], Survey._look

    def note(self: Survey, path: str, *others: Any) -> Input | None:
        looked_at.append(path)
        return look(self, path, *others)

    monkeypatch.setattr(Survey, "_look", note)
    assert len(Survey().look_at_all([tmp_path])) == 100
    assert len(looked_at) == (1 if way == "at once" else 100)


def test_a_file_that_was_just_changed_is_not_read_at_once(tmp_path: Path, way: str) -> None:
    """Nobody can tell whether it was changed while it was read."""
    write_columns(tmp_path / "w0.h5")
    path = str(tmp_path / "w0.h5")
    assert (read_files([path]) != [None]) == (way == "at once")
    os.utime(path, ns=(0, 0))  # the content may be younger than it says
    assert (read_files([path]) != [None]) == (way == "at once")


def test_files_being_written_are_not_read_with_the_others(tmp_path: Path) -> None:
    """A worker that is still at it is named, and the others are as they are."""
    for number in range(10):
        write_columns(tmp_path / f"w{number}.h5")
    with (tmp_path / "w5.h5").open("r+b"):
        found = Survey().look_at_all([tmp_path])
    assert [n for n, one in enumerate(found) if one.findings] == [5]
    assert found[5].findings[0].code == findings.LIVE.code


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound files are read again when they are wanted."""
    for number in range(10):
        write_columns(tmp_path / f"w{number}.h5")
    size = Survey().look_at(tmp_path / "w0.h5").family.hole_bytes  # type: ignore[union-attr]
    monkeypatch.setattr(inputs, "MOST_KEPT_BYTES", 5 * size)
    found = Survey().look_at_all([tmp_path])
    assert len([one for one in found if one.is_kept]) == 5
    assert all(one.is_readable for one in found)
