"""Runs that take on only some tasks, run some again, or stop because everything fails."""

from __future__ import annotations

import subprocess
import sys

import h5py
import pytest

from running import count, kinds, run_folder, until
from terminal import Terminal

STUDY = """
import os, time
import h5sweep

@h5sweep.sweep(farm_id=range(3), seed=range(4))
def optimise(farm_id, seed):
    with open("executed", "ab", buffering=0) as file:
        file.write(b".")
    if os.environ.get("BAD_FARM") == str(farm_id):
        raise ValueError(f"farm {farm_id} has no wind")
    return {"aep": float(os.environ.get("AEP", "1"))}
"""
RUN = ("run", "study.py", "-o", "out.h5", "-j", "2")


@pytest.fixture
def study(terminal: Terminal) -> Terminal:
    terminal.write("study.py", STUDY)
    return terminal


def aep_by_farm(terminal: Terminal) -> dict[int, set[float]]:
    with h5py.File(terminal.folder / "out.h5") as file:
        farms, aep = file["farm_id"][:].tolist(), file["aep"][:].tolist()
    return {farm: {a for f, a in zip(farms, aep, strict=True) if f == farm} for farm in farms}


# redo


def test_a_farm_that_was_fixed_is_run_again(study: Terminal) -> None:
    """The whole way: redo, what it says, the command that it names, the new rows."""
    study.run(*RUN)
    said = study.run("redo", "out.h5", "farm_id=1").stderr
    assert said == (
        "4 tasks are to be run again; 4 have a result now, kept until the new one is there\n"
        "next: h5sweep run study.py -o out.h5 -j 2\n"
    )
    status = study.run("status", "out.h5").stdout
    assert "12 of 12 done (100.0 %)" in status
    assert "  4 done, but to be run again\n" in status
    assert "no run is active: start the run again" in status
    assert study.json("status", "out.h5")["again"] == 4
    study.run("status", "out.h5", "--exit-code", check=1)
    missing = study.run("missing", "out.h5", check=1)
    assert "farm_id=1, seed=0  to be run again: its result is kept until then\n" in missing.stdout
    assert missing.stderr == "4 finished tasks to be run again\n"
    assert aep_by_farm(study) == {0: {1.0}, 1: {1.0}, 2: {1.0}}
    run = study.run(*RUN, AEP="2")
    assert "12 kept, 4 to do, 4 of them again" in run.stderr
    assert aep_by_farm(study) == {0: {1.0}, 1: {2.0}, 2: {1.0}}
    assert study.run("status", "out.h5").stdout.endswith("complete\n")
    assert "12 kept, 0 to do" in study.run(*RUN).stderr


def test_a_task_that_fails_again_keeps_its_old_row(study: Terminal) -> None:
    """And the failure is told, by the run and afterwards."""
    study.run(*RUN)
    study.run("redo", "out.h5", "farm_id=1", "seed=0..1")
    run = study.run(*RUN, check=1, BAD_FARM="1")
    assert "2 tasks raised: ValueError at study.py" in run.stderr
    assert "2 tasks failed when run again: their old results are kept" in run.stderr
    assert "12 of 12 done, 2 failed" in run.stderr
    assert aep_by_farm(study)[1] == {1.0}
    assert "  2 failed\n" in study.run("status", "out.h5").stdout
    assert "seed=0  failed: raised: ValueError" in study.run("missing", "out.h5", check=1).stdout
    kept = study.run(*RUN, "--failed", "keep", check=1, AEP="2")
    assert "12 kept, 0 to do" in kept.stderr
    study.run(*RUN, AEP="2")
    assert aep_by_farm(study)[1] == {1.0, 2.0}


def test_it_is_withdrawn(study: Terminal) -> None:
    """Nothing is to be run then, and there is nothing more to withdraw."""
    study.run(*RUN)
    study.run("redo", "out.h5", "farm_id=1,2")
    said = study.run("redo", "out.h5", "--cancel").stderr
    assert said == "8 tasks are no longer to be run again; every result stays as it is\n"
    assert "12 kept, 0 to do" in study.run(*RUN).stderr
    assert study.run("redo", "out.h5", "--cancel").stderr.startswith("0 tasks are no longer")
    assert "give it alone" in study.run("redo", "out.h5", "farm_id=1", "--cancel", check=2).stderr


