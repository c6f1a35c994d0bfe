"""Values that differ by rounding only: seen in one plan, matched between two, never made one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h5sweep.base.near_floats import NearValues, near_values, with_values_of
from h5sweep.base.plan import plan_product

THIRD = 0.1 + 0.2  # 0.30000000000000004


def steps_from(value: float, steps: int) -> float:
    for _ in range(steps):
        value = math.nextafter(value, math.inf)
    return value


@pytest.mark.parametrize("value", [0.3, -0.3, 1e300, 1e-300, 5.0, 0.0])
def test_values_within_four_steps_are_near(value: float) -> None:
    """Four floats further is near, nine is not, whatever the size."""
    for steps, is_near in ((1, True), (4, True), (9, False)):
        plan = plan_product({"x": [steps_from(value, steps), value], "seed": [1, 2]})
        found = [NearValues("x", value, steps_from(value, steps))] if is_near else []
        assert list(near_values(plan)) == found


@pytest.mark.parametrize("values", [[0.3, 0.31], [math.inf, -math.inf, 1e308], [1, 2], ["a", "b"]])
def test_other_values_are_not_near(values: list[object]) -> None:
    """Neither are infinities, ints and texts."""
    assert not list(near_values(plan_product({"x": values})))


def test_a_near_value_becomes_the_known_one() -> None:
    """The tasks of the known plan are found again, and it is said what was replaced."""
    known = plan_product({"x": [0.3, 0.5], "seed": [1, 2]})
    wanted = plan_product({"seed": [1, 2, 3], "x": [0.5, THIRD]})
    matched, replaced = with_values_of(known, wanted)
    assert replaced == [NearValues("x", THIRD, 0.3)]
    extended, gone = known.extended(matched)
    assert (len(extended), gone) == (6, 0)
    assert set(extended.columns[0].values) == {0.3, 0.5}


def test_a_value_that_is_declared_itself_is_not_taken() -> None:
    """Two declared values stay two, whichever of them is known."""
    for first in (0.3, THIRD):
        wanted = plan_product({"x": [0.3, THIRD]})
        assert with_values_of(plan_product({"x": [first]}), wanted) == (wanted, [])


def test_two_values_near_a_known_one_stay_two() -> None:
    """Only one of them is taken for it."""
    known = plan_product({"x": [0.3]})
    wanted = plan_product({"x": [steps_from(0.3, 1), steps_from(0.3, 2)]})
    matched, replaced = with_values_of(known, wanted)
    assert matched.columns[0].values == (0.3, steps_from(0.3, 2))
    assert len(replaced) == 1


near_lists = st.lists(
    st.integers(0, 30).map(lambda steps: steps_from(0.3, steps)), min_size=1, unique=True
)


@given(near_lists, near_lists)
def test_matching_never_makes_two_tasks_one(known: list[float], wanted: list[float]) -> None:
    """However near all values are, each declared one has a task of its own, and is near it."""
    matched, replaced = with_values_of(plan_product({"x": known}), plan_product({"x": wanted}))
    values = matched.columns[0].values
    assert len(set(values)) == len(wanted)
    assert {near.other for near in replaced} <= set(known) - set(wanted)
    assert all(abs(v - w) <= 4 * math.ulp(0.3) for v, w in zip(values, wanted, strict=True))
