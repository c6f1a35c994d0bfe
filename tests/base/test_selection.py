"""Which tasks words such as `farm_id=3 seed=0..9` select."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from h5sweep.base.plan import Plan, plan_product
from h5sweep.base.selection import Only, read_selection, select_tasks
from h5sweep.errors import UsageError

PLAN = plan_product(
    {
        "farm_id": range(4),
        "farm_type": ["15MW", "a,b", "a"],
        "wind": [0.5, 1.0, float("inf")],
        "is_wet": [True, False],
    }
)


def keys(only: Only, plan: Plan = PLAN) -> list[tuple[object, ...]]:
    return [tuple(plan.key(t).values()) for t in select_tasks(read_selection(only, plan), plan)]


@pytest.mark.parametrize(
    ("word", "place", "values"),
    [
        ("farm_id=3", 0, {3}),
        ("farm_id=3,1", 0, {1, 3}),
        ("farm_id=1..2", 0, {1, 2}),
        ("farm_id=0..0,3", 0, {0, 3}),
        ("farm_type=15MW", 1, {"15MW"}),
        ("farm_type=a,b", 1, {"a,b"}),  # a value of its own before a list
        ("farm_type=a,15MW", 1, {"a", "15MW"}),
        ("wind=1", 2, {1.0}),
        ("wind=0.5..1", 2, {0.5, 1.0}),
        ("wind=inf", 2, {float("inf")}),
        ("is_wet=true", 3, {True}),
        ("is_wet=False", 3, {False}),
    ],
)
def test_a_word_selects_values(word: str, place: int, values: set[object]) -> None:
    """Exactly the tasks with one of these values of that parameter, whatever their others."""
    every = [tuple(key.values()) for key in PLAN.keys()]  # noqa: SIM118 (it is no dict)
    assert keys([word]) == [key for key in every if key[place] in values]


def test_several_words_must_all_be_met() -> None:
    """Of different parameters; of one parameter either will do."""
    found = keys(["farm_id=3", "farm_type=a", "wind=inf", "is_wet=true", "farm_id=0"])
    assert [key[0] for key in found] == [0, 3]


def test_a_dict_selects_the_same() -> None:
    """One value or several, also NumPy's."""
    words = keys(["farm_id=1..2", "farm_type=a"])
    assert keys({"farm_id": range(1, 3), "farm_type": "a"}) == words
    assert keys({"farm_id": np.arange(1, 3), "farm_type": ["a"]}) == words


def test_objects_are_selected_as_they_are_declared() -> None:
    """A date by itself or by its text; a tuple that is a value is one value."""
    days = [datetime.date(2026, 1, day) for day in (1, 2)]
    plan = plan_product({"day": days, "pair": [(1, 2), (3, 4)]})
    found = keys({"day": days[1], "pair": (3, 4)}, plan)
    assert found == [("2026-01-02", "[3, 4]")]
    assert keys(["day=2026-01-02", "pair=[3, 4]"], plan) == found
    assert keys({"farm_id": (1, 2)}) == keys({"farm_id": [1, 2]})


@pytest.mark.parametrize("text", ["(3, 4)", "(3,4)", "[3,4]", "[3, 4]"])
def test_a_tuple_is_named_as_python_writes_it(text: str) -> None:
    plan = plan_product({"pair": [(1, 2), (3, 4)]})
    assert keys([f"pair={text}"], plan) == [("[3, 4]",)]
    assert keys(["pair=(1, 2)", f"pair={text}"], plan) == [("[1, 2]",), ("[3, 4]",)]


@pytest.mark.parametrize("text", ["[1, 2],[3, 4]", "(1, 3)", "(1, 2), (3, 4)"])
def test_what_names_no_tuple_says_how_they_are_named(text: str) -> None:
    plan = plan_product({"pair": [(1, 2), (3, 4)]})
    with pytest.raises(UsageError, match="name one tuple in each word, with its brackets"):
        keys([f"pair={text}"], plan)


def test_a_value_that_differs_by_rounding_is_selected() -> None:
    """As a run takes it for the one that is there."""
    plan = plan_product({"x": [0.3, 0.4], "n": [1, 2]})
    assert keys(["x=0.30000000000000004", "n=1"], plan) == [(0.3, 1)]
    assert keys({"x": 0.1 + 0.2, "n": 1}, plan) == [(0.3, 1)]
    with pytest.raises(UsageError, match=r"x has no value 0\.31"):
        keys(["x=0.31"], plan)


def test_an_empty_text_is_a_value() -> None:
    assert keys(["site="], plan_product({"site": ["", "a"]})) == [("",)]


def test_nothing_selected_is_everything() -> None:
    assert len(keys([])) == len(keys({})) == len(PLAN)


@pytest.mark.parametrize(
    ("only", "says"),
    [
        (["farm_id=9"], "farm_id has no value 9: it has 0, 1, 2, 3"),
        (["farm_id=1,9"], "farm_id has no value 9"),
        (["farm_id=7..9"], "farm_id has no value 7..9"),
        (["farm_type=1..2"], "farm_type has no value 1..2: it has 15MW"),
        (["farm=1"], "no parameter 'farm': choose by farm_id, farm_type, wind, is_wet"),
        (["farm_id"], "'farm_id' selects no tasks: write farm_id=3"),
        (["farm_id="], "'farm_id=' selects no tasks"),
        ({"farm_id": 9}, "farm_id has no value 9"),
        ({"wind": "a"}, "wind has no value 'a'"),
        ({"wind": None}, "wind has the value None"),
    ],
)
def test_what_is_not_there_is_refused(only: Only, says: str) -> None:
    """The message names what there is."""
    with pytest.raises(UsageError) as caught:
        read_selection(only, PLAN)
    assert says in str(caught.value)


def test_many_values_are_not_all_shown() -> None:
    with pytest.raises(UsageError) as caught:
        read_selection(["seed=-1"], plan_product({"seed": range(1000)}))
    assert str(caught.value) == "seed has no value -1: it has 0, 1, 2, 3, 4, 5, 6, 7, … 999"