def test_what_missing_prints_can_be_redone(study: Terminal) -> None:
    """`missing --csv` is a list for `redo --csv`, also with words that select among it."""
    study.run(*RUN, check=1, BAD_FARM="2")
    study.write("todo.csv", study.run("missing", "out.h5", "--csv", check=1).stdout)
    said = study.run("redo", "out.h5", "seed=3", "--csv", "todo.csv").stderr
    assert said.startswith("1 task is to be run again\n")
    run = study.run(*RUN, "--failed", "keep", check=1)
    assert "8 kept, 1 to do" in run.stderr
    assert "3 tasks that failed before left alone" in run.stderr


def test_a_run_killed_over_tasks_run_again_leaves_the_old_rows(study: Terminal) -> None:
    """And the same command runs the rest of them."""
    study.run(*RUN)
    study.run("redo", "out.h5", "farm_id=1")
    study.write(
        "study.py", STUDY.replace("    return", "    time.sleep(60 * (seed == 3))\n    return")
    )
    run = study.start(*RUN, AEP="2")
    until(lambda: count(study.folder, "executed") == 16)
    until(lambda: "running  farm_id=1, seed=3" in study.run("status", "out.h5").stdout)
    run.kill()
    run.communicate()
    assert aep_by_farm(study) == {0: {1.0}, 1: {1.0}, 2: {1.0}}
    study.write("study.py", STUDY)
    assert "12 kept, 1 to do, 1 of them again" in study.run(*RUN, AEP="2").stderr
    assert aep_by_farm(study) == {0: {1.0}, 1: {2.0}, 2: {1.0}}


def test_tasks_that_are_no_longer_declared_are_not_run_again(study: Terminal) -> None:
    """Nobody would run them: that is said when they are asked for."""
    study.run(*RUN)
    study.write("study.py", STUDY.replace("range(3)", "range(2)"))
    study.run(*RUN)
    said = study.run("redo", "out.h5", "farm_id=2", check=2).stderr
    assert "the study no longer declares farm_id=2, seed=0" in said
    assert study.run("redo", "out.h5", "seed=0").stderr.startswith("2 tasks are to be run again")


# --only


def test_only_what_is_selected_is_run(study: Terminal) -> None:
    """The rest stays missing, which is said and is no failure."""
    run = study.run(*RUN, "--only", "farm_id=1", "--only", "seed=0..1")
    assert "0 kept, 2 to do" in run.stderr
    assert "10 other tasks to do, not selected: left alone" in run.stderr
    assert "2 of 12 done, 0 failed" in run.stderr
    assert "10 other tasks left to run: the same command without --only runs them" in run.stderr
    assert count(study.folder, "executed") == 2
    assert len(study.json("missing", "out.h5")["missing"]) == 10
    assert "left to run" not in study.run(*RUN).stderr


def test_a_selected_task_that_fails_is_a_failure(study: Terminal) -> None:
    study.run(*RUN, "--only", "farm_id=1", check=1, BAD_FARM="1")
    study.run(*RUN, "--only", "farm_id=0", check=0, BAD_FARM="1")


def test_selecting_nothing_is_a_mistake(study: Terminal) -> None:
    """It names the values that there are; nothing is run, nothing is written."""
    said = study.run(*RUN, "--only", "farm_id=7", check=2).stderr
    assert said == "h5sweep: farm_id has no value 7: it has 0, 1, 2\n"
    assert not run_folder(study.folder).exists()


def test_a_selected_task_can_be_tried(study: Terminal) -> None:
    said = study.run("run", "study.py", "--try", "3", "--only", "farm_id=2", "--only", "seed=1")
    assert said.stderr.startswith("farm_id=2, seed=1: ok")
    assert "1 task ≈" in said.stderr


def test_python_selects_and_leaves_failures_alone(study: Terminal) -> None:
    """`only=`, `failed=` and what the report says."""
    study.write(
        "main.py",
        """
        from study import optimise
        report = optimise.run("out.h5", workers=1, only={"farm_id": [0, 1]}, failed="keep")
        print(report.tasks_done, report.tasks_missing, report.tasks_not_selected)
        print(report.is_complete)
        """,
    )
    study.run(*RUN, "--only", "farm_id=1", "--only", "seed=0", check=1, BAD_FARM="1")
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=study.folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "7 1 4\nFalse\n"


# --failed keep


def test_tasks_that_failed_before_are_left_alone(study: Terminal) -> None:
    """They count as failed all the same."""
    first = study.run(*RUN, "--failed", "keep", check=1, BAD_FARM="1")
    assert "the same command without --failed keep tries these tasks again" in first.stderr
    before = count(study.folder, "executed")
    run = study.run(*RUN, "--failed", "keep", check=1)
    assert "8 kept, 0 to do" in run.stderr
    assert "4 tasks that failed before left alone" in run.stderr
    assert "8 of 12 done, 4 failed" in run.stderr
    assert "the same command without --failed keep tries these tasks again" in run.stderr
    assert count(study.folder, "executed") == before
    assert "8 kept, 4 to do" in study.run(*RUN).stderr


