"""The plan: every task once, a number for good, and nothing that a key cannot hold."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from enum import Enum, IntEnum, StrEnum
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import some_of
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import (
    Plan,
    crossed,
    key_json,
    key_text,
    plan_product,
)
from h5sweep.base.study_function import check_signature
from h5sweep.errors import UsageError


def keys_of(plan: Plan) -> list[tuple[object, ...]]:
    return [tuple(plan.key(number).values()) for number in range(len(plan))]


def reloaded(plan: Plan) -> Plan:
    return Plan.from_json(plan.to_json())


def write_csv(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "tasks.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# Products


def test_a_product_numbers_the_last_parameter_fastest() -> None:
    """Tasks are numbered as nested loops would run them."""
    plan = plan_product({"farm_id": range(2), "kind": ["on", "off"], "seed": [7, 3]})
    assert keys_of(plan) == [(f, k, s) for f in range(2) for k in ("on", "off") for s in (7, 3)]
    assert plan.names == ("farm_id", "kind", "seed")
    assert len(plan) == 8


def test_a_key_finds_its_number_and_a_number_its_key() -> None:
    """Number and key lead to each other for every task."""
    plan = plan_product({"farm_id": range(3), "aep": [0.5, math.inf], "flag": [True, False]})
    assert [plan.number(plan.key(number)) for number in range(len(plan))] == list(range(12))


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"seed": 1},
        {"seed": 1, "x": 0.5, "more": 1},
        {"seed": 99, "x": 0.5},
        {"seed": "1", "x": 0.5},
        {"seed": 1, "x": "offshore"},
        {"seed": 1, "x": "0.5"},
        {"seed": 1, "x": [0.5]},
        {"seed": 1, "x": {}},
        {"seed": 1, "x": None},
        {"seed": 1, "x": math.nan},
    ],
    ids=str,
)
def test_a_key_that_is_not_in_the_plan_has_no_number(key: dict[str, object]) -> None:
    """Any other key, also one that no plan could have, has no number and raises nothing."""
    assert plan_product({"seed": range(3), "x": [0.5, math.inf]}).number(key) is None


def test_generators_and_sets_are_parameters_too() -> None:
    """Whatever can be iterated gives the values of a parameter."""
    assert keys_of(plan_product({"seed": (s for s in range(3)), "x": {5}})) == [
        (0, 5),
        (1, 5),
        (2, 5),
    ]


class Colour(str, Enum):  # noqa: UP042  # the older way, whose str() is not its text
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("given_value", "plain", "type_name"),
    [
        (np.int64(3), 3, "int"),
        (np.uint8(3), 3, "int"),
        (np.array(3), 3, "int"),
        (np.float32(0.5), 0.5, "float"),
        (np.float16(0.1), float(np.float16(0.1)), "float"),
        (np.float64(0.1), 0.1, "float"),
        (np.bool_(True), True, "bool"),
        (np.str_("on"), "on", "str"),
        (Colour.RED, "red", "str"),
        (Level.HIGH, 3, "int"),
        (Word.ONE, "one", "str"),
        (2**63 - 1, 2**63 - 1, "int"),
        (-(2**63), -(2**63), "int"),
        ("ä\n\u2028=,", "ä\n\u2028=,", "str"),
        ("", "", "str"),
        (math.inf, math.inf, "float"),
        (-math.inf, -math.inf, "float"),
        (5e-324, 5e-324, "float"),
    ],
    ids=repr,
)
def test_a_value_becomes_plain(given_value: object, plain: object, type_name: str) -> None:
    """A value that NumPy or an enum wraps is the plain value, also after the disk."""
    for plan in (plan_product({"x": [given_value]}), plan_list([{"x": given_value}])):
        for same in (plan, reloaded(plan)):
            (value,) = same.key(0).values()
            assert value == plain
            assert type(value) is type(plain)
            assert same.columns[0].type == type_name
        json.loads(plan.to_json().splitlines()[1], parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan"),
        (np.float32("nan"), "nan"),
        (None, "NoneType"),
        (1j, "complex"),
        (b"on", "bytes"),
        ([1], "list"),
        (np.array([1]), "ndarray"),
        (np.longdouble(1), "longdouble"),
        (np.timedelta64(5, "ns"), "timedelta64"),
        ("a\0b", "NUL"),
        ("\ud800", "Unicode"),
        (2**63, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (10**5000, "16610 bits"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_a_value_that_no_key_can_hold_is_refused(value: object, words: str) -> None:
    """The message names the parameter and what is wrong with its value."""
    for declare in (lambda: plan_product({"x": [value]}), lambda: plan_list([{"x": value}])):
        with pytest.raises(UsageError, match=r"^x\b") as caught:
            declare()
        assert words.replace("64 bits", "the limit is 63") in str(caught.value)


def test_ints_among_floats_are_floats() -> None:
    """A parameter with values 1 and 2.5 is a float parameter."""
    plan = reloaded(plan_product({"x": [1, 2.5]}))
    assert [type(value) for value in plan.columns[0].values] == [float, float]


def test_an_int_that_no_float_equals_is_refused_among_floats() -> None:
    """Two keys never become one by rounding."""
    with pytest.raises(UsageError, match="no exact float"):
        plan_product({"x": [2**53 + 1, 0.5]})


@pytest.mark.parametrize("values", [[1, "a"], [True, 1], [0.5, False], ["a", 0.5]], ids=str)
def test_a_parameter_has_one_type(values: list[object]) -> None:
    """Values of different types under one name are refused."""
    with pytest.raises(UsageError, match=r"x has values of type \w+ and \w+"):
        plan_product({"x": values})


def test_negative_zero_is_zero() -> None:
    """-0.0 equals 0.0, so it is stored as 0.0 and both are one key."""
    assert str(plan_product({"x": [-0.0]}).key(0)["x"]) == "0.0"
    with pytest.raises(UsageError, match="twice"):
        plan_product({"x": [0.0, -0.0]})


@pytest.mark.parametrize("values", [[1, 2, 1], ["a", "a"], [1.5, 1.5, 2], [1, np.int8(1)]], ids=str)
def test_a_value_given_twice_is_refused(values: list[object]) -> None:
    """A product with equal values would have equal tasks."""
    with pytest.raises(UsageError, match=f"x has the value {values[0]!r} twice"):
        plan_product({"x": values})


@pytest.mark.parametrize("values", ["abc", b"abc", 5, None], ids=repr)
def test_a_bare_value_is_refused_as_a_list_of_values(values: object) -> None:
    """`farm_type="onshore"` is not swept over its letters."""
    with pytest.raises(UsageError, match="give the values"):
        plan_product({"x": values})  # type: ignore[dict-item]


BAD_NAMES = ["", "a b", "1", "a/b", "ä b", "task", "finished_at", "provenance"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_column_is_refused(tmp_path: Path, name: str) -> None:
    """A parameter is an identifier, and none of the columns that every output has."""
    declarations: list[Callable[[], Plan]] = [
        lambda: plan_product({name: [1]}),
        lambda: plan_list([{name: 1}]),
        lambda: plan_list(pd.DataFrame({name: [1]})),
        lambda: plan_list(write_csv(tmp_path, f"ok,{name}\n1,1\n")),
    ]
    for declare in declarations:
        with pytest.raises(UsageError, match=repr(name)):
            declare()


def test_a_product_of_plans_varies_the_second_fastest() -> None:
    """Every task of the one with every task of the other, numbered as nested loops run."""
    cases = plan_list([{"farm": 2, "kind": "on"}, {"farm": 1, "kind": "off"}])
    plan = crossed(cases, plan_product({"x": [0.5, 0.25], "seed": range(3)}))
    loops = [
        (*case, x, s) for case in ((2, "on"), (1, "off")) for x in (0.5, 0.25) for s in (0, 1, 2)
    ]
    assert keys_of(plan) == loops
    assert plan.names == ("farm", "kind", "x", "seed")


# Empty sweeps


def test_an_empty_sweep_is_refused(tmp_path: Path) -> None:
    """No parameter, no value, no row: each is told, none is run."""
    declarations: list[Callable[[], Plan]] = [
        lambda: plan_product({"seed": range(3), "x": []}),
        lambda: plan_list([]),
        lambda: plan_list([{}]),
        lambda: plan_list(pd.DataFrame({"seed": []})),
        lambda: plan_list(pd.DataFrame()),
        lambda: plan_list(write_csv(tmp_path, "")),
        lambda: plan_list(write_csv(tmp_path, "seed,x\n")),
    ]
    for declare in declarations:
        with pytest.raises(UsageError, match="empty"):
            declare()
    with pytest.raises(UsageError, match="at least one parameter"):
        plan_product({})


def test_a_product_of_too_many_tasks_is_refused() -> None:
    """More than 2**32 tasks are told before memory is filled with them."""
    with pytest.raises(UsageError, match="too many"):
        plan_product({"a": range(70_000), "b": range(70_000)})


# Lists


def test_a_list_keeps_its_order() -> None:
    """Task number n is row n of the list; columns follow the first row."""
    rows = [{"seed": 3, "x": "b"}, {"x": "a", "seed": 1}, {"seed": 3, "x": "a"}]
    assert keys_of(plan_list(rows)) == [(3, "b"), (1, "a"), (3, "a")]


def test_duplicate_tasks_of_a_list_are_named() -> None:
    """The message names both rows and their key."""
    rows = [{"seed": 1, "x": 1}, {"seed": 2, "x": 1}, {"seed": 3, "x": 1}, {"seed": 2, "x": 1}]
    with pytest.raises(UsageError, match=r"tasks 1 and 3 have the same key: seed=2, x=1"):
        plan_list(rows)


@pytest.mark.parametrize(
    "odd", [{"seed": 1}, {"seed": 1, "x": 1, "more": 1}, {"seed": 1, "X": 1}, {"seed": 1, 2: 3}]
)
def test_a_row_with_other_parameters_is_named(odd: dict[object, object]) -> None:
    """The message names the row that differs."""
    with pytest.raises(UsageError, match="task 2 and task 0 differ in the parameter"):
        plan_list([{"seed": 1, "x": 1}, {"seed": 2, "x": 1}, odd])


@pytest.mark.parametrize("tasks", [5, [1, 2], [("seed", 1)], None], ids=repr)
def test_a_list_of_something_else_is_refused(tasks: object) -> None:
    """Only a list of dicts, a CSV or a table is a list of tasks."""
    with pytest.raises(UsageError, match="give"):
        plan_list(tasks)


def with_defaults(seed, x=1.5, kind="on", rest=None): ...


def test_a_dict_may_leave_out_what_has_a_default() -> None:
    """The default is in the key: writing it out later is the same task."""
    short = plan_list([{"seed": 1}, {"seed": 2, "x": 3, "kind": "off"}], with_defaults)
    long = plan_list(
        [{"seed": 1, "x": 1.5, "kind": "on"}, {"seed": 2, "x": 3, "kind": "off"}], with_defaults
    )
    assert short == long
    assert short.key(0) == {"seed": 1, "x": 1.5, "kind": "on"}
    assert short.extended(long) == (short, 0)


def test_a_default_that_no_task_gives_is_no_parameter() -> None:
    """What every dict leaves out is left to the function."""
    assert plan_list([{"seed": 1}, {"seed": 2}], with_defaults).names == ("seed",)


@pytest.mark.parametrize(
    "rows", [[{"seed": 1}, {"seed": 2, "rest": 3}], [{"seed": 1, "rest": 3}, {"seed": 2}]]
)
def test_a_default_that_no_key_can_hold_is_refused(rows: list[dict[str, object]]) -> None:
    """The message names the parameter, the function and what to do."""
    with pytest.raises(UsageError, match=r"'rest'.* default in with_defaults .*in every task"):
        plan_list(rows, with_defaults)


def test_a_dict_may_not_leave_out_what_has_no_default() -> None:
    """Neither what the function needs nor what it does not know."""
    for odd in ({"x": 1.0}, {"seed": 1, "x": 1.0, "more": 2}):
        with pytest.raises(UsageError, match="task 1 and task 0 differ in the parameter"):
            plan_list([{"seed": 1, "x": 0.5}, odd], with_defaults)


# CSV


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["1", "2"], [1, 2]),
        (["-1", "+2"], [-1, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1.", ".5"], [1.0, 0.5]),
        (["1e3", "-2E-3"], [1000.0, -0.002]),
        (["inf", "-inf"], [math.inf, -math.inf]),
        (["true", "False"], [True, False]),
        (["true", "1"], ["true", "1"]),
        (["007", "8"], ["007", "8"]),
        (["-007", "8"], ["-007", "8"]),
        (["007.5", "8"], ["007.5", "8"]),
        (["1_2", "3"], ["1_2", "3"]),
        (["0x10", "3"], ["0x10", "3"]),
        (["１", "3"], ["１", "3"]),
        (["a", "1"], ["a", "1"]),
        ([" 1", "2 "], [1, 2]),
        (['"a,b"', '"c""d"'], ["a,b", 'c"d']),
        (["0", "1"], [0, 1]),
        (["0.0", "1"], [0.0, 1.0]),
        (["9223372036854775807", "0"], [2**63 - 1, 0]),
    ],
    ids=str,
)
def test_a_csv_column_has_the_narrowest_type_of_its_texts(
    tmp_path: Path, column: list[str], values: list[object]
) -> None:
    """Numbers become numbers only if no text would be lost by it: `007` stays text."""
    path = write_csv(tmp_path, "x\n" + "\n".join(column) + "\n")
    read = [value for (value,) in keys_of(plan_list(path))]
    assert read == values
    assert [type(value) for value in read] == [type(value) for value in values]


@pytest.mark.parametrize(
    "text",
    [
        "seed,x\n1,a\n2,b\n",
        "\ufeffseed,x\n1,a\n2,b\n",
        "seed,x\r\n1,a\r\n2,b\r\n",
        "seed,x\n1,a\n\n2,b",
        ' seed , x \n1,a\n2,"b"\n',
    ],
    ids=["plain", "BOM", "CRLF", "blank line, no newline at the end", "spaces and quotes"],
)
def test_a_csv_is_read_however_it_was_saved(tmp_path: Path, text: str) -> None:
    """Editors and spreadsheets differ; the tasks are the same."""
    plan = plan_list(str(write_csv(tmp_path, text)))
    assert plan.names == ("seed", "x")
    assert keys_of(plan) == [(1, "a"), (2, "b")]


def optional_hub(seed: int, site: str = "none", hub: float = 80.0) -> None: ...


def test_an_empty_cell_leaves_out_what_has_a_default(tmp_path: Path) -> None:
    """Its column keeps its type; in the key is the default."""
    (tmp_path / "tasks.csv").write_text("seed,site,hub\n1,a,\n2,,100\n")
    plan = plan_list(tmp_path / "tasks.csv", optional_hub)
    assert list(plan.keys()) == [
        {"seed": 1, "site": "a", "hub": 80.0},
        {"seed": 2, "site": "none", "hub": 100.0},
    ]


def test_an_empty_cell_among_numbers_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.csv").write_text("seed,hub\n1,80\n,100\n")
    with pytest.raises(UsageError, match="line 3: seed is empty, and optional_hub has no default"):
        plan_list(tmp_path / "tasks.csv", optional_hub)
    with pytest.raises(UsageError, match="line 3: seed is empty: give a value in every row"):
        plan_list(tmp_path / "tasks.csv")


def test_an_uneven_row_of_a_csv_is_named(tmp_path: Path) -> None:
    """The message names the file and the line as an editor counts it."""
    path = write_csv(tmp_path, "seed,x\n1,a\n\n2\n")
    with pytest.raises(UsageError, match=r"tasks.csv, line 4: 1 values for 2 parameters"):
        plan_list(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"seed,x\n1,\xff\n", "UTF-8"),
        (b"seed,seed\n1,2\n", "twice"),
        (b"seed,x\n1,nan\n2,0.5\n", "x is nan"),
        (b"seed\n1\n2\n1\n", "tasks 0 and 2 have the same key: seed=1"),
        (b"seed\n9223372036854775808\n", "64 bits"),
    ],
    ids=["no UTF-8", "a name twice", "nan", "duplicates", "huge int"],
)
def test_a_csv_that_is_no_list_of_tasks_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    """The message says what is wrong with the file."""
    with pytest.raises(UsageError, match=words.replace("64 bits", "the limit is 63")):
        plan_list(write_csv(tmp_path, content))


@pytest.mark.parametrize("name", ["nowhere.csv", "."])
def test_a_csv_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """The message names the path and the reason."""
    with pytest.raises(UsageError, match="cannot read the tasks from"):
        plan_list(tmp_path / name)


# Tables


def test_a_data_frame_is_a_list_of_tasks() -> None:
    """Row n of a DataFrame is task n, whatever its index says."""
    table = pd.DataFrame({"seed": [3, 1], "x": [0.5, 1.0], "s": ["a", "b"], "f": [True, False]})
    table.index = pd.Index([9, 9])
    plan = plan_list(table)
    assert keys_of(plan) == [(3, 0.5, "a", True), (1, 1.0, "b", False)]
    assert [column.type for column in plan.columns] == ["int", "float", "str", "bool"]


def test_a_data_frame_with_a_hole_is_refused() -> None:
    """A missing value is no value of a parameter."""
    for column in ([1.0, None], ["a", None]):
        with pytest.raises(UsageError, match=r"^x\b"):
            plan_list(pd.DataFrame({"x": column}))


def test_a_data_frame_with_a_name_twice_is_refused() -> None:
    """Two columns of one name cannot both be arguments."""
    with pytest.raises(UsageError, match="twice"):
        plan_list(pd.DataFrame([[1, 2]], columns=["x", "x"]))


def test_a_list_needs_neither_pandas_nor_numpy() -> None:
    """Planning from dicts, a product or a CSV imports neither pandas nor NumPy."""
    run_python(
        "import sys; from h5sweep.base.listed_plan import plan_list\n"
        "from h5sweep.base.plan import plan_product\n"
        "plan_list([{'x': 1}]); plan_product({'x': [1]})\n"
        "assert not {'pandas', 'numpy', 'h5py'} & set(sys.modules)"
    )


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# The function


def test_a_function_that_takes_the_parameters_is_accepted() -> None:
    """By name, by keyword only, by `**kwargs`, and with defaults that the sweep leaves alone."""
    check_signature(lambda seed, x: None, ["x", "seed"])
    check_signature(lambda *, seed, x: None, ["x", "seed"])
    check_signature(lambda **rest: None, ["x", "seed"])
    check_signature(lambda seed, **rest: None, ["x", "seed"])
    check_signature(lambda seed, x=1, *more, y=2: None, ["seed"])
    check_signature(lambda seed, x=1: None, ["x", "seed"])


def unknown(seed): ...
def missing(seed, x, y): ...
def missing_keyword(seed, x, *, y): ...
def positional_only(seed, /, x): ...
def takes_nothing(): ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unknown, "unknown takes no parameter 'x'; it takes seed"),
        (missing, "missing needs 'y'"),
        (missing_keyword, "missing_keyword needs 'y'"),
        (positional_only, "positional_only takes seed by position only"),
        (takes_nothing, "takes_nothing takes no parameter 'seed'; it takes none"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(
    function: Callable[..., object], words: str
) -> None:
    """The message names the function and the parameter before anything is run."""
    with pytest.raises(UsageError, match=words):
        check_signature(function, ["seed", "x"])


# Extending


def test_an_extended_plan_keeps_every_number() -> None:
    """New tasks come behind the old ones, whose numbers stay."""
    plan = plan_product({"farm_id": range(2), "seed": range(3)})
    wanted = plan_product({"farm_id": range(3), "seed": range(5)})
    extended, gone = plan.extended(wanted)
    assert (len(extended), gone) == (15, 0)
    assert keys_of(extended)[:6] == keys_of(plan)
    assert sorted(keys_of(extended)) == keys_of(wanted)
    assert extended.tasks_shared_with(plan.id) == len(plan)


def test_removed_values_leave_their_tasks() -> None:
    """A smaller sweep leaves the plan as it is and says how many tasks it no longer wants."""
    plan = plan_product({"farm_id": range(2), "seed": range(3)})
    extended, gone = plan.extended(plan_product({"farm_id": [1], "seed": [0, 2]}))
    assert (extended, gone) == (plan, 4)


def test_some_removed_and_some_new() -> None:
    """Removal and extension at once: nothing is renumbered."""
    plan = plan_product({"seed": [1, 2, 3]})
    extended, gone = plan.extended(plan_product({"seed": [5, 3, 4]}))
    assert keys_of(extended) == [(1,), (2,), (3,), (5,), (4,)]
    assert gone == 2


def test_another_order_of_the_parameters_is_the_same_sweep() -> None:
    """Columns keep the order of the plan on disk."""
    plan = plan_product({"farm_id": range(2), "seed": range(3)})
    extended, gone = plan.extended(plan_product({"seed": range(4), "farm_id": range(2)}))
    assert extended.names == ("farm_id", "seed")
    assert keys_of(extended)[:6] == keys_of(plan)
    assert keys_of(extended)[6:] == [(0, 3), (1, 3)]
    assert gone == 0


@pytest.mark.parametrize(
    "parameters",
    [{"seed": [0.5]}, {"seed": ["1"]}, {"seed": [True]}, {"sead": [1]}, {"seed": [1], "x": [1]}],
    ids=str,
)
def test_other_parameters_are_another_sweep(parameters: dict[str, list[object]]) -> None:
    """A plan is not extended over other names or other types."""
    with pytest.raises(UsageError, match="choose another output"):
        plan_product({"seed": [1]}).extended(plan_product(parameters))


VALUES: dict[str, st.SearchStrategy[object]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "str": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    "bool": st.booleans(),
}


@st.composite
def plans(draw: st.DrawFn, count: int = 1) -> list[Plan]:
    """Plans over the same parameters, with tasks of their own."""
    names = draw(st.lists(st.from_regex(r"k[a-z]{0,3}", fullmatch=True), min_size=1, unique=True))
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=len(names)))
    row = st.tuples(*(VALUES[type_name] for _, type_name in zip(names, types, strict=False)))
    # A pool of rows, so that the plans have tasks in common.
    pool = draw(st.lists(row, min_size=1, unique=True))
    made = []
    for _ in range(count):
        rows = draw(st.lists(st.sampled_from(pool), min_size=1, unique=True))
        made.append(plan_list([dict(zip(names, row, strict=True)) for row in rows]))
    return made


@given(plans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_plan_comes_back_from_disk(made: list[Plan]) -> None:
    """Whatever the keys, the file of a plan is the plan, and each key its number."""
    (plan,) = made
    same = reloaded(plan)
    assert (same, same.id) == (plan, plan.id)
    assert [type(v) for c in same.columns for v in c.values] == [
        type(v) for c in plan.columns for v in c.values
    ]
    for number, key in enumerate(same.keys()):
        assert plan.number(key) == number
        assert plan.number(json.loads(key_json(key))) == number


@given(plans(count=3))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_extension_keeps_all_numbers(made: list[Plan]) -> None:
    """However a sweep changes, a task's number never does, and every wanted task is there."""
    plan, *later = made
    for wanted in later:
        extended, gone = plan.extended(wanted)
        assert keys_of(extended)[: len(plan)] == keys_of(plan)
        assert set(keys_of(extended)) == set(keys_of(plan)) | set(keys_of(wanted))
        assert len(set(keys_of(extended))) == len(extended)
        assert gone == len(set(keys_of(plan)) - set(keys_of(wanted)))
        plan = reloaded(extended)


