"""A plan made from a list of tasks: dicts, a table, or a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ..errors import UsageError
from .missing_reason import REPORT_COLUMNS, MissingReason
from .plan import Plan, check_names, check_no_duplicates, checked_value, plan_column
from .safe_text import csv_cell, json_cell, read_cell
from .study_function import Callee, defaults_of, name_of

_CSV_INT = r"[+-]?(0|[1-9][0-9]*)"
_CSV_FLOAT = rf"({_CSV_INT}(\.[0-9]*)?|[+-]?\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf|nan"
_CSV_TYPES: tuple[tuple[re.Pattern[str], Callable[[str], object]], ...] = (
    (re.compile("true|false", re.IGNORECASE), lambda text: text.lower() == "true"),
    (re.compile(_CSV_INT), int),
    (re.compile(_CSV_FLOAT, re.IGNORECASE), float),
)


def plan_list(tasks: object, function: Callee | None = None) -> Plan:
    """Plan the tasks of a list of dicts, a CSV file's path, or a table with columns (pandas).

    Dicts may leave out what `function` has a default for: the default is then in the task's key.
    """
    if isinstance(tasks, str | Path):
        names, columns = _read_csv(Path(tasks), function)
    elif hasattr(tasks, "columns") and hasattr(tasks, "__getitem__"):
        names = list(tasks.columns)
        check_names(names)
        columns = [tasks[name].tolist() for name in names]
    elif isinstance(tasks, Iterable):
        names, columns = _columns_of_dicts(list(tasks), function)
    else:
        raise UsageError(f"tasks is {type(tasks).__name__}: give a list of dicts, a CSV, a table")
    if not names or not columns[0]:
        raise UsageError("the sweep is empty: the list of tasks has no rows")
    check_names(names)
    plan = Plan(
        tuple(plan_column(name, values) for name, values in zip(names, columns, strict=True))
    )
    check_no_duplicates(plan)
    return plan


def _columns_of_dicts(
    rows: list[object], function: Callee | None
) -> tuple[list[str], list[list[object]]]:
    for row, task in enumerate(rows):
        if not isinstance(task, Mapping):
            raise UsageError(f"task {row} is {task!r}: give a dict of parameter values")
    dicts: list[Mapping[str, object]] = rows  # type: ignore[assignment]  # checked just above
    if not dicts:
        return [], []
    names = dict.fromkeys(dicts[0])
    optional = defaults_of(function) if function is not None else {}
    wanted, defaults = set(names), dict[str, object]()
    for row, task in enumerate(dicts):
        odd = set() if task.keys() == wanted else task.keys() ^ wanted
        for name in sorted(odd, key=str):
            if name not in optional:
                raise UsageError(f"task {row} and task 0 differ in the parameter {name!r}")
            defaults[name] = optional[name]
    if function is not None:
        _check_defaults(defaults, function)
    names |= dict.fromkeys(name for name in optional if name in defaults)
    return list(names), [[task.get(name, defaults.get(name)) for task in dicts] for name in names]


def _check_defaults(defaults: Mapping[str, object], function: Callee) -> None:
    """Raise UsageError for a default that a task leaves to the function and no key can hold."""
    for name, value in defaults.items():
        try:
            checked_value(name, value)
        except UsageError as error:
            raise UsageError(
                f"some tasks leave out {name!r}, and its default in {name_of(function)} cannot be "
                f"part of their keys ({error}): give {name!r} in every task, or another default"
            ) from error


def _read_csv(path: Path, function: Callee | None) -> tuple[list[str], list[list[object]]]:
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
    (_, head), *rows = lines
    names = [read_cell(name).strip() for name in head]
    for line, row in rows:
        if len(row) != len(names):
            raise UsageError(f"{path}, line {line}: {len(row)} values for {len(names)} parameters")
    columns = [[row[place] for _, row in rows] for place in range(len(names))]
    if not _is_report(names, columns):
        lines_of_rows = [line for line, _ in rows]
        pairs = zip(names, columns, strict=True)
        return names, [_filled(path, lines_of_rows, *pair, function) for pair in pairs]
    added = len(REPORT_COLUMNS)
    return names[:-added], [_typed(column, task_cell) for column in columns[:-added]]


def _filled(
    path: Path, lines: list[int], name: str, cells: list[str], function: Callee | None
) -> list[object]:
    """A column with the default of the function where a cell is empty.

    Where there is no default, an empty cell among texts is a text, and among numbers a mistake.
    """
    is_empty = [not cell.strip() for cell in cells]
    given = _typed([cell for cell in cells if cell.strip()], csv_cell)
    optional = defaults_of(function) if function is not None and any(is_empty) else {}
    if name in optional and function is not None:
        _check_defaults({name: optional[name]}, function)
        values = iter(given)
        return [optional[name] if empty else next(values) for empty in is_empty]
    if any(is_empty) and given and not isinstance(given[0], str):
        line = lines[is_empty.index(True)]
        whose = "" if function is None else f", and {name_of(function)} has no default for it"
        raise UsageError(f"{path}, line {line}: {name} is empty{whose}: give a value in every row")
    return _typed(cells, csv_cell)


def _is_report(names: list[str], columns: list[list[str]]) -> bool:
    """Whether the last columns are what `missing --csv` adds, and no parameters of these names."""
    added = len(REPORT_COLUMNS)
    has_names = len(names) > added and tuple(names[-added:]) == REPORT_COLUMNS
    return has_names and all(cell in set(MissingReason) for cell in columns[-added])


def task_cell(text: str) -> str:
    """A text as a cell of a list of tasks: in quotes if it would be read as a number or a bool."""
    is_other = any(pattern.fullmatch(text.strip()) for pattern, _ in _CSV_TYPES)
    return json_cell(text) if is_other else csv_cell(text)


def cell_value(text: str) -> object:
    """What one cell stands for; in double quotes it is a text, whatever it looks like."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return _typed([text], csv_cell)[0]


def _typed(cells: list[str], made_by: Callable[[str], str]) -> list[object]:
    """The narrowest type that all cells of a CSV column have; `007` and `1_2` stay text.

    So do all cells of a column that has one which `made_by` has put in quotes.
    """
    texts = [read_cell(cell, made_by=made_by) for cell in cells]
    if texts != cells:
        return list(texts)
    stripped = [text.strip() for text in texts]
    for pattern, parse in _CSV_TYPES:
        if all(map(pattern.fullmatch, stripped)):
            return [parse(text) for text in stripped]
    return list(texts)
