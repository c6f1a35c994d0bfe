"""Whether the rows of an output of ours hold all tasks of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...base.key_pattern import as_type
from ...base.key_rule import KeyRule
from ...base.plan import Key
from ...output.reader import OutputReader
from ...worker_files.inputs import Input
from ...worker_files.survey import Survey
from .equal_results import are_in_cells
from .open_tasks import opened_tasks
from .own_files import read_cells
from .tasks_of_file import Result

ROWS_AT_ONCE = 256


class OutputRows:
    """The rows of an output of ours, by their keys; it is open for as long as this is used."""

    def __init__(self, output: Path) -> None:
        self._reader = OutputReader(output)
        keys = self._reader.keys()
        self._rows = {tuple(row.values()): place for place, row in enumerate(keys.rows())}
        self._names = str(self._reader.attributes["h5sweep_key"]).split()
        self._types = [type(value).__name__ for value in next(iter(self._rows), ())]

    def __enter__(self) -> OutputRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def hold(self, survey: Survey, one: Input, *, key: str | None) -> bool:
        """Whether every task of a file is a row, with every value that it has."""
        rule = KeyRule.parse(key) if key is not None else KeyRule(tuple(self._names))
        if set(rule.names) != set(self._names):
            return False
        with opened_tasks(survey, one, rule) as tasks:
            waiting: list[tuple[int, Result]] = []
            for result in tasks.results():
                row = self._row_of(rule.key(tasks.keys[result.number]))
                if row is None:
                    return False
                waiting.append((row, result))
                if len(waiting) >= ROWS_AT_ONCE and not _are_in_rows(self._reader, waiting):
                    return False
            return _are_in_rows(self._reader, waiting)

    def _row_of(self, key: Key) -> int | None:
        named = zip(self._names, self._types, strict=False)
        return self._rows.get(tuple([as_type(key[name], kind) for name, kind in named]))


def _are_in_rows(reader: OutputReader, waiting: list[tuple[int, Result]]) -> bool:
    """Whether these results are in these rows; the list is empty afterwards."""
    rows = np.array([row for row, _ in waiting], np.int64)
    if not len(rows):
        return True
    order = np.argsort(rows, kind="stable")
    cells = read_cells(reader, rows[order])
    are_there = all(
        are_in_cells(waiting[place][1], found)
        for place, found in zip(order.tolist(), cells, strict=True)
    )
    waiting.clear()
    return are_there
