"""What a state is in words: causes of failures, next steps, who is running, counts."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from h5sweep.base.missing_reason import MissingReason
from h5sweep.base.plan import Plan, plan_product
from h5sweep.base.process_id import this_process
from h5sweep.base.units import count_text, cut_middle
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import NO_TASK, RecordKind, RecordWriter, json_bytes
from h5sweep.runner.failures import FailureCause, failures_text, group_failures
from h5sweep.runner.status import (
    LockHolder,
    Status,
    read_status,
    status_json,
    status_of,
    status_text,
)
from h5sweep.runner.watch_screen import screen_lines
from h5sweep.state.missing_report import missing_lines
from h5sweep.state.record_place import Failure
from h5sweep.state.state import Missing, read_state
from running import until
from terminal import Terminal

PLAN = plan_product({"seed": range(4)})
ALIVE = LockHolder(True, this_process())
ELSEWHERE = LockHolder.of(replace(this_process(), host="node17"))


def failure(message: str, *, where: str = "", kind: RecordKind = RecordKind.RAISED) -> Failure:
    return Failure(kind, "UnsupportedValueError", message, where, "", 1.0, 0.5)


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """A sweep of four tasks that are all done and not merged."""
    folder = RunFolder(tmp_path / "out.h5")
    folder.create()
    found = status_of(read_state(folder, PLAN), "out.h5", False)
    return replace(found, is_declared=True, done=4, columns={})


def last_lines(status: Status, count: int = 1) -> list[str]:
    return status_text(status).splitlines()[-count:]


# Failures


@pytest.mark.parametrize(
    ("one", "other", "groups"),
    [
        ("x is None: leave it out", "y is None: leave it out", 2),
        ("x is None: leave it out", "x is a masked array: fill it", 2),
        ("x is an int of 70 bits", "x is an int of 164 bits", 1),
        ("x is 1.5e-3 m", "x is 20 m", 1),
        ("x is <T object at 0x7f3a>", "x is <T object at 0x11bc>", 1),
        ("x is 'a'", "x is 'b c'", 1),
    ],
)
def test_failures_without_a_place_are_grouped_by_their_words(
    one: str, other: str, groups: int
) -> None:
    """Messages that differ in numbers and quotations only are one cause, others are several."""
    assert len(group_failures({0: failure(one), 1: failure(other)})) == groups


def test_failures_at_one_place_are_one_cause() -> None:
    """Whatever the message says: the same line of the user's code is the same cause."""
    failures = {0: failure("a", where="s.py:1"), 1: failure("b", where="s.py:1")}
    assert group_failures(failures) == [failures]


def test_a_failure_is_told_in_one_line_and_its_traceback() -> None:
    """Whatever white space its message has; an example and how many there are."""
    text = failures_text(PLAN, {0: failure("a\nb"), 1: failure("c")})
    assert text.startswith("1 task raised: UnsupportedValueError: a b\n  for example seed=0\n")


# Next steps


def test_finished_and_not_merged_is_to_be_merged(status: Status) -> None:
    """All is done: merge is the next step, unless a run is going on, which does it."""
    assert last_lines(status) == ["next: h5sweep merge out.h5 writes the output"]
    assert last_lines(replace(status, run=ALIVE)) == [f"a run is active ({ALIVE.process})"]
    assert last_lines(replace(status, output_exists=True)) == ["complete"]
    beyond = replace(status, output_exists=True, not_merged=1)
    assert last_lines(beyond, 2) == [
        "  1 result not merged yet",
        "next: h5sweep merge out.h5 writes the output",
    ]


def test_whether_a_run_is_going_on_is_said(status: Status) -> None:
    """With tasks missing: by whom they are run, that nobody does, or that it cannot be seen."""
    missing = replace(status, done=3)
    next_line = "next: h5sweep missing out.h5 lists what is missing, and why"
    nobody = "no run is active: start the run again"
    assert last_lines(missing, 2) == [nobody, next_line]
    assert last_lines(replace(missing, run=ALIVE), 2)[0].startswith("a run is active (pid ")
    elsewhere = last_lines(replace(missing, run=ELSEWHERE), 2)[0]
    assert elsewhere.startswith("a run may be active (pid ")
    assert "on node17" in elsewhere


