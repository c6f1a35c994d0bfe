"""SIGKILL at every system call by which a merge of files changes the disk."""

from __future__ import annotations

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from threading import Lock

import h5py
import numpy as np
import pytest

from cases import some_of
from farm_files import KEY, contents, layout, write_columns, write_groups
from h5sweep import merge_files
from kill_points import Choice, CrashPoint, points_in, some_or_all, try_all
from needs import needs_strace
from terminal import H5SWEEP, run_command

CALLS = (
    "write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,ftruncate,fallocate,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir"
)
FARMS, SEEDS = 3, range(3)
WAYS = ("columns", "groups", "sweep")
STARTING = Lock()  # a process that is starting has for an instant what others have open to write


@needs_strace
@pytest.mark.parametrize("way", WAYS)
@some_or_all
def test_killed_before_any_call_the_old_output_or_the_new_is_there(
    way: str, tmp_path: Path, chosen: Choice
) -> None:
    """The inputs stay as they are, and the same command again makes the whole output."""
    points = _list_points(way, tmp_path / "list")
    assert len(points) > 10

    try_all(chosen(points), tmp_path, partial(_try_point, way=way))


@needs_strace
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("way", some_of(WAYS, 3))
def test_interrupted_it_leaves_nothing_half(way: str, name: str, code: int, tmp_path: Path) -> None:
    """Ctrl-C, or the batch system's signal, while it writes: the old output, nothing half.

    Or the new one, whole: Python sometimes takes notice of a signal a little later. Each thread is
    sent one when it first syncs. Only if there are several may the file of the lock stay, until the
    next command: one may come while it is removed.
    """
    work = tmp_path / "work"
    _prepare(way, work)
    inject = ["-e", f"inject=fsync:signal={name}:when=1"]
    done = _run(_strace(way, "../strace.log", inject), work)
    signals = (tmp_path / "strace.log").read_text(errors="replace").count(f"--- {name} ")
    assert signals > 0
    assert done.returncode == code, done.stderr
    assert "same command again" in done.stderr
    assert "Traceback" not in done.stderr
    assert _farms(way, work / "out.h5") in ({0}, set(range(FARMS)))
    left = (".part", ".lock") if signals == 1 else ".part"
    assert not [path for path in work.rglob(".*") if path.name.endswith(left)]
    again = run_command(_command(way), work, dict(os.environ))
    assert again.returncode == 0, again.stderr
    assert _farms(way, work / "out.h5") == set(range(FARMS))
    assert not [path for path in work.rglob(".*") if path.name.endswith(".lock")]


def _prepare(way: str, work: Path) -> None:
    """Three worker files, and an output that holds the results of the first."""
    (work / "temp").mkdir(parents=True)
    write = write_columns if way == "columns" else write_groups
    for farm in range(FARMS):
        write(work / "temp" / f"worker_{farm}.h5", farm, SEEDS)
    key = KEY if way == "sweep" else None
    merge_files(work / "temp" / "worker_0.h5", work / "out.h5", key=key)


def _command(way: str) -> list[str]:
    key = ["--key", KEY] if way == "sweep" else []
    return ["merge", "temp", "-o", "out.h5", *key]


def _run(words: list[str], work: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with STARTING:
        process = subprocess.Popen(words, cwd=work, env=env, text=True, **pipes)
    output = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, *output)


def _strace(way: str, log: str, more: list[str]) -> list[str]:
    return [
        "strace",
        "-f",
        "-y",
        "-o",
        log,
        "-e",
        f"trace={CALLS}",
        *more,
        *H5SWEEP,
        *_command(way),
    ]


def _list_points(way: str, work: Path) -> list[CrashPoint]:
    """Every call that touches our folder, by its place among the calls of its thread."""
    _prepare(way, work)
    done = _run(_strace(way, "strace.log", []), work)
    assert done.returncode == 0, done.stderr
    return points_in(work / "strace.log", "out.h5")


def _try_point(point: CrashPoint, work: Path, way: str) -> None:
    with STARTING:
        _prepare(way, work)
    before = contents(work / "temp")
    _run(_strace(way, "/dev/null", point.killing()), work)
    assert _farms(way, work / "out.h5") in ({0}, set(range(FARMS)))
    assert contents(work / "temp") == before
    with STARTING:
        again = run_command(_command(way), work, dict(os.environ))
    assert again.returncode == 0, again.stderr
    assert _farms(way, work / "out.h5") == set(range(FARMS))
    assert contents(work / "temp") == before
    assert not [path for path in work.rglob(".*") if path.name.endswith(".part")]


def _farms(way: str, output: Path) -> set[int]:
    """The farms all of whose results are in the output, and right; AssertionError if not all."""
    with h5py.File(output) as file:
        if way == "groups":
            found = {tuple(map(int, re.findall(r"\d+", name)))[::2]: file[name] for name in file}
            rows = {key: (group["layout"][()], group["aep"][()]) for key, group in found.items()}
        else:
            keys = zip(file["farm_id"][:].tolist(), file["seed"][:].tolist(), strict=True)
            values = zip(file["layout"][:], file["aep"][:], strict=True)
            rows = dict(zip(keys, values, strict=True))
            assert len(rows) == len(file["seed"]), "a row is there twice"
    farms = {farm for farm, _ in rows}
    assert set(rows) == {(farm, seed) for farm in farms for seed in SEEDS}
    for (farm, seed), (xy, aep) in rows.items():
        assert np.array_equal(xy, layout(farm, seed))
        assert aep == 100.0 * farm + seed
    return farms


def test_what_a_killed_merge_left_apart_is_removed_by_the_next(tmp_path: Path) -> None:
    """What it had salvaged lies in the run folder, and would stay there for ever."""
    write_groups(tmp_path / "a.h5", 0, range(3))
    left = tmp_path / "out.h5.run/.salvage-abc"
    left.mkdir(parents=True)
    (left / "old.records").write_bytes(b"half")
    merge_files(tmp_path / "a.h5", tmp_path / "out.h5", key=KEY)
    assert not list((tmp_path / "out.h5.run").glob(".salvage-*"))
