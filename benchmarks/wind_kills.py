"""The whole reference sweep while its processes are killed at random: the same file in the end.

    python benchmarks/wind_kills.py --folder /tmp/kills                 all 3,000 layouts
    python benchmarks/wind_kills.py --folder /tmp/kills --size survey   60 of them, to try it

Runs the command that a user would, sends SIGKILL to a random worker every few seconds and to the
coordinator now and then, and gives the same command again until nothing is missing. Then compares:
with a second, undisturbed run (--reference), or with tasks at random that are run again here.
Run the same command again if this one is stopped: it goes on, and its log, too.

Prints what happened; of all 3,000 it also writes benchmarks/results/wind_kills.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import h5py

from h5sweep.output.verify import verify_rows
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import KIND, TASK, RecordFile, RecordKind, Scan

STUDY = Path(__file__).resolve().parent.parent / "examples" / "energy_island" / "study.py"
RESULTS = Path(__file__).parent / "results" / "wind_kills.json"
LOCKED = 4  # the exit code while an earlier command is still at it
GOES_ON = {0, 1, LOCKED, -signal.SIGKILL}
NOT_COMPARED = {"duration_s", "finished_at"}
LOOK_EVERY_S = 0.2


@dataclass
class Log:
    """What happened so far; kept in a file, so that it outlives this process."""

    wall_s: float = 0.0
    commands: int = 0
    workers_killed: int = 0
    coordinators_killed: int = 0
    exit_codes: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Log:
        return cls(**json.loads(path.read_text())) if path.exists() else cls()

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)) + "\n")


def main() -> None:
    options = parse_options()
    options.folder.mkdir(parents=True, exist_ok=True)
    output = options.folder / "layouts.h5"
    log_path = options.folder / "kills.json"
    log = Log.load(log_path)
    chance = random.Random(options.seed + log.commands)
    while not log.exit_codes or log.exit_codes[-1] != 0:
        disturb(output, options, chance, log)
        log.save(log_path)
        print(f"{time.strftime('%H:%M:%S')} {asdict(log)}", file=sys.stderr)
        if log.exit_codes[-1] not in GOES_ON:
            raise SystemExit(f"h5sweep ended with {log.exit_codes[-1]}: see what it said above")
        if log.exit_codes[-1] == LOCKED:
            time.sleep(5)
    report = describe(output, log)
    report["compared"] = compare(output, options, chance)
    print(json.dumps(report, indent=1))
    if options.size == "full":
        RESULTS.write_text(json.dumps(about(options) | report, indent=1) + "\n")
    raise SystemExit(1 if report["compared"]["different"] else 0)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, required=True, help="where the outputs go")
    parser.add_argument("--size", default="full", choices=["small", "survey", "full"])
    parser.add_argument("--model", default="auto", choices=["auto", "numpy", "numba"])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--worker-every", type=float, default=10.0, help="mean s between kills")
    parser.add_argument("--coordinator-every", type=float, default=120.0, help="the same")
    parser.add_argument("--sample", type=int, default=100, help="tasks that are run again")
    parser.add_argument("--reference", action="store_true", help="run all of it undisturbed, too")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    return parser.parse_args()


def start(output: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    words = ["run", str(STUDY), "-o", str(output), "--workers", str(options.workers)]
    environment = {**os.environ, "ENERGY_ISLAND": options.size, "WIND_MODEL": options.model}
    return subprocess.Popen([sys.executable, "-m", "h5sweep", *words], env=environment)


def disturb(output: Path, options: argparse.Namespace, chance: random.Random, log: Log) -> None:
    """Give the command once; kill its workers, and perhaps itself, until it ends."""
    begun = time.monotonic()
    end_at = begun + chance.expovariate(1 / options.coordinator_every)
    worker_at = begun + chance.expovariate(1 / options.worker_every)
    log.commands += 1
    coordinator = start(output, options)
    while coordinator.poll() is None:
        time.sleep(LOOK_EVERY_S)
        if time.monotonic() > end_at:
            coordinator.kill()
            log.coordinators_killed += 1
            break
        if time.monotonic() > worker_at:
            worker_at = time.monotonic() + chance.expovariate(1 / options.worker_every)
            log.workers_killed += kill_worker(coordinator.pid, chance)
    log.exit_codes.append(coordinator.wait())
    log.wall_s += time.monotonic() - begun


def kill_worker(coordinator: int, chance: random.Random) -> bool:
    """Kill one of the processes that the coordinator has started; False if there is none."""
    children = Path(f"/proc/{coordinator}/task/{coordinator}/children")
    with suppress(FileNotFoundError, ProcessLookupError):
        pids = [int(pid) for pid in children.read_text().split()]
        if pids:
            os.kill(chance.choice(pids), signal.SIGKILL)
            return True
    return False


def describe(output: Path, log: Log) -> dict[str, Any]:
    """How long it took, what was killed, what was run more than once, what came out."""
    starts, ends = count_records(output)
    with h5py.File(output) as file:
        tasks, cpu_s = len(file["task"]), float(file["duration_s"][:].sum())
    assert verify_rows(output) == []
    return {
        **asdict(log),
        "tasks": tasks,
        "tasks_started_again": sum(count > 1 for count in starts.values()),
        "starts_beyond_the_first": sum(count - 1 for count in starts.values()),
        "tasks_finished_twice": sum(count > 1 for count in ends.values()),
        "sum_of_task_s": cpu_s,
        "output_bytes": output.stat().st_size,
        "record_bytes": sum(p.stat().st_size for p in RunFolder(output).record_paths()),
        "best": best_layouts(output),
    }


def count_records(output: Path) -> tuple[Counter[int], Counter[int]]:
    """How often each task was begun, and how often it has a result, from the record files."""
    starts: Counter[int] = Counter()
    ends: Counter[int] = Counter()
    for path in RunFolder(output).record_paths():
        with RecordFile(path) as file:
            for offset, frame in file.scan(Scan()):
                if frame[KIND] == RecordKind.STARTED:
                    starts.update(file.header(offset, frame)["tasks"])
                elif frame[KIND] == RecordKind.DONE:
                    ends[frame[TASK]] += 1
    return starts, ends


def best_layouts(output: Path) -> list[dict[str, Any]]:
    """For each farm the key and the energies of its best layout."""
    sys.path.append(str(STUDY.parent))
    import results

    found = results.best_by_farm(results.read_results(output))
    names = ("farm_id", "farm_type", "seed", "aep", "aep_360", "aep_start", "capacity_factor")
    return [{name: getattr(result, name) for name in names} for result in found]


def compare(output: Path, options: argparse.Namespace, chance: random.Random) -> dict[str, Any]:
    """Which columns differ from an undisturbed run, bit by bit."""
    if options.reference:
        reference = options.folder / "reference.h5"
        begun = time.monotonic()
        while start(reference, options).wait() != 0:
            print("the undisturbed run did not end well; again", file=sys.stderr)
        return {
            "with": "an undisturbed run of all tasks",
            "undisturbed_wall_s": time.monotonic() - begun,
            "different": different_columns(output, reference),
        }
    return {
        "with": f"{options.sample} tasks at random, run again",
        "different": different_tasks(output, options, chance),
    }


def different_columns(output: Path, reference: Path) -> list[str]:
    with h5py.File(output) as ours, h5py.File(reference) as theirs:
        names = {name for name in theirs if isinstance(theirs[name], h5py.Dataset)}
        different = names ^ {name for name in ours if isinstance(ours[name], h5py.Dataset)}
        for name in names - different - NOT_COMPARED:
            if ours[name].shape != theirs[name].shape or (ours[name][()] != theirs[name][()]).any():
                different.add(name)
    return sorted(different)


def different_tasks(
    output: Path, options: argparse.Namespace, chance: random.Random
) -> list[dict[str, Any]]:
    """The keys of those that give another result when they are run again in this process."""
    os.environ.update(ENERGY_ISLAND=options.size, WIND_MODEL=options.model)
    import results
    import study

    found = results.read_results(output)
    different = []
    for stored in chance.sample(found, min(options.sample, len(found))):
        key = {name: getattr(stored, name) for name in ("farm_id", "farm_type", "seed")}
        again = study.optimise(**key)
        names = ("aep", "aep_360", "aep_start", "capacity_factor", "spacing")
        is_same = all(getattr(stored, name) == again[name] for name in names)
        if not is_same or (stored.layout != again["layout"]).any():
            different.append(key)
    return different


def about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "about": {
            "size": options.size,
            "model": options.model,
            "workers": options.workers,
            "worker_every_s": options.worker_every,
            "coordinator_every_s": options.coordinator_every,
            "machine": f"{platform.system()} {platform.machine()}",
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
    }


if __name__ == "__main__":
    main()
