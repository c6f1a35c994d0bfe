"""Engines for tests: Dask as separate processes, MPI, and executors that do what engines do."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import pytest

from running import run_folder, until
from terminal import Terminal

T = TypeVar("T")

TASKS, FREE = 24, 8
# When FREE tasks have begun, others wait for a file, so that a test can do something meanwhile.
# They take long enough for a part not to claim all of them before the next one begins.
GATED = f"""
import os, time
import numpy as np
import h5sweep

@h5sweep.sweep(a=range({TASKS}))
def f(a):
    with open(f"ran/{{a}}", "ab", buffering=0) as file:
        file.write(b"x")
    time.sleep(0 if os.path.exists("go") else 0.25)
    while len(os.listdir("ran")) > {FREE} and not os.path.exists("go"):
        open(f"waiting/{{a}}", "ab").close()
        time.sleep(0.02)
    return {{"x": np.arange(1000.0) + a}}
"""
FREELY = GATED.replace(f"> {FREE}", f"> {TASKS}").replace("else 0.25", "else 0.01")

MPIRUN = Path(sys.executable).with_name("mpirun")  # of the package openmpi
MPI = [str(MPIRUN) if MPIRUN.exists() else (shutil.which("mpirun") or ""), "--oversubscribe"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

needs_dask = pytest.mark.skipif(not find_spec("distributed"), reason="dask is not installed")
needs_loky = pytest.mark.skipif(not find_spec("loky"), reason="loky is not installed")
needs_parsl = pytest.mark.skipif(not find_spec("parsl"), reason="parsl is not installed")
needs_mpi = pytest.mark.skipif(
    not find_spec("mpi4py") or not MPI[0], reason="mpi4py or mpirun is not installed"
)


def write_study(terminal: Terminal, text: str = GATED) -> None:
    terminal.write("study.py", text)
    for name in ("ran", "waiting"):
        (terminal.folder / name).mkdir(exist_ok=True)


def let_go(terminal: Terminal) -> None:
    (terminal.folder / "go").touch()


@contextmanager
def in_background(terminal: Terminal, call: Callable[[], T]) -> Iterator[Future[T]]:
    """A call in another thread; its tasks are let go in the end, so that it has one."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread.submit(call)
        finally:
            let_go(terminal)


def times_run(terminal: Terminal) -> dict[int, int]:
    """How often each task was begun."""
    return {int(path.name): path.stat().st_size for path in (terminal.folder / "ran").iterdir()}


def await_gate(terminal: Terminal, waiting: int = 2) -> list[int]:
    """Wait until so many tasks wait; return those that are done, as all others that have begun."""
    waits = terminal.folder / "waiting"
    until(lambda: len(os.listdir(waits)) >= waiting, what=f"{waiting} tasks wait")
    return [task for task in times_run(terminal) if not (waits / str(task)).exists()]


def parts_at_work(terminal: Terminal) -> list[Path]:
    return sorted((run_folder(terminal.folder) / "parts").glob("*.json"))


def require_all_right(terminal: Terminal, tasks: int = TASKS) -> None:
    with h5py.File(terminal.folder / "out.h5") as file:
        found = dict(zip(file["a"][:].tolist(), file["x"][:], strict=True))
    assert sorted(found) == list(range(tasks))
    for task, values in found.items():
        assert np.array_equal(values, np.arange(1000.0) + task)


class DaskCluster:
    """A scheduler and workers, each a process as `dask scheduler` and `dask worker` start it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.file = folder / "scheduler.json"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        self.file.unlink(missing_ok=True)
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", self.file)
        until(self.file.exists, what="the scheduler has written its address")

    def start_worker(self, *before: str) -> subprocess.Popen[bytes]:
        """Without a nanny: what is killed stays away."""
        words = ("worker", "--scheduler-file", self.file, "--no-nanny", "--nthreads", "1")
        worker = self._start(*words, "--local-directory", self.folder, before=before)
        self.workers.append(worker)
        return worker

    def _start(self, *words: object, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*before, sys.executable, "-m", "dask", *map(str, words), "--no-dashboard"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                self.kill(process)


@contextmanager
def dask_cluster(folder: Path, workers: int) -> Iterator[DaskCluster]:
    cluster = DaskCluster(folder)
    try:
        cluster.start_scheduler()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.end()


@contextmanager
def running(terminal: Terminal, command: list[str], **env: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the test's, which does not outlive it."""
    process = subprocess.Popen(
        command,
        cwd=terminal.folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class MeasuringExecutor(ThreadPoolExecutor):
    """Sends calls and outcomes as bytes, as engines do, and notes how many."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self.sizes: list[int] = []
        self.calls: list[bytes] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = pickle.dumps((fn, args, kwargs))
        self.sizes.append(len(call))
        self.calls.append(call)
        return super().submit(self._call, call)

    def _call(self, call: bytes) -> Any:
        answer = pickle.dumps(self.repeat(call))
        self.sizes.append(len(answer))
        return pickle.loads(answer)

    def repeat(self, call: bytes) -> Any:
        """What an engine does that has lost an answer."""
        fn, args, kwargs = pickle.loads(call)
        return fn(*args, **kwargs)


class RepeatingExecutor(MeasuringExecutor):
    """Runs every call twice, at the same time, and returns what came first."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._second = ThreadPoolExecutor(workers)

    def _call(self, call: bytes) -> Any:
        again = self._second.submit(self.repeat, call)
        answer = super()._call(call)
        again.result()
        return answer
