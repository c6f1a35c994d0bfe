"""What the tests of runs share: waiting for something to be so, and reading a run folder."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from h5sweep.runfolder.records import RecordFile, RecordKind, Scan

T = TypeVar("T")

# How long to wait for what takes seconds; a machine that is far slower than others says more.
PATIENCE_S = float(os.environ.get("H5SWEEP_TEST_PATIENCE_S", "30"))


def until(condition: Callable[[], T], *, within_s: float = PATIENCE_S, what: str = "") -> T:
    """Wait until `condition()` is true and return what it said; AssertionError after a while."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)  # polling with a deadline: files and foreign processes cannot be awaited
    raise AssertionError(f"not within {within_s:g} s: {what or condition}")


def run_folder(folder: Path, name: str = "out.h5") -> Path:
    return folder / f"{name}.run"


def record_files(folder: Path, name: str = "out.h5") -> list[Path]:
    return sorted((run_folder(folder, name) / "records").glob("*.records"))


def worker_pids(folder: Path, name: str = "out.h5") -> list[int]:
    """The pids of all workers that ever wrote here, from their files' names."""
    names = [p.name for p in record_files(folder, name)]
    return [int(n.split("_")[1]) for n in names if n.startswith("worker_")]


def kinds(folder: Path, name: str = "out.h5") -> dict[int, list[RecordKind]]:
    """Every outcome that was recorded for each task, in no particular order."""
    found: dict[int, list[RecordKind]] = {}
    for kind, task in records(folder, name):
        if kind > RecordKind.STARTED:
            found.setdefault(task, []).append(kind)
    return found


def has_only_failed(outcomes: list[RecordKind], kind: RecordKind, attempts: int = 1) -> bool:
    """Whether the attempts at a task all ended so, and were made once or twice, so many each time.

    A part that begins after another has failed at a task of its own slices tries it again, as any
    command does that is given again; no third part does.
    """
    return set(outcomes) == {kind} and len(outcomes) in (attempts, 2 * attempts)


def records(folder: Path, name: str = "out.h5") -> Iterator[tuple[RecordKind, int]]:
    for path in record_files(folder, name):
        with RecordFile(path) as file:
            for _, frame in file.scan(Scan()):
                yield RecordKind(frame[3]), frame[2]


def logs(folder: Path, name: str = "out.h5") -> str:
    paths = sorted((run_folder(folder, name) / "logs").iterdir())
    return "\n".join(p.read_text() for p in paths)


def count(folder: Path, name: str) -> int:
    """How many marks tasks have left: each attempt adds a byte to the file `name`."""
    path = folder / name
    return path.stat().st_size if path.exists() else 0


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def ends_within(pid: int, seconds: float) -> bool:
    """Whether the process ends, or has ended, within so many seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


@contextmanager
def tmpfs(path: Path, options: str) -> Iterator[Path]:
    """A small file system of its own at `path`."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
