"""A plan made from a list of tasks: dicts, a table, or a CSV file."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..errors import UsageError
from .plan import (
    CODES,
    Plan,
    PlanColumn,
    Value,
    check_names,
    check_no_duplicates,
    checked_column,
)
from .safe_text import read_cell

_CSV_INT = r"[+-]?(0|[1-9][0-9]*)"
_CSV_FLOAT = rf"({_CSV_INT}(\.[0-9]*)?|[+-]?\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf|nan"
_CSV_TYPES: tuple[tuple[re.Pattern[str], Callable[[str], object]], ...] = (
    (re.compile("true|false", re.IGNORECASE), lambda text: text.lower() == "true"),
    (re.compile(_CSV_INT), int),
    (re.compile(_CSV_FLOAT, re.IGNORECASE), float),
)


def plan_list(tasks: object) -> Plan:
    """Plan the tasks of a list of dicts, a CSV file's path, or a table with columns (pandas)."""
    if isinstance(tasks, str | Path):
        names, columns = _read_csv(Path(tasks))
    elif hasattr(tasks, "columns") and hasattr(tasks, "__getitem__"):
        names = list(tasks.columns)
        check_names(names)
        columns = [tasks[name].tolist() for name in names]
    elif isinstance(tasks, Iterable):
        names, columns = _columns_of_dicts(list(tasks))
    else:
        raise UsageError(f"tasks is {type(tasks).__name__}: give a list of dicts, a CSV, a table")
    if not names or not columns[0]:
        raise UsageError("the sweep is empty: the list of tasks has no rows")
    check_names(names)
    plan = Plan(
        tuple(_list_column(name, values) for name, values in zip(names, columns, strict=True))
    )
    check_no_duplicates(plan)
    return plan


def _list_column(name: str, values: list[object]) -> PlanColumn:
    type_name, plain = checked_column(name, values)
    codes_by_value: dict[Value, int] = {}
    codes = array(CODES, [codes_by_value.setdefault(v, len(codes_by_value)) for v in plain])
    return PlanColumn(name, type_name, tuple(codes_by_value), codes)


def _columns_of_dicts(rows: list[object]) -> tuple[list[str], list[list[object]]]:
    for row, task in enumerate(rows):
        if not isinstance(task, Mapping):
            raise UsageError(f"task {row} is {task!r}: give a dict of parameter values")
    dicts: list[Mapping[str, object]] = rows  # type: ignore[assignment]  # checked just above
    if not dicts:
        return [], []
    names = list(dicts[0])
    wanted = set(names)
    for row, task in enumerate(dicts):
        if set(task) != wanted:
            odd = min(set(task) ^ wanted, key=str)
            raise UsageError(f"task {row} and task 0 differ in the parameter {odd!r}")
    return names, [[task[name] for task in dicts] for name in names]


def _read_csv(path: Path) -> tuple[list[str], list[list[object]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        raise UsageError(f"cannot read the tasks from {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not a CSV in UTF-8: {error}") from error
    if not lines:
        return [], []
    (_, head), *rows = [(line, list(map(read_cell, row))) for line, row in lines]
    names = [name.strip() for name in head]
    for line, row in rows:
        if len(row) != len(names):
            raise UsageError(f"{path}, line {line}: {len(row)} values for {len(names)} parameters")
    return names, [_typed([row[place] for _, row in rows]) for place in range(len(names))]


def cell_value(text: str) -> object:
    """What one cell stands for; in double quotes it is a text, whatever it looks like."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return _typed([text])[0]


def _typed(texts: list[str]) -> list[object]:
    """The narrowest type that all texts of a CSV column have; `007` and `1_2` stay text."""
    stripped = [text.strip() for text in texts]
    for pattern, parse in _CSV_TYPES:
        if all(map(pattern.fullmatch, stripped)):
            return [parse(text) for text in stripped]
    return list(texts)
