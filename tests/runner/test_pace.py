"""How fast a run goes, in words: time left is never less than what the slowest task suggests."""

from __future__ import annotations

import re
import time

import pytest

from h5sweep.base.units import clock_text, rate_text
from h5sweep.runner.time_left import Durations, Pace, RunningTask

KEY = "farm_id=3, seed=7"
EVEN = (2.0,) * 98


def pace(
    *running_s: float, left: int, took: tuple[float, ...] = EVEN, quiet_s: float = 1.0
) -> Pace:
    """98 tasks in 98 s, and these running."""
    running = [RunningTask(KEY, seconds, "pid 4711") for seconds in running_s]
    return Pace(98 if took else 0, 98.0, left, quiet_s, Durations.of(took), running)


@pytest.mark.parametrize(
    ("per_s", "text"), [(23.9, "24/s"), (1.44, "1.4/s"), (0.2, "12/min"), (0.0007, "2.5/h")]
)
def test_a_rate_is_said_in_one_way(per_s: float, text: str) -> None:
    """In the largest unit of time that gives a number of at least one."""
    assert rate_text(per_s) == text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pace(1, 1, left=300), ["1/s", "5 min left (until …)"]),
        (pace(1, 4, left=300), ["1/s", "5 min left (until …)"]),
        (pace(1, 480, left=300), ["1/s", "8 min left or more"]),
        (pace(480, 480, left=300, quiet_s=400), ["1/s"]),
        (pace(1, 1.5, left=2), ["1/s", "the last 2 tasks are running", "1 s left (until …)"]),
        (pace(3, left=1), ["1/s", "the last task is running", "3 s left or more"]),
        (pace(480, left=1), ["1/s", "the last task is running", "8 min left or more"]),
        (pace(left=0), ["1/s"]),
        (pace(3, left=0), ["1/s"]),
        (pace(3, left=300, took=()), []),
    ],
)
def test_time_left_is_told_where_it_can_be(found: Pace, words: list[str]) -> None:
    """By the rate, and by the task that has run longest; not while all hang."""
    assert [re.sub(r"until [^)]+", "until …", word) for word in found.words()] == words


@pytest.mark.parametrize("took", [EVEN, (1.0,) * 80 + (600.0,) * 18, (0.1, 5000.0)])
@pytest.mark.parametrize("running_s", [0.0, 1.0, 30.0, 599.0, 601.0])
@pytest.mark.parametrize("left", [1, 9, 300])
def test_time_left_is_never_less_than_the_slowest_suggests(
    took: tuple[float, ...], running_s: float, left: int
) -> None:
    """A task goes on as long as those did on average that took longer, or as long again."""
    longer = [seconds for seconds in took if seconds > running_s]
    suggested_s = sum(longer) / len(longer) - running_s if longer else running_s
    left_s = pace(running_s, left=left, took=took).left_s
    assert left_s is not None
    assert left_s >= suggested_s
    assert left == 1 or left_s >= left  # and never less than the rate does


def test_the_end_is_said_by_the_clock() -> None:
    """With the day, unless it is today."""
    now = time.time()
    noon = time.mktime((*time.localtime(now)[:3], 12, 0, 0, 0, 0, -1))
    assert clock_text(noon) == "12:00"
    assert re.fullmatch(r"\w{3} 12:00", clock_text(noon + 3 * 86400))
    assert re.fullmatch(r"\d+ \w{3}", clock_text(noon + 30 * 86400))


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (pace(5.9, left=9), []),
        (pace(6.1, left=9), [f"1 task running for 6 s (median 2 s): {KEY}"]),
        (pace(0.9, left=9, took=(0.1,) * 98), []),
        (pace(1.2, left=9, took=(0.1,) * 98), [f"1 task running for 1 s (median 0.1 s): {KEY}"]),
        (pace(29, left=9, took=(1.0,) * 90 + (10.0,) * 8), []),
        (
            pace(31, 1, left=9, took=(1.0,) * 90 + (10.0,) * 8),
            [f"1 task running for 31 s (median 1 s): {KEY}"],
        ),
        (
            pace(60, 0.9, 480, left=9, took=(0.0001,) * 98),
            [f"2 tasks running for up to 8 min (median under 1 ms): {KEY}"],
        ),
        (pace(50, left=9, took=()), []),
        (pace(70, left=9, took=()), [f"1 task running for 70 s: {KEY}"]),
    ],
)
def test_a_task_far_longer_than_others_is_named(found: Pace, line: list[str]) -> None:
    """Beyond 3 times what 95 of 100 take, with how long it has been running, and the median."""
    assert found.long_line() == line


def test_the_line_of_a_hung_task_has_its_width() -> None:
    """Its key is cut, nothing else."""
    (line,) = pace(480, left=1).long_line(50)
    assert len(line) == 50
    assert line.startswith("1 task running for 8 min (median 2 s): far")
