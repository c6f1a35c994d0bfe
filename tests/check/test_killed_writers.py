"""What quick says of a killed writer's file is what h5py does with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from h5sweep.check.check import check_files
from killed_writers import STYLES
from places import SAMPLES

LONG_S = 3600
REFUSED = {"D101", "D103", "D105", "D107", "D108", "D109", "D111", "D112"}
UNLISTED = {"D106"}  # refused or, depending on the version, opened and not listed


def kill_writers(folder: Path, count: int) -> None:
    words = [sys.executable, str(SAMPLES / "killed_writers.py"), str(folder), str(count), "7"]
    subprocess.run(words, check=True, timeout=LONG_S)


def h5py_opens(path: Path) -> bool:
    try:
        h5py.File(path, "r").close()
    except OSError:
        return False
    return True


def h5py_lists(path: Path) -> bool:
    try:
        with h5py.File(path, "r") as file:
            file.visititems(lambda _, item: None)
    except (OSError, RuntimeError, KeyError):
        return False
    return True


@pytest.mark.parametrize(
    "count", [2, pytest.param(100, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_quick_agrees_with_h5py(count: int, tmp_path: Path) -> None:
    """For every file: quick says that it cannot be opened exactly if h5py cannot open it."""
    kill_writers(tmp_path, count)
    report = check_files(tmp_path, depth="quick")
    wrong = []
    for file in report.files:
        codes = {finding.code for finding in file.findings}
        path = Path(file.path)
        agrees = (
            not h5py_lists(path) if codes & UNLISTED else h5py_opens(path) == (not codes & REFUSED)
        )
        if not agrees:
            wrong.append((path.name, codes))
    assert not wrong
    assert len(report.files) >= 0.4 * count * len(STYLES)  # some died before they made a file


def test_what_h5py_cannot_list_is_never_called_sound(tmp_path: Path) -> None:
    """The default depth knows at least as well as a loop over the file with h5py."""
    kill_writers(tmp_path, 2)
    for file in check_files(tmp_path).files:
        assert file.state.value != "sound" or h5py_lists(Path(file.path)), file
