"""How a merge is told what the key of a task is: a pattern for names, or names of values."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import UsageError
from .keys import KeyPattern
from .plan import CODES, Column, Plan, Value, check_names, checked_value

KeyRow = tuple[Value, ...]
_MOST = 2**63
_DIGITS = re.compile(r"(\d+)", re.ASCII)


@dataclass
class KeyRule:
    """Names of a key in their order and, if keys stand in names of groups or files, how."""

    names: tuple[str, ...]
    pattern: KeyPattern | None = None
    _known: dict[tuple[str, type, object], Value] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> KeyRule:
        """`farm{farm_id:d}_s{seed:d}` is a pattern, `farm_id,seed` are names."""
        pattern = KeyPattern.parse(text) if "{" in text or "}" in text else None
        names = pattern.names if pattern else tuple(n.strip() for n in text.split(",") if n.strip())
        if not names:
            raise UsageError("--key names nothing: write it like farm_id,farm_type,seed")
        check_names(names)
        return cls(tuple(names), pattern)

    def of_path(self, path: str) -> KeyRow | None:
        """The key in a group's path or a file's name, if the pattern fits its end."""
        values = self.pattern.values_of(path) if self.pattern else None
        return None if values is None else self.checked(values)

    def row(self, key: Mapping[str, object]) -> KeyRow:
        """The values in the order of the names; UsageError for one that no key may have."""
        return self.checked([key[name] for name in self.names])

    def checked(self, values: Iterable[object]) -> KeyRow:
        """The same for values that are in that order already."""
        return tuple(
            value if type(value) is int and -_MOST <= value < _MOST else self._value(name, value)
            for name, value in zip(self.names, values, strict=True)
        )

    def _value(self, name: str, value: object) -> Value:
        known = (name, type(value), value)
        found = self._known.get(known)
        if found is None:
            if len(self._known) > 100_000:
                self._known.clear()
            found = self._known[known] = checked_value(name, value)
        return found

    def key(self, row: KeyRow) -> dict[str, Value]:
        return dict(zip(self.names, row, strict=True))


def require_same_names(names: Sequence[str], others: Iterable[str], where: object) -> None:
    """Raise UsageError unless both are the same parameters, in whatever order."""
    others = list(others)
    if set(names) != set(others):
        raise UsageError(
            f"{where} has results under {', '.join(others)}, the others are under "
            f"{', '.join(names)}: merge them into different outputs"
        )


class PlanKeys:
    """Numbers for keys: those of a plan, and new ones behind them."""

    def __init__(self, plan: Plan, names: Sequence[str]) -> None:
        self._plan = plan
        self._types = {column.name: column.type for column in plan.columns}
        self.names = tuple(names)
        self._new: dict[KeyRow, int] = {}

    def number(self, row: KeyRow, where: str) -> tuple[int, KeyRow]:
        """The number of a task, and its key with values of the plan's types."""
        if self._types:
            row = self._as_planned(row, where)
            known = self._plan.number(dict(zip(self.names, row, strict=True)))
            if known is not None:
                return known, row
        return self._new.setdefault(row, len(self._plan) + len(self._new)), row

    def _as_planned(self, row: KeyRow, where: str) -> KeyRow:
        found = []
        for name, value in zip(self.names, row, strict=True):
            typed = as_type(value, self._types[name])
            if typed is None:
                raise UsageError(
                    f"{where}: {name} is {value!r}, and the plan has it as {self._types[name]}: "
                    "correct --key, or merge into another output with -o"
                )
            found.append(typed)
        return tuple(found)

    def extended_plan(self, plan_id: str) -> Plan:
        """The plan with the new tasks behind its own, under `plan_id`; as it is if there are none.

        UsageError if one parameter has values of kinds that are no one column.
        """
        if not self._new:
            return self._plan
        plan = self._plan
        columns = tuple(self._column(name) for name in self._types or self.names)
        earlier = (*plan.earlier, (plan.id, len(plan))) if len(plan) else ()
        return Plan(columns, plan_id, earlier)

    def _column(self, name: str) -> Column:
        """A column of the plan, with the values of the new tasks behind those it has."""
        place = self.names.index(name)
        values = [row[place] for row in self._new]
        kind = self._types.get(name) or _common_type(name, values)
        old = next((c for c in self._plan.columns if c.name == name), None)
        known = {value: code for code, value in enumerate(old.values)} if old else {}
        codes = array(CODES, old.codes if old else [])
        convert = _CONVERT[kind]
        codes.extend([known.setdefault(convert(v), len(known)) for v in values])
        return Column(name, kind, tuple(known), codes)


def as_type(value: Value, kind: str) -> Value | None:
    """The same value as another type, where nothing is lost; None where it cannot be."""
    if type(value).__name__ == kind:
        return value
    if kind == "float" and isinstance(value, int):
        return float(value)
    if kind == "int" and isinstance(value, bool | float) and value == int(value):
        return int(value)
    if kind == "int" and isinstance(value, str) and _is_int(value):
        return int(value)
    if kind == "str" and type(value) is int:
        return str(value)
    if kind == "bool" and value in (0, 1) and not isinstance(value, str):
        return bool(value)
    return None


def _is_int(text: str) -> bool:
    return re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text) is not None


def _common_type(name: str, values: Sequence[Value]) -> str:
    kinds = {type(value).__name__ for value in values}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {"int", "float"}:
        return "float"
    if kinds == {"int", "bool"}:
        return "int"
    examples = {type(value).__name__: value for value in values}
    words = " and ".join(f"{value!r} ({kind})" for kind, value in sorted(examples.items()))
    raise UsageError(f"{name} has values of different kinds, such as {words}: correct --key")


_CONVERT = {"int": int, "float": float, "str": str, "bool": bool}


def natural_key(text: str) -> list[tuple[int, str]]:
    """Sorts `s9` before `s10`, as `contents.natural_order` does, for very many names."""
    parts = _DIGITS.split(text)
    found: list[tuple[int, str]] = []
    for place, part in enumerate(parts):
        digits = part.lstrip("0") if place % 2 else part
        found.append((len(digits) if place % 2 else 0, digits))
    return found
