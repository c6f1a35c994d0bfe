"""Parameters → tasks with keys and numbers. Pure: nothing here touches the disk but CSV reading.

A plan has one row per task. A task's number is its row and never changes; a larger sweep
appends rows. Each column is kept as its distinct values and, for every task, the position of its
value among them, so that a million tasks are a few megabytes.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from itertools import compress
from typing import Any, TypeGuard

from ..errors import UsageError
from .key_objects import form_of, form_text, object_text

Value = int | float | str | bool
Key = dict[str, Value]
Counts = dict[str, list[tuple[Value, int, int]]]
GroupCount = tuple[tuple[Value, ...], int, int]

FORMAT = "h5sweep.plan/1"
CODES = "I"
TYPES: dict[str, type] = {"bool": bool, "int": int, "float": float, "str": str}
_PLAIN_TYPES = frozenset(TYPES.values())
RESERVED_NAMES = frozenset(
    {"task", "code", "duration_s", "finished_at", "row_crc32", "failures", "provenance"}
)


@dataclass(frozen=True)
class PlanColumn:
    """One parameter: its type, its distinct values, and which of them each task has.

    The values of dates and other objects are their texts, and `form` says what the function is
    given for them; a plan from disk has none, because what is declared decides.
    """

    name: str
    type: str
    values: tuple[Value, ...]
    codes: array[int]
    form: str | None = field(default=None, compare=False)

    def parsed(self, value: object) -> object:
        """A value of this parameter out of JSON, where infinity is a text, or as it is declared."""
        if self.type == "float":
            return _INFINITIES.get(value, value)
        if self.type == "str" and not isinstance(value, str) and form_of(value) is not None:
            return checked_value(self.name, value)
        return value

    def as_json(self) -> dict[str, Any]:
        packed = base64.b64encode(zlib.compress(_little_endian(self.codes).tobytes(), 1))
        return {
            "name": self.name,
            "type": self.type,
            "values": [plain_value(value) for value in self.values],
            "codes": packed.decode(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PlanColumn:
        codes = array(CODES)
        codes.frombytes(zlib.decompress(base64.b64decode(value["codes"])))
        codes = _little_endian(codes)
        column_type = TYPES[value["type"]]
        values = tuple(column_type(item) for item in value["values"])
        return cls(value["name"], value["type"], values, codes)


@dataclass(frozen=True)
class Plan:
    """All tasks of a sweep, by number.

    Numbers mean something only together with the plan that gave them, so each version has an `id`,
    drawn at random when tasks are appended. `earlier` are the ids of the versions before and how
    many tasks each had: copies of a plan that grew apart share these and no more.
    """

    columns: tuple[PlanColumn, ...]
    id: str = field(default_factory=lambda: os.urandom(8).hex(), compare=False)
    earlier: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.columns[0].codes) if self.columns else 0

    def __repr__(self) -> str:
        tasks = f"{len(self):,} tasks over {types_text(self.types)}" if self else "no tasks"
        return f"<Plan: {tasks}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def types(self) -> dict[str, str]:
        """The name of each parameter's type."""
        return {column.name: column.type for column in self.columns}

    @property
    def forms(self) -> dict[str, str]:
        """The forms of those parameters that are declared as objects."""
        return {column.name: column.form for column in self.columns if column.form}

    def tasks_shared_with(self, plan_id: object) -> int:
        """How many tasks have the same numbers in the plan with this id; 0 if it is no relative."""
        return len(self) if plan_id == self.id else dict[object, int](self.earlier).get(plan_id, 0)

    def key(self, number: int) -> Key:
        """The parameter values of one task."""
        return {column.name: column.values[column.codes[number]] for column in self.columns}

    def keys(self) -> Iterator[Key]:
        """The keys of all tasks, in order of their numbers."""
        return map(self.key, range(len(self)))

    def number(self, key: Mapping[str, object]) -> int | None:
        """The number of the task with this key; None if the plan has no such task."""
        if set(key) != set(self.names):
            return None
        try:
            row = tuple(column.parsed(key[column.name]) for column in self.columns)
            return self._numbers.get(row)
        except (TypeError, UsageError):  # a list, a dict: what is no value of any parameter
            return None

    @cached_property
    def _numbers(self) -> dict[tuple[object, ...], int]:
        columns = [[column.values[code] for code in column.codes] for column in self.columns]
        rows: Iterable[tuple[Value, ...]] = zip(*columns, strict=True)
        return {row: number for number, row in enumerate(rows)}

    def extended(self, wanted: Plan) -> tuple[Plan, int]:
        """This plan and, behind it, the tasks of `wanted` that it lacks; and how many it has that
        `wanted` does not.
        """
        if self.columns == wanted.columns:
            return self, 0
        self._check_same_parameters(wanted)
        wanted = wanted.ordered(self.names)
        new_rows = array("Q")
        kept = 0
        numbers = self._numbers
        for row, key in enumerate(wanted._numbers):
            if key in numbers:
                kept += 1
            else:
                new_rows.append(row)
        if not new_rows:
            return self, len(self) - kept
        pairs = zip(self.columns, wanted.columns, strict=True)
        columns = tuple(_joined(mine, theirs, new_rows) for mine, theirs in pairs)
        return Plan(columns, earlier=(*self.earlier, (self.id, len(self)))), len(self) - kept

    def counts(
        self, done: Iterable[int], most_values: int | None = None, without: Iterable[int] = ()
    ) -> Counts:
        """For each parameter, each value with its number of finished and of all tasks.

        `done` has a 1 for each finished task and a 0 for each other. Parameters of more than
        `most_values` values are left out, and so are the tasks in `without`, with 0.
        """
        done, without = bytes(done), list(without)
        found: Counts = {}
        for column in self.columns:
            if most_values is not None and len(column.values) > most_values:
                continue
            of_done, of_all = Counter(compress(column.codes, done)), Counter(column.codes)
            of_all.subtract(column.codes[task] for task in without)
            values = [(code, value) for code, value in enumerate(column.values) if of_all[code]]
            found[column.name] = [(value, of_done[code], of_all[code]) for code, value in values]
        return found

    def group_counts(
        self, names: Sequence[str], done: Iterable[int], without: Iterable[int] = ()
    ) -> list[GroupCount]:
        """The same for each combination of the values of these parameters, as they come."""
        columns = [column for name in names for column in self.columns if column.name == name]
        rows = list(zip(*(column.codes for column in columns), strict=True))
        of_done, of_all = Counter(compress(rows, done)), Counter(rows)
        of_all.subtract(rows[task] for task in without)
        return [
            (
                tuple(c.values[code] for c, code in zip(columns, row, strict=True)),
                of_done[row],
                all_,
            )
            for row, all_ in of_all.items()
            if all_
        ]

    def numbers_beyond(self, wanted: Plan) -> list[int]:
        """The numbers of the tasks that `wanted` does not have."""
        return [number for number, key in enumerate(self.keys()) if wanted.number(key) is None]

    def ordered(self, names: Sequence[str]) -> Plan:
        """The same tasks with the columns in another order."""
        by_name = {column.name: column for column in self.columns}
        return Plan(tuple(by_name[name] for name in names), self.id, self.earlier)

    def _check_same_parameters(self, wanted: Plan) -> None:
        if self.types == wanted.types:
            return
        raise UsageError(
            f"the plan on disk has the parameters {types_text(self.types)}, this sweep has "
            f"{types_text(wanted.types)}: choose another output with -o"
        )

    def to_json(self, about: Mapping[str, str] | None = None) -> str:
        """The plan as the text of its file, whose first line says `about` as well."""
        lines = [json.dumps(column.as_json(), allow_nan=False) for column in self.columns]
        body = "".join(line + "\n" for line in lines)
        head = {
            "format": FORMAT,
            "id": self.id,
            "tasks": len(self),
            "earlier": self.earlier,
            "crc32": _crc32(body),
            **(about or {}),
        }
        return json.dumps(head) + "\n" + body

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read `to_json` back; ValueError, KeyError or TypeError if it is something else."""
        first_line, _, body = text.partition("\n")
        head = json.loads(first_line)
        if head["format"] != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        if head["crc32"] != _crc32(body):
            raise ValueError("its checksum is wrong")
        plan = cls(
            tuple(PlanColumn.from_json(json.loads(line)) for line in body.splitlines()),
            head["id"],
            tuple((plan_id, tasks) for plan_id, tasks in head["earlier"]),
        )
        if any(len(column.codes) != head["tasks"] for column in plan.columns):
            raise ValueError(f"its columns are not of {head['tasks']} tasks")
        return plan


def plan_product(parameters: Mapping[str, Iterable[object]]) -> Plan:
    """Plan every combination of the parameters' values, the last parameter varying fastest."""
    if not parameters:
        raise UsageError("a sweep needs at least one parameter, for example seed=range(10)")
    check_names(parameters)
    axes = [_axis(name, values) for name, values in parameters.items()]
    return reduce(lambda inner, outer: crossed(outer, inner), reversed(axes))


