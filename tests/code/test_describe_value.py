"""Values as they are compared between runs: equal ones are equal, in any process."""

from __future__ import annotations

import argparse
import datetime
import decimal
import enum
import functools
import json
import logging
import pathlib
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from h5sweep.code.describe_value import describe_constant, describe_value, value_text


@dataclass
class Site:
    loss: float = 0.1
    near: list[Site] = field(default_factory=list)


def with_k(base: type, k: int) -> Any:
    """An object of a subclass of `base`, with an attribute beside what it is."""
    value = type("Own", (base,), {})([1] if base in (list, tuple, set) else 1)
    value.k = k
    return value


class Slots:
    __slots__ = ("__private", "k")

    def __init__(self, k: int, private: int = 0) -> None:
        self.k, self.__private = k, private


class MoreSlots(Slots):
    __slots__ = ("other",)


class OwnDict(dict[str, int]):
    k = 0


class OwnArray(np.ndarray[Any, Any]):
    k = 0


class OwnError(Exception):
    pass


class Kind(enum.Enum):
    A = 1
    B = 2


def own_dict(k: int) -> OwnDict:
    value = OwnDict(a=1)
    value.k = k
    return value


def own_array(k: int) -> OwnArray:
    value = np.ones(2).view(OwnArray)
    value.k = k
    return value


def nested(value: Any, depth: int = 15) -> Any:
    return [nested(value, depth - 1)] if depth else value


def namespace(k: int) -> argparse.Namespace:
    return argparse.Namespace(scale=k)


def with_attrs(value: Any) -> Any:
    value.attrs["units"] = "m"
    return value


PAIRS: list[tuple[Any, Any]] = [
    *((with_k(base, 1), with_k(base, 2)) for base in (list, tuple, set, float, int, str)),
    (own_dict(1), own_dict(2)),
    (own_array(1), own_array(2)),
    (MoreSlots(1), MoreSlots(2)),
    (MoreSlots(1), MoreSlots(1, private=1)),
    (OwnError(1), OwnError(2)),
    (nested(1), nested(2)),
    (nested(1, 400), nested(2, 400)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"type": "float", "value": "nan"}, float("nan")),
    (namespace(1), namespace(2)),
    (namespace(0), namespace(None)),  # type: ignore[arg-type]
    (functools.partial(pow, 1), functools.partial(pow, 2)),
    (functools.partialmethod(pow, 1), functools.partialmethod(pow, 2)),
    (functools.cmp_to_key(lambda a, b: 1), functools.cmp_to_key(lambda a, b: 2)),
    (np.vectorize(lambda x: x + 1), np.vectorize(lambda x: x + 2)),
    (functools.cache(lambda x: x + 1), functools.cache(lambda x: x + 2)),
    (Kind.A, Kind.B),
    ({Kind.A}, {Kind.B}),
    (1, 2),
    (1, True),
    (1.0, float("nan")),
    ("a", "b"),
    (b"a", b"b"),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"a": 2}),
    ({1: "a"}, {"1": "b"}),
    ({1, 2}, {1, 3}),
    (np.arange(5), np.arange(5.0)),
    (np.arange(6), np.arange(6).reshape(2, 3)),
    (np.zeros((3, 0)), np.zeros((0, 3))),
    (np.float32(0.1), np.float32(0.2)),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-02")),
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]})),
    (pd.Series([1.0]), pd.Series([2.0])),
    (Site(), Site(0.2)),
    (decimal.Decimal("1.10"), decimal.Decimal("1.1")),
    (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    (pathlib.Path("a"), pathlib.Path("b")),
    (re.compile("a"), re.compile("b")),
    (np.sin, np.cos),
    (list(range(1000)), list(range(1001))),
    ([1], (1,)),
    (pd.Series([1.0]), with_attrs(pd.Series([1.0]))),
    (xr.Dataset({"a": 1}), with_attrs(xr.Dataset({"a": 1}))),
    (xr.Dataset({"a": ("x", [1])}), xr.Dataset({"a": ("x", [1], {"units": "m"})})),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda value: type(value).__name__)
def test_different_values_are_told_apart(one: Any, other: Any) -> None:
    texts = [json.dumps(describe_value(v), allow_nan=False) for v in (one, other, one)]
    assert texts[0] != texts[1]
    assert texts[0] == texts[2]
    if "deeper" in texts[0] or "attributes" in texts[0]:
        return  # more than people want to read
    assert value_text(describe_value(one)) != value_text(describe_value(other))


HOLDERS: dict[str, Any] = {
    "itself": lambda held: held,
    "a dict of dicts": lambda held: {"c": {"curve": held}},
    "a list": lambda held: [1, held],
    "a tuple": lambda held: (held,),
    "a partial": lambda held: functools.partial(pow, held),
    "an own object": lambda held: Site(near=[held]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_objects_of_packages_in_constants_are_told_apart(holder: str) -> None:
    """Wherever they are in it: their parts go to workers as they are."""
    hold = HOLDERS[holder]
    one, other, same = (describe_constant(hold(np.poly1d([1, k]))) for k in (1, 2, 1))
    assert one == same
    assert one != other
    assert describe_constant(hold(threading.Lock())) is not None  # which cannot be pickled


def test_checksums_in_a_value_are_shortened() -> None:
    text = value_text(describe_constant({"a": np.arange(3), "b": np.poly1d([1])}))
    assert "sha256 " in text
    assert len(text) < 120


def test_of_what_has_no_value_the_type_is_said() -> None:
    groups = pd.DataFrame({"farm": [1, 2]}).groupby("farm")
    for value in (threading.Lock(), logging.getLogger("x"), np.random.default_rng(), groups):
        described = describe_value(value)
        assert described.keys() == {"type"}
        assert "0x" not in json.dumps(described)


def test_circles_and_large_graphs_end() -> None:
    """As those of a mesh, in which each cell knows its neighbours."""
    sites = [Site(float(number)) for number in range(300)]
    for site in sites:
        site.near = sites
    assert "sha256" in describe_value(sites)
    before = describe_value(sites[0])
    sites[7].loss = -1.0
    assert describe_value(sites[0]) != before


def test_the_order_of_a_set_does_not_show() -> None:
    """Which differs from process to process."""
    code = (
        "from h5sweep.code.describe_value import describe_value\n"
        "print(describe_value({str(n) for n in range(50)}), describe_value({'b', 'a'}))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1


SETS = """
import enum
from dataclasses import dataclass
from h5sweep.code.describe_value import describe_value

Kind = enum.Enum("Kind", "A B C D E")

@dataclass(frozen=True)
class Site:
    name: str
    near: tuple = ()

sites = [Site(name) for name in "abcdefgh"]
print(describe_value({"all": set(Kind), "main": Kind.B}))
print(describe_value([set(sites), sites[3], {(1, sites[2]), (1, sites[5])}]))
print(describe_value({frozenset(sites[:5]), frozenset(sites[2:])}))
print(describe_value({Site("a", (((i, i),),)) for i in "xyzuvw"}))
"""


def test_members_of_a_set_beside_it_are_the_same_in_any_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SETS],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "1234"
    }
    assert len(said) == 1


def test_objects_that_know_each_other_by_sets_end() -> None:
    sites = [Hashed(number) for number in range(100)]
    for site in sites:
        site.near = set(sites)
    assert "sha256" in describe_value(sites[0])


class Hashed:
    def __init__(self, number: int) -> None:
        self.number, self.near = number, set[Hashed]()
