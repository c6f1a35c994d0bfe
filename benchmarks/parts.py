"""Sweeps in parts: what they cost, and how that grows with their number.

    python benchmarks/parts.py [--most 1000] [--folder /tmp] [--only first,shared]

Prints a table and writes benchmarks/results/parts.json:

    scale      folders as 10 to 1,000 parts of 1,000 tasks leave them (records, claims and files of
               parts are generated; the last part has half of its tasks): how long `status` and
               `missing` take, a look of a part at the folder, a claim, and a merge
    metadata   calls of a part on files of the run folder, counted by strace, for ever more tasks
    first      from the start of a part to its first task, where the plan has a million
    shared     four parts of one worker beside a run of four workers: tasks of 20 ms, medians
    overhead   of a task of no work, through `run --part 1/1` and through `run --no-merge`
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from h5sweep.base.plan import key_json, plan_product
from h5sweep.base.values import ResultEncoder, result_header
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.parts import SLICES, Claims, PartNumber
from h5sweep.runfolder.records import RecordKind, RecordWriter
from h5sweep.runfolder.uniform_records import scan_stretches
from h5sweep.runner.choose_tasks import TaskChoice
from h5sweep.runner.part_tasks import PartTasks
from h5sweep.state.state import read_state

RESULTS = Path(__file__).parent / "results" / "parts.json"
H5SWEEP = [sys.executable, "-m", "h5sweep"]
TASKS_EACH = 1000
STUDY = """
import os, time
import h5sweep

@h5sweep.sweep(farm=range({farms}), seed=range(1000))
def optimise(farm, seed):
    {body}
    return {{"aep": 1000.0 * farm + seed}}