def crossed(outer: Plan, inner: Plan) -> Plan:
    """Plan every combination of the tasks of two plans; those of `inner` vary fastest."""
    if len(outer) * len(inner) >= 2**32:
        raise UsageError(
            f"more than {2**32 - 1:,} tasks are too many for one sweep: declare several"
        )
    columns = []
    for column in outer.columns:
        codes = array(CODES)
        for code in column.codes:
            codes.extend(array(CODES, [code]) * len(inner))
        columns.append(replace(column, codes=codes))
    columns += [replace(column, codes=column.codes * len(outer)) for column in inner.columns]
    return Plan(tuple(columns))


def key_text(key: Mapping[str, object]) -> str:
    """A key as people read it: `farm_id=3, farm_type=offshore, seed=42`."""
    return ", ".join([f"{name}={value}" for name, value in key.items()])


def types_text(types: Mapping[str, str]) -> str:
    """Parameters and their types as people read them: `farm_id (int), farm_type (str)`."""
    return ", ".join(f"{name} ({type_name})" for name, type_name in types.items())


def key_json(key: Mapping[str, Value]) -> str:
    """A key as it stands in records: strict JSON."""
    return "{" + ", ".join([_quoted(n) + ": " + value_json(v) for n, v in key.items()]) + "}"


_quoted = lru_cache(1024)(json.dumps)  # asked for every name of every task


