"""What the commands that people type while a run goes on cost: CPU ms, beside a bare Python.

    python benchmarks/startup.py

User and system time of the whole process, median of 20 runs that take turns. The run folder that
`status` and `missing` read is of 3,000 tasks, all done.
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

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "startup.json"
REPETITIONS = 20
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
        times_ms: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(REPETITIONS):
            for name, words in commands.items():
                times_ms[name].append(_cpu_ms(words))
    medians = {name: round(statistics.median(times), 1) for name, times in times_ms.items()}
    for name, median_ms in medians.items():
        print(f"| `{name}` | {median_ms:.0f} |")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"cpu_ms": medians, "tasks": TASKS}, indent=1) + "\n")


def _make_run_folder(output: Path) -> None:
    environment = {**os.environ, "H5SWEEP_BENCH_TASKS": str(TASKS), "PYTHONPATH": str(HERE)}
    words = [*H5SWEEP, "run", str(HERE / "noop_sweep.py"), "-o", str(output), "--no-merge"]
    subprocess.run(words, env=environment, check=True, stderr=subprocess.DEVNULL)


def _cpu_ms(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


if __name__ == "__main__":
    main()
