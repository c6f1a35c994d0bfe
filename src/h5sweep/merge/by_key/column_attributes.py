"""Dataset attributes: those all tasks agree on go to the column, the rest to the audit trail.

A value that is not the same in all tasks that have the attribute would be wrong for some of them,
so the output does not have it; the file that it came from has it in `left_out`. So it is with a
scale factor, or whatever else readers decode values by, that some tasks lack.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ...base.attribute_json import Attributes, attribute_text, has_place, is_decoding
from ...errors import UsageError

MOST_NAMED = 5


class Described(NamedTuple):
    """An attribute of a dataset that became a column."""

    column: str
    dataset: str  # its path in the task, or with a slash before it in the file
    name: str


class DatasetAttributes:
    """The attributes of the datasets of one file: every value, and the tasks that have it."""

    def __init__(self) -> None:
        self._values: dict[Described, dict[str, array[int]]] = {}
        self.tasks: Counter[str] = Counter()  # in how many of them each column was looked at

    def add(self, described: Described, value: Any, tasks: Iterable[int]) -> None:
        """Note a value, in JSON, of some tasks by their numbers in the file."""
        values = self._values.setdefault(described, {})
        values.setdefault(json.dumps(value), array("q")).extend(tasks)

    def items(self) -> Iterable[tuple[Described, dict[str, array[int]]]]:
        return self._values.items()


_AttributePlaces = list[
    tuple[dict[str, str], str]
]  # the `left_out` of a file, and what to call it there


class ColumnAttributes:
    """The attributes of the datasets of all files of a merge."""

    def __init__(
        self, known: Attributes, units: Mapping[str, str], *, has_results: bool = False
    ) -> None:
        """`known` go with the columns already, None for one that differs; `units` are declared.

        With `has_results` there are rows already, for which all is known.
        """
        self.merged = {column: dict(about) for column, about in known.items()}
        self.notes: list[str] = []
        self._units = units
        self._found: dict[
            tuple[str, str], dict[str, _AttributePlaces]
        ] = {}  # attribute → value → places
        self._has_results = has_results
        self._files = 0  # of which nobody knows what columns they have; of the others
        self._files_with: Counter[str] = Counter()  # a column, and
        self._files_whose: Counter[tuple[str, str]] = Counter()  # tasks all have an attribute of it

    def take(
        self,
        attributes: DatasetAttributes,
        columns: Collection[str] | None,
        place: Callable[[int], str],
        left_out: dict[str, str],
    ) -> None:
        """Take in those of one file; `place` tells the path of a task, `left_out` is the file's.

        It has these `columns`, or nobody knows which.
        """
        self._files += columns is None
        self._files_with.update(columns or ())
        having: Counter[tuple[str, str]] = Counter()
        for (column, _, name), values in attributes.items():
            having[column, name] += sum(map(len, values.values()))
        whose = [one for one, tasks in having.items() if tasks == attributes.tasks[one[0]]]
        self._files_whose.update(whose)
        for (column, dataset, name), values in attributes.items():
            found = self._found.setdefault((column, name), {})
            for value, tasks in values.items():
                places = found.setdefault(value, [])
                if len(values) == 1:
                    places.append((left_out, f"{dataset}@{name}"))
                else:
                    paths = (place(task).rstrip("/") for task in tasks)
                    places += [(left_out, f"{path}/{dataset}@{name}") for path in paths]

    def finish(self) -> None:
        """Decide what goes with the columns: `merged`; the `left_out` of files have the rest."""
        differing = list(self._drop_lacking())
        homeless: list[str] = []
        for (column, name), values in self._found.items():
            if not all(has_place(name, json.loads(value)) for value in values):
                kept, named = None, homeless
            else:
                kept, named = self._decide(column, name, list(values)), differing
            others = [value for value in values if value != kept]
            if others:
                named.append(f"{name} of {column}")
            for value in others:
                text = attribute_text(json.loads(value))
                for left_out, where in values[value]:
                    left_out[where] = text
        self._note("differ between tasks", differing)
        self._note("the output has no place for", homeless)

    def _drop_lacking(self) -> Iterable[str]:
        """Drop what was so far true of a column and is not of those that came; return what."""
        for column, known in self.merged.items():
            for name, value in known.items():
                is_new = (column, name) not in self._found and self._files_of(column) > 0
                if is_new and value is not None and is_decoding(name, value):
                    self._note_change(column, name, value)
                    known[name] = None
                    yield f"{name} of {column}"

    def _is_lacking(self, column: str, name: str, values: list[str]) -> bool:
        """Whether some rows of a column would be decoded by what was not said of them."""
        if not any(is_decoding(name, json.loads(value)) for value in values):
            return False
        is_new = self._has_results and name not in self.merged.get(column, {})
        return is_new or self._files_whose[column, name] < self._files_of(column)

    def _files_of(self, column: str) -> int:
        return self._files + self._files_with[column]

    def _note_change(self, column: str, name: str, value: Any) -> None:
        text = attribute_text(value)
        self.notes.append(f"{name} of {column} was {text} until now, and has changed")

    def _decide(self, column: str, name: str, values: list[str]) -> str | None:
        """The value that goes with a column; None if there is no single one."""
        if name == "units" and column in self._units:
            return self._declared_unit(column, values)
        is_lacking = self._is_lacking(column, name, values)
        known = self.merged.setdefault(column, {})
        if name in known:
            values = list(dict.fromkeys([json.dumps(known[name]), *values]))
        if len(values) == 1 and not is_lacking:
            known[name] = json.loads(values[0])
            return values[0]
        if known.get(name) is not None:
            self._note_change(column, name, known[name])
        known[name] = None
        return None

    def _declared_unit(self, column: str, values: list[str]) -> str:
        declared = self._units[column]
        for found in (attribute_text(json.loads(value)) for value in values):
            if found != declared:
                raise UsageError(
                    f"units: {column} is {found!r} in the files but {declared!r} in the sweep, and "
                    "a column has one label; nothing was changed: give the files the same units, "
                    "or choose another output with -o"
                )
        return json.dumps(declared)

    def _note(self, what: str, named: list[str]) -> None:
        if named:
            rest = len(named) - MOST_NAMED
            words = ", ".join(named[:MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
            self.notes.append(
                f"attributes of datasets that {what} are only in the audit trail: {words}"
            )
