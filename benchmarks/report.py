"""How long `h5sweep report` takes, in how much memory, and how large its page is.

    python benchmarks/report.py [--tasks 3000 1000000] [--repetitions 3] [--folder /tmp]

Of results of 1 kB, 50 turbine positions and three scalars, from an output and from records without
one. Prints a table and writes benchmarks/results/report.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scale import generate_in_order

from h5sweep.runfolder.layout import RunFolder

RESULTS = Path(__file__).parent / "results" / "report.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[3_000, 1_000_000])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    found = []
    print(f"{'tasks':>10} {'from':>8} {'s':>7} {'CPU s':>7} {'MB':>7} {'page, kB':>9}")
    for tasks in arguments.tasks:
        work = Path(tempfile.mkdtemp(prefix="report-", dir=arguments.folder))
        try:
            folder = RunFolder(work / "layouts.h5")
            generate_in_order(folder, tasks)
            for source in ("records", "output"):
                if source == "output":
                    run("merge", folder.output)
                runs = [measure(folder) for _ in range(arguments.repetitions)]
                row = {"tasks": tasks, "from": source, **medians(runs)}
                found.append(row)
                print(
                    f"{tasks:>10,} {source:>8} {row['clock_s']:>7.2f} {row['cpu_s']:>7.2f} "
                    f"{row['peak_mb']:>7.0f} {row['page_kb']:>9.1f}"
                )
        finally:
            shutil.rmtree(work)
    about = {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}
    RESULTS.write_text(json.dumps({**about, "measured": found}, indent=1) + "\n")


def run(*words: object) -> None:
    command = [sys.executable, "-m", "h5sweep", *map(str, words)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def measure(folder: RunFolder) -> dict[str, float]:
    """One report, in a process of its own."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = (
        "import resource, sys; from h5sweep.report.write_report import write_report; "
        "write_report(sys.argv[1]); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    words = [sys.executable, "-c", code, str(folder.output)]
    peak_kb = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "clock_s": time.perf_counter() - start,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mb": int(peak_kb) / 1e3,
        "page_kb": folder.report_path.stat().st_size / 1e3,
    }


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


if __name__ == "__main__":
    main()
