"""The keys of tasks, as other programs write them: in names, attributes or columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UsageError
from .listed_plan import plan_list
from .plan import Plan, Value, plan_product

MOST_COMBINATIONS = 10_000_000
_FIELD = re.compile(r"\{([^\W\d]\w*)(?::([dfgs]))?\}")
_SHAPES: dict[str, tuple[str, Callable[[str], Value]]] = {
    "d": (r"[-+]?[0-9]{1,18}", int),
    "f": (r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", float),
    "g": (r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", float),
    "s": (r"[^/]+?", str),
}


@dataclass(frozen=True)
class KeyPattern:
    """`farm{farm_id:d}_t{farm_type:d}_s{seed:d}`: what a name says of its task."""

    text: str
    names: tuple[str, ...]
    _expression: re.Pattern[str]
    _types: tuple[Callable[[str], Value], ...]

    @classmethod
    def parse(cls, text: str) -> KeyPattern:
        """Read a pattern; UsageError if it has no fields, or one twice."""
        names, types, parts, last = [], [], [], 0
        for match in _FIELD.finditer(text):
            shape, convert = _SHAPES[match[2] or "s"]
            names.append(match[1])
            types.append(convert)
            parts += [re.escape(text[last : match.start()]), f"(?P<{match[1]}>{shape})"]
            last = match.end()
        parts.append(re.escape(text[last:]))
        if not names or len(set(names)) < len(names) or "{" in _FIELD.sub("", text):
            advice = "write it like farm{farm_id:d}_t{farm_type:d}_s{seed:d}"
            raise UsageError(f"{text!r} is not a key pattern: {advice}")
        return cls(text, tuple(names), re.compile("".join(parts)), tuple(types))

    def name_of(self, key: Mapping[str, object]) -> str:
        """The name that a task with this key has."""
        return _FIELD.sub(lambda match: str(key[match[1]]), self.text)

    def may_give(self, key: Mapping[str, object]) -> bool:
        """Whether these values are of the kinds that a name would have told."""
        kinds = zip(self.names, self._types, strict=True)
        return all(type(key[name]) is kind for name, kind in kinds)

    def key_of(self, path: str) -> dict[str, Value] | None:
        """The key in a group's path or a file's name: in all of it, or in its end."""
        values = self.values_of(path)
        return None if values is None else dict(zip(self.names, values, strict=True))

    def values_of(self, path: str) -> tuple[Value, ...] | None:
        """The same without the names, in their order."""
        whole, start = path.strip("/"), 0
        while True:
            if (match := self._expression.fullmatch(whole, start)) is not None:
                pairs = zip(self._types, match.groups(), strict=True)
                return tuple(convert(text) for convert, text in pairs)
            start = whole.find("/", start) + 1
            if not start:
                return None


@dataclass(frozen=True)
class Comparison:
    """How many tasks were found of those that there should be."""

    tasks: int  # that there should be
    tasks_done: int
    duplicates: int  # found more than once
    unknown: int  # that nobody expects
    keyless: int  # whose key could not be read
    is_inferred: bool  # there should be every combination of the values that were seen
    columns: Mapping[str, tuple[tuple[Value, int, int], ...]]  # each value: tasks found, of all

    @property
    def tasks_missing(self) -> int:
        return self.tasks - self.tasks_done


@dataclass
class KeyTally:
    """Which tasks of a plan were found, and keys that no plan has."""

    plan: Plan
    done: bytearray = field(default_factory=bytearray)
    duplicates: int = 0
    unknown: int = 0
    keyless: int = 0
    is_inferred: bool = False

    def __post_init__(self) -> None:
        self.done = bytearray(len(self.plan))

    @classmethod
    def of_seen(cls, names: Sequence[str], keys: Iterable[tuple[Value, ...]]) -> KeyTally:
        """Compare keys with every combination of their own values, where no plan is known."""
        rows = sorted(keys)
        values = {name: sorted(set(column)) for name, column in _columns(names, rows)}
        if not rows:
            plan = Plan(())
        elif math.prod(map(len, values.values())) <= MOST_COMBINATIONS:
            plan = plan_product(values)
        else:
            plan = plan_list([dict(zip(names, row, strict=True)) for row in rows])
        found = cls(plan, is_inferred=True)
        for row in rows:
            found.take(dict(zip(names, row, strict=True)))
        return found

    def take(self, key: Mapping[str, Value] | None, *, is_ours: bool = False) -> None:
        """Count one task that was found; in a file of ours it may be found again."""
        number = None if key is None else number_in(self.plan, key)
        if key is None:
            self.keyless += 1
        elif number is None:
            self.unknown += 1
        elif self.done[number]:
            self.duplicates += not is_ours
        else:
            self.done[number] = 1

    def result(self) -> Comparison:
        """What was found out."""
        columns = {name: tuple(counts) for name, counts in self.plan.counts(self.done).items()}
        return Comparison(
            tasks=len(self.plan),
            tasks_done=sum(self.done),
            duplicates=self.duplicates,
            unknown=self.unknown,
            keyless=self.keyless,
            is_inferred=self.is_inferred,
            columns=columns,
        )


def number_in(plan: Plan, key: Mapping[str, Value]) -> int | None:
    """The plan's number; a value may stand in a file as another type than in the plan."""
    if not set(plan.names) <= set(key):
        return None
    key = {name: key[name] for name in plan.names}  # a name may tell more than the key
    if (found := plan.number(key)) is not None:
        return found
    wanted: dict[str, Value] = {}
    for column in plan.columns:
        typed = as_type(key[column.name], column.type)
        if typed is None:
            return None
        wanted[column.name] = typed
    return plan.number(wanted)


def as_type(value: Value, kind: str) -> Value | None:
    """The same value as another type, where nothing is lost; None where it cannot be."""
    if type(value).__name__ == kind:
        return value
    try:
        typed = CONVERTERS[kind](value)
    except (ValueError, OverflowError):
        return None
    return typed if typed == value or str(typed) == str(value) else None


def _columns(
    names: Sequence[str], rows: list[tuple[Value, ...]]
) -> Iterator[tuple[str, tuple[Value, ...]]]:
    return zip(names, zip(*rows, strict=True), strict=True) if rows else iter(())


CONVERTERS: dict[str, Callable[[Value], Value]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda value: bool(int(value)),
}