# On disk


def test_every_damaged_byte_of_a_plan_is_noticed_or_harmless() -> None:
    """No damaged plan passes for another one: a number never comes to mean another key."""
    plan = plan_product({"seed": range(30), "kind": ["on", "off"], "x": [0.5, math.inf]})
    content = plan.to_json().encode()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x01
        try:
            read = Plan.from_json(damaged.decode())
        except (ValueError, KeyError, TypeError):
            continue
        assert read == plan, position


@pytest.mark.parametrize(
    "text", ["", "\n", "{}", "[]", "1", "null", '{"format": "h5sweep.plan/2", "id": "x"}']
)
def test_a_text_that_is_no_plan_is_refused(text: str) -> None:
    """What `folder` words as damage is one of three exceptions."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        Plan.from_json(text)


def test_a_plan_that_is_cut_short_is_refused() -> None:
    """Cut anywhere, a plan is no plan."""
    text = plan_product({"seed": range(30), "x": [1]}).to_json()
    for size in range(len(text)):
        with pytest.raises((ValueError, KeyError, TypeError)):
            Plan.from_json(text[:size])


MILLION = r"""
import re, sys
from pathlib import Path
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import Plan, plan_product
if sys.argv[1] == "product":
    plan = plan_product({"farm_id": range(100), "kind": list("abcdefghij"), "seed": range(1000)})
