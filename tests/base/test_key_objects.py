"""Dates, paths, members of enums and tuples as keys: one text, and the same object again."""

from __future__ import annotations

import datetime
import math
from collections import namedtuple
from enum import Enum, Flag
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from h5sweep.base.key_objects import maker
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import Plan, plan_product
from h5sweep.errors import UsageError


class Site(Enum):
    NORTH = "north"
    SOUTH = ("s", 1)
    N = "north"  # noqa: PIE796  # another name of the same member


class Other(Enum):
    NORTH = 1


class Access(Flag):
    READ = 1
    WRITE = 2


Pair = namedtuple("Pair", "x y")
DAY = datetime.date(2024, 1, 31)
NOON = datetime.datetime(2024, 1, 31, 12, 0, 0, 5)

OBJECTS = [
    (DAY, "2024-01-31"),
    (NOON, "2024-01-31T12:00:00.000005"),
    (datetime.datetime(2024, 1, 31), "2024-01-31T00:00:00"),
    (NOON.replace(tzinfo=datetime.UTC), "2024-01-31T12:00:00.000005+00:00"),
    (np.datetime64("2024-01-31"), "2024-01-31"),
    (np.datetime64("2024-01"), "2024-01"),
    (np.datetime64("2024-01-31T12:00:00.123456789"), "2024-01-31T12:00:00.123456789"),
    (pd.Timestamp("2024-01-31 12:00:00.123456789"), "2024-01-31T12:00:00.123456789"),
    (pd.Timestamp("2024-01-31", tz="UTC"), "2024-01-31T00:00:00+00:00"),
    (Path("farms/a b.yml"), "farms/a b.yml"),
    (Path("/"), "/"),
    (Path(), "."),
    (Site.NORTH, "NORTH"),
    (Site.N, "NORTH"),
    (Site.SOUTH, "SOUTH"),
    ((1, 2.5, '\u00e4"', True), '[1, 2.5, "\u00e4\\"", true]'),
    ((1.0, 2), "[1.0, 2]"),
    ((math.inf,), "[Infinity]"),
    ((), "[]"),
]


@pytest.mark.parametrize(("value", "text"), OBJECTS, ids=repr)
def test_an_object_has_one_text_and_comes_back_from_it(value: object, text: str) -> None:
    """The key is a text, also after the disk, and the form makes of it what was declared."""
    for plan in (plan_product({"x": [value]}), plan_list([{"x": value}])):
        assert plan.key(0) == Plan.from_json(plan.to_json()).key(0) == {"x": text}
        assert plan.types == {"x": "str"}
        again = maker(plan.forms["x"])(text)
        assert (type(again), again) == (type(value), value)


@pytest.mark.parametrize(("value", "text"), OBJECTS, ids=repr)
def test_an_object_finds_its_task(value: object, text: str) -> None:
    """A task is found by the object that was declared, and by its text."""
    plan = plan_product({"x": [value]})
    assert plan.number({"x": value}) == plan.number({"x": text}) == 0


def test_plain_numbers_in_a_tuple_may_be_of_numpy() -> None:
    """They are plain in the key, as everywhere."""
    assert plan_product({"x": [(np.int64(1), np.float64(0.5))]}).key(0) == {"x": "[1, 0.5]"}


def test_a_parameter_of_plain_values_has_no_form() -> None:
    """Only objects need to be made again."""
    assert plan_product({"a": [1], "b": ["2024-01-31"], "c": [0.5]}).forms == {}


def test_the_form_stays_in_a_product_and_in_another_order() -> None:
    """Whatever is done to a plan before it runs, the function gets its objects."""
    plan = plan_product({"day": [DAY], "seed": range(2), "at": [NOON]}).ordered(
        ["at", "seed", "day"]
    )
    assert plan.forms == {"at": "datetime", "day": "date"}


def test_a_text_in_the_plan_is_the_object_that_is_declared_now() -> None:
    """A sweep over texts goes on as one over dates, with no new task."""
    texts = plan_product({"day": ["2024-01-31"]})
    assert texts.extended(plan_product({"day": [DAY]})) == (texts, 0)


def test_a_table_of_times_is_a_list_of_tasks() -> None:
    """pandas has times of its own, which the function gets."""
    plan = plan_list(pd.DataFrame({"at": pd.to_datetime(["2024-01-31", "2024-02-01"])}))
    assert [key["at"] for key in map(plan.key, range(2))] == [
        "2024-01-31T00:00:00",
        "2024-02-01T00:00:00",
    ]
    assert plan.forms == {"at": "timestamp"}


def local_member() -> Enum:
    class Local(Enum):
        A = 1

    return Local.A


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (NOON.replace(tzinfo=ZoneInfo("Europe/Copenhagen")), "UTC"),
        (pd.Timestamp("2024-01-31", tz="Europe/Copenhagen"), "UTC"),
        (pd.NaT, "cannot be made again"),
        (np.datetime64("NaT"), "cannot be made again"),
        (np.datetime64("NaT", "D"), "cannot be made again"),
        (local_member(), "at the top of a file"),
        (Access.READ | Access.WRITE, "single members"),
        (Path("a\0b"), "NUL"),
        (Path("\udcff"), "Unicode"),
        ((1, None), "NoneType"),
        ((1, math.nan), "nan"),
        ((1, (2, 3)), "a tuple may hold"),
        ((1, DAY), "a tuple may hold"),
        (Pair(1, 2), "Pair"),
        (PurePosixPath("a"), "PurePosixPath"),
        (datetime.timedelta(1), "timedelta"),
        (np.array(np.datetime64("2024-01-31")), "datetime64"),
    ],
    ids=repr,
)
def test_an_object_without_one_text_is_refused(value: object, words: str) -> None:
    """The message names the parameter and what is wrong with its value."""
    with pytest.raises(UsageError, match=r"^x\b") as caught:
        plan_product({"x": [value]})
    assert words in str(caught.value)
    assert plan_product({"x": ["text"]}).number({"x": value}) is None


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([DAY, NOON], "date and datetime"),
        ([DAY, "2024-02-01"], "date and str"),
        ([Site.NORTH, Other.NORTH], "Other and Site"),
        ([Path("a"), "b"], "PosixPath and str"),
        ([(1,), 1], "int and tuple"),
        (
            [np.datetime64("2024-01-31"), np.datetime64("2024-01-31T00")],
            r"datetime64\[D\] and datetime64\[h\]",
        ),
    ],
    ids=repr,
)
def test_objects_of_two_kinds_are_no_parameter(values: list[object], types: str) -> None:
    """A parameter has one type, also if all its values have texts."""
    with pytest.raises(UsageError, match=f"x has values of type {types}: a parameter has one type"):
        plan_product({"x": values})


def test_an_object_given_twice_is_refused() -> None:
    """Two names of one member are one task."""
    with pytest.raises(UsageError, match="x has the value 'NORTH' twice"):
        plan_product({"x": [Site.NORTH, Site.N]})