@pytest.mark.parametrize("run", [LockHolder(), ALIVE, ELSEWHERE])
def test_run_is_in_the_json(status: Status, run: LockHolder) -> None:
    """alive is true, false, or null where nobody here can say."""
    told = json.loads(status_json(replace(status, run=run)))["run"]
    process = run.process
    assert told == {
        "alive": run.alive,
        "pid": process and process.pid,
        "host": process and process.host,
    }


def test_a_dead_owner_of_the_lock_is_no_run() -> None:
    """A lock that a killed run left behind does not count."""
    dead = replace(this_process(), start_ticks=1)
    assert LockHolder.of(dead, since=1.0) == LockHolder(alive=False, process=dead)
    assert LockHolder.of(None) == LockHolder()


def test_without_plan_and_results_nothing_is_complete(tmp_path: Path) -> None:
    """An empty folder is neither complete nor missing anything."""
    empty = status_of(read_state(RunFolder(tmp_path / "out.h5"), Plan(())), "out.h5", True)
    assert not empty.is_complete
    head, next_step = status_text(empty).splitlines()
    assert head == "out.h5: nothing is recorded yet"
    assert next_step.startswith("next: h5sweep run STUDY -o out.h5 ")


# Pace


def record_hung_task(folder: RunFolder, now: float) -> None:
    """This process ended task 0 after 2 s and task 1 at once, and is in task 2 for 8 minutes."""
    writer = RecordWriter(folder.new_record_path("worker"), about={"plan": PLAN.id})
    batch, key = json_bytes({"tasks": [0, 1, 2]}), b'{"data":[],"key":{"seed":0}}'
    error = b'{"error":{"type":"E","message":"m","where":"","traceback":""},"key":{"seed":1}}'
    writer.append(RecordKind.STARTED, NO_TASK, batch, finished_at=now - 482)
    writer.append(RecordKind.DONE, 0, key, finished_at=now - 480, duration_s=2.0)
    writer.append(RecordKind.RAISED, 1, error, finished_at=now - 480)


def test_nothing_waits_where_no_run_goes_on(tmp_path: Path) -> None:
    """Tasks wait while a run is going on; afterwards they are not finished."""
    folder = RunFolder(tmp_path / "out.h5")
    folder.create()
    state = read_state(folder, PLAN)
    assert "  4 not finished" in status_text(status_of(state, "out.h5", False)).splitlines()
    going_on = status_of(state, "out.h5", False, run=LockHolder(True, this_process(), time.time()))
    assert "  4 waiting" in status_text(going_on).splitlines()


def test_a_hung_task_is_named_from_another_terminal(tmp_path: Path) -> None:
    """status says since when it runs, what is usual, the rate of this run, and no time left."""
    folder, now = RunFolder(tmp_path / "out.h5"), time.time()
    folder.create()
    record_hung_task(folder, now)
    status = status_of(
        read_state(folder, PLAN), "out.h5", False, run=LockHolder(True, this_process(), now - 500)
    )
    lines = status_text(status).splitlines()
    assert lines[1:4] == [
        "  1 failed, 1 running, 1 waiting",
        "  14/h",
        "  1 task running for 8 min (median 2 s): seed=2",
    ]
    assert f"  running  seed=2  8 min  {this_process()}" in lines
    assert status.per_hour == pytest.approx(14.4, rel=0.01)
    (running,) = json.loads(status_json(status))["running"]
    assert running["since"] == now - 480


def test_results_of_earlier_runs_are_no_pace(tmp_path: Path) -> None:
    """The rate is that of the run that is going on, or nobody's."""
    folder, now = RunFolder(tmp_path / "out.h5"), time.time()
    folder.create()
    record_hung_task(folder, now)
    state = read_state(folder, PLAN)
    since = LockHolder(True, this_process(), now - 100)
    assert status_of(state, "out.h5", False, run=since).per_hour is None
    assert status_of(state, "out.h5", False).per_hour is None


# Counts


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([9] * 15, "3 more, all done"),
        ([0] * 12 + [9] * 3, "3 more, all done"),
        ([0] * 15, "3 more, with nothing done"),
        ([0] * 12 + [5] * 3, "3 more, with an equal or larger share done"),
    ],
)
def test_values_not_shown_are_told_truly(status: Status, shares: list[int], words: str) -> None:
    """Of many values those least far are shown, and of the others it is said how far they are."""
    columns = {"seed": [(value, done, 9) for value, done in enumerate(shares)]}
    lines = status_text(replace(status, columns=columns)).splitlines()
    assert any(line.endswith(words) for line in lines)


