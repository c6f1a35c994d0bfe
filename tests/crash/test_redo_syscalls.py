"""SIGKILL at every system call by which tasks are asked for again, run again, and merged again.

The old row or the new one is there afterwards, and the same command goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import h5py
import pytest

from h5sweep.output.verify import verify_rows
from kill_points import Choice, CrashPoint, points_in, some_or_many, try_all
from needs import needs_strace

CALLS = (
    "write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,openat"
)
STUDY = """
import os
import h5sweep

@h5sweep.sweep(farm=range(3), seed=range(2))
def optimise(farm, seed):
    return {"aep": float(os.environ["ROUND"])}
"""
OLD, NEW = 1.0, 2.0
AGAIN = {2, 3}  # the tasks of farm 1
BEFORE = dict.fromkeys(range(6), OLD)
AFTER = BEFORE | dict.fromkeys(AGAIN, NEW)
REDO = ["redo", "out.h5", "farm=1"]
CANCEL = ["redo", "out.h5", "--cancel"]
RUN = ["run", "study.py", "-o", "out.h5", "-j", "1"]
MERGE = ["merge", "out.h5"]
# Each command, and what is done before it.
COMMANDS = {
    "redo": (REDO, []),
    "run": (RUN, [REDO]),
    "merge": (MERGE, [REDO, [*RUN, "--no-merge"]]),
    "cancel": (CANCEL, [REDO]),
}


@needs_strace
@pytest.mark.parametrize("name", COMMANDS)
@some_or_many
def test_killed_before_any_call_no_result_is_lost(
    name: str, tmp_path: Path, chosen: Choice
) -> None:
    """Nor is one that was asked for forgotten, once it was said that it is."""
    points = _list_points(name, tmp_path / "list")
    assert len(points) > 5
    try_all(chosen(points), tmp_path, partial(_try_point, name=name))


def _try_point(point: CrashPoint, work: Path, name: str) -> None:
    _prepare(name, work)
    command = COMMANDS[name][0]
    killed = _run([*_strace("/dev/null", point.killing()), *_words(command)], work)
    assert killed.returncode in (-9, 137), f"was not killed: {killed.returncode} {killed.stderr}"
    assert _rows(work) in (BEFORE, AFTER)
    _run(_words(command), work).check_returncode()
    if name == "cancel":
        assert not _missing(work)
        assert _rows(work) == BEFORE
        return
    if name == "redo":
        assert _missing(work) == AGAIN
        assert _rows(work) == BEFORE
        _run(_words(RUN), work).check_returncode()
    assert not _missing(work)
    assert _rows(work) == AFTER
    # The old records are no objection, and do not come back.
    _run(_words(["clean", "out.h5", "--yes"]), work).check_returncode()
    assert not list((work / "out.h5.run/records").iterdir())
    _run(_words(MERGE), work).check_returncode()
    assert (_rows(work), _missing(work)) == (AFTER, set())
    assert not list(work.glob(".*.part"))


def _prepare(name: str, work: Path) -> None:
    work.mkdir()
    (work / "study.py").write_text(STUDY)
    _run(_words(RUN), work, ROUND=str(OLD)).check_returncode()
    for command in COMMANDS[name][1]:
        _run(_words(command), work).check_returncode()


def _words(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "h5sweep", *command]


def _strace(log: str, more: list[str]) -> list[str]:
    # -b execve: follow threads, but let go of the workers.
    return ["strace", "-f", "-b", "execve", "-y", "-o", log, "-e", f"trace={CALLS}", *more]


def _run(words: list[str], work: Path, **env: str) -> subprocess.CompletedProcess[str]:
    # Compiled files would be written in some runs and not in others.
    environment = {**os.environ, "ROUND": str(NEW), "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run(
        words, cwd=work, env=environment, capture_output=True, text=True, timeout=120
    )


def _list_points(name: str, work: Path) -> list[CrashPoint]:
    """Every call that touches our folder, in a command that nobody kills."""
    _prepare(name, work)
    done = _run([*_strace("strace.log", []), *_words(COMMANDS[name][0])], work)
    assert done.returncode == 0, done.stderr
    return points_in(work / "strace.log", "out.h5")


def _rows(work: Path) -> dict[int, float]:
    """What the output has, which must be whole."""
    assert verify_rows(work / "out.h5") == []
    with h5py.File(work / "out.h5") as file:
        return dict(zip(file["task"][:].tolist(), file["aep"][:].tolist(), strict=True))


def _missing(work: Path) -> set[int]:
    done = _run(_words(["missing", "out.h5", "--csv"]), work)
    keys = [line.split(",")[:2] for line in done.stdout.splitlines()[1:]]
    return {2 * int(farm) + int(seed) for farm, seed in keys}
