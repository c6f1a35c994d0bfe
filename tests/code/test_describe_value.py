"""Values as they are compared between runs: equal ones are equal, in any process."""

from __future__ import annotations

import datetime
import decimal
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

from h5sweep.code.describe_value import describe_value, value_text


@dataclass
class Site:
    loss: float = 0.1
    near: list[Site] = field(default_factory=list)


PAIRS: list[tuple[Any, Any]] = [
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
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda value: type(value).__name__)
def test_different_values_are_told_apart(one: Any, other: Any) -> None:
    texts = [json.dumps(describe_value(v), allow_nan=False) for v in (one, other, one)]
    assert texts[0] != texts[1]
    assert texts[0] == texts[2]
    assert value_text(describe_value(one)) != value_text(describe_value(other))


def test_of_what_has_no_value_the_type_is_said() -> None:
    for value in (threading.Lock(), logging.getLogger("x"), np.random.default_rng()):
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
