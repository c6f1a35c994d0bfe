"""`h5sweep merge PATH... -o OUTPUT`: what is done about odd inputs, bad files and old outputs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from xxhash import xxh3_64_intdigest

import h5sweep
from check_samples import set_flags
from farm_files import KEY, contents, layout, write_columns, write_groups
from h5sweep import merge_files
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import ChangedError
from h5sweep.runfolder.audit import read_entries
from running import tmpfs
from terminal import Terminal


@pytest.fixture
def night(terminal: Terminal) -> Path:
    """The folder of worker files that a night left: three sound ones."""
    folder = terminal.folder / "layouts.h5_temp"
    folder.mkdir()
    for farm in range(3):
        write_groups(folder / f"worker_{farm}.h5", farm, range(4))
    return folder


def test_groups_stay_groups(terminal: Terminal, night: Path) -> None:
    """Every group of every file is in the output, with its attributes; the inputs stay."""
    before = contents(night)
    done = terminal.run("merge", "layouts.h5_temp", "-o", "layouts.h5")
    assert "12 tasks from 3 files" in done.stderr
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 12
        for farm in range(3):
            for seed in range(4):
                group = file[f"farm{farm}_t1_s{seed}"]
                assert np.array_equal(group["layout"], layout(farm, seed))
                assert group.attrs["seed"] == seed
    assert contents(night) == before


def test_columns_stay_columns(terminal: Terminal) -> None:
    """Columns of equal names are joined, in the order of the files."""
    folder = terminal.folder / "temp"
    folder.mkdir()
    for farm in range(3):
        write_columns(folder / f"worker_{farm}.h5", farm, range(4))
    terminal.run("merge", "temp", "-o", "layouts.h5")
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert file["farm_id"][:].tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert np.array_equal(file["layout"][5], layout(1, 1))


def test_a_mixed_folder_gives_both(terminal: Terminal, night: Path) -> None:
    """Groups of some files and columns of others go into one output."""
    write_columns(night / "columns.h5", 7, range(3))
    terminal.run("merge", night, "-o", "layouts.h5")
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file["seed"]) == 3
        assert np.array_equal(file["farm2_t1_s3/layout"], layout(2, 3))


@pytest.mark.parametrize("key", [KEY, "farm_id,farm_type,seed"])
def test_a_key_makes_rows_of_tasks_from_which_a_run_goes_on(
    terminal: Terminal, night: Path, key: str
) -> None:
    """With a key the output is that of a sweep, and `run` computes only what is missing."""
    terminal.run("merge", night, "-o", "layouts.h5", "--key", key)
    terminal.write(
        "study.py",
        """
        import h5sweep
        import numpy as np

        @h5sweep.sweep(farm_id=range(3), farm_type=[1], seed=range(5))
        def optimise(farm_id, farm_type, seed):
            with open("computed", "a") as file:
                file.write(f"{farm_id},{seed} ")
            return {"layout": np.zeros((5, 2)), "aep": -1.0}
        """,
    )
    terminal.run("run", "study.py", "-o", "layouts.h5", "--workers", 1)
    assert sorted((terminal.folder / "computed").read_text().split()) == ["0,4", "1,4", "2,4"]
    with h5py.File(terminal.folder / "layouts.h5") as file:
        rows = list(zip(file["farm_id"][:], file["seed"][:], strict=True))
        assert len(rows) == 15
        place = rows.index((1, 3))
        assert np.array_equal(file["layout"][place], layout(1, 3))
        assert file["aep"][place] == 103.0


def test_damaged_files_are_all_named_and_nothing_is_written(
    terminal: Terminal, night: Path
) -> None:
    """By default one bad file stops the merge: every bad one is named, nothing is touched."""
    (night / "worker_61817.h5").touch()
    os.truncate(night / "worker_1.h5", 3000)
    before = contents(terminal.folder)
    done = terminal.run("merge", night, "-o", "layouts.h5", check=3)
    assert "worker_61817.h5" in done.stderr
    assert "worker_1.h5" in done.stderr
    assert "--on-damaged skip" in done.stderr
    after = contents(terminal.folder)
    assert {p: c for p, c in after.items() if ".lock" not in p} == before


def test_skipping_merges_the_others_and_says_what_was_left_out(
    terminal: Terminal, night: Path
) -> None:
    """--on-damaged skip writes what can be read, and names what it left."""
    (night / "worker_61817.h5").touch()
    done = terminal.run("merge", night, "-o", "layouts.h5", "--on-damaged", "skip")
    assert "left out: empty" in done.stderr
    assert "worker_61817.h5" in done.stderr
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 12


@pytest.mark.parametrize(("limit", "code"), [("1", 3), ("2", 0), ("39%", 3), ("40%", 0)])
def test_a_threshold_stops_a_merge_that_would_skip_too_much(
    terminal: Terminal, night: Path, limit: str, code: int
) -> None:
    """More bad files than --max-damaged stop the merge after all: 2 of 5 here."""
    (night / "a.h5").touch()
    (night / "b.h5").touch()
    terminal.run(
        *("merge", night, "-o", "layouts.h5", "--on-damaged", "skip", "--max-damaged", limit),
        check=code,
    )
    assert (terminal.folder / "layouts.h5").exists() is (code == 0)


def test_a_file_that_was_only_not_closed_is_read_and_said(terminal: Terminal, night: Path) -> None:
    """Flags that a killed writer left cost no data: the file is merged, with a note."""
    write_groups(night / "worker_9.h5", 9, range(3), libver="latest")
    set_flags(night / "worker_9.h5", 1)
    done = terminal.run("merge", night, "-o", "layouts.h5")
    assert "worker_9.h5" in done.stderr
    assert "but can be read" in done.stderr
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert np.array_equal(file["farm9_t1_s2/layout"], layout(9, 2))


def test_equal_duplicates_are_taken_once(terminal: Terminal, night: Path) -> None:
    """A copied worker file adds nothing and is counted."""
    (night / "worker_0_copy.h5").write_bytes((night / "worker_0.h5").read_bytes())
    done = terminal.run("merge", night, "-o", "layouts.h5")
    assert "12 tasks from 4 files, 4 more were equal duplicates" in done.stderr
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 12


@pytest.mark.parametrize("key", [None, KEY])
def test_different_results_for_one_task_stop_the_merge(
    terminal: Terminal, night: Path, key: str | None
) -> None:
    """Both places are named, and nothing is written, unless somebody says which to take."""
    write_groups(night / "worker_8.h5", 8, range(2))
    with h5py.File(night / "worker_9.h5", "w") as file:
        group = file.create_group("farm8_t1_s1")
        group.attrs.update({"farm_id": 8, "farm_type": 1, "seed": 1})
        group["layout"], group["aep"] = layout(0, 0), 0.5
    options = () if key is None else ("--key", key)
    done = terminal.run("merge", night, "-o", "layouts.h5", *options, check=3)
    assert "worker_8.h5" in done.stderr
    assert "worker_9.h5" in done.stderr
    assert not (terminal.folder / "layouts.h5").exists()
    terminal.run("merge", night, "-o", "layouts.h5", *options, "--on-conflict", "last")
    with h5py.File(terminal.folder / "layouts.h5") as file:
        if key is None:
            assert file["farm8_t1_s1/aep"][()] == 0.5
        else:
            rows = list(zip(file["farm_id"][:], file["seed"][:], strict=True))
            assert file["aep"][rows.index((8, 1))] == 0.5


def test_the_same_command_again_gives_the_same_file(terminal: Terminal, night: Path) -> None:
    """A merged file is ours: it is replaced by one with the same content."""
    terminal.run("merge", night, "-o", "layouts.h5")
    terminal.run("merge", night, "-o", "layouts.h5")
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 12
    assert not list(terminal.folder.glob("*.old*"))


def test_without_its_entry_in_the_audit_trail_the_same_command_goes_on(
    terminal: Terminal, night: Path
) -> None:
    """A merge that ended between the rename and the audit trail can be repeated."""
    trail = terminal.folder / "layouts.h5.audit.jsonl"
    trail.mkdir()
    terminal.run("merge", night, "-o", "layouts.h5", check=1)
    assert (terminal.folder / "layouts.h5").exists()
    trail.rmdir()
    terminal.run("merge", night, "-o", "layouts.h5")
    assert len(trail.read_text().splitlines()) == 1


def test_results_whose_files_are_gone_are_not_lost_by_a_second_merge(
    terminal: Terminal, night: Path
) -> None:
    """Merging fewer files into the same output would lose rows: it is refused, with the way out."""
    terminal.run("merge", night, "-o", "layouts.h5")
    (night / "worker_1.h5").unlink()
    done = terminal.run("merge", night, "-o", "layouts.h5", check=2)
    assert "worker_1.h5" in done.stderr
    write_groups(night / "worker_5.h5", 5, range(2))
    terminal.run("merge", "layouts.h5", night, "-o", "layouts.h5")
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 14
    (terminal.folder / "layouts.h5.audit.jsonl").unlink()
    done = terminal.run("merge", night, "-o", "layouts.h5", check=2)
    assert "audit trail" in done.stderr
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 14


def test_an_output_of_somebody_else_is_never_overwritten(terminal: Terminal, night: Path) -> None:
    """Without --force nothing happens; with it, the old file is kept under another name."""
    (terminal.folder / "layouts.h5").write_bytes(b"precious")
    done = terminal.run("merge", night, "-o", "layouts.h5", check=2)
    assert "--force" in done.stderr
    assert (terminal.folder / "layouts.h5").read_bytes() == b"precious"
    terminal.run("merge", night, "-o", "layouts.h5", "--force")
    assert (terminal.folder / "layouts.old-1.h5").read_bytes() == b"precious"
    with h5py.File(terminal.folder / "layouts.h5") as file:
        assert len(file) == 12


def test_forced_into_a_sweep_the_old_file_is_kept_too(terminal: Terminal, night: Path) -> None:
    """With a key as well, --force keeps what was there under another name."""
    (terminal.folder / "layouts.h5").write_bytes(b"precious")
    terminal.run("merge", night, "-o", "layouts.h5", "--key", KEY, check=2)
    terminal.run("merge", night, "-o", "layouts.h5", "--key", KEY, "--force")
    assert (terminal.folder / "layouts.old-1.h5").read_bytes() == b"precious"
    assert len(h5py.File(terminal.folder / "layouts.h5")["seed"]) == 12


BAD_PATHS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing there": (lambda folder: None, "there is no"),
    "an empty folder": (Path.mkdir, "found no file to merge"),
    "a folder of texts": (lambda f: (f.mkdir(), (f / "notes.txt").write_text("x")), "no file"),
    "a glob without a match": (lambda folder: None, "there is no"),
}


@pytest.mark.parametrize("case", BAD_PATHS)
def test_no_files_is_a_usage_error(terminal: Terminal, case: str) -> None:
    """Nothing to merge is said, and nothing is made."""
    make, words = BAD_PATHS[case]
    make(terminal.folder / "temp")
    done = terminal.run("merge", "temp", "-o", "layouts.h5", check=2)
    assert words in done.stderr
    assert not (terminal.folder / "layouts.h5").exists()


def test_only_damaged_files_cannot_be_merged(terminal: Terminal) -> None:
    """If nothing is left to merge, there is no output, also when bad files may be skipped."""
    (terminal.folder / "temp").mkdir()
    (terminal.folder / "temp" / "worker_1.h5").touch()
    done = terminal.run("merge", "temp", "-o", "out.h5", "--on-damaged", "skip", check=3)
    assert "h5sweep check" in done.stderr
    assert not (terminal.folder / "out.h5").exists()


@pytest.mark.parametrize("place", ["layouts.h5_temp/out.h5", "layouts.h5_temp/sub/../out.h5"])
def test_an_output_inside_the_inputs_is_refused(
    terminal: Terminal, night: Path, place: str
) -> None:
    """The next merge would take it for a worker's file."""
    (night / "sub").mkdir()
    done = terminal.run("merge", night, "-o", place, check=2)
    assert "beside" in done.stderr
    assert not (night / "out.h5").exists()


