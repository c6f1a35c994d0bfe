"""When a run begins no other task, because its time or that of its job is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_slurm import fake_slurm
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runner import walltime
from h5sweep.runner.run_tasks import known_durations_s
from h5sweep.runner.walltime import ENDING_S, TimeWatch, Walltime
from h5sweep.state.expected_tasks import read_expected_state
from terminal import Terminal


def ending_in(left_s: float, *, is_of_job: bool = False) -> Walltime:
    return Walltime(time.monotonic() + ENDING_S + left_s, is_of_job)


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """In a job of which the end is said to be so far away, each time that it is asked for."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time()))

    def answers(left_s: float) -> None:
        asked, seconds = tmp_path / "asked", int(left_s + ENDING_S)
        lines = f"echo >> '{asked}'; date -d '+{seconds} sec' +%Y-%m-%dT%H:%M:%S"
        monkeypatch.setenv("PATH", fake_slurm(tmp_path / "bin", squeue=lines))

    return answers


@pytest.mark.parametrize("others", [1, 9, 18])
def test_few_tasks_are_judged_by_the_longest(others: int) -> None:
    """Of fewer than twenty no share of 95 in 100 leaves one out."""
    durations_s = [*[1.0] * others, 100.0]
    assert not ending_in(50).has_room_for(durations_s)
    assert ending_in(200).has_room_for(durations_s)
    assert ending_in(50).has_room_for([*[1.0] * 99, 100.0])


def test_results_that_are_there_say_how_long_tasks_take(tmp_path: Path) -> None:
    """But not those that took longer than there is time now: nothing would ever begin."""
    terminal = Terminal(tmp_path)
    terminal.write(
        "study.py",
        """
        import h5sweep

        @h5sweep.sweep(seed=range(70))
        def optimise(seed):
            return {"aep": 1.0}
        """,
    )
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "seed=0..59")
    state = read_expected_state(RunFolder.of(tmp_path / "out.h5"))
    assert len(known_durations_s(state, ending_in(600))) == 60
    assert known_durations_s(state, ending_in(0)) == []


def test_a_job_that_was_given_more_time_uses_it(squeue: Callable[[float], None]) -> None:
    """Slurm is asked again before the run says that the time is up."""
    squeue(600)
    watch = TimeWatch(ending_in(5, is_of_job=True))
    assert not watch.becomes_up([60.0])
    assert watch.left_s > 500


def test_the_time_is_up_once(squeue: Callable[[float], None], tmp_path: Path) -> None:
    """And then nobody is asked any more, as tasks end."""
    squeue(5)
    watch = TimeWatch(ending_in(5, is_of_job=True))
    assert [watch.becomes_up([60.0]) for _ in range(3)] == [True, False, False]
    assert (tmp_path / "asked").read_text() == "\n"


def test_a_time_that_the_user_said_is_not_asked_for(
    squeue: Callable[[float], None], tmp_path: Path
) -> None:
    """--until counts, whatever Slurm says."""
    squeue(600)
    assert TimeWatch(ending_in(5)).becomes_up([60.0])
    assert not (tmp_path / "asked").exists()


class Clock:
    """One that a test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


def test_a_task_that_had_the_whole_job_will_never_have_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job is too short for it; one that began later may be done in the next."""
    clock = Clock()
    monkeypatch.setattr(walltime, "time", clock)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    of_job = TimeWatch(Walltime(1000 + ENDING_S + 60, is_of_job=True))
    of_user = TimeWatch(Walltime(1000 + ENDING_S + 60))
    clock.now += 61
    assert of_job.becomes_up([]) and of_user.becomes_up([])
    assert of_job.job_is_shorter_than(58.0) and not of_job.job_is_shorter_than(30.0)
    assert not of_user.job_is_shorter_than(58.0)
