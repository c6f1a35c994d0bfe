"""What a task costs through Dask and through MPI: ours, and the engine returning the data itself.

    python benchmarks/engines.py [--tasks 20000] [--rounds 3]

Tasks do nothing and return a small array; Dask, which takes far longer, gets a tenth of them. The
two ways take turns in the same engine, which is warm; ours includes the folder, the records, the
syncs and the end, without the merge. Printed are the medians, and ours divided by theirs. Needs
distributed, mpi4py and mpirun.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

import h5sweep

WORKERS = 2
MPIRUN = ("mpirun", "--oversubscribe")


def noop(a: int) -> dict[str, object]:
    return {"x": np.zeros(8)}


def by_engine(executor: Executor, tasks: int) -> None:
    """One call for each task, as people write it; the results are kept in memory."""
    results = [future.result() for future in [executor.submit(noop, a) for a in range(tasks)]]
    assert len(results) == tasks


def by_us(executor: Executor, tasks: int) -> None:
    sweep = h5sweep.sweep(a=range(tasks))(noop)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        report = sweep.run(Path(folder) / "out.h5", executor=executor, merge=False)
    assert report.is_complete


def compare(name: str, executor: Executor, tasks: int, rounds: int) -> None:
    ways: dict[Callable[[Executor, int], None], list[float]] = {by_engine: [], by_us: []}
    for way in ways:
        way(executor, 50)  # warm
    for _ in range(rounds):
        for way, seconds in ways.items():
            begun = time.perf_counter()
            way(executor, tasks)
            seconds.append(time.perf_counter() - begun)
    theirs, ours = (statistics.median(seconds) / tasks * 1e3 for seconds in ways.values())
    print(
        f"{name:5} {theirs:7.3f} ms a task by the engine, {ours:7.3f} ms by us: "
        f"{ours / theirs:.2f} times ({tasks:,} tasks, median of {rounds})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--in-mpi", action="store_true", help="this is a rank")
    options = parser.parse_args()
    if options.in_mpi:
        from mpi4py.futures import MPICommExecutor

        with MPICommExecutor() as executor:
            if executor is not None:
                compare("MPI", executor, options.tasks, options.rounds)
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        compare("Dask", client.get_executor(pure=False), options.tasks // 10, options.rounds)
    rank = [sys.executable, __file__, "--in-mpi", "--tasks", str(options.tasks)]
    subprocess.run(
        [
            "mpirun",
            "--oversubscribe",
            "-n",
            str(WORKERS + 1),
            *rank,
            "--rounds",
            str(options.rounds),
        ],
        env={
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        check=True,
    )


if __name__ == "__main__":
    main()
