"""Which tasks a user means: `farm_id=3,4 seed=0..9`, or the same as a dict in Python.

Every parameter that is named must have one of its values; others may have any.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import compress

from ..errors import UsageError
from .key_objects import object_text
from .near_floats import nearest
from .plan import Key, Plan, PlanColumn, Value, checked_value, key_text
from .units import count_text

Only = Mapping[str, object] | Sequence[str]  # a dict, or words
Selection = Mapping[str, frozenset[Value]]

_MOST_VALUES_SHOWN = 10
_MOST_NEAR = 3


def read_selection(only: Only, plan: Plan) -> Selection:
    """What is selected of a plan: by words such as `farm_id=3,4` and `seed=0..9` (both ends
    included), or by a dict that has a value, or several, for each parameter.

    UsageError if a parameter has no such value, or if there is no such parameter.
    """
    if isinstance(only, Mapping):
        return {name: _values_given(_column(plan, name), given) for name, given in only.items()}
    found: dict[str, frozenset[Value]] = {}
    for word in only:
        name, is_given, text = word.partition("=")
        column = _column(plan, name) if is_given else None
        if column is None or (not text and "" not in column.values):
            raise UsageError(f"{word!r} selects no tasks: write farm_id=3, seed=3,4 or seed=0..9")
        # A parameter that is named twice may have the values of either.
        found[name] = found.get(name, frozenset()) | _values_named(column, text)
    return found


def key_words(key: Mapping[str, Value]) -> list[str]:
    """The words that name one task."""
    return [f"{name}={value}" for name, value in key.items()]


def select_tasks(selection: Selection, plan: Plan) -> Iterator[int]:
    """The numbers of the tasks that have these values."""
    chosen: Iterable[int] = range(len(plan))
    for column in plan.columns:
        if column.name in selection:
            wanted = [value in selection[column.name] for value in column.values]
            numbers = list(chosen)
            chosen = compress(numbers, [wanted[column.codes[number]] for number in numbers])
    return iter(chosen)


def select_one(only: Only, plan: Plan) -> int:
    """The number of the task that is meant; UsageError if it is none, or one of several."""
    selection = read_selection(only, plan)
    found = list(select_tasks(selection, plan))
    if len(found) == 1:
        return found[0]
    if found:
        words = shlex.join(key_words(plan.key(found[0])))
        raise UsageError(
            f"{count_text(len(found), 'task')} have these values: name all of one, such as {words}"
        )
    near = " or ".join(key_text(key) for key in _nearest_keys(plan, selection))
    raise UsageError(
        f"no task has all of these values: near are {near}; there are {values_text(plan)}"
    )


def _nearest_keys(plan: Plan, selection: Selection) -> list[Key]:
    """The first of those that have most of these values."""

    def strangers(task: int) -> int:
        key = plan.key(task)
        return sum(key[name] not in values for name, values in selection.items())

    return [plan.key(task) for task in nsmallest(_MOST_NEAR, range(len(plan)), key=strangers)]


def values_text(plan: Plan, numbers: Iterable[int] | None = None) -> str:
    """Which values the parameters of a plan, or of some of its tasks, have."""
    keys = None if numbers is None else [plan.key(number) for number in numbers]
    return "; ".join(
        f"{column.name}={_some(column.values if keys is None else [k[column.name] for k in keys])}"
        for column in plan.columns
    )


def _column(plan: Plan, name: str) -> PlanColumn:
    for column in plan.columns:
        if column.name == name:
            return column
    raise UsageError(f"{_no_parameter(plan, name)}, such as {_example(plan)}")


def require_parameters(plan: Plan, names: Iterable[str]) -> None:
    """Raise UsageError unless the plan has all of these."""
    for name in names:
        if name not in plan.names:
            raise UsageError(_no_parameter(plan, name))


def _no_parameter(plan: Plan, name: str) -> str:
    return f"there is no parameter {name!r}: choose by {', '.join(plan.names) or 'nothing'}"


def _example(plan: Plan) -> str:
    column = plan.columns[0]
    return f"{column.name}={column.values[0]}"


def _values_given(column: PlanColumn, given: object) -> frozenset[Value]:
    if isinstance(given, tuple):
        with suppress(UsageError):  # that it cannot be a value: then it has several
            if (text := checked_value(column.name, given)) in column.values:
                return frozenset([text])
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    wanted = [checked_value(column.name, value) for value in several]
    known = [nearest(value, column.values) for value in wanted]
    for value, other in zip(wanted, known, strict=True):
        if other is None:
            raise _no_value(column, repr(value))
    return frozenset(other for other in known if other is not None)


def _values_named(column: PlanColumn, text: str) -> frozenset[Value]:
    """The values that are meant: the whole text if it is one, or what its commas separate."""
    whole = _matching(column, text)
    is_tuple = text.startswith(("[", "(")) and any(
        str(value).startswith("[") for value in column.values
    )
    if not whole and is_tuple:
        raise UsageError(
            f"{column.name} has no value {text}: it has {_some(column.values)}; name one tuple in "
            "each word, with its brackets and in quotes"
        )
    parts = [(part, _matching(column, part)) for part in text.split(",")] if not whole else []
    for part, matching in parts:
        if not matching:
            raise _no_value(column, part)
    return whole.union(*(matching for _, matching in parts))


def _matching(column: PlanColumn, text: str) -> frozenset[Value]:
    """The values that one text stands for: itself, or all of a range."""
    first, is_range, last = text.partition("..")
    low, high = _number(first), _number(last)
    if is_range and low is not None and high is not None:
        numbers = (v for v in column.values if isinstance(v, int | float))
        return frozenset(value for value in numbers if low <= value <= high)
    found = frozenset(value for value in column.values if _is_named(value, text))
    if found or column.type == "bool":
        return found
    value = low if column.type == "float" else _tuple_text(text)
    near = None if value is None else nearest(value, column.values)
    return frozenset() if near is None else frozenset([near])


def _tuple_text(text: str) -> str | None:
    """The text that a tuple has in keys, of one as Python writes it: `(1, 2)`."""
    try:
        value = ast.literal_eval(text)
        return object_text(tuple(value)) if isinstance(value, tuple | list) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _is_named(value: Value, text: str) -> bool:
    if isinstance(value, bool):
        return str(value).lower() == text.lower()
    if isinstance(value, int | float):
        return _number(text) == value
    return str(value) == text


def _number(text: str) -> int | float | None:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            pass
    return None


def _no_value(column: PlanColumn, text: str) -> UsageError:
    return UsageError(f"{column.name} has no value {text}: it has {_some(column.values)}")


def _some(values: Sequence[Value]) -> str:
    """Values in their order, the first and the last if there are many."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > _MOST_VALUES_SHOWN:
        head, tail = distinct[: _MOST_VALUES_SHOWN - 2], distinct[-1]
        return f"{', '.join(map(str, head))}, … {tail}"
    return ", ".join(map(str, distinct))
