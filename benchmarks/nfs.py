"""What NFS costs a part, and how soon one host sees what another has finished.

    python benchmarks/nfs.py [--mounts vers=3 vers=4.2]

Boots the guest of `tests/nfs` for each of the mounts. It computes a tenth as fast as we do, and
what a task adds on its own disk is less than what two starts differ by. Prints, for each:

    overhead   seconds for a task of no work, in a part of 2,000: on disk, on NFS
    seen       seconds from the end of a task on one host until another reads that it is done
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "samples"))
from nfs_guest import run_in_guest

STUDY = """
import os, time
import h5sweep

@h5sweep.sweep(farm=range({farms}), seed=range({seeds}))
def optimise(farm, seed):
    {body}
    return {{"aep": 1000.0 * farm + seed}}
"""
TRACE = "print(time.time(), file=open('/srv/shared/trace', 'a')); time.sleep(0.25)"
REPETITIONS = 3
SHARED, NODE1, NODE2 = Path("/srv/shared"), Path("/net/node1"), Path("/net/node2")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mounts", nargs="+", default=["vers=3", "vers=4.2"])
    parser.add_argument("--in-guest", action="store_true")
    chosen = parser.parse_args()
    if chosen.in_guest:
        measure()
        return
    for mount in chosen.mounts:
        words = [sys.executable, __file__, "--in-guest"]
        _, said = run_in_guest(words, mount=mount, timeout_s=3600)
        print(mount, *(line for line in said.splitlines() if ": " in line), sep="\n  ")


def measure() -> None:
    """In the guest: print what was measured."""
    on_disk = [per_task_s(Path("/srv/local")) for _ in range(REPETITIONS)]
    on_nfs = [per_task_s(NODE1 / "overhead") for _ in range(REPETITIONS)]
    for name, times in (("on disk", on_disk), ("on NFS", on_nfs)):
        each = ", ".join(f"{1e3 * time:.1f}" for time in times)
        print(f"overhead {name}: {1e3 * statistics.median(times):.1f} ms ({each})")
    delays = seen_after_s()
    print(f"seen: median {statistics.median(delays):.2f} s, most {max(delays):.2f} s")


def per_task_s(folder: Path) -> float:
    """What a task adds to a part: 2,000 of them compared with 20."""
    few, many = (part_s(folder, farms, 20) for farms in (1, 100))
    return (many - few) / 1980


def part_s(folder: Path, farms: int, seeds: int) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begun = time.monotonic()
    start_part(folder, farms, seeds, "pass").wait()
    return time.monotonic() - begun


def start_part(folder: Path, farms: int, seeds: int, body: str) -> subprocess.Popen[bytes]:
    (folder / "study.py").write_text(STUDY.format(farms=farms, seeds=seeds, body=body))
    run = [sys.executable, "-m", "h5sweep", "run", "study.py", "-o", "out.h5", "-j", "1"]
    return subprocess.Popen([*run, "--part", "1/1"], cwd=folder, stderr=subprocess.DEVNULL)


def seen_after_s() -> list[float]:
    """For each task but the first: from when it had ended on node1 until node2 has read that."""
    from h5sweep.runfolder.layout import RunFolder
    from h5sweep.state.state import read_state

    name, trace = "seen", Path("/srv/shared/trace")
    (SHARED / name).mkdir()
    part = start_part(NODE1 / name, 1, 80, TRACE)
    folder, delays, done = RunFolder(NODE2 / name / "out.h5"), [], 0
    wait_for(lambda: folder.load_plan() is not None)
    while part.poll() is None and done < 78:
        plan = folder.load_plan()
        assert plan is not None
        now_done = read_state(folder, plan).tasks_done
        ended = [float(line) for line in trace.read_text().split()][1:] if trace.exists() else []
        delays += [time.time() - at for at in ended[done:now_done]]
        done = max(done, now_done)
    part.wait()
    return delays


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)  # files of another host cannot be awaited


if __name__ == "__main__":
    main()
