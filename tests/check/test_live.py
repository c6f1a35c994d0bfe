"""A file that somebody is writing is live: not opened, not locked, not called damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from check_samples import write_groups
from h5sweep.check.check import check_files
from h5sweep.disk.open_files import _locks, files_being_written, identity_of, is_locked
from h5sweep.worker_files.findings import State
from terminal import Terminal

WRITER = """
import sys, h5py
with h5py.File(sys.argv[1], "w", libver=sys.argv[2]) as file:
    data = file.create_dataset("a", (3,), "f8", maxshape=(None,), chunks=(4,))
    if sys.argv[3] == "swmr":
        file.swmr_mode = True
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["plain", "swmr"])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_an_open_file_is_live(libver: str, mode: str, tmp_path: Path) -> None:
    """Held open by a process, with or without a lock; once it has ended, the file is sound."""
    if mode == "swmr" and libver == "earliest":
        libver = "v110"
    path = tmp_path / "worker_1.h5"
    words = [sys.executable, "-c", WRITER, str(path), libver, mode]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        write_groups(tmp_path / "good.h5")
        report = check_files(tmp_path)
        assert [file.state for file in report.files] == [State.SOUND, State.LIVE]
        assert report.files[1].findings[0].code == "N601"
        assert str(writer.pid) in report.files[1].findings[0].message
        assert report.exit_code == 0
        assert is_locked(path) == (mode == "plain")
        writer.communicate("")
    assert check_files(path).files[0].state is State.SOUND
    assert identity_of(path.stat()) not in files_being_written()


def test_what_this_process_writes_is_live(tmp_path: Path) -> None:
    """In a notebook that has a file open, that file is live."""
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file["a"] = 1
        assert check_files(tmp_path).files[0].state is State.LIVE
    assert check_files(tmp_path).files[0].state is State.SOUND


def test_locks_are_seen_where_processes_are_hidden(tmp_path: Path) -> None:
    """The kernel's list of locks names the file that an h5py writer has open."""
    path = tmp_path / "mine.h5"
    with h5py.File(path, "w"):
        assert identity_of(path.stat()) in dict(_locks())
    assert identity_of(path.stat()) not in dict(_locks())


def test_a_reader_does_not_make_a_file_live(tmp_path: Path) -> None:
    """Only writing counts."""
    path = tmp_path / "a.h5"
    write_groups(path)
    with path.open("rb"):
        assert check_files(path).files[0].state is State.SOUND


def test_a_file_of_a_running_recorder_is_live(terminal: Terminal) -> None:
    """A record file whose process is alive belongs to it."""
    program = """
        import sys, h5sweep
        with h5sweep.Recorder("out.h5") as recorder:
            recorder.write({"seed": 1}, aep=2.0)
            print("recorded", flush=True)
            sys.stdin.read()
    """
    path = terminal.write("program.py", program)
    with subprocess.Popen(
        [sys.executable, path.name],
        cwd=terminal.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "recorded\n"
        found = terminal.json("check", "out.h5.run", check=0)
        assert {file["state"] for file in found["files"]} == {"live"}
        writer.communicate("")
    found = terminal.json("check", "out.h5.run", check=0)
    assert [(file["state"], file["tasks"]) for file in found["files"]] == [("sound", 1)]
