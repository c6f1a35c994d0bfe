"""SIGKILL at every system call that touches the disk, of the coordinator and of a worker.

A first run under strace lists the calls; then each of them, in turn, is where a fresh run is
killed. After each kill the promises are checked, and the same command must complete.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from crash_checks import STUDY, check_output, finished_tasks, started_in
from kill_points import Choice, CrashPoint, check_count, points_in, some_or_all, try_all
from needs import needs_strace
from terminal import H5SWEEP, run_command

CALLS = (
    "write,pwrite64,writev,pwritev,fsync,fdatasync,ftruncate,fallocate,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,openat"
)
FARMS = "3"
TASKS = 6
RUN = ["run", "study.py", "-o", "out.h5", "-j", "1", "--backoff", "0.01s"]
COMMANDS = {"run": RUN, "merge": ["merge", "out.h5"]}


@needs_strace
@some_or_all
def test_coordinator_killed_before_any_call(tmp_path: Path, chosen: Choice) -> None:
    """Killed before any call of a run, its merge included, a run loses nothing and completes."""
    points = _try_many(chosen, tmp_path, _trace_coordinator, _kill_coordinator, "run")
    assert len(points) > 50
    check_count("coordinator", len(points))


@needs_strace
@some_or_all
def test_worker_killed_before_any_call(tmp_path: Path, chosen: Choice) -> None:
    """A worker killed before any call costs at most its current task, and the run goes on."""
    points = _try_many(chosen, tmp_path, _trace_worker, _kill_worker, "run")
    assert len(points) > 10
    check_count("worker", len(points))


@needs_strace
@some_or_all
def test_second_merge_killed_before_any_call(tmp_path: Path, chosen: Choice) -> None:
    """Killed while results are merged into an existing output, that output stays whole."""
    points = _try_many(chosen, tmp_path, _trace_coordinator, _kill_coordinator, "merge")
    assert len(points) > 30
    check_count("merge", len(points))


def _try_many(
    chosen: Choice, folder: Path, trace: object, kill: object, command: str
) -> list[CrashPoint]:
    """Kill at the chosen points; return all that there are."""
    prepared = folder / "prepared"
    _prepare(prepared, command)
    points = _list_points(prepared, folder / "list", trace, command)
    attempt = partial(_try_point, prepared=prepared, kill=kill, command=command)
    try_all(chosen(points), folder, attempt)
    return points


def _try_point(point: CrashPoint, folder: Path, prepared: Path, kill: object, command: str) -> None:
    shutil.copytree(prepared, folder)
    output, trace = folder / "out.h5", folder / "trace"
    rows_before = check_output(output) if output.exists() else 0
    kill(point, folder, command)  # type: ignore[operator]  # one of the two functions below
    finished = finished_tasks(folder / "out.h5.run")
    if output.exists():
        assert check_output(output) >= rows_before
    else:
        assert rows_before == 0, "the old output is gone"
    again = _run(COMMANDS[command], folder, "again")
    assert again.returncode == 0, again.stderr
    repeated = started_in(trace, "again") & set(finished)
    assert not repeated, f"run again though finished: {repeated}"
    assert check_output(output) == TASKS
    assert not list(folder.glob(".*.part")), "a temporary file was left behind"


def _prepare(folder: Path, command: str) -> None:
    folder.mkdir()
    (folder / "study.py").write_text(STUDY)
    if command == "merge":
        # An output of two tasks, and a run folder with the results of all six.
        _run(RUN, folder, "first", FARMS="1").check_returncode()
        _run([*RUN, "--no-merge"], folder, "second").check_returncode()


def _run(
    words: list[str], folder: Path, round_name: str, **env: str
) -> subprocess.CompletedProcess[str]:
    return run_command(words, folder, _environment(folder, round_name) | env)


def _traced(words: list[str], folder: Path, round_name: str) -> subprocess.CompletedProcess[str]:
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
    return {
        **os.environ,
        "ROUND": round_name,
        "TRACE": str(folder / "trace"),
        "FARMS": FARMS,
        # Compiled files would be written in some runs and not in others.
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _kill_coordinator(point: CrashPoint, folder: Path, command: str) -> None:
    done = _traced(_trace_coordinator("/dev/null", point.killing(), command), folder, "killed")
    assert done.returncode in (-9, 137), f"was not killed: {done.returncode} {done.stderr}"


def _kill_worker(point: CrashPoint, folder: Path, command: str) -> None:
    """Kill the first worker at its n-th call; those that replace it are not traced."""
    done = _traced(_trace_worker("/dev/null", point.killing(), command), folder, "killed")
    assert done.returncode in (0, 1), f"the run broke: {done.returncode} {done.stderr}"
    assert (folder / "traced").exists()


def _trace_coordinator(log: str, more: list[str], command: str) -> list[str]:
    # -b execve: follow threads, but let go of the workers.
    strace = ["strace", "-f", "-b", "execve", "-y", "-o", log, "-e", f"trace={CALLS}", *more]
    return [*strace, *H5SWEEP, *COMMANDS[command]]


def _trace_worker(log: str, more: list[str], command: str) -> list[str]:
    """Run with an interpreter for workers that puts strace on the first of them."""
    strace = ["strace", "-D", "-f", "-y", "-o", log, "-e", f"trace={CALLS}", *more]
    wrapper = (
        "import os, sys\n"
        "python, words = sys.argv[1], sys.argv[1:]\n"
        "try:\n"
        "    os.close(os.open('traced', os.O_CREAT | os.O_EXCL))\n"
        "except FileExistsError:\n"
        "    os.execv(python, words)\n"
        f"os.execvp('strace', {strace!r} + words)\n"
    )
    launcher = (
        "import sys, subprocess\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, words, **options):\n"
        "        if words[0] == sys.executable:\n"
        f"            words = [sys.executable, '-S', '-E', '-c', {wrapper!r}, *words]\n"
        "        super().__init__(words, **options)\n"
        "subprocess.Popen = Popen\n"
        "from h5sweep.cli import main\n"
        "main()\n"
    )
    return [sys.executable, "-c", launcher, *COMMANDS[command]]


def _list_points(prepared: Path, folder: Path, trace: object, command: str) -> list[CrashPoint]:
    """Every call that touches our folder, in a run that nobody kills."""
    shutil.copytree(prepared, folder)
    log = folder / "strace.log"
    done = _traced(trace(str(log), [], command), folder, "list")  # type: ignore[operator]
    assert done.returncode == 0, done.stderr
    return points_in(log, "out.h5", "<socket:")
