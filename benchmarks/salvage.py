"""How much comes back: from a killed writer's file after each write, and from damaged closed files.

    python benchmarks/salvage.py [--tasks 60] [--step 1] [--samples 40]

Beside h5sweep: h5py as it is; h5py on a copy that `h5clear -s --increment=0` has mended; pyfive.
Each of these lists the file in a process of its own. Prints the tables of docs/salvage.md and
writes benchmarks/results/salvage.json. Needs strace, h5clear (hdf5-tools) and pyfive.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "samples"))

from recorded_writes import (  # noqa: E402 (it lies beside the tests)
    KEY,
    PATTERN,
    STYLES,
    key_of,
    record_writes,
    states_of,
    write_tasks,
)
from salvage_checks import (  # noqa: E402 (as above)
    Comparison,
    Results,
    are_equal,
    salvage_content,
    true_plan,
    true_results,
)

RESULTS = Path(__file__).parent / "results" / "salvage.json"
NAMES = KEY.split(",")
Lister = Callable[[Any], Results]
SPEED_MB = 512
ROWS = 100_000
GROUPS = 20_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--samples", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "tasks": given.tasks,
            "step": given.step,
            "samples": given.samples,
            "states": measure_states(Path(folder), given.tasks, given.step),
            "damaged": measure_damaged(Path(folder), given.samples),
            "speed": measure_speed(Path(folder)),
            "rows": measure_rows(Path(folder)),
            "groups": measure_groups(Path(folder)),
        }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def read_h5py(path: Path, listed: Lister) -> Results:
    with h5py.File(path, "r") as file:
        return listed(file)


def read_mended(path: Path, listed: Lister) -> Results:
    mended = path.with_suffix(".mended")
    shutil.copyfile(path, mended)
    subprocess.run(["h5clear", "-s", "--increment=0", mended], capture_output=True, timeout=20)
    return read_h5py(mended, listed)


def read_pyfive(path: Path, listed: Lister) -> Results:
    import pyfive

    with pyfive.File(str(path)) as file:
        return listed(file)


def list_tasks(file: Any) -> Results:
    """All tasks that listing the file leads to; what cannot be read is left out."""
    found: Results = {}
    if "results" in list(file):
        for row in file["results"][...]:
            key = tuple(int(row[name]) for name in NAMES)
            found[key] = {name: row[name] for name in ("layout", "aep")}
        return found
    if "seed" in list(file):
        rows = min(file[name].shape[0] for name in (*NAMES, "layout", "aep"))
        columns = {name: file[name][:rows] for name in (*NAMES, "layout", "aep")}
        for row in range(rows):
            key = tuple(int(columns[name][row]) for name in NAMES)
            found[key] = {name: columns[name][row] for name in ("layout", "aep")}
        return found
    for name in list(file):
        with contextlib.suppress(Exception):
            group = file[name]
            farm, kind, seed = name.removeprefix("farm").replace("_t", "_s").split("_s")
            key = (int(farm), int(kind), int(seed))
            found[key] = {"layout": group["layout"][...], "aep": group["aep"][()]}
    return found


TOOLS: dict[str, Callable[[Path, Lister], Results]] = {
    "h5py": read_h5py,
    "h5clear": read_mended,
    "pyfive": read_pyfive,
}


def apart(
    tool: str, path: Path, truth: Results, listed: Lister, same: Comparison
) -> tuple[set[Any], int]:
    """The keys of true results, and how many were wrong, from a process that may die of it."""
    source, target = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        said = [[], 0]
        with contextlib.suppress(BaseException), contextlib.redirect_stderr(io.StringIO()):
            found = TOOLS[tool](path, listed)
            right = [k for k, r in found.items() if k in truth and same(r, truth[k])]
            said = [right, len(found) - len(right)]
        os.write(target, json.dumps(said).encode())
        os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    right, wrong = json.loads(text) if text else ([], 0)
    return {tuple(key) for key in right}, wrong


def compare(
    content: bytes,
    folder: Path,
    truth: Results,
    completed: set[Any],
    sums: Any,
    *,
    listed: Lister = list_tasks,
    same: Comparison = are_equal,
    **options: Any,
) -> None:
    """Let every tool read one state of a file, and count."""
    found = salvage_content(content, folder, truth, same, **options)
    answers = {"h5sweep": (found.right, found.wrong)}
    for name in TOOLS:
        answers[name] = apart(name, folder / "worker.h5", truth, listed, same)
    for name, (right, wrong) in answers.items():
        sums[name][0] += len(right & completed)
        sums[name][1] += wrong
    sums["all"][0] += len(completed)


def new_sums() -> dict[str, list[int]]:
    return {name: [0, 0] for name in ("h5sweep", *TOOLS, "all")}


def shares(sums: dict[str, list[int]]) -> dict[str, Any]:
    total = max(sums["all"][0], 1)
    return {
        name: {"percent": 100 * right / total, "wrong": wrong}
        for name, (right, wrong) in sums.items()
        if name != "all"
    } | {"flushed": sums["all"][0]}


def measure_states(folder: Path, tasks: int, step: int) -> dict[str, Any]:
    """Every `step`th state of each style; every one if there are few writes a task.

    A step that is a multiple of these would meet the same write of each task.
    """
    print("| writer | states | flushed tasks | h5py | h5clear | pyfive | **h5sweep** | wrong |")
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    found = {}
    truth = true_results(tasks)
    for style in STYLES:
        writes = record_writes(folder / "recorded.h5", style, tasks)
        sums, states = new_sums(), 0
        for number, (completed, content) in enumerate(states_of(writes)):
            if number % (step if len(writes) > 5 * tasks else 1):
                continue
            states += 1
            keys = {tuple(key_of(task).values()) for task in range(completed)}
            compare(content, folder, truth, keys, sums, **options_of(style, tasks))
        found[style] = shares(sums) | {"states": states}
        print_row(f"{style} | {states:,} | {sums['all'][0]:,}", found[style])
    return found


def options_of(style: str, tasks: int) -> dict[str, Any]:
    key = {"key": PATTERN} if style.startswith("names") else {}
    return {"expected": true_plan(tasks), **key}


def print_row(title: str, found: dict[str, Any], wrong_of: str = "h5py") -> None:
    cells = [f"{found[name]['percent']:.1f}" for name in ("h5py", "h5clear", "pyfive", "h5sweep")]
    wrong = " / ".join(str(found[name]["wrong"]) for name in (wrong_of, "h5sweep"))
    print(f"| {title} | {' | '.join(cells[:-1])} | **{cells[-1]}** | {wrong} |", flush=True)


def cut(content: bytearray, number: int) -> None:
    del content[random.Random(number).randrange(200, len(content)) :]


def zero_page(content: bytearray, number: int) -> None:
    page = slice(4096 * number, min(4096 * (number + 1), len(content)))  # the last is shorter
    content[page] = bytes(page.stop - page.start)


def zero_superblock(content: bytearray, number: int) -> None:
    size = 96 if content[8] == 0 else 48
    content[:size] = bytes(size)


def zero_first_page(content: bytearray, number: int) -> None:
    content[:4096] = bytes(4096)


DAMAGES = {
    "cut anywhere": cut,
    "one page zeroed, each in turn": zero_page,
    "superblock zeroed": zero_superblock,
    "first 4 KiB zeroed": zero_first_page,
}


def measure_damaged(folder: Path, samples: int) -> dict[str, Any]:
    """Closed files of 100 tasks, damaged afterwards."""
    print("\n| file | damage | h5py | h5clear | pyfive | **h5sweep** | wrong |")
    print("|---|---|---:|---:|---:|---:|---|")
    truth, found = true_results(100), {}
    for style in STYLES:
        with contextlib.redirect_stderr(io.StringIO()):
            write_tasks(folder / "closed.h5", style, 100)
        healthy = (folder / "closed.h5").read_bytes()
        for name, damage in DAMAGES.items():
            sums = new_sums()
            counts = {cut: samples, zero_page: -(-len(healthy) // 4096)}
            for number in range(counts.get(damage, 1)):
                content = bytearray(healthy)
                damage(content, number)
                compare(bytes(content), folder, truth, set(truth), sums, **options_of(style, 100))
            found[f"{style}, {name}"] = shares(sums)
            print_row(f"{style} | {name}", found[f"{style}, {name}"])
    return found


def measure_speed(folder: Path) -> dict[str, float]:
    """One file of large arrays without its superblock: megabytes a second, and most memory."""
    path = folder / "large.h5"
    chance = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for task in range(SPEED_MB // 8):
            group = file.create_group(f"s{task}")
            group.attrs["seed"] = task
            group["field"] = chance.random(1 << 20)
    with path.open("r+b") as raw:
        raw.write(bytes(96))
    program = (
        "import resource, sys, time; from h5sweep.hdf5.damage.carve import carve;"
        "from h5sweep.hdf5.source import OpenSource; from pathlib import Path;"
        "from h5sweep import salvage_files\n"
        "with OpenSource(Path(sys.argv[1])) as source:\n"
        "    begun = time.process_time(); carve(source); scan = time.process_time() - begun\n"
        "report = salvage_files(sys.argv[1], to=sys.argv[2], key='seed', use_library=False)\n"
        "print(scan, report.recovered, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    words = [sys.executable, "-c", program, str(path), str(folder / "large")]
    begun = time.monotonic()
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    size = path.stat().st_size / 1e6
    found = {
        "scan_mb_per_cpu_s": size / float(said[0]),
        "whole_s": time.monotonic() - begun,
        "results": int(said[1]),
        "peak_mb": int(said[2]) / 1024,
        "file_mb": size,
    }
    print(f"\n{json.dumps(found)}")
    return found


def measure_rows(folder: Path) -> dict[str, float]:
    """Rows of one compound, packed to next to nothing: CPU and memory a row, both readers."""
    cpu_s, peak_kb = added_cost(folder, write_rows, 1000, ROWS)
    found = {"rows": ROWS, "us_per_row": 1e6 * cpu_s / ROWS, "kb_per_row": peak_kb / ROWS}
    print(json.dumps(found))
    return found


def measure_groups(folder: Path) -> dict[str, float]:
    """Groups with a layout, a yield and three attributes: CPU and memory a group, both readers."""
    cpu_s, peak_kb = added_cost(folder, write_groups, 1000, GROUPS)
    found = {
        "groups": GROUPS,
        "us_per_group": 1e6 * cpu_s / GROUPS,
        "kb_per_group": peak_kb / GROUPS,
    }
    print(json.dumps(found))
    return found


def added_cost(
    folder: Path, write: Callable[[Path, int], None], few: int, many: int
) -> tuple[float, float]:
    """How much more CPU and memory a salvage of many tasks takes than one of few."""
    cost = []
    for tasks in (few, many):
        path = folder / f"{write.__name__}_{tasks}.h5"
        write(path, tasks)
        cost.append(salvage_cost(path))
    return cost[1][0] - cost[0][0], cost[1][1] - cost[0][1]


def write_groups(path: Path, groups: int) -> None:
    chance = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for task in range(groups):
            group = file.create_group(f"farm{task % 9}_s{task}")
            group.attrs.update({"farm_id": task % 9, "turbine_type": task % 7, "seed": task})
            group["layout"], group["aep"] = chance.random((50, 2)), chance.random()


def write_rows(path: Path, rows: int) -> None:
    data = np.zeros(rows, [("farm_id", "i4"), ("seed", "i8"), ("aep", "f8"), ("x", "f8", (2,))])
    data["seed"], data["aep"], data["x"] = np.arange(rows), 1.5, 2.0
    settings = {"chunks": (1000,), "maxshape": (None,), "compression": "gzip", "shuffle": True}
    with h5py.File(path, "w") as file:
        file.create_dataset("results", data=data, **settings)


def salvage_cost(path: Path) -> tuple[float, float]:
    """The CPU time, with that of the library's child, and the most memory of one salvage."""
    program = (
        "import resource as r, sys; from h5sweep import salvage_files\n"
        "salvage_files(sys.argv[1], to=sys.argv[2], key='farm_id,seed', timeout_s=3600)\n"
        "used = [r.getrusage(who) for who in (r.RUSAGE_SELF, r.RUSAGE_CHILDREN)]\n"
        "peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]\n"
        "print(sum(u.ru_utime + u.ru_stime for u in used), peak)"  # ru_maxrss is the parent's too
    )
    words = [sys.executable, "-c", program, str(path), str(path.with_suffix(""))]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return float(said[0]), float(said[1])


if __name__ == "__main__":
    main()
