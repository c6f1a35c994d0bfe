"""SIGKILL at every system call by which tasks are asked for again, run again, and merged again.

The old row or the new one is there afterwards, and the same command goes on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import h5py
import pytest

from h5sweep.output.verify import verify_rows
from kill_points import Choice, CrashPoint, points_in, some_or_many, try_all
from needs import needs_strace
from terminal import H5SWEEP, run_command

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
    prepared = tmp_path / "prepared"
    _prepare(name, prepared)
    points = _list_points(name, prepared, tmp_path / "list")
    assert len(points) > 5
    try_all(chosen(points), tmp_path, partial(_try_point, name=name, prepared=prepared))


def _try_point(point: CrashPoint, work: Path, name: str, prepared: Path) -> None:
    shutil.copytree(prepared, work)
    command = COMMANDS[name][0]
    killed = _traced("/dev/null", point.killing(), command, work)
    assert killed.returncode in (-9, 137), f"was not killed: {killed.returncode} {killed.stderr}"
    assert _rows(work) in (BEFORE, AFTER)
    _run(command, work).check_returncode()
    if name == "cancel":
        assert not _missing(work)
        assert _rows(work) == BEFORE
        return
    if name == "redo":
        assert _missing(work) == AGAIN
        assert _rows(work) == BEFORE
        _run(RUN, work).check_returncode()
    assert not _missing(work)
    assert _rows(work) == AFTER
    # The old records are no objection, and do not come back.
    _run(["clean", "out.h5", "--yes"], work).check_returncode()
    assert not list((work / "out.h5.run/records").iterdir())
    _run(MERGE, work).check_returncode()
    assert (_rows(work), _missing(work)) == (AFTER, set())
    assert not list(work.glob(".*.part"))


def _prepare(name: str, work: Path) -> None:
    work.mkdir()
    (work / "study.py").write_text(STUDY)
    _run(RUN, work, OLD).check_returncode()
    for command in COMMANDS[name][1]:
        _run(command, work).check_returncode()


def _traced(
    log: str, more: list[str], command: list[str], work: Path
) -> subprocess.CompletedProcess[str]:
    # -b execve: follow threads, but let go of the workers.
    strace = ["strace", "-f", "-b", "execve", "-y", "-o", log, "-e", f"trace={CALLS}", *more]
    return subprocess.run(
        [*strace, *H5SWEEP, *command],
        cwd=work,
        env=_environment(NEW),
        capture_output=True,
        text=True,
        timeout=120,
    )


def _run(command: list[str], work: Path, value: float = NEW) -> subprocess.CompletedProcess[str]:
    return run_command(command, work, _environment(value))


def _environment(value: float) -> dict[str, str]:
    # Compiled files would be written in some runs and not in others.
    return {**os.environ, "ROUND": str(value), "PYTHONDONTWRITEBYTECODE": "1"}


def _list_points(name: str, prepared: Path, work: Path) -> list[CrashPoint]:
    """Every call that touches our folder, in a command that nobody kills."""
    shutil.copytree(prepared, work)
    done = _traced("strace.log", [], COMMANDS[name][0], work)
    assert done.returncode == 0, done.stderr
    return points_in(work / "strace.log", "out.h5")


def _rows(work: Path) -> dict[int, float]:
    """What the output has, which must be whole."""
    assert verify_rows(work / "out.h5") == []
    with h5py.File(work / "out.h5") as file:
        return dict(zip(file["task"][:].tolist(), file["aep"][:].tolist(), strict=True))


def _missing(work: Path) -> set[int]:
    done = _run(["missing", "out.h5", "--csv"], work)
    keys = [line.split(",")[:2] for line in done.stdout.splitlines()[1:]]
    return {2 * int(farm) + int(seed) for farm, seed in keys}
