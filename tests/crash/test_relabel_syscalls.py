"""SIGKILL at every system call by which labels are changed, and by which the change is taken back.

The old labels or the new ones are there afterwards, the values are as they were, and the same
command finishes.
"""

from __future__ import annotations

import json
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
import h5sweep

@h5sweep.sweep(seed=range(4), units={"aep": "GWh"})
def optimise(seed):
    return {"aep": seed / 2}
"""
RUN = ["run", "study.py", "-o", "out.h5", "-j", "1"]
RENAME = ["--rename", "seed=run", "--rename", "aep=gross"]
RELABEL = ["relabel", "out.h5", *RENAME, "--add", "hub=110", "--units", "gross=MWh"]
UNDO = ["relabel", "out.h5", "--undo"]
OLD = {"key": ["seed"], "seed": [0, 1, 2, 3], "aep": [0, 0.5, 1, 1.5], "units": "GWh"}
NEW = {"key": ["hub", "run"], "run": [0, 1, 2, 3], "gross": [0, 0.5, 1, 1.5], "units": "MWh"}
NEW["hub"] = [110] * 4
# Each command, what is done before it, and what there is at first and in the end.
COMMANDS = {
    "relabel": (RELABEL, [], OLD, NEW),
    "relabel without records": (RELABEL, [["clean", "out.h5", "--yes"]], OLD, NEW),
    "undo": (UNDO, [RELABEL], NEW, OLD),
}


@needs_strace
@pytest.mark.parametrize("name", COMMANDS)
@some_or_many
def test_killed_before_any_call_the_old_labels_or_the_new_are_everywhere(
    name: str, tmp_path: Path, chosen: Choice
) -> None:
    """In the output; and what h5sweep says is what that has, or what it will have."""
    prepared = tmp_path / "prepared"
    _prepare(name, prepared)
    points = _list_points(name, prepared, tmp_path / "list")
    assert len(points) > 20
    try_all(chosen(points), tmp_path, partial(_try_point, name=name, prepared=prepared))


def _try_point(point: CrashPoint, work: Path, name: str, prepared: Path) -> None:
    command, _, first, last = COMMANDS[name]
    shutil.copytree(prepared, work)
    killed = _traced("/dev/null", point.killing(), command, work)
    assert killed.returncode in (-9, 137), f"was not killed: {killed.returncode} {killed.stderr}"
    found, keys = _labels(work), _keys(work)
    assert (found, keys) in ((first, first["key"]), (first, last["key"]), (last, last["key"]))
    if name == "undo" and _is_at_end(work):
        return  # once more, it would take back the relabel before
    _run(command, work).check_returncode()
    assert (_labels(work), _keys(work)) == (last, last["key"])
    assert not list(work.glob(".*.part"))
    assert not list((work / "out.h5.run").glob(".*.part"))


def _is_at_end(work: Path) -> bool:
    """Whether all was written, so that only the lock was left to remove."""
    folder = work / "out.h5.run"
    last = json.loads((folder / "relabels.json").read_text())["relabels"][-1]
    merged = json.loads((folder / "merged.json").read_text())
    return bool(last["undoes"]) and merged.get("relabel") == last["id"]


def _prepare(name: str, work: Path) -> None:
    work.mkdir()
    (work / "study.py").write_text(STUDY)
    for command in (RUN, *COMMANDS[name][1]):
        _run(command, work).check_returncode()


def _traced(
    log: str, more: list[str], command: list[str], work: Path
) -> subprocess.CompletedProcess[str]:
    words = ["strace", "-f", "-y", "-o", log, "-e", f"trace={CALLS}", *more, *H5SWEEP, *command]
    return subprocess.run(
        words, cwd=work, env=_environment(), capture_output=True, text=True, timeout=120
    )


def _run(command: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    return run_command(command, work, _environment())


def _environment() -> dict[str, str]:
    # Compiled files would be written in some runs and not in others.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def _list_points(name: str, prepared: Path, work: Path) -> list[CrashPoint]:
    """Every call that touches our folder, in a command that nobody kills."""
    shutil.copytree(prepared, work)
    done = _traced("strace.log", [], COMMANDS[name][0], work)
    assert done.returncode == 0, done.stderr
    return points_in(work / "strace.log", "out.h5")


def _labels(work: Path) -> dict[str, object]:
    """What the output has, which must be whole."""
    assert verify_rows(work / "out.h5") == []
    with h5py.File(work / "out.h5") as file:
        keys = sorted(str(file.attrs["h5sweep_key"].decode()).split())
        data = str(file.attrs["h5sweep_columns"].decode()).split()
        columns = {name: file[name][:].tolist() for name in (*keys, *data)}
        units = file[data[0]].attrs["units"]
        text = units if isinstance(units, str) else units.decode()
        return {"key": keys, **columns, "units": text}


def _keys(work: Path) -> list[str]:
    """The parameters as the run folder has them; all tasks must be done."""
    found = json.loads(_run(["status", "out.h5", "--json"], work).stdout)
    assert (found["tasks"], found["done"]) == (4, 4)
    return sorted(found["columns"])
