"""A merge into an output that is there: each row once, whatever happened to its files since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from h5sweep import merge_files
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import UsageError
from h5sweep.runfolder.audit import audit_path
from terminal import Terminal

Write = Callable[[Path, range], None]


def append_rows(path: Path, seeds: range, **options: object) -> None:
    """Add rows to a worker's file, as a program does that flushes after each task."""
    texts, options = h5py.string_dtype(), {"maxshape": (None,), "chunks": (4,), **options}
    with h5py.File(path, "a") as file:
        for name, dtype in (("seed", "i8"), ("aep", "f8"), ("note", texts)):
            data = (
                file.require_dataset(name, (0,), dtype, **options)
                if name not in file
                else file[name]
            )
            data.resize((len(data) + len(seeds),))
            values = [seed if name == "seed" else seed * 1.5 for seed in seeds]
            data[-len(seeds) :] = [f"s{seed}" for seed in seeds] if name == "note" else values


def append_packed_rows(path: Path, seeds: range) -> None:
    append_rows(path, seeds, compression="gzip")


def append_groups(path: Path, seeds: range) -> None:
    with h5py.File(path, "a") as file:
        for seed in seeds:
            file[f"s{seed}/seed"], file[f"s{seed}/aep"] = seed, np.full(3, seed * 1.5)


def append_both(path: Path, seeds: range) -> None:
    """Rows, a group for each task, and a dataset beside them that every file has."""
    append_rows(path, seeds)
    with h5py.File(path, "a") as file:
        for seed in seeds:
            file[f"s{seed}/layout"] = np.full((3, 2), seed / 7)
        file.require_dataset("config", (31,), "f8", data=np.arange(31.0))


WRITERS: dict[str, Write] = {
    "rows": append_rows,
    "gzip": append_packed_rows,
    "groups": append_groups,
    "both": append_both,
}


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITERS[request.param]


@pytest.fixture
def work(tmp_path: Path, write: Write) -> Path:
    """A folder of three worker files, merged into `out.h5`."""
    folder = tmp_path / "work"
    (folder / "temp").mkdir(parents=True)
    for number in range(3):
        write(worker(folder, number), range(4 * number, 4 * number + 4))
    merge_files(folder / "temp", folder / "out.h5")
    return folder


def worker(folder: Path, number: int) -> Path:
    return folder / "temp" / f"worker_{number}.h5"


def seeds_in(output: Path) -> list[int]:
    """Every seed, as often as it is there; each with its own values."""
    with h5py.File(output) as file:
        if "seed" not in file:
            assert all(
                (file[f"s{g['seed'][()]}/aep"][:] == g["seed"][()] * 1.5).all()
                for g in file.values()
            )
            return sorted(int(group["seed"][()]) for group in file.values())
        seeds = file["seed"][:].tolist()
        assert file["aep"][:].tolist() == [seed * 1.5 for seed in seeds]
        assert file["note"].asstr()[:].tolist() == [f"s{seed}" for seed in seeds]
        if "config" in file:
            assert len(file["config"]) == 31
            assert all((file[f"s{seed}/layout"][:] == seed / 7).all() for seed in seeds)
            assert len(file) == len(seeds) + 4
        return sorted(seeds)


def removable(output: Path) -> list[str]:
    return [item.path.name for item in find_removable(output).removable]


def test_a_file_that_grew_is_merged_again_by_the_same_command(work: Path, write: Write) -> None:
    """It is the same file, longer: each row is there once, and the files can be cleaned."""
    write(worker(work, 1), range(12, 15))
    report = merge_files(work / "temp", work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(15))
    assert report.tasks in (15, 30) and not [note for note in report.notes if "out.h5" in note]
    assert len(removable(work / "out.h5")) == 3


def test_naming_the_output_adds_only_what_is_new(work: Path, write: Write) -> None:
    """A row that the output has is not added again, also while other files are gone."""
    for number, end in ((1, 15), (1, 16), (2, 18)):
        if number == 1:
            write(worker(work, 1), range(12, 13) if end == 15 else range(13, 15))
        worker(work, 0).unlink(missing_ok=True)
        merge_files([work / "out.h5", work / "temp"], work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(15))
    assert removable(work / "out.h5") == ["worker_1.h5", "worker_2.h5"]
    write(worker(work, 3), range(15, 18))
    merge_files([work / "temp", work / "out.h5"], work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(18))
    assert len(removable(work / "out.h5")) == 3


