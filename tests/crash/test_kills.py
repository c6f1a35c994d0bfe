"""A hammer that kills workers and coordinators while a sweep runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crash_checks import STUDY, check_output, finished_tasks, started_in

COMMAND = [sys.executable, "-m", "h5sweep", "run", "study.py", "-o", "out.h5", "-j", "2"]


def test_hammered_sweep_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """500 tasks under random kills of everything: all true, none twice, nothing done again."""
    _hammer(tmp_path, farms=250, seed=20261115)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_hammered_sweep_for_long(tmp_path: Path, seed: int) -> None:
    """The same with other seeds and more tasks."""
    _hammer(tmp_path, farms=1000, seed=seed)


def _hammer(folder: Path, *, farms: int, seed: int) -> None:
    random_source = random.Random(seed)
    (folder / "study.py").write_text(STUDY)
    run_folder, trace = folder / "out.h5.run", folder / "trace"
    kills = {"worker": 0, "coordinator": 0}
    for round_number in range(200):
        finished = finished_tasks(run_folder)
        environment = {"ROUND": str(round_number), "TRACE": str(trace), "FARMS": str(farms)}
        done = _one_round(folder, environment | {"SPIN": "500"}, random_source, kills)
        repeated = started_in(trace, str(round_number)) & set(finished)
        assert not repeated, f"finished before round {round_number}, run again: {repeated}"
        if (folder / "out.h5").exists():
            check_output(folder / "out.h5")
        assert done in (0, 1, -signal.SIGKILL), f"exit {done}: the same command does not go on"
        if done == 0:
            break
    assert check_output(folder / "out.h5") == 2 * farms
    counts = finished_tasks(run_folder)
    assert set(counts) == set(range(2 * farms))
    assert set(counts.values()) == {1}
    assert kills["worker"] >= 10, kills
    assert kills["coordinator"] >= 2, kills


def _one_round(
    folder: Path,
    environment: dict[str, str],
    random_source: random.Random,
    kills: dict[str, int],
) -> int:
    """Give the command once and hammer it until it ends or the coordinator's time has come."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*COMMAND, "--backoff", "0.05s"],
            cwd=folder,
            env={**os.environ, **environment},
            stderr=log,
        )
    # The first ones die early, so that a fast machine cannot be done before two have been killed.
    longest_s = 1.0 if kills["coordinator"] < 2 else 3.0
    end_of_coordinator = time.monotonic() + random_source.uniform(0.7, longest_s)
    is_last_chance = kills["coordinator"] >= 5 and kills["worker"] >= 20
    while True:
        try:
            return process.wait(random_source.uniform(0.1, 0.4))
        except subprocess.TimeoutExpired:
            pass
        if is_last_chance:
            continue
        if time.monotonic() > end_of_coordinator:
            process.kill()
            kills["coordinator"] += 1
            return process.wait()
        workers = _descendants(process.pid)
        if workers:
            os.kill(random_source.choice(workers), signal.SIGKILL)
            kills["worker"] += 1


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`: workers, and what they have started."""
    found: list[int] = []
    todo = [pid]
    while todo:
        try:
            children = Path(f"/proc/{todo[0]}/task/{todo[0]}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            children = []
        todo = todo[1:] + [int(child) for child in children]
        found += [int(child) for child in children]
    return found