def value_json(value: Value) -> str:
    """One value of a key as it stands there."""
    # Of an int the digits are the JSON, and tiny tasks would notice an encoder.
    return str(value) if type(value) is int else json.dumps(plain_value(value), allow_nan=False)


def plain_value(value: Value) -> Value:
    """A value as JSON can hold it: infinity is a text there."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def plain_key(key: Mapping[str, Value]) -> Key:
    """A key as JSON can hold it."""
    return {name: plain_value(value) for name, value in key.items()}


def checked_value(name: str, value: object) -> Value:
    """`value` as a plain int, float, str or bool; UsageError naming the parameter otherwise."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # mostly
    if type(value) not in _PLAIN_TYPES and form_of(value) is not None:
        return _object_text(name, value)
    plain = value.item() if _is_numpy_scalar(value) else value
    if isinstance(plain, bool | str):
        return _checked_text(name, plain) if isinstance(plain, str) else plain
    if isinstance(plain, int):
        if not -(2**63) <= plain < 2**63:
            # Not its digits: Python refuses to print more than 4,300 of them.
            raise UsageError(f"{name} has a value of {plain.bit_length()} bits: the limit is 63")
        return int(plain)
    if isinstance(plain, float):
        if math.isnan(plain):
            raise UsageError(f"{name} is nan: a key must be equal to itself")
        return plain + 0.0  # Adding zero turns -0.0, which equals 0.0, into 0.0.
    raise UsageError(
        f"{name} has the value {value!r} of type {type(value).__name__}; "
        "a parameter is an int, a float, a str, a bool, a date, a path, an enum's member or a tuple"
    )


def _object_text(name: str, value: object) -> str:
    plain = value
    if isinstance(value, tuple):
        if any(form_of(item) is not None for item in value):
            raise UsageError(
                f"{name}={value!r}: a tuple may hold ints, floats, strs and bools only"
            )
        plain = tuple(checked_value(name, item) for item in value)
    try:
        text = object_text(plain)
    except ValueError as error:
        raise UsageError(f"{name} has the value {value!r}: {error}") from error
    return _checked_text(name, text)


