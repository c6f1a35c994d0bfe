"""What a task costs beyond its own work: h5sweep and the pools that people use, in one run.

    python benchmarks/overhead.py                 all, 20,000 tasks, 2 workers
    python benchmarks/overhead.py --only ours     rows whose name contains a word

Measured is the time from the call to the last result: starting the pool counts, importing
libraries in the parent does not. Each measurement is a process of its own, and all contenders take
turns, so that whatever else the machine does falls on all of them. *Kept* means that a result is
in a file and synced: ours in record files, the others' in one HDF5 file a task, written by the
worker to a temporary name, synced and renamed. The others are measured without closing their pool.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "overhead.json"
WORKERS = 2
QUICK_REPETITIONS = 5
SLOW_REPETITIONS = 1
CHUNK_SIZES = (16, 64, 256)
KEEP_CHUNK_SIZE = 64
BASELINE = "Pool, best chunksize"


@dataclass(frozen=True)
class Contender:
    """One way to run the tasks: prepare (imports) and then run, timed."""

    name: str
    prepare: Callable[[int, Path], Callable[[], int]]
    needs: str | None = None
    keeps: bool = False
    slow: bool = False


def main() -> None:
    options = _parse()
    if options.measure:
        print(json.dumps(measure(options.measure, options.tasks, Path(options.folder))))
        return
    contenders = [c for c in CONTENDERS if options.only in c.name]
    times = {c.name: [] for c in contenders}
    phases: list[dict[str, float]] = []
    for repetition in range(options.repetitions):
        for contender in contenders:
            if contender.slow and repetition >= SLOW_REPETITIONS:
                continue
            found = _measure_in_child(contender, options.tasks)
            times[contender.name].append(found)
            phases += [found["phases"]] if "phases" in found else []
            print(f"{repetition + 1} {contender.name}: {found}", file=sys.stderr)
    rows = _rows(contenders, times, options.tasks)
    report = {
        "tasks": options.tasks,
        "workers": WORKERS,
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "rows": rows,
        "ours_phases_s": _median_of_each(phases),
    }
    print(_table(rows))
    print("\nours, in seconds:", json.dumps(report["ours_phases_s"]))
    if not options.only:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def measure(name: str, tasks: int, folder: Path) -> dict[str, Any]:
    """Run one contender once, in this process."""
    contender = next(c for c in CONTENDERS if c.name == name)
    try:
        run = contender.prepare(tasks, folder)
    except ImportError:
        return {"missing": contender.needs}
    began_at, begun = time.time(), time.perf_counter()
    count = run()
    seconds = time.perf_counter() - begun
    assert count == tasks, f"{count} results of {tasks}"
    phases = _phases(folder, began_at, seconds) if name == "h5sweep" else None
    sys.stdout.flush()
    return {"seconds": seconds, **({"phases": phases} if phases else {})}


def prepare_ours(
    tasks: int, folder: Path, *, merge: bool = False, by_value: bool = False
) -> Callable[[], int]:
    """As `h5sweep run` runs the study, or as a script does, which sends the function by value."""
    os.environ["H5SWEEP_BENCH_TASKS"] = str(tasks)
    import h5sweep.runner.run  # noqa: F401  # a library of the parent, like those of the others
    from h5sweep.state.study import load_study

    if by_value:
        from noop_sweep import nothing
    else:
        nothing = load_study(HERE / "noop_sweep.py")

    def run() -> int:
        return nothing.run(folder / "out.h5", workers=WORKERS, merge=merge).tasks_done

    return run


def prepare_pool(tasks: int, folder: Path, *, chunk: int, start: str, keep: bool) -> Any:
    import multiprocessing

    function = _function(folder, keep)

    def run() -> int:
        pool = multiprocessing.get_context(start).Pool(WORKERS)
        return sum(1 for _ in pool.imap_unordered(function, range(tasks), chunksize=chunk))

    return run


def prepare_joblib(tasks: int, folder: Path, *, keep: bool) -> Callable[[], int]:
    from joblib import Parallel, delayed

    function = _function(folder, keep)
    return lambda: len(Parallel(WORKERS)(delayed(function)(n) for n in range(tasks)))


def prepare_pebble(tasks: int, folder: Path, *, chunk: int, keep: bool) -> Callable[[], int]:
    from pebble import ProcessPool

    function = _function(folder, keep)

    def run() -> int:
        pool = ProcessPool(WORKERS)
        return sum(1 for _ in pool.map(function, range(tasks), chunksize=chunk).result())

    return run


def prepare_dask(tasks: int, folder: Path, *, keep: bool) -> Callable[[], int]:
    from dask.distributed import Client, LocalCluster

    function = _function(folder, keep)

    def run() -> int:
        cluster = LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, processes=True
        )
        client = Client(cluster)
        return len(client.gather(client.map(function, range(tasks), pure=False)))

    return run


def _function(folder: Path, keep: bool) -> Callable[[int], Any]:
    import noop

    if not keep:
        return noop.task
    import h5py  # noqa: F401  # a library of the parent: forked workers have it too

    return partial(noop.task_kept_as_hdf5, folder=str(folder))


def _pool(chunk: int, *, start: str = "fork", keep: bool = False) -> Callable[..., Any]:
    return partial(prepare_pool, chunk=chunk, start=start, keep=keep)


CONTENDERS = [
    Contender("h5sweep", partial(prepare_ours, merge=False), keeps=True),
    Contender("h5sweep, from Python", partial(prepare_ours, by_value=True), keeps=True),
    Contender("h5sweep + merge", partial(prepare_ours, merge=True), keeps=True),
    Contender("Pool, chunksize 1", _pool(1)),
    *(Contender(f"Pool, chunksize {chunk}", _pool(chunk)) for chunk in CHUNK_SIZES),
    Contender("Pool (spawn), chunksize 64", _pool(64, start="spawn")),
    Contender("joblib", partial(prepare_joblib, keep=False), "joblib"),
    Contender("pebble, chunksize 1", partial(prepare_pebble, chunk=1, keep=False), "pebble"),
    Contender("pebble, chunksize 64", partial(prepare_pebble, chunk=64, keep=False), "pebble"),
    Contender("dask", partial(prepare_dask, keep=False), "distributed", slow=True),
    Contender("Pool + HDF5 file a task", _pool(KEEP_CHUNK_SIZE, keep=True), keeps=True, slow=True),
    Contender(
        "joblib + HDF5 file a task", partial(prepare_joblib, keep=True), "joblib", True, True
    ),
    Contender(
        "pebble + HDF5 file a task",
        partial(prepare_pebble, chunk=KEEP_CHUNK_SIZE, keep=True),
        "pebble",
        True,
        True,
    ),
    Contender("dask + HDF5 file a task", partial(prepare_dask, keep=True), "dask", True, True),
]


def _measure_in_child(contender: Contender, tasks: int) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="overhead-")
    words = ["--measure", contender.name, "--tasks", str(tasks), "--folder", folder]
    try:
        done = subprocess.run(
            [sys.executable, __file__, *words],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{contender.name} failed:\n{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _phases(folder: Path, began_at: float, seconds: float) -> dict[str, float]:
    """Where our time goes, from the times in the record files."""
    from h5sweep.runfolder.records import RecordKind, read_records

    files = [read_records(path)[0] for path in (folder / "out.h5.run" / "records").iterdir()]
    ready = [records[0].finished_at - began_at for records in files]
    results = [
        r.finished_at - began_at for records in files for r in records if r.kind is RecordKind.DONE
    ]
    return {
        "first worker ready": min(ready),
        "last worker ready": max(ready),
        "first result": min(results),
        "last result": max(results),
        "end": seconds,
    }


def _rows(
    contenders: list[Contender], times: dict[str, list[dict[str, Any]]], tasks: int
) -> list[dict[str, Any]]:
    rows = []
    for contender in contenders:
        seconds = [found["seconds"] for found in times[contender.name] if "seconds" in found]
        rows.append(
            {
                "name": contender.name,
                "keeps": contender.keeps,
                "repetitions": len(seconds),
                "median_s": statistics.median(seconds) if seconds else None,
                "least_s": min(seconds, default=None),
                "most_s": max(seconds, default=None),
                "us_a_task": 1e6 * statistics.median(seconds) / tasks if seconds else None,
            }
        )
    return _with_ratios(rows)


def _with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chunked = {f"Pool, chunksize {chunk}" for chunk in CHUNK_SIZES}
    best = min((r["us_a_task"] for r in rows if r["name"] in chunked), default=None)
    for row in rows:
        measured = row["us_a_task"] is not None and best is not None
        row["times_best_pool"] = row["us_a_task"] / best if measured else None
    return rows


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | results kept | µs a task | median s (least to most) | times the best bare Pool |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        kept = "yes" if row["keeps"] else "no"
        if row["median_s"] is None:
            lines.append(f"| {row['name']} | {kept} | not installed | | |")
            continue
        spread = f"{row['median_s']:.2f} ({row['least_s']:.2f} to {row['most_s']:.2f})"
        if row["repetitions"] == 1:
            spread = f"{row['median_s']:.2f}, once"
        ratio = "" if row["times_best_pool"] is None else f"{row['times_best_pool']:.1f}"
        lines.append(f"| {row['name']} | {kept} | {row['us_a_task']:.0f} | {spread} | {ratio} |")
    return "\n".join(lines)


def _median_of_each(phases: list[dict[str, float]]) -> dict[str, float]:
    names = phases[0] if phases else {}
    return {name: round(statistics.median(p[name] for p in phases), 3) for name in names}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--repetitions", type=int, default=QUICK_REPETITIONS)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
