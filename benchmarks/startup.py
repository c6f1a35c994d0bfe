"""What commands cost that have little to do: CPU ms, beside a bare Python.

    python benchmarks/startup.py

User and system time of the process and its children, up to the first line that it prints and in
all; medians of 9 runs that take turns. The run folder that `status` and `missing` read is of 3,000
tasks, all done. `merge` and `check` have three files, of four groups or four rows each.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "startup.json"
REPETITIONS = 9
TASKS = 3_000
H5SWEEP = [sys.executable, "-m", "h5sweep"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "out.h5")
        _make_run_folder(output)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "h5sweep --help": [*H5SWEEP, "--help"],
            "h5sweep status": [*H5SWEEP, "status", str(output)],
            "h5sweep missing": [*H5SWEEP, "missing", str(output)],
        }
        for shape in ("groups", "columns"):
            _write_files(Path(folder, shape))
            files = str(Path(folder, shape))
            commands[f"h5sweep check ({shape})"] = [*H5SWEEP, "check", files]
            merge = ["merge", files, "-o", str(Path(folder, "merged.h5"))]
            commands[f"h5sweep merge ({shape})"] = [*H5SWEEP, *merge]
        times_ms: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(REPETITIONS):
            for name, words in commands.items():
                pair = []
                for to_first_line in (True, False):
                    Path(folder, "merged.h5").unlink(missing_ok=True)
                    pair.append(_cpu_ms(words, to_first_line=to_first_line))
                times_ms[name].append((pair[0], pair[1]))
    medians = {
        name: [*map(statistics.median, zip(*t, strict=True))] for name, t in times_ms.items()
    }
    for name, (first_ms, all_ms) in medians.items():
        print(f"| `{name}` | {first_ms:.0f} | {all_ms:.0f} |")
    found = {name: [round(one, 1) for one in pair] for name, pair in medians.items()}
    RESULTS.parent.mkdir(exist_ok=True)
    facts = {"cpu_ms_to_first_line_and_in_all": found, "tasks": TASKS}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


def _write_files(folder: Path) -> None:
    folder.mkdir()
    for worker in range(3):
        with h5py.File(folder / f"worker_{worker}.h5", "w") as file:
            seeds = np.arange(4 * worker, 4 * worker + 4)
            if folder.name == "columns":
                file["seed"], file["aep"] = seeds, seeds * 1.5
                continue
            for seed in seeds:
                group = file.create_group(f"farm1_s{seed}")
                group["aep"], group["layout"] = seed * 1.5, np.full((5, 2), seed)


def _make_run_folder(output: Path) -> None:
    environment = {**os.environ, "H5SWEEP_BENCH_TASKS": str(TASKS), "PYTHONPATH": str(HERE)}
    words = [*H5SWEEP, "run", str(HERE / "noop_sweep.py"), "-o", str(output), "--no-merge"]
    subprocess.run(words, env=environment, check=True, stderr=subprocess.DEVNULL)


def _cpu_ms(words: list[str], *, to_first_line: bool) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        if process.stdout.readline() and to_first_line:
            process.kill()
        process.stdout.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


if __name__ == "__main__":
    main()
