"""SIGKILL at every system call by which a part touches the disk, and refused ones.

After each kill another part, of another N, finishes the sweep: every result is there and right, and
nothing that was finished is run again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from crash_checks import check_output, finished_tasks, started_in
from kill_points import Choice, CrashPoint, check_count, points_in, some_or_all, try_all
from needs import needs_strace
from part_runs import QUICK_H5SWEEP, UNSEEN
from terminal import H5SWEEP, run_command

CALLS = (
    "write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,openat"
)
FARMS = 3


@needs_strace
@some_or_all
def test_part_killed_before_any_call(tmp_path: Path, chosen: Choice) -> None:
    """Killed before any call, a part loses nothing, and others go on without a lock to remove."""
    points = _list_points(tmp_path / "list")
    assert len(points) > 30
    try_all(chosen(points), tmp_path, _try_point)
    check_count("part", len(points))


@needs_strace
@some_or_all
def test_part_refused_any_call(tmp_path: Path, chosen: Choice) -> None:
    """A disk that refuses a claim or the file of a part ends it with a sentence, or not at all."""
    points = _list_points(tmp_path / "list", "out.h5.run/parts", "out.h5.run/claims")
    assert len(points) > 10
    try_all(chosen(points), tmp_path, _try_refusal)


def _try_refusal(point: CrashPoint, folder: Path) -> None:
    _prepare(folder)
    refused = ["-e", f"inject={point.call}:error=ENOSPC:when={point.ordinal}"]
    done = _run(_traced("/dev/null", refused), folder, "refused")
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    _finish(folder)


def _try_point(point: CrashPoint, folder: Path) -> None:
    _prepare(folder)
    done = _run(_traced("/dev/null", point.killing()), folder, "killed")
    assert done.returncode in (-9, 137), f"was not killed: {done.returncode} {done.stderr}"
    _finish(folder)


def _finish(folder: Path) -> None:
    finished = finished_tasks(folder / "out.h5.run")
    again = _run([*QUICK_H5SWEEP, *_words("2/3")], folder, "again")
    assert again.returncode == 0, again.stderr
    repeated = started_in(folder / "trace", "again") & set(finished)
    assert not repeated, f"run again though finished: {repeated}"
    run_command(["merge", "out.h5"], folder, _environment(folder, "merge")).check_returncode()
    assert check_output(folder / "out.h5") == 2 * FARMS
    assert not list((folder / "out.h5.run" / "parts").glob("*.json")), "a dead part is still known"


def _prepare(folder: Path) -> None:
    folder.mkdir()
    (folder / "study.py").write_text(UNSEEN)


def _words(part: str) -> list[str]:
    return ["run", "study.py", "-o", "out.h5", "-j", "1", "--part", part, "--backoff", "0.01s"]


def _traced(log: str, more: list[str]) -> list[str]:
    # -b execve: follow threads, but let go of the workers.
    strace = ["strace", "-f", "-b", "execve", "-y", "-o", log, "-e", f"trace={CALLS}", *more]
    return [*strace, *H5SWEEP, *_words("1/2")]


def _list_points(folder: Path, *marks: str) -> list[CrashPoint]:
    """Every call that touches our folder, or these, in a part that nobody kills."""
    _prepare(folder)
    log = folder / "strace.log"
    done = _run(_traced(str(log), []), folder, "list")
    assert done.returncode == 0, done.stderr
    return points_in(log, *(marks or ("out.h5", "<socket:")))


def _run(words: list[str], folder: Path, round_name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=_environment(folder, round_name),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def _environment(folder: Path, round_name: str) -> dict[str, str]:
    environment = {"ROUND": round_name, "TRACE": str(folder / "trace"), "FARMS": str(FARMS)}
    return {**os.environ, **environment, "PYTHONDONTWRITEBYTECODE": "1"}