# Stopping early

FAILING = """
import h5sweep

@h5sweep.sweep(seed=range({tasks}))
def f(seed):
    with open("executed", "ab", buffering=0) as file:
        file.write(b".")
    {body}
"""


def failing(terminal: Terminal, body: str, tasks: int = 2000) -> None:
    terminal.write("study.py", FAILING.format(tasks=tasks, body=body))


def test_a_run_in_which_everything_fails_alike_stops(terminal: Terminal) -> None:
    """It says so once, with the traceback, and what to do; the failures are kept."""
    failing(terminal, "raise ValueError(f'no data for {seed}')")
    run = terminal.run(*RUN, check=1)
    assert "stopped, because the first 20 tasks all failed in the same way" in run.stderr
    assert run.stderr.count("Traceback") == 1
    assert "20 tasks raised: ValueError at study.py:8 in f" in run.stderr
    assert "run the same command again; with --keep-going" in run.stderr
    assert 20 <= count(terminal.folder, "executed") < 2000
    assert terminal.json("status", "out.h5")["failed"] == count(terminal.folder, "executed")


def test_it_stops_before_a_set_is_returned_two_thousand_times(terminal: Terminal) -> None:
    """What is returned has no place in the user's code; its words are the same."""
    failing(terminal, "return {seed}")
    run = terminal.run(*RUN, check=1)
    assert "20 tasks raised: UnsupportedValueError" in run.stderr


def test_it_goes_on_if_it_is_told_to(terminal: Terminal) -> None:
    failing(terminal, "raise ValueError(f'no data for {seed}')", tasks=60)
    run = terminal.run(*RUN, "--keep-going", check=1)
    assert "0 of 60 done, 60 failed" in run.stderr


@pytest.mark.parametrize(
    ("body", "tasks"),
    [
        ("raise ValueError", 20),  # no more than these
        ("if seed % 2: raise ValueError\n    raise KeyError", 60),  # of two causes
        ("if seed: raise ValueError\n    return {'x': 1}", 60),  # one has succeeded
    ],
)
def test_it_goes_on_unless_all_fail_alike(terminal: Terminal, body: str, tasks: int) -> None:
    failing(terminal, body, tasks=tasks)
    terminal.run(*RUN, check=1)
    assert len(kinds(terminal.folder)) == tasks


def test_attempts_are_not_counted_as_tasks(terminal: Terminal) -> None:
    """Twelve tasks that fail twice each before they succeed are no reason to stop."""
    body = "path = f'tried{seed}'\n    with open(path, 'a') as file: file.write('.')\n"
    body += "    if len(open(path).read()) < 3: raise ValueError\n    return {'x': 1}"
    failing(terminal, body, tasks=30)
    terminal.run(*RUN, "--retries", "raised=2", "--backoff", "0.01s")


UNTOLD = """
import os, time
import h5sweep

tasks_here = 0
has_succeeded = False

@h5sweep.sweep(seed=range(200))
def f(seed):
    global tasks_here, has_succeeded
    tasks_here += 1
    if has_succeeded:  # in the midst of a batch, while all others fail
        while os.path.getsize("executed") < 150:
            time.sleep(0.01)
    has_succeeded = tasks_here == 3 and not os.path.exists("succeeded")
    with open("succeeded" if has_succeeded else "executed", "ab", buffering=0) as file:
        file.write(b".")
    if has_succeeded:
        return {"x": 1}
    raise ValueError
"""


def test_results_that_a_worker_has_not_told_yet_count(terminal: Terminal) -> None:
    """One worker is in a batch of which a task succeeded while the other meets 20 failures."""
    terminal.write("study.py", UNTOLD)
    run = terminal.run(*RUN, "--grace", "1s", check=1)
    assert "stopped" not in run.stderr
    assert len(kinds(terminal.folder)) == 200


def test_python_is_told_by_an_error(terminal: Terminal) -> None:
    failing(terminal, "raise ValueError")
    terminal.write(
        "main.py",
        """
        import h5sweep
        from study import f
        try:
            f.run("out.h5", workers=1)
        except h5sweep.errors.HopelessError as error:
            print(error.exit_code, len(f.missing("out.h5")))
        print(f.run("out.h5", workers=1, keep_going=True).tasks_failed)
        """,
    )
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 2000\n2000\n"
