"""A million tasks of 1 kB: how long a merge takes beside `cat` of the same bytes, and in how much
memory; and how long `h5sweep status` takes.

    python benchmarks/scale.py [--tasks 1000000] [--repetitions 3] [--folder /tmp]

Prints a table and writes benchmarks/results/scale.json. Repetitions of the three are interleaved,
so that other load on the machine meets all alike; medians are given, and CPU time beside the clock.
Before each, as much memory is used and given back as any of them needs: the host of a virtual
machine may take seconds to find a gigabyte, which would be blamed on whoever comes first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from h5sweep.base.plan import key_json, plan_product
from h5sweep.base.values import ResultEncoder, result_header
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import RecordKind, RecordWriter

FILES = 4
BATCH = 25
STUDY = """
import numpy as np
import h5sweep

LAYOUTS = np.random.default_rng(0).random((4096, 50, 2))


@h5sweep.sweep(
    farm_id=range({farms}),
    farm_type=["onshore", "offshore"],
    seed=range({seeds}),
    dims={{"layout": ("turbine", "xy")}},
)
def optimise(farm_id, farm_type, seed):
    task = 1000 * farm_id + seed
    return {{"layout": LAYOUTS[task % 4096], "aep": task / 7, "steps": task % 97, "ok": True}}
"""
USE_MEMORY = "import sys, numpy; numpy.zeros(int(sys.argv[1]), 'u1')[::4096] = 1"
RESULTS = Path(__file__).parent / "results" / "scale.json"
MERGE = (
    "import sys; from h5sweep.runfolder.layout import RunFolder; "
    "from h5sweep.merge.from_records.build import merge_run; "
    "merge_run(RunFolder.of(sys.argv[1]))"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    found = {}
    for name, generate in WORKLOADS.items():
        work = Path(tempfile.mkdtemp(prefix="scale-", dir=arguments.folder))
        try:
            folder = RunFolder(work / "layouts.h5")
            made_s = generate(folder, arguments.tasks)
            table = measure(folder, arguments.repetitions)
        finally:
            shutil.rmtree(work)
        print_table(f"{name}: {arguments.tasks:,} tasks, made in {made_s:.1f} s", table)
        found[name] = {"made_s": made_s, "results": table}
    save(arguments.tasks, found)


def generate_by_run(folder: RunFolder, tasks: int) -> float:
    """Run a real sweep of results of 1 kB, 50 turbine positions and three scalars, on 2 workers."""
    study = folder.output.with_name("study.py")
    study.write_text(STUDY.format(farms=max(tasks // 1000, 1), seeds=min(tasks, 1000) // 2))
    words = ["run", str(study), "-o", str(folder.output), "--no-merge", "-j", "2"]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "h5sweep", *words], check=True)
    return time.perf_counter() - start


def generate_in_order(folder: RunFolder, tasks: int) -> float:
    """Record the same results from one process, by turns into four files."""
    plan = plan_product(
        {
            "farm_id": range(max(tasks // 1000, 1)),
            "farm_type": ["onshore", "offshore"],
            "seed": range(min(tasks, 1000) // 2),
        }
    )
    folder.create()
    folder.save_plan(plan)
    folder.save_sweep({"name": "optimise", "dims": {"layout": ["turbine", "xy"]}})
    writers = [
        RecordWriter(folder.new_record_path("worker"), about={"plan": plan.id})
        for _ in range(FILES)
    ]
    encoder = ResultEncoder(plan.names)
    layouts = np.random.default_rng(0).random((4096, 50, 2))
    start = time.perf_counter()
    for task in range(len(plan)):
        result = {"layout": layouts[task % 4096], "aep": task / 7, "steps": task % 97, "ok": True}
        schema, data = encoder.encode(result)
        header = result_header(schema, key_json(plan.key(task)).encode())
        writer = writers[task // BATCH % FILES]
        writer.append(RecordKind.DONE, task, header, data, finished_at=time.time(), duration_s=0.5)
    for writer in writers:
        writer.close()
    return time.perf_counter() - start


def measure(folder: RunFolder, repetitions: int) -> dict[str, dict[str, float]]:
    """Run the three by turns; return the median of each."""
    copy = folder.output.with_name("copy")
    records = " ".join(str(path) for path in folder.record_paths())
    contenders: dict[str, tuple[list[str], Callable[[], None]]] = {
        "cat + fsync": (["sh", "-c", f"cat {records} > {copy}; sync {copy}"], nothing),
        "merge": ([sys.executable, "-c", MERGE, str(folder.output)], lambda: forget(folder)),
        "status": ([sys.executable, "-m", "h5sweep", "status", str(folder.output)], nothing),
    }
    size_bytes = sum(path.stat().st_size for path in folder.record_paths())
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, (command, prepare) in contenders.items():
            prepare()
            copy.unlink(missing_ok=True)
            subprocess.run([sys.executable, "-c", USE_MEMORY, str(2 * size_bytes)], check=True)
            runs[name].append(timed(command))
    return {name: medians(found) | {"bytes": size_bytes} for name, found in runs.items()}


def nothing() -> None:
    """What has to be done before a contender that leaves nothing behind."""


def forget(folder: RunFolder) -> None:
    """Let the next merge be the first."""
    folder.output.unlink(missing_ok=True)
    folder.merged_path.unlink(missing_ok=True)


def timed(command: list[str]) -> dict[str, float]:
    """Run a command to its end; wall time, CPU time, peak memory, exit code."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        "exit_code": process.returncode,
    }


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def print_table(title: str, table: dict[str, dict[str, float]]) -> None:
    floor = table["cat + fsync"]
    print(f"{title}, {floor['bytes'] / 1e6:,.0f} MB of records")
    print(f"{'':12} {'wall s':>8} {'CPU s':>8} {'x cat':>7} {'MB/s':>7} {'peak MB':>8} {'exit':>5}")
    for name, row in table.items():
        ratio, rate = row["wall_s"] / floor["wall_s"], row["bytes"] / 1e6 / row["wall_s"]
        print(
            f"{name:12} {row['wall_s']:8.2f} {row['cpu_s']:8.2f} {ratio:7.1f} {rate:7.0f} "
            f"{row['peak_mb']:8.0f} {row['exit_code']:5.0f}"
        )


def save(tasks: int, found: dict[str, dict[str, object]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    about = {
        "tasks": tasks,
        "load": os.getloadavg(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    RESULTS.write_text(json.dumps({"about": about, "workloads": found}, indent=1) + "\n")


WORKLOADS = {"as a run writes them": generate_by_run, "written in order": generate_in_order}

if __name__ == "__main__":
    main()