def test_odd_things_in_the_folder_are_named_and_harm_nothing(
    terminal: Terminal, night: Path
) -> None:
    """A link in a circle, a folder and a pipe with the names of files, a link to nowhere."""
    (night / "loop.h5").symlink_to(night / "loop.h5")
    (night / "folder.h5").mkdir()
    os.mkfifo(night / "pipe.h5")
    (night / "nowhere.h5").symlink_to("gone.h5")
    done = terminal.run("merge", night, night / "pipe.h5", "-o", "out.h5", check=3)
    assert all(name in done.stderr for name in ("loop.h5", "pipe.h5", "nowhere.h5"))
    terminal.run("merge", night, "-o", "out.h5", "--on-damaged", "skip")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file) == 12


def test_a_second_name_of_a_file_is_no_second_file(terminal: Terminal, night: Path) -> None:
    """Links to a file that is merged anyway add nothing."""
    (night / "again.h5").symlink_to(night / "worker_0.h5")
    os.link(night / "worker_1.h5", night / "hard.h5")
    done = terminal.run("merge", night, "-o", "out.h5")
    assert "12 tasks from 3 files" in done.stderr


def test_a_pattern_that_matches_nothing_shows_what_there_is(
    terminal: Terminal, night: Path
) -> None:
    """The message has a name from the files, so that the pattern can be mended."""
    done = terminal.run("merge", night, "-o", "out.h5", "--key", "x{seed:d}", check=2)
    assert "farm0_t1_s0" in done.stderr
    assert not (terminal.folder / "out.h5").exists()