else:
    plan = plan_list({"seed": n, "x": n / 7} for n in range(1_000_000))
assert len(plan) == 1_000_000
path = Path(sys.argv[2])
path.write_text(plan.to_json())
key = plan.key(999_999)
del plan
plan = Plan.from_json(path.read_text())
assert plan.key(999_999) == key and len(plan) == 1_000_000
# Not ru_maxrss, which a process has from its parent.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.parametrize("how", some_of(["product", "list"], 2))
def test_a_million_tasks_fit_into_memory(tmp_path: Path, how: str) -> None:
    """A million tasks are planned, saved and loaded within 600 MB."""
    peak_mb = int(run_python(MILLION, how, str(tmp_path / "plan.jsonl")))
    assert peak_mb < (100 if how == "product" else 600)


# Words


def test_a_key_reads_as_people_write_it() -> None:
    """`key_text` is for people."""
    key = {"farm_id": 3, "farm_type": "offshore", "seed": 42}
    assert key_text(key) == "farm_id=3, farm_type=offshore, seed=42"


def test_a_key_in_a_record_is_strict_json() -> None:
    """No reader meets Infinity, which is no JSON."""
    assert key_json({"x": math.inf, "y": -math.inf, "s": "ü"}) == (
        '{"x": "inf", "y": "-inf", "s": "\\u00fc"}'
    )
