"""Number the keys of tasks that a merge takes in."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from ...base.key_pattern import CONVERTERS, as_type
from ...base.key_rule import KeyRow
from ...base.plan import CODES, Plan, PlanColumn, Value
from ...errors import UsageError


def require_same_names(names: Sequence[str], others: Iterable[str], where: object) -> None:
    """Raise UsageError unless both are the same parameters, in whatever order."""
    others = list(others)
    if set(names) != set(others):
        raise UsageError(
            f"{where} has results by {', '.join(others)}, but the others are by "
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
                    f"{where}: {name} is {value!r}, but {self._types[name]} in the plan: "
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

    def _column(self, name: str) -> PlanColumn:
        """A column of the plan, with the values of the new tasks behind those it has."""
        place = self.names.index(name)
        values = [row[place] for row in self._new]
        kind = self._types.get(name) or _common_type(name, values)
        old = next((c for c in self._plan.columns if c.name == name), None)
        known = {value: code for code, value in enumerate(old.values)} if old else {}
        codes = array(CODES, old.codes if old else [])
        convert = CONVERTERS[kind]
        codes.extend([known.setdefault(convert(v), len(known)) for v in values])
        return PlanColumn(name, kind, tuple(known), codes)


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