"""
MARK = "open('begun', 'a').close()"
SPIN = "end = time.process_time() + 0.02\n    while time.process_time() < end: pass"
REPETITIONS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="scale,metadata,first,shared,overhead")
    words = parser.parse_args()
    figures: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    only = words.only.split(",")
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        place = Path(folder)
        for number in (10, 100, 1000):
            if "scale" in only and number <= words.most:
                figures[f"scale {number}"] = _note(f"{number} parts", _scale(place, number))
        for name, measure in (
            ("metadata", _metadata),
            ("first", _first_task),
            ("shared", _shared),
            ("overhead", _overhead),
        ):
            if name in only:
                figures[name] = _note(name, measure(place))
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")


def _note(name: str, figures: dict[str, float]) -> dict[str, float]:
    found = {key: round(value, 4) for key, value in figures.items()}
    print(f"{name:12}", "  ".join(f"{key} {value:g}" for key, value in found.items()), flush=True)
    return found


# Folders of many parts


def _scale(place: Path, parts: int) -> dict[str, float]:
    folder = RunFolder(place / "scale" / "out.h5")
    folder.output.parent.mkdir()
    _generate(folder, parts)
    figures = {
        "status_s": _timed([*H5SWEEP, "status", str(folder.output)]),
        "missing_s": _timed([*H5SWEEP, "missing", str(folder.output)]),
        **_look(folder),
        "merge_s": _timed([*H5SWEEP, "merge", str(folder.output)]),
    }
    shutil.rmtree(folder.output.parent)
    return figures


def _generate(folder: RunFolder, parts: int) -> None:
    """The folder that parts leave; no task is run. The last part was killed half way."""
    plan = plan_product({"farm": range(parts), "seed": range(TASKS_EACH)})
    folder.create()
    folder.save_plan(plan)
    declared = {"by": "optimise", "plan": plan.id, "without": []}
    folder.save_sweep({"name": "optimise", "declared": declared})
    folder.parts_path.mkdir()
    folder.claims_path.mkdir()
    for part in range(parts):
        name = f"{part + 1}of{parts}_node{part}_4711_abcdef"
        _write_part(folder, plan, part, parts, name)
        for number in PartNumber(part + 1, parts).slices():
            (folder.claims_path / f"{number}.1").write_text(name)


def _write_part(folder: RunFolder, plan: Any, part: int, parts: int, name: str) -> None:
    about = {"role": "worker", "plan": plan.id, "part": name}
    records = RecordWriter(folder.new_record_path("worker"), about=about)
    encoder = ResultEncoder(plan.names)
    count = TASKS_EACH // 2 if part == parts - 1 else TASKS_EACH
    for task in range(part, part + parts * count, parts):
        schema, data = encoder.encode({"aep": float(task)})
        header = result_header(schema, key_json(plan.key(task)).encode())
        records.append(RecordKind.DONE, task, header, data, finished_at=1e9 + task, duration_s=1.0)
    records.close()


def _look(folder: RunFolder) -> dict[str, float]:
    """What a part does when it has nothing left of its own, and what a claim takes."""
    plan = folder.load_plan()
    assert plan is not None
    choice = TaskChoice.of(plan, ())
    begun = time.perf_counter()
    tasks = PartTasks(folder, PartNumber(1, 2), "1of2_here_1_ab", choice)
    claims_s = time.perf_counter() - begun
    tasks.begin(read_state(folder, plan, scan=scan_stretches))
    look_s = time.perf_counter() - begun
    claims, begun = Claims(folder, "1of2_here_1_ab"), time.perf_counter()
    made = sum(claims.claim(number, 1, SLICES) for number in range(0, SLICES, 8))
    claim_s = (time.perf_counter() - begun) / made
    return {"list_claims_s": claims_s, "look_s": look_s, "claim_ms": 1000 * claim_s}


# Calls on files


def _metadata(place: Path) -> dict[str, float]:
    """Calls that name something in the run folder: of one part, for more and more tasks."""
    found = {}
    for farms in (1, 5, 25):
        folder = _new_folder(place, farms, "pass")
        log = folder / "strace.log"
        strace = ["strace", "-f", "-o", str(log), "-e", "trace=%file,getdents64"]
        _run([*strace, *_part("1/4", "-j", "1")], folder)
        lines = log.read_text(errors="replace").splitlines()
        found[f"{1000 * farms:,} tasks"] = float(sum("out.h5" in line for line in lines))
    return found


# Times


def _first_task(place: Path) -> dict[str, float]:
    """Of a part where another has declared a million tasks; and of that other."""
    folder = _new_folder(place, 1000, MARK)
    figures = {"first_part_s": _until_begun(folder), "other_part_s": _until_begun(folder)}
    figures["of_a_run_s"] = _until_begun(folder, is_part=False)
    return figures


def _until_begun(folder: Path, *, is_part: bool = True) -> float:
    mark = folder / "begun"
    mark.unlink(missing_ok=True)
    words = _part("1/4", "-j", "1") if is_part else [*_RUN, "-j", "1"]
    begun = time.perf_counter()
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL)
    while not mark.exists():
        time.sleep(0.005)
    elapsed_s = time.perf_counter() - begun
    process.kill()
    process.wait()
    return elapsed_s


def _shared(place: Path) -> dict[str, float]:
    figures: dict[str, list[float]] = {
        "run_s": [],
        "parts_s": [],
        "run_cpu_s": [],
        "parts_cpu_s": [],
    }
    for _ in range(REPETITIONS):
        for name, several in (
            ("run", [[*_RUN, "-j", "4"]]),
            ("parts", [_part(f"{part}/4", "-j", "1") for part in (1, 2, 3, 4)]),
        ):
            folder, begun, cpu_s = _new_folder(place, 1, SPIN), time.perf_counter(), _cpu_s()
            processes = [
                subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL) for words in several
            ]
            for process in processes:
                process.wait()
            figures[f"{name}_s"].append(time.perf_counter() - begun)
            figures[f"{name}_cpu_s"].append(_cpu_s() - cpu_s)
    found = {name: statistics.median(values) for name, values in figures.items()}
    found["ratio"] = found["parts_s"] / found["run_s"]
    return {**found, "cpu_ratio": found["parts_cpu_s"] / found["run_cpu_s"]}


def _cpu_s() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _overhead(place: Path) -> dict[str, float]:
    """Per task: of a hundred thousand beside ten thousand, so that the start does not count."""
    found: dict[str, list[float]] = {"run_us": [], "part_us": []}
    for _ in range(REPETITIONS):
        for name, words in (("run_us", _RUN), ("part_us", _part("1/1"))):
            few, many = (
                _timed([*words, "-j", "2"], _new_folder(place, farms, "pass"))
                for farms in (10, 100)
            )
            found[name].append((many - few) / 90_000 * 1e6)
    return {name: statistics.median(values) for name, values in found.items()}


_RUN = [*H5SWEEP, "run", "study.py", "-o", "out.h5", "--no-merge"]


def _part(part: str, *words: str) -> list[str]:
    return [*H5SWEEP, "run", "study.py", "-o", "out.h5", "--part", part, *words]


def _new_folder(place: Path, farms: int, body: str) -> Path:
    folder = place / "sweep"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "study.py").write_text(STUDY.format(farms=farms, body=body))
    return folder


def _timed(words: list[str], folder: Path | None = None) -> float:
    begun = time.perf_counter()
    _run(words, folder)
    return time.perf_counter() - begun


def _run(words: list[str], folder: Path | None) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    main()
