"""Which failures at the beginning of a run make it hopeless."""

from __future__ import annotations

import pytest

from h5sweep.runfolder.records import RecordKind
from h5sweep.runner.early_stop import FIRST_TASKS, EarlyStop
from h5sweep.runner.events import Ended, Event, Failed


def failed(
    task: int, where: str = "a.py:1", *, kind: RecordKind = RecordKind.RAISED, retry: bool = False
) -> Failed:
    error = {"type": "ValueError", "message": f"no {task}", "where": where, "traceback": ""}
    return Failed(task, kind, error, 0.0, retry, True)


FIRST = [failed(task) for task in range(FIRST_TASKS)]


def is_hopeless(events: list[Event], *, tasks: int = 100, untold: bool = False) -> bool:
    stop = EarlyStop(tasks)
    return [stop.take(event, lambda: untold) for event in events][-1]


def test_enough_failures_of_one_cause_are() -> None:
    """Exactly as many as are said; what comes then changes nothing."""
    assert is_hopeless(FIRST)
    assert not is_hopeless(FIRST[:-1])
    assert is_hopeless([*FIRST, Ended(1), failed(99, "b.py:1")])


@pytest.mark.parametrize(
    "events",
    [
        [Ended(1), *FIRST],
        [*FIRST[:-1], Ended(1), *FIRST],
        [failed(99, "b.py:1"), *FIRST],
        [failed(99, kind=RecordKind.DIED), *FIRST],
        [failed(task, retry=True) for task in range(50)],
    ],
    ids=["a result first", "a result between", "another place", "another kind", "attempts"],
)
def test_others_are_not(events: list[Event]) -> None:
    assert not is_hopeless(events)


def test_nothing_told_is_no_result() -> None:
    assert is_hopeless([Ended(0), *FIRST])


def test_a_result_that_was_not_told_counts() -> None:
    assert not is_hopeless([*FIRST, *FIRST], untold=True)


def test_a_run_of_so_few_tasks_ends_anyway() -> None:
    assert not is_hopeless(FIRST, tasks=FIRST_TASKS)