@pytest.mark.parametrize("how", ["moved", "copied", "touched"])
def test_files_are_known_by_what_they_are(work: Path, write: Write, how: str) -> None:
    """A folder that was moved or copied, or files with new times, can be merged again."""
    if how == "touched":
        for number in range(3):
            os.utime(worker(work, number))
    else:
        (shutil.move if how == "moved" else shutil.copytree)(work, work.with_name("other"))
        work = work.with_name("other")
    merge_files(work / "temp", work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(12))
    write(worker(work, 2), range(12, 14))
    merge_files(work / "temp", work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(14))
    assert {item.path.parent for item in find_removable(work / "out.h5").removable} == {
        work / "temp"
    }


def test_a_file_that_was_moved_and_grew_is_still_that_file(work: Path, write: Write) -> None:
    """Its name and what it begins with tell; a renamed one that did not grow is known too."""
    work = Path(shutil.move(work, work.with_name("other")))
    write(worker(work, 1), range(12, 14))
    worker(work, 2).rename(worker(work, 9))
    merge_files(work / "temp", work / "out.h5")
    assert seeds_in(work / "out.h5") == list(range(14))


def test_what_a_rewritten_file_no_longer_has_is_not_lost(work: Path, write: Write) -> None:
    """Another file under an old name is not that file grown: nothing is replaced unasked."""
    worker(work, 1).unlink()
    write(worker(work, 1), range(20, 26))
    before = (work / "out.h5").read_bytes()
    with pytest.raises(UsageError, match=r"worker_1\.h5.*: name out\.h5 as an input too"):
        merge_files(work / "temp", work / "out.h5")
    assert (work / "out.h5").read_bytes() == before
    merge_files([work / "out.h5", work / "temp"], work / "out.h5")
    assert seeds_in(work / "out.h5") == [*range(12), *range(20, 26)]


def test_a_column_that_a_grown_file_lost_is_not_lost(work: Path, write: Write) -> None:
    """What the output has and the file no longer has keeps the output as it is."""
    with h5py.File(worker(work, 1), "a") as file:
        del file["aep" if "aep" in file else "s4"]
    with pytest.raises(UsageError, match=r"worker_1\.h5.*: name"):
        merge_files(work / "temp", work / "out.h5")


def test_a_merge_that_was_killed_before_its_audit_entry_adds_nothing_twice(
    work: Path, write: Write
) -> None:
    """An output that is newer than its audit trail says by itself which files it holds."""
    worker(work, 0).unlink()
    write(worker(work, 3), range(12, 14))
    trail = audit_path(work / "out.h5").read_bytes()
    for _ in range(2):
        merge_files([work / "out.h5", work / "temp"], work / "out.h5")
        audit_path(work / "out.h5").write_bytes(trail)  # as a kill would have left it
        assert seeds_in(work / "out.h5") == list(range(14))


def test_without_a_trail_the_advice_gives_each_row_once(work: Path, write: Write) -> None:
    """Naming the output would give rows twice, so only groups, each taken once, are so kept."""
    audit_path(work / "out.h5").unlink()
    write(worker(work, 2), range(12, 14))
    with pytest.raises(UsageError, match="its content is unknown") as caught:
        merge_files(work / "temp", work / "out.h5")
    if "name out.h5 as an input too" in str(caught.value):
        merge_files([work / "out.h5", work / "temp"], work / "out.h5")
        assert seeds_in(work / "out.h5") == list(range(14))
        audit_path(work / "out.h5").unlink()
    assert "--force" in str(caught.value)
    merge_files(work / "temp", work / "out.h5", force=True)
    assert seeds_in(work / "out.h5") == list(range(14))


def test_without_a_trail_nothing_is_added_in_silence(work: Path, write: Write) -> None:
    """Rows that may be there twice are said, and such an output never counts as known."""
    audit_path(work / "out.h5").unlink()
    write(worker(work, 3), range(12, 14))
    report = merge_files([work / "out.h5", work / "temp"], work / "out.h5")
    is_said = any("there twice" in note for note in report.notes)
    assert is_said or seeds_in(work / "out.h5") == list(range(14))
    with pytest.raises(UsageError, match="its content is unknown"):
        merge_files(work / "temp", work / "out.h5")


def test_the_advice_to_name_the_output_works(terminal: Terminal) -> None:
    """The command that the refusal advises gives each row once."""
    (terminal.folder / "temp").mkdir()
    for number in range(2):
        append_rows(worker(terminal.folder, number), range(3 * number, 3 * number + 3))
    terminal.run("merge", "temp", "-o", "d.h5")
    append_rows(worker(terminal.folder, 1), range(6, 8))
    worker(terminal.folder, 0).unlink()
    done = terminal.run("merge", "temp", "-o", "d.h5", check=2)
    assert "name d.h5 as an input too" in done.stderr
    done = terminal.run("merge", "d.h5", "temp", "-o", "d.h5")
    assert "only its new rows are added" in done.stderr
    assert seeds_in(terminal.folder / "d.h5") == list(range(8))
