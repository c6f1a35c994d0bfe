"""What a check costs beside reading the bytes, and beside a loop with h5py.

    python benchmarks/check.py            3,000 one-task files that differ in their data,
                                          16 files of 128 MB, 1,000 that differ in a name
    python benchmarks/check.py --memory   100,000 files: the most memory that a check takes

Contenders take turns, in one process that has imported everything; the start of the children that
ask the HDF5 library counts. Files are in the page cache. Median of 5.
"""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from h5sweep.check.check import check_files

RESULTS = Path(__file__).resolve().parent / "results" / "check.json"
REPETITIONS = 5
SMALL, NAMED, LARGE, LARGE_BYTES, MANY = 3_000, 1_000, 16, 128_000_000, 100_000
STEP_BYTES = 1 << 20


def main() -> None:
    if "--memory" in sys.argv:
        _save("memory", _measure_memory())
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small"), Path(folder, "large")
        _make_small(small)
        _make_large(large)
        _save("small", _measure(_contenders(small)))
        _save("large", _measure(_contenders(large)))
        named = Path(folder, "named")
        _make_named(named)
        _save("named", _measure(_contenders(named)))


def _make_small(folder: Path) -> None:
    folder.mkdir()
    values = np.random.default_rng(0)
    for task in range(SMALL):
        with h5py.File(folder / f"task_{task:04}.h5", "w") as file:
            file["farm_id"], file["farm_type"], file["seed"] = task // 300, task % 6, task
            file["layout"], file["aep"] = values.random((50, 2)), values.random()


def _make_named(folder: Path) -> None:
    """Files that differ in a name, so that each has a structure of its own."""
    folder.mkdir()
    for task in range(NAMED):
        with h5py.File(folder / f"worker_{task:04}.h5", "w") as file:
            group = file.create_group(f"farm{task // 100}_t{task % 6}_s{task}")
            group["layout"], group["aep"] = np.full((50, 2), float(task)), 1.0 * task


def _make_large(folder: Path) -> None:
    folder.mkdir()
    rows = LARGE_BYTES // 800
    values = np.random.default_rng(0).random((rows, 50, 2))
    for number in range(LARGE):
        with h5py.File(folder / f"worker_{number}.h5", "w") as file:
            file["layout"] = values
            file["seed"] = np.arange(rows) + number


def _contenders(folder: Path) -> dict[str, Callable[[], object]]:
    paths = [str(path) for path in sorted(folder.iterdir())]
    return {
        "first 4 KiB of each": lambda: [_read(path, 4096) for path in paths],
        "all bytes": lambda: [_read(path, None) for path in paths],
        "h5py.is_hdf5": lambda: [h5py.is_hdf5(path) for path in paths],
        "h5py: open, list shapes": lambda: [_shapes(path) for path in paths],
        "h5py: open, visititems": lambda: [_visit(path) for path in paths],
        "check --quick": lambda: _check(folder, "quick", len(paths)),
        "check": lambda: _check(folder, "structure", len(paths)),
        "check --deep": lambda: _check(folder, "deep", len(paths)),
    }


def _read(path: str, size: int | None) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    buffer = bytearray(STEP_BYTES if size is None else size)
    while os.readv(descriptor, [buffer]) and size is None:
        pass
    os.close(descriptor)


def _shapes(path: str) -> None:
    with h5py.File(path, "r") as file:
        groups = [file]
        while groups:
            group = groups.pop()
            items = [group[name] for name in group]
            groups += [item for item in items if isinstance(item, h5py.Group)]
            [item.shape for item in items if isinstance(item, h5py.Dataset)]


def _visit(path: str) -> None:
    with h5py.File(path, "r") as file:
        file.visititems(lambda _, item: getattr(item, "shape", None))


def _check(folder: Path, depth: str, files: int) -> None:
    report = check_files(folder, depth=depth)
    assert report.exit_code == 0 and report.totals["sound"] == files


def _measure(contenders: dict[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(REPETITIONS):
        for name, run in contenders.items():
            begun, cpu = time.perf_counter(), _cpu_s()
            run()
            times[name].append((time.perf_counter() - begun, _cpu_s() - cpu))
    found = {}
    for name, pairs in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        found[name] = {"wall_s": round(wall, 4), "cpu_s": round(cpu, 4)}
        print(f"| {name} | {wall:.3f} | {cpu:.3f} |")
    return found


def _cpu_s() -> float:
    """User and system time of this process and of the children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _measure_memory() -> dict[str, int]:
    """The peak of a process that checks many files and keeps the report, in MB."""
    program = (
        "import re, sys; from pathlib import Path; from h5sweep import check_files;"
        "report = check_files(sys.argv[1], depth=sys.argv[2]);"
        "assert report.totals['sound'] == int(sys.argv[3]), report.totals;"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        _make_many(Path(folder))
        for depth in ("quick", "structure"):
            words = [sys.executable, "-c", program, folder, depth, str(MANY)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found[depth] = int(re.sub(r"\D", "", done.stdout)) // 1000
            print(f"| {MANY:,} files, {depth} | {found[depth]} MB |")
    return found


def _make_many(folder: Path) -> None:
    """One-task files of ten structures, each with values of its own."""
    kinds = []
    for kind in range(10):
        path = folder / "one.h5"
        with h5py.File(path, "w") as file:
            file["seed"] = -1
            file["layout"] = np.ones((50 + kind, 2))
            place = file["seed"].id.get_offset()
        kinds.append((path.read_bytes(), place))
    path.unlink()
    for task in range(MANY):
        content, place = kinds[task % 10]
        value = task.to_bytes(8, "little")
        sub = folder / f"{task // 1000:03}"
        sub.mkdir(exist_ok=True)
        (sub / f"task_{task:06}.h5").write_bytes(content[:place] + value + content[place + 8 :])


def _save(name: str, value: object) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, name: value}, indent=1) + "\n")


if __name__ == "__main__":
    main()