@pytest.mark.parametrize("columns", [80, 40, 12, 1])
@pytest.mark.parametrize("lines", [50, 24, 12, 6, 3, 2])
def test_a_screen_is_never_too_small(status: Status, columns: int, lines: int) -> None:
    """Whatever its size, it is not exceeded, and the first and the last line are there."""
    counts = {name: [(f"{name} {n}", n, 30) for n in range(30)] for name in ("farm", "layout")}
    full = replace(status, done=3, columns=counts)
    shown = screen_lines(full, columns, lines)
    assert len(shown) < lines
    assert max(map(len, shown)) <= columns
    assert shown[-1] == cut_middle(last_lines(full)[0], columns)
    assert lines < 3 or shown[0] == cut_middle("out.h5: 3 of 4 done (75.0 %)", columns)
    assert lines < 12 or len(shown) >= min(lines - 3, 27)  # and it is filled


def test_a_screen_says_where_tasks_failed(status: Status) -> None:
    """However long their message is: the place stands before it."""
    failed = replace(failure("no room " * 50, where="study.py:7 in f"), error="ValueError")
    cause = FailureCause(12, {"seed": 1}, failed)
    shown = screen_lines(replace(status, done=3, failed=1, causes=(cause,)), 80, 24)
    (line,) = (line for line in shown if "raised" in line)
    assert line.startswith("  12 tasks raised: ValueError at study.py:7 in f: no room ")
    assert len(line) == 80 and line.endswith("…")


def test_one_is_singular(status: Status) -> None:
    """1 task, 2 tasks, 1,000 tasks, 0 tasks."""
    assert [count_text(n, "task") for n in (0, 1, 2, 1000)] == [
        "0 tasks",
        "1 task",
        "2 tasks",
        "1,000 tasks",
    ]
    text = status_text(replace(status, done=3, unreadable_files=1))
    assert "  1 record file with an unreadable beginning\n" in text


@pytest.mark.parametrize(
    ("damaged", "told"),
    [
        (slice(-20, -19), "1 task lost with a damaged record: the next run computes it again"),
        (slice(None), "1 damaged record: some of what is not finished may have been in it"),
    ],
)
def test_damage_is_told_as_long_as_results_are_missing_for_it(
    terminal: Terminal, damaged: slice, told: str
) -> None:
    """Not after they were computed again, though another task is missing that has failed."""
    terminal.write(
        "study.py",
        """
        import h5sweep

        @h5sweep.sweep(seed=[9, *range(4)])
        def f(seed):
            return {"x": 1 / (seed - 9)}
        """,
    )
    words = ("run", "study.py", "-o", "out.h5", "-j", "1", "--no-merge")
    terminal.run(*words, check=1)
    (path,) = (terminal.folder / "out.h5.run" / "records").iterdir()
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[damaged] ^= 0xFF
    path.write_bytes(content.tobytes())
    assert told in terminal.run("status", "out.h5").stdout
    terminal.run(*words, check=1)
    text = terminal.run("status", "out.h5").stdout
    assert "4 of 5 done" in text
    assert "1 failed" in text
    assert "damaged" not in text


def test_a_failed_task_that_is_running_again_counts_once(terminal: Terminal) -> None:
    """A run after a failure, looked at while it is in that task."""
    code = """
        import h5sweep, os, time

        @h5sweep.sweep(seed=range(6))
        def f(seed):
            if not os.path.exists("mended"):
                raise ValueError("no area")
            while seed == 1:
                open("waiting", "w").close()
                time.sleep(0.02)
            return {"x": float(seed)}
    """
    terminal.write("study.py", code)
    words = ("run", "study.py", "-o", "out.h5", "-j", "1", "--changed", "keep")
    terminal.run(*words, "--only", "seed=0..2", check=1)
    (terminal.folder / "mended").touch()
    run = terminal.start(*words)
    try:
        until((terminal.folder / "waiting").exists)
        found = read_status(terminal.folder / "out.h5")
        assert found.counts == {"done": 1, "failed": 1, "running": 1, "waiting": 3}
    finally:
        run.kill()
        run.communicate()


def test_a_missing_task_is_one_line() -> None:
    """Whatever white space its error's message has."""
    missing = Missing(3, {"seed": 3}, MissingReason.FAILED, "raised: E: a\n  b")
    assert list(missing_lines([missing])) == ["seed=3  failed: raised: E: a b\n"]