def test_two_groups_of_one_key_are_both_named(terminal: Terminal) -> None:
    """s1 and s01 are one seed: different results for it stop the merge."""
    with h5py.File(terminal.folder / "a.h5", "w") as file:
        file["s1/aep"], file["s01/aep"] = 1.0, 2.0
    done = terminal.run("merge", "a.h5", "-o", "out.h5", "--key", "s{seed:d}", check=3)
    assert "s01" in done.stderr
    assert "/s1" in done.stderr


@pytest.mark.parametrize("name", ["..", "åß→", "n" * 10_000, "a b\nc"])
def test_odd_names_of_groups_are_kept(terminal: Terminal, name: str) -> None:
    """A name is a name: it is copied as it is, and never followed as a path."""
    with h5py.File(terminal.folder / "a.h5", "w") as file:
        file.create_group("t").create_group(name)["aep"] = 1.5
    terminal.run("merge", "a.h5", "-o", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert list(file["t"]) == [name]
        assert file["t"][name]["aep"][()] == 1.5


def test_a_name_can_neither_fill_nor_steer_the_screen(terminal: Terminal) -> None:
    """People see both ends of a long name, and no control characters; programs see all of it."""
    name, stray = "a" + "x" * 10_000 + "z_s1", "init\x1b[2J"
    for worker in range(2):
        with h5py.File(terminal.folder / f"w{worker}.h5", "w") as file:
            file[f"{name}/aep"] = float(worker)
            file[stray] = 1
    done = terminal.run("merge", "w0.h5", "w1.h5", "-o", "out.h5", check=3)
    assert "h5sweep: /axxxx" in done.stderr and "xxz_s1 is in w0.h5" in done.stderr
    options = ("--on-conflict", "last", "--skip", stray, "--audit-text")
    done = terminal.run("merge", "w0.h5", "w1.h5", "-o", "out.h5", *options)
    looks = [("check", "w0.h5"), ("salvage", "w0.h5"), ("clean", "out.h5")]
    seen = [done.stdout, done.stderr, *(terminal.run(*look, check=None).stdout for look in looks)]
    assert all(len(text) < 3000 and "\x1b" not in text for text in seen)
    assert r"/init\x1b[2J" in done.stderr
    (entry,) = read_entries(terminal.folder / "out.h5")
    assert entry.conflicts[0].task == f"/{name}"
    assert f"/{stray}" in entry.inputs[0].skipped
    report = terminal.json("merge", "w0.h5", "w1.h5", "-o", "out.h5", *options[:4])
    assert report["conflicts"][0]["task"] == f"/{name}"


@pytest.mark.parametrize("kind", ["external link", "virtual dataset"])
def test_data_of_other_files_are_not_fetched(terminal: Terminal, kind: str) -> None:
    """What lies outside a file is never read: the file is named, and nothing leaks."""
    secret = terminal.folder / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.arange(3.0)
    (terminal.folder / "temp").mkdir()
    with h5py.File(terminal.folder / "temp" / "a.h5", "w") as file:
        group = file.create_group("t1")
        group["aep"] = 1.0
        if kind == "external link":
            group["x"] = h5py.ExternalLink(str(secret), "x")
        else:
            virtual = h5py.VirtualLayout((3,), "f8")
            virtual[:] = h5py.VirtualSource(str(secret), "x", (3,))
            group.create_virtual_dataset("x", virtual)
    write_groups(terminal.folder / "temp" / "b.h5", 1, range(2))
    done = terminal.run("merge", "temp", "-o", "out.h5", check=3)
    assert "a.h5" in done.stderr
    terminal.run("merge", "temp", "-o", "out.h5", "--on-damaged", "skip")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert list(file) == ["farm1_t1_s0", "farm1_t1_s1"]


@pytest.mark.parametrize("key", [(), ("--key", KEY)])
def test_a_full_disk_stops_before_anything_is_written(
    terminal: Terminal, night: Path, key: tuple[str, ...]
) -> None:
    """Room is checked first: exit 1, no output, inputs as they were."""
    before = contents(night)
    with tmpfs(terminal.folder / "small", "size=32k") as small:
        done = terminal.run("merge", night, "-o", small / "out.h5", *key, check=1)
        assert "make space" in done.stderr
        assert not [path for path in small.iterdir() if path.name != ".out.h5.lock"]
    assert contents(night) == before


def test_room_for_the_audit_trail_is_checked_too(terminal: Terminal) -> None:
    """Of thousands of small files it may take as much as the output."""
    folder = terminal.folder / "many"
    folder.mkdir()
    for number in range(300):
        with h5py.File(folder / f"w{number}.h5", "w") as file:
            file["seed"], file["aep"] = [number], [float(number)]
    with tmpfs(terminal.folder / "small", "size=92k") as small:
        done = terminal.run("merge", folder, "-o", small / "out.h5", check=1)
        assert "make space" in done.stderr
        assert not [path for path in small.iterdir() if path.name != ".out.h5.lock"]


WRITER = """
import os, signal, sys
import h5py
with h5py.File(sys.argv[1], "w") as file:
    file["t1/aep"] = 1.0
    file.flush()
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_file_that_somebody_writes_is_not_touched(terminal: Terminal, night: Path) -> None:
    """A live writer's file stops the merge, or is left out."""
    command = [sys.executable, "-c", WRITER, str(night / "live.h5")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        done = terminal.run("merge", night, "-o", "out.h5", check=3)
        assert "live.h5" in done.stderr
        terminal.run("merge", night, "-o", "out.h5", "--on-damaged", "skip")
        writer.send_signal(signal.SIGKILL)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert "t1" not in file


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_changes_is_read_once_more_and_then_refused(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change between the first look and the copy is noticed, and what is written is the new."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "h5sweep.merge.tables.merge_tables.THREADS", 1
    )  # worker_0 is copied, then worker_1
    for farm in range(2):
        write_columns(Path(f"worker_{farm}.h5"), farm, range(2000))
    left = times

    def change(done: int, total: int) -> None:
        nonlocal left
        if left:
            left -= 1
            write_columns(Path("worker_1.h5"), 7 + left, range(2000))

    if times == 2:
        with pytest.raises(ChangedError, match=r"worker_1\.h5"):
            merge_files(["worker_0.h5", "worker_1.h5"], "out.h5", progress=change)
        assert not list(tmp_path.glob("*out.h5*"))
        return
    merge_files(["worker_0.h5", "worker_1.h5"], "out.h5", progress=change)
    with h5py.File("out.h5") as file:
        assert file["farm_id"][:].tolist() == [0] * 2000 + [7] * 2000


def test_a_dataset_a_task_is_no_column(terminal: Terminal) -> None:
    """Datasets of equal length with names of their own in each file stay as they are, in groups."""
    for farm in range(2):
        with h5py.File(terminal.folder / f"worker_{farm}.h5", "w") as file:
            for seed in range(3):
                file[f"farm{farm}_s{seed}"] = layout(farm, seed)
    terminal.run("merge", "worker_0.h5", "worker_1.h5", "-o", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert {len(file["worker_0"]), len(file["worker_1"])} == {3}
        assert np.array_equal(file["worker_1/farm1_s2"], layout(1, 2))


def test_arrays_of_one_length_are_no_columns_if_none_can_tell_the_task(tmp_path: Path) -> None:
    """The x and y of a task's turbines stay one task under the file's name, not rows of tasks."""
    (tmp_path / "night").mkdir()
    for seed in range(3):
        with h5py.File(tmp_path / "night" / f"farm1_s{seed}.h5", "w") as file:
            file["init"], file["layout"] = np.full((9, 2), seed), np.full((9, 2), 10.0 * seed)
    assert merge_files(tmp_path / "night", tmp_path / "out.h5").tasks == 3
    with h5py.File(tmp_path / "out.h5") as file:
        assert [file[f"farm1_s{seed}/init"][8, 1] for seed in range(3)] == [0, 1, 2]
        assert [file[f"farm1_s{seed}/layout"][8, 1] for seed in range(3)] == [0, 10, 20]


def test_a_task_group_may_hold_datasets_that_grow(terminal: Terminal) -> None:
    """A group with a history that grew beside fixed results is one task, and kept whole."""
    for farm in range(2):
        with h5py.File(terminal.folder / f"worker_{farm}.h5", "w") as file:
            for seed in range(3):
                group = file.create_group(f"farm{farm}_t1_s{seed}")
                group["layout"] = layout(farm, seed)
                group.create_dataset("history", data=np.arange(9.0), maxshape=(None,))
    terminal.run("merge", "worker_0.h5", "worker_1.h5", "-o", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file) == 6
        assert np.array_equal(file["farm1_t1_s2/layout"], layout(1, 2))
        assert file["farm1_t1_s2/history"].shape == (9,)


def write_growing(path: Path, groups: dict[str, int], **beside: object) -> None:
    """Groups in which both datasets can grow, by their numbers of rows, and something beside."""
    with h5py.File(path, "w") as file:
        for group, rows in groups.items():
            for name in ("step", "cost"):
                file.create_dataset(f"{group}/{name}", data=np.arange(rows), maxshape=(None,))
        for name, value in beside.items():
            file[name.replace("__", "/")] = value


def test_a_task_of_which_all_grows_does_not_make_a_table_of_its_file(tmp_path: Path) -> None:
    """Groups beside one that can grow are tasks as it is: none of them is left out."""
    (tmp_path / "in").mkdir()
    write_growing(tmp_path / "in/a.h5", {"s0": 3}, s1__aep=1.0, s2__aep=2.0)
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert (report.tasks, report.taken[0].skipped) == (3, ())
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["s0/cost"].maxshape == (None,)
        assert (file["s1/aep"][()], file["s2/aep"][()]) == (1.0, 2.0)


def test_tasks_of_which_all_grows_are_no_tables(tmp_path: Path) -> None:
    """A task that is in two files is there once, and not with twice as many rows."""
    (tmp_path / "in").mkdir()
    write_growing(tmp_path / "in/a.h5", {"s0": 3, "s1": 4})
    write_growing(tmp_path / "in/b.h5", {"s1": 4, "s2": 5})
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert (report.tasks, report.duplicates) == (3, 1)
    with h5py.File(tmp_path / "out.h5") as file:
        assert [len(file[f"s{seed}/cost"]) for seed in range(3)] == [3, 4, 5]


def test_tables_in_groups_of_every_file_are_joined(tmp_path: Path) -> None:
    """What has the same name in every file and grows is a table, also if there are several."""
    (tmp_path / "in").mkdir()
    write_growing(tmp_path / "in/a.h5", {"train": 3, "test": 4})
    write_growing(tmp_path / "in/b.h5", {"train": 5, "test": 1})
    merge_files(tmp_path / "in", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        assert (len(file["train/cost"]), len(file["test/step"])) == (8, 5)


def test_columns_and_groups_of_one_file_are_both_merged(tmp_path: Path) -> None:
    """A log that grows beside groups of tasks: both are taken, and both are proven by a clean."""
    (tmp_path / "in").mkdir()
    for worker in range(2):
        with h5py.File(tmp_path / f"in/w{worker}.h5", "w") as file:
            file.create_dataset("log", data=[1.0, 2.0], maxshape=(None,))
            file[f"s{worker}/aep"], file["init"] = 1.0 * worker, 0
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert [one.skipped for one in report.taken] == [("/init",)] * 2
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["log"][:].tolist() == [1.0, 2.0] * 2
        assert [file[f"s{worker}/aep"][()] for worker in range(2)] == [0.0, 1.0]
    assert len(find_removable(tmp_path / "out.h5").removable) == 2
    with h5py.File(tmp_path / "out.h5", "a") as file:
        file["s1/aep"][...] = 7.0
    kept = find_removable(tmp_path / "out.h5").kept
    assert [one.path.name for one in kept] == ["w1.h5"]


def test_series_of_unequal_lengths_in_every_task_are_no_damage(tmp_path: Path) -> None:
    """A killed writer leaves one table with a row too many: where all have one, it is their way."""
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "in/a.h5", "w") as file:
        for seed in range(2):
            file.create_dataset(f"s{seed}/cost", data=np.arange(4.0), maxshape=(None,))
            file.create_dataset(f"s{seed}/step", data=np.arange(3.0), maxshape=(None,))
    assert merge_files(tmp_path / "in", tmp_path / "out.h5").tasks == 2


def test_a_file_that_is_no_table_among_tables_is_named(tmp_path: Path) -> None:
    """Its columns are in a group of their own, which nobody would expect."""
    (tmp_path / "in").mkdir()
    for farm in range(2):
        write_columns(tmp_path / f"in/w{farm}.h5", farm, range(3))
    with h5py.File(tmp_path / "in/w1.h5", "a") as file:
        file["version"] = 3
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert [note for note in report.notes if "w1.h5 became a group" in note]


def test_record_files_outputs_and_foreign_files_can_be_mixed(
    terminal: Terminal, night: Path
) -> None:
    """A run folder, an earlier output and worker files of another program make one output."""
    terminal.write(
        "study.py",
        """
        import h5sweep
        import numpy as np

        @h5sweep.sweep(farm_id=[20, 21], farm_type=[1], seed=range(2))
        def optimise(farm_id, farm_type, seed):
            return {"layout": np.full((5, 2), farm_id), "aep": 1.0 * seed}
        """,
    )
    terminal.run("run", "study.py", "-o", "first.h5", "--workers", 1)
    (terminal.folder / "first.h5").rename(terminal.folder / "earlier.h5")
    with h5sweep.Recorder(terminal.folder / "own.h5") as recorder:
        recorder.write({"farm_id": 30, "farm_type": 1, "seed": 0}, layout=np.ones((5, 2)), aep=3.5)
    words = ("merge", "earlier.h5", "own.h5.run", night, "-o", "all.h5", "--key", KEY)
    terminal.run(*words)
    with h5py.File(terminal.folder / "all.h5") as file:
        farms = file["farm_id"][:].tolist()
        assert sorted(set(farms)) == [0, 1, 2, 20, 21, 30]
        assert len(farms) == 12 + 4 + 1
        assert file["aep"][farms.index(30)] == 3.5


def test_a_link_to_a_folder_is_named_and_not_followed(terminal: Terminal, night: Path) -> None:
    """It may lead anywhere; what is behind it is merged if somebody names it."""
    other = terminal.folder / "other"
    other.mkdir()
    write_groups(other / "worker_9.h5", 9, range(2))
    (night / "more").symlink_to(other)
    (night / "again").symlink_to(night)
    done = terminal.run("merge", night, "-o", "layouts.h5")
    assert "more is a link to a folder and was not followed: name it" in done.stderr
    assert "12 tasks from 3 files" in done.stderr and "again is a link" not in done.stderr
    done = terminal.run("merge", night, night / "more", "-o", "layouts.h5")
    assert "14 tasks from 4 files" in done.stderr and "is a link" not in done.stderr


def test_what_is_not_removed_is_said(terminal: Terminal, night: Path) -> None:
    """`--remove-merged` leaves what was not merged, and says where to read why."""
    (night / "worker_8.h5").touch()
    options = ("--on-damaged", "skip", "--remove-merged")
    done = terminal.run("merge", night, "-o", "layouts.h5", *options)
    assert "removed 3 files" in done.stderr
    assert "1 file kept; next: h5sweep clean layouts.h5 says why" in done.stderr
    assert done.stderr.count("next:") == 1


def test_removing_what_was_merged_needs_the_proof_first(terminal: Terminal, night: Path) -> None:
    """--remove-merged deletes worker files that were read back, and leaves what was left out."""
    (night / "worker_61817.h5").touch()
    words = ("merge", night, "-o", "out.h5", "--on-damaged", "skip", "--remove-merged")
    done = terminal.run(*words)
    assert "removed 3 files" in done.stderr
    assert [path.name for path in night.iterdir()] == ["worker_61817.h5"]
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file) == 12


def test_the_audit_trail_says_what_came_from_where(terminal: Terminal, night: Path) -> None:
    """Every input with its checksum, what was refused and why, and the output names the trail."""
    (night / "worker_61817.h5").touch()
    words = ("merge", night, "-o", "out.h5", "--on-damaged", "skip", "--audit-text")
    done = terminal.run(*words)
    assert "worker_61817.h5" in done.stdout
    (line,) = (terminal.folder / "out.h5.audit.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert [one["tasks"] for one in entry["inputs"]] == [4, 4, 4]
    first = xxh3_64_intdigest((night / "worker_0.h5").read_bytes())
    assert entry["inputs"][0]["xxh3"] == f"{first:016x}"
    assert entry["refused"][0]["state"] == "empty"
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file.attrs["h5sweep_audit"] == b"out.h5.audit.jsonl"


@pytest.mark.parametrize("choice, taken", [("first", 1), ("last", 2)])
@pytest.mark.parametrize("key", [None, "s{seed:d}"])
def test_a_decided_conflict_is_an_entry_with_both_places(
    tmp_path: Path, key: str | None, choice: str, taken: int
) -> None:
    """The audit trail says which file's result was taken and which was left out."""
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        with h5py.File(tmp_path / f"in/w{number}.h5", "w") as file:
            file["s7/aep"], file[f"s{number}/aep"] = float(number), 0.0
    policy = h5sweep.Policy(on_conflict=h5sweep.OnConflict(choice))
    report = merge_files(tmp_path / "in", tmp_path / "out.h5", key=key, policy=policy)
    (entry,) = read_entries(tmp_path / "out.h5")
    (conflict,) = entry.conflicts
    place = ", /s7" if key else ""
    names = {number: f"{tmp_path}/in/w{number}.h5{place}" for number in (1, 2)}
    task = "seed=7" if key else "/s7"
    left_out = [names[3 - taken]]
    assert (report.tasks, conflict) == (3, (task, names[taken], left_out, choice))


def test_a_merge_with_a_key_is_one_line_of_the_audit_trail(tmp_path: Path) -> None:
    """Also if the run folder has records of earlier merges, which the line names too."""
    for farm in (1, 2):
        write_groups(tmp_path / f"w{farm}.h5", farm, range(2))
        merge_files(tmp_path / f"w{farm}.h5", tmp_path / "out.h5", key=KEY)
    first, second = read_entries(tmp_path / "out.h5")
    assert [one.style for one in first.inputs] == ["groups"]
    assert [(one.style, one.tasks) for one in second.inputs] == [("groups", 2), ("records", 2)]
    assert second.notes == ()


@pytest.mark.parametrize("key", [None, KEY])
def test_the_audit_trail_has_the_attributes_that_the_output_lacks(
    tmp_path: Path, key: str | None
) -> None:
    """What each worker says of itself is not lost when its file is removed."""
    (tmp_path / "in").mkdir()
    for farm in range(2):
        write_groups(tmp_path / f"in/w{farm}.h5", farm, range(2))
        with h5py.File(tmp_path / f"in/w{farm}.h5", "a") as file:
            file.attrs["host"] = f"node{farm}"
    merge_files(tmp_path / "in", tmp_path / "out.h5", key=key)
    (entry,) = read_entries(tmp_path / "out.h5")
    found = [one.left_out for one in entry.inputs]
    assert found == [{"/@host": "node0"} if key else {}, {"/@host": "node1"}]


def test_columns_and_groups_say_which_attribute_of_the_root_is_kept(tmp_path: Path) -> None:
    """Of a file of columns and one of groups, too."""
    (tmp_path / "in").mkdir()
    write_columns(tmp_path / "in/a.h5", 0, range(3))
    write_groups(tmp_path / "in/b.h5", 0, range(2))
    for name in "ab":
        with h5py.File(tmp_path / f"in/{name}.h5", "a") as file:
            file.attrs.update({"host": name, f"only_{name}": 1, "both": 1})
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert [one.left_out for one in report.taken] == [{}, {"/@host": "b"}]
    (note,) = report.notes
    assert "attribute host of / differs" in note and "a.h5 is kept" in note
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file.attrs["host"], file.attrs["only_a"], file.attrs["only_b"]) == ("a", 1, 1)


def test_a_merged_file_of_columns_can_be_merged_again(tmp_path: Path) -> None:
    """What it says of itself is its own, and no attribute that differs."""
    for farm in range(2):
        write_columns(tmp_path / f"w{farm}.h5", farm, range(3))
    merge_files(tmp_path / "w0.h5", tmp_path / "out.h5")
    report = merge_files([tmp_path / "out.h5", tmp_path / "w1.h5"], tmp_path / "out.h5")
    assert (report.tasks, report.notes) == (6, ())


@pytest.mark.parametrize("shape", ["columns", "groups"])
def test_second_names_and_links_that_are_not_kept_are_listed(tmp_path: Path, shape: str) -> None:
    """Whoever reads by such a name learns why it is not there, and the file stays."""
    (tmp_path / "in").mkdir()
    write = write_columns if shape == "columns" else write_groups
    write(tmp_path / "in/a.h5", 0, range(3))
    with h5py.File(tmp_path / "in/a.h5", "a") as file:
        file["zz_second"] = file["seed" if shape == "columns" else "farm0_t1_s0"]
        file["zz_soft"], file["zz_type"] = h5py.SoftLink("/seed"), np.dtype("f8")
    report = merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert set(report.taken[0].skipped) == {"/zz_second", "/zz_soft", "/zz_type"}
    assert not find_removable(tmp_path / "out.h5").removable


def test_tables_that_pandas_wrote_are_joined_and_can_be_cleaned(terminal: Terminal) -> None:
    """The index beside a table is no result: PyTables makes it anew, and one line says so."""
    frames = [
        pd.DataFrame({"seed": [n, n + 9], "aep": [0.5, n], "kind": ["a", "b"]}) for n in (1, 2)
    ]
    for number, frame in enumerate(frames):
        frame.to_hdf(terminal.folder / f"w{number}.h5", key="results", format="table")
    done = terminal.run("merge", "w0.h5", "w1.h5", "-o", "out.h5")
    assert done.stderr.count("skipped") == 2
    assert "w0.h5: the index of /results/table, which PyTables can rebuild" in done.stderr
    pd.testing.assert_frame_equal(
        pd.read_hdf(terminal.folder / "out.h5", "results"), pd.concat(frames)
    )
    assert "2 files are safe to remove" in terminal.run("clean", "out.h5").stdout
    with h5py.File(terminal.folder / "out.h5", "a") as file:
        row = file["results/table"][3]
        row["values_block_0"] += 1
        file["results/table"][3] = row
    assert "1 file is safe to remove" in terminal.run("clean", "out.h5").stdout


def test_the_report_is_there_for_programs(terminal: Terminal, night: Path) -> None:
    """--json says what was taken, left out and written."""
    (night / "empty.h5").touch()
    words = ("merge", night, "-o", "out.h5", "--on-damaged", "skip", "--json")
    found = json.loads(terminal.run(*words).stdout)
    assert found["schema"] == "h5sweep.merge/1"
    assert found["tasks"] == 12
    assert [one["state"] for one in found["refused"]] == ["empty"]


def test_the_last_line_counts_what_is_in_the_output(terminal: Terminal, night: Path) -> None:
    """Tasks of earlier merges count too, and merging an output into itself is not "0 tasks"."""
    first, *others = (str(night / f"worker_{number}.h5") for number in range(3))
    terminal.run("merge", *others, "-o", "out.h5", "--key", KEY)
    done = terminal.run("merge", first, "-o", "out.h5", "--key", KEY)
    assert "wrote out.h5 (12 tasks, 4 of them from 1 file; one row per task" in done.stderr
    done = terminal.run("merge", "out.h5", "-o", "out.h5", "--json")
    assert "wrote out.h5 (12 tasks, as before; one row per task" in done.stderr
    assert json.loads(done.stdout)["tasks_in_output"] == 12
    terminal.run("merge", night, "-o", "kept.h5")
    done = terminal.run("merge", "kept.h5", "-o", "kept.h5")
    assert "wrote kept.h5 (12 tasks from 1 file; groups" in done.stderr


def test_the_merge_of_a_run_has_a_report_for_programs_too(terminal: Terminal, night: Path) -> None:
    """`h5sweep merge layouts.h5 --json` needs no -o."""
    terminal.run("merge", night, "-o", "out.h5", "--key", KEY)
    found = json.loads(terminal.run("merge", "out.h5", "--json").stdout)
    assert (found["schema"], found["tasks"], found["way"]) == ("h5sweep.merge/1", 12, "sweep")


def test_a_threshold_alone_is_refused(terminal: Terminal, night: Path) -> None:
    """--max-damaged limits what is skipped or salvaged; if nothing is, it would mean nothing."""
    words = ("merge", night, "-o", "out.h5", "--max-damaged", "5%")
    done = terminal.run(*words, check=2)
    assert "--on-damaged skip or --on-damaged salvage" in done.stderr
    terminal.run(*words, "--on-damaged", "skip")


def test_a_folder_without_an_output_says_what_is_wanted(terminal: Terminal, night: Path) -> None:
    """`h5sweep merge layouts.h5_temp` is what people type first."""
    done = terminal.run("merge", night, check=2)
    assert "-o layouts.h5" in done.stderr


def test_a_mark_of_the_worker_s_start_is_no_result(terminal: Terminal) -> None:
    """`init` beside columns or groups is skipped and said, whatever its shape."""
    for farm in range(2):
        write_columns(terminal.folder / f"columns_{farm}.h5", farm, range(3))
        write_groups(terminal.folder / f"groups_{farm}.h5", farm, range(3))
        for name in ("columns", "groups"):
            with h5py.File(terminal.folder / f"{name}_{farm}.h5", "a") as file:
                file["init"] = 1
    done = terminal.run("merge", "columns_0.h5", "columns_1.h5", "-o", "rows.h5")
    assert "columns_1.h5: /init" in done.stderr
    done = terminal.run("merge", "groups_0.h5", "groups_1.h5", "-o", "tasks.h5")
    assert "groups_1.h5: /init" in done.stderr
    with h5py.File(terminal.folder / "rows.h5") as file:
        assert "init" not in file
        assert len(file["seed"]) == 6
    with h5py.File(terminal.folder / "tasks.h5") as file:
        assert "init" not in file
        assert len(file) == 6


@pytest.mark.parametrize("policy", ["skip", "salvage"])
def test_files_without_a_result_are_no_sweep_to_be_run(terminal: Terminal, policy: str) -> None:
    """Whatever was tried: nothing could be merged, `check` says why, and nothing is left behind."""
    (terminal.folder / "in").mkdir()
    (terminal.folder / "in" / "empty.h5").touch()
    (terminal.folder / "in" / "noise.h5").write_bytes(bytes(range(1, 256)) * 20)
    words = ("merge", "in", "-o", "out.h5", "--key", "seed", "--on-damaged", policy)
    done = terminal.run(*words, check=3)
    assert "no file in in has a result that can be merged: `h5sweep check`" in done.stderr
    assert os.listdir(terminal.folder) == ["in"]
    terminal.run("check", "in", check=3)


def test_what_is_intact_in_damaged_files_can_be_merged_too(terminal: Terminal, night: Path) -> None:
    """--on-damaged salvage takes what is whole in a truncated file, and keeps that file."""
    os.truncate(night / "worker_2.h5", 9000)
    words = ("merge", night, "-o", "out.h5", "--on-damaged", "salvage")
    done = terminal.run(*words, check=2)
    assert "--key" in done.stderr
    done = terminal.run(*words, "--key", KEY)
    assert "worker_2.h5: 3 of 4 tasks salvaged" in done.stderr
    with h5py.File(terminal.folder / "out.h5") as file:
        rows = list(zip(file["farm_id"][:].tolist(), file["seed"][:].tolist(), strict=True))
        assert sorted(rows) == [(f, s) for f in range(3) for s in range(4) if (f, s) != (2, 3)]
        assert np.array_equal(file["layout"][rows.index((2, 1))], layout(2, 1))
    safe, _, left = terminal.run("clean", "out.h5").stdout.partition("not merged")
    assert "worker_1.h5" in safe
    assert "worker_2.h5" in left


def test_a_merge_that_stops_names_what_check_names(terminal: Terminal) -> None:
    """All files that cannot be merged are named at once, bad data too, and the advice works."""
    for number in range(3):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            values = np.arange(50.0) + number
            file.create_dataset(f"farm{number}/aep", data=values, compression="gzip")
            chunk = file[f"farm{number}/aep"].id.get_chunk_info(0)
    with open(terminal.folder / "w2.h5", "r+b") as raw:
        raw.seek(chunk.byte_offset + chunk.size - 1)
        last = raw.read(1)
        raw.seek(-1, os.SEEK_CUR)
        raw.write(bytes([last[0] ^ 255]))
    (terminal.folder / "w3.h5").touch()
    merge = ("merge", "w0.h5", "w1.h5", "w2.h5", "w3.h5", "-o", "out.h5")
    said = terminal.run(*merge, check=3).stderr
    assert "2 of 4 files cannot be merged" in said and "w2.h5  D303" in said
    assert "2 of 4 files cannot be merged" in terminal.run("check", ".", check=3).stdout
    terminal.run(*merge, "--on-damaged", "skip")
    terminal.run(*merge[:-1], "b.h5", "--on-damaged", "salvage", "--key", "farm{farm_id:d}")


def test_a_merge_advises_only_what_helps(terminal: Terminal) -> None:
    """Nothing is salvaged from an empty file, and where all files are bad there are no others."""
    with h5py.File(terminal.folder / "good.h5", "w") as file:
        file["farm1/aep"] = np.arange(500.0)
    shutil.copy(terminal.folder / "good.h5", terminal.folder / "bad.h5")
    os.truncate(terminal.folder / "bad.h5", 3000)
    (terminal.folder / "empty.h5").touch()

    def advice(*names: str) -> str:
        said = terminal.run("merge", *names, "-o", "out.h5", check=3).stderr
        return said.partition("next: ")[2]

    assert advice("empty.h5") == "nothing can be recovered from these: run their tasks again\n"
    assert "salvage" not in advice("good.h5", "empty.h5")
    with (terminal.folder / "live.h5").open("wb") as live:  # this process is its writer
        live.write((terminal.folder / "good.h5").read_bytes())
        live.flush()
        assert advice("live.h5").startswith("run the same command again when nothing is writing")
        assert "skip" in advice("good.h5", "live.h5") and "again" in advice("good.h5", "live.h5")
    terminal.run("merge", "live.h5", "-o", "out.h5")
    assert "skip" not in advice("bad.h5", "empty.h5")
    assert "skip" in advice("good.h5", "bad.h5") and "salvage" in advice("good.h5", "bad.h5")


def test_status_advises_a_merge_that_has_nothing_to_note(terminal: Terminal) -> None:
    """Rows can be made of what was merged as groups; what h5sweep wrote there is no news."""
    for number in range(2):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            file[f"farm{number}/aep"] = 1.5 * number
    terminal.run("merge", "w0.h5", "w1.h5", "-o", "kept.h5")
    said = terminal.run("status", "kept.h5", check=2).stderr
    assert "h5sweep merge kept.h5 -o OTHER.h5 --key KEY" in said
    done = terminal.run("merge", "kept.h5", "-o", "OTHER.h5", "--key", "farm{farm_id:d}")
    assert "2 tasks from 1 file" in done.stderr and "note" not in done.stderr
    terminal.write("tasks.csv", "farm_id\n0\n1\n2\n")
    assert (
        "farm_id=2" in terminal.run("missing", "OTHER.h5", "--expect", "tasks.csv", check=1).stdout
    )