def _checked_text(name: str, text: str) -> str:
    if "\0" in text:
        raise UsageError(f"{name}={text!r} contains a NUL character, which HDF5 text cannot store")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}={text!r} is not valid Unicode: {error}") from error
    return str.__str__(text)  # the text of an enum's member too, whose own str() is its name


def check_names(names: Iterable[object]) -> None:
    """Raise UsageError unless each name can be a key column of an output."""
    seen: set[object] = set()
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise UsageError(f"{name!r} cannot be the name of a parameter: use a Python identifier")
        if name in RESERVED_NAMES:
            raise UsageError(f"{name!r} is a column that every output has: rename the parameter")
        if name in seen:
            raise UsageError(f"the parameter {name!r} is given twice")
        seen.add(name)


def _is_numpy_scalar(value: object) -> TypeGuard[Any]:
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0:
        return False
    return value.dtype.kind not in "mM"  # type: ignore[attr-defined]  # of some, item() is an int


def _axis(name: str, values: Iterable[object]) -> Plan:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UsageError(
            f"{name} is {values!r}: give the values to sweep over, such as [{values!r}]"
        )
    column = plan_column(name, list(values))
    if not column.values:
        raise UsageError(f"the sweep is empty: {name} has no values")
    if len(column.values) < len(column.codes):
        # Without a value that comes again, the codes count up.
        value = next(column.values[code] for place, code in enumerate(column.codes) if code < place)
        raise UsageError(f"{name} has the value {value!r} twice: its tasks would be the same")
    return Plan((column,))


def plan_column(name: str, values: list[object]) -> PlanColumn:
    """One column of a plan: its one type, and its values in that type."""
    form = _one_form(name, values)
    type_name, plain = _checked_column(name, values)
    codes_by_value: dict[Value, int] = {}
    codes = array(CODES, [codes_by_value.setdefault(v, len(codes_by_value)) for v in plain])
    return PlanColumn(name, type_name, tuple(codes_by_value), codes, form)


def _one_form(name: str, values: list[object]) -> str | None:
    """The form that all values have, if they are objects."""
    if _PLAIN_TYPES.issuperset(map(type, values)):
        return None  # mostly
    examples = {form_of(value): value for value in values}
    if len(examples) > 1:
        names = {type(value).__name__ for value in examples.values()}
        raise _several_types(name, names if len(names) > 1 else map(form_text, examples))
    return examples.popitem()[0]


def _several_types(name: str, types: Iterable[str]) -> UsageError:
    found = " and ".join(sorted(types))
    return UsageError(f"{name} has values of type {found}: a parameter has one type")


def _checked_column(name: str, values: list[object]) -> tuple[str, list[Value]]:
    """The column's one type and its values in that type; ints among floats become floats."""
    plain = [checked_value(name, value) for value in values]
    types = {type(value) for value in plain}
    if types == {int, float}:
        plain = [_exact_float(name, value) for value in plain]
        types = {float}
    if len(types) > 1:
        raise _several_types(name, (kind.__name__ for kind in types))
    return (types.pop().__name__ if types else "int"), plain


def _exact_float(name: str, value: Value) -> float:
    if float(value) != value:
        raise UsageError(
            f"{name}={value} has no exact float, and other values of {name} are floats"
        )
    return float(value)


def check_no_duplicates(plan: Plan) -> None:
    if len(plan._numbers) == len(plan):
        return
    first_with: dict[tuple[object, ...], int] = {}
    for row, key in enumerate(plan.keys()):
        first = first_with.setdefault(tuple(key.values()), row)
        if first != row:
            raise UsageError(f"tasks {first} and {row} have the same key: {key_text(key)}")


def _joined(mine: PlanColumn, theirs: PlanColumn, new_rows: array[int]) -> PlanColumn:
    codes_by_value = {value: code for code, value in enumerate(mine.values)}
    translation = [codes_by_value.setdefault(v, len(codes_by_value)) for v in theirs.values]
    added = array(CODES, [translation[theirs.codes[row]] for row in new_rows])
    return replace(mine, values=tuple(codes_by_value), codes=mine.codes + added)


def _crc32(text: str) -> int:
    return zlib.crc32(text.encode())


def _little_endian(codes: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return codes
    swapped = codes[:]
    swapped.byteswap()
    return swapped


_INFINITIES: dict[object, object] = {"inf": math.inf, "-inf": -math.inf}
