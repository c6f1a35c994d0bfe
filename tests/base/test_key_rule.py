"""What --key means: patterns for names, names of values, and a plan that knows better."""

from __future__ import annotations

import numpy as np
import pytest

from h5sweep.base.key_pattern import as_type
from h5sweep.base.key_rule import KeyRule
from h5sweep.base.plan import Plan, plan_product
from h5sweep.errors import UsageError

PLAN = plan_product({"farm": ["3", "4"], "seed": [1.0, 2.0]})


def test_a_pattern_or_names() -> None:
    """Braces make a pattern of it; blanks around names do not count."""
    rule = KeyRule.parse("farm{farm:d}_s{seed:d}")
    assert rule.pattern is not None and rule.names == ("farm", "seed")
    assert KeyRule.parse(" farm , seed ") == KeyRule(("farm", "seed"))


@pytest.mark.parametrize("text", ["", " , ", "{", "farm}", "farm id", "farm,farm", "duration_s"])
def test_what_names_no_key_is_refused(text: str) -> None:
    """Nothing, half a pattern, no identifier, one name twice, a column of every output."""
    with pytest.raises(UsageError):
        KeyRule.parse(text)


@pytest.mark.parametrize(("expected", "names"), [(None, ()), (PLAN, ("farm", "seed"))])
def test_without_a_key_the_plan_names_it(expected: Plan | None, names: tuple[str, ...]) -> None:
    """Where there is no plan either, nobody has said it."""
    assert KeyRule.parse(None, expected).names == names


def test_names_are_those_of_the_plan() -> None:
    """In any order; a pattern may tell more than the key."""
    assert KeyRule.parse("seed,farm", PLAN).names == ("seed", "farm")
    assert KeyRule.parse("run{run:d}_{farm}_{seed:d}", PLAN).names == ("run", "farm", "seed")
    with pytest.raises(UsageError, match="expected tasks is farm, seed"):
        KeyRule.parse("farm", PLAN)


def test_a_key_has_the_types_of_the_plan() -> None:
    """As far as it is there; what no key can have is none."""
    rule = KeyRule.parse(None, PLAN)
    key = rule.checked({"farm": np.int64(3), "seed": 2})
    assert key == {"farm": "3", "seed": 2.0}
    assert key is not None and type(key["seed"]) is float and rule.is_expected(key)
    assert rule.checked({"farm": 9, "seed": 2}) == {"farm": 9, "seed": 2}
    assert rule.checked({"farm": [3], "seed": 2}) is None and rule.checked({}) is None


def test_rows_are_in_the_order_of_the_names() -> None:
    """Out of a key, out of values; and back."""
    rule = KeyRule.parse("farm{farm:d}_s{seed:d}")
    assert rule.checked_row([np.int8(3), 42]) == (3, 42)
    assert rule.row({"seed": np.int8(42), "farm": 3}) == (3, 42)
    assert rule.key((3, 42)) == {"farm": 3, "seed": 42}


@pytest.mark.parametrize("value", [2**63, float("nan"), [1], b"a", None])
def test_a_row_with_what_no_key_has_is_refused(value: object) -> None:
    """The error names the parameter."""
    with pytest.raises(UsageError, match="seed"):
        KeyRule(("seed",)).checked_row([value])


@pytest.mark.parametrize(
    ("value", "kind", "typed"),
    [
        (3, "float", 3.0),
        (3.0, "int", 3),
        ("3", "int", 3),
        (3, "str", "3"),
        (0.5, "str", "0.5"),
        (1, "bool", True),
        (True, "int", 1),
        ("03", "int", None),
        (3.5, "int", None),
        (2, "bool", None),
        (2**53 + 1, "float", None),
        (float("inf"), "int", None),
        ("a", "float", None),
    ],
)
def test_a_value_as_another_type(value: object, kind: str, typed: object) -> None:
    """Where nothing is lost by it, and nowhere else."""
    found = as_type(value, kind)  # type: ignore[arg-type]
    assert found == typed and type(found) is type(typed)
