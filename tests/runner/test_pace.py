"""How fast a run goes, in words: no time left is told that nobody can know."""

from __future__ import annotations

import pytest

from h5sweep.base.units import rate_text
from h5sweep.runner.time_left import Pace, RunningTask

KEY = "farm_id=3, seed=7"


def pace(*running_s: float, left: int, usual_s: float | None = 2.0, quiet_s: float = 1.0) -> Pace:
    """98 tasks in 98 s, and these running."""
    running = [RunningTask(KEY, seconds, "pid 4711") for seconds in running_s]
    return Pace(98 if usual_s else 0, 98.0, left, quiet_s, usual_s, running)


@pytest.mark.parametrize(
    ("per_s", "text"), [(23.9, "24/s"), (1.44, "1.4/s"), (0.2, "12/min"), (0.0007, "2.5/h")]
)
def test_a_rate_is_said_in_one_way(per_s: float, text: str) -> None:
    """In the largest unit of time that gives a number of at least one."""
    assert rate_text(per_s) == text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pace(1, 1, left=300), ["1/s", "5 min left"]),
        (pace(1, 480, left=300), ["1/s", "5 min left"]),
        (pace(480, 480, left=300, quiet_s=400), ["1/s"]),
        (pace(480, left=300), ["1/s", "5 min left"]),
        (pace(1, 1, left=2), ["1/s", "the last 2 tasks are running"]),
        (pace(3, left=1), ["1/s", "the last task is running"]),
        (pace(480, left=1, quiet_s=400), ["1/s", "the last task is running"]),
        (pace(left=0), ["1/s"]),
        (pace(3, left=300, usual_s=None), []),
    ],
)
def test_time_left_is_told_where_it_can_be(found: Pace, words: list[str]) -> None:
    """While tasks wait that somebody gets to; never for those that hang, or for the last ones."""
    assert found.words() == words


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (pace(9, left=9), []),
        (pace(11, left=9), [f"1 task running for 11 s (usually 2 s): {KEY}"]),
        (pace(11, left=9, usual_s=3.0), []),
        (pace(1, 480, left=9), [f"1 task running for 8 min (usually 2 s): {KEY}"]),
        (
            pace(60, 1, 480, left=9, usual_s=0.01),
            [f"2 tasks running for up to 8 min (usually under 1 s): {KEY}"],
        ),
        (pace(50, left=9, usual_s=None), []),
        (pace(70, left=9, usual_s=None), [f"1 task running for 70 s: {KEY}"]),
    ],
)
def test_a_task_far_longer_than_usual_is_named(found: Pace, line: list[str]) -> None:
    """With how long it has been running, and how long others take."""
    assert found.long_line() == line


def test_the_line_of_a_hung_task_has_its_width() -> None:
    """Its key is cut, nothing else."""
    (line,) = pace(480, left=1).long_line(50)
    assert len(line) == 50
    assert line.startswith("1 task running for 8 min (usually 2 s): farm")
