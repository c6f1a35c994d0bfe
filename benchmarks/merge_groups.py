"""W4: 100 files of 300 groups, a group a task, beside `cat` and beside copies by h5py.

    python benchmarks/merge_groups.py [--folder /tmp/merge-bench] [--repetitions 5] [--no-peers]

`make_group_files` makes the workload; the functions below it merge it, each with an fsync and,
those of h5sweep, with everything read back and compared. Contenders take turns, each in a process
of its own right after a run of the floor, `cat FILES > out` with an fsync. A ratio is the median of
the ratios to those floors; CPU is user and system time of all processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np

from h5sweep import durable
from h5sweep.folder import RunFolder
from h5sweep.foreign import record_tasks
from h5sweep.inputs import Survey
from h5sweep.join_groups import JoinedGroups
from h5sweep.merge import merge_run

FILES, GROUPS = 100, 300
KEY = "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"


def make_group_files(folder: Path) -> None:
    """W4: 100 files of 300 groups with a layout, a yield and three attributes each."""
    random = np.random.default_rng(4)
    for file_number in range(FILES):
        with h5py.File(folder / f"worker_{file_number:03}.h5", "w") as file:
            for number in range(file_number * GROUPS, (file_number + 1) * GROUPS):
                group = file.create_group(f"farm{number // 3000}_t{number % 3}_s{number}")
                group.attrs["farm_id"] = number // 3000
                group.attrs["farm_type"] = np.bytes_("offshore")
                group.attrs["seed"] = number
                group["layout"] = random.random((50, 2)) * 5000
                group["aep"] = random.random() * 1e9


def merge_into_columns(paths: list[Path], output: Path) -> None:
    """Look at all, record every task, merge: `h5sweep merge --key`, in this process."""
    survey = Survey()
    folder = RunFolder.of(output)
    record_tasks(survey, survey.look_at_all([paths[0].parent]), folder, key=KEY)
    merge_run(folder)


def merge_into_groups(paths: list[Path], output: Path) -> None:
    """Look at all, write, sync, read back and compare: everything but the renaming."""
    survey = Survey()
    joined = JoinedGroups(survey, survey.look_at_all([paths[0].parent]))
    joined.write(output)
    with ThreadPoolExecutor(1) as executor:
        syncing = executor.submit(durable.sync_file, output)
        joined.verify(output)
        syncing.result()


def copy_groups(paths: list[Path], output: Path) -> None:
    """out.copy(file[name], name) for every group, and nothing verified."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                for name in file:
                    out.copy(file[name], name)
    durable.sync_file(output)


def copy_objects(paths: list[Path], output: Path) -> None:
    """The same by h5py's low-level interface."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                for name in file:
                    h5py.h5o.copy(file.id, name.encode(), out.id, name.encode())
    durable.sync_file(output)


def cat(paths: list[Path], output: Path) -> None:
    """The floor."""
    with output.open("wb") as out:
        subprocess.run(["cat", *map(str, paths)], stdout=out, check=True)
    durable.sync_file(output)


OURS: dict[str, Callable[[list[Path], Path], None]] = {
    "h5sweep, into columns": merge_into_columns,
    "h5sweep, groups stay groups": merge_into_groups,
}
PEERS: dict[str, Callable[[list[Path], Path], None]] = {
    "h5py, out.copy of each group": copy_groups,
    "h5py, h5o.copy of each group": copy_objects,
}


def measure(
    merge: Callable[[list[Path], Path], None], paths: list[Path], folder: Path
) -> tuple[float, float, float]:
    """Wall and CPU seconds in a process of its own, and the most memory it took in MB."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        start, before = time.perf_counter(), _cpu_s()
        merge(paths, folder / "out.h5")
        found = time.perf_counter() - start, _cpu_s() - before
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        os.write(writing, " ".join(map(str, (*found, memory))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    wall, cpu, memory = map(float, os.read(reading, 1000).split())
    os.close(reading)
    return wall, cpu, memory


def _cpu_s() -> float:
    uses = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(use)[:2]) for use in uses)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/merge-bench"))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    source = options.folder / "W4"
    if not source.exists():
        source.mkdir(parents=True)
        make_group_files(source)
    paths = sorted(source.glob("*.h5"))
    contenders = OURS if options.no_peers else {**OURS, **PEERS}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    for _ in range(options.repetitions):
        for name, merge in contenders.items():
            floor = measure(cat, paths, options.folder / "out")
            mine = measure(merge, paths, options.folder / "out")
            ratios = mine[0] / floor[0], mine[1] / floor[1]
            found[name].append((*mine, *floor[:2], *ratios))
    print(f"{'':30} wall s   CPU s   MB   cat wall  cat CPU   x cat wall  x cat CPU")
    for name, rows in found.items():
        wall, cpu, memory, floor_wall, floor_cpu, by_wall, by_cpu = map(
            statistics.median, zip(*rows, strict=True)
        )
        print(
            f"{name:30} {wall:6.2f} {cpu:7.2f} {memory:5.0f} {floor_wall:9.3f} {floor_cpu:8.3f} "
            f"{by_wall:10.1f} {by_cpu:10.1f}"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
