"""Values of keys that differ by rounding only: 0.3 and 0.1 + 0.2, which is 0.30000000000000004.

Two values of one parameter that are so near are almost surely meant to be one.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from .plan import Plan, PlanColumn, Value

MOST_ULPS = 4


@dataclass(frozen=True)
class NearValues:
    """Two values of a parameter, in the order in which they are to be named."""

    name: str
    value: Value
    other: Value


def near_values(plan: Plan) -> Iterator[NearValues]:
    """Those values of a plan that differ by rounding only; of each parameter the first two."""
    for column in plan.columns:
        pairs = pairwise(sorted(_floats(column)))
        near = next((pair for pair in pairs if _are_near(*pair)), None)
        if near is not None:
            yield NearValues(column.name, *near)


def nearest(value: Value, known: Collection[Value]) -> Value | None:
    """The value itself if it is known, or the one that differs by rounding only; else None."""
    if value in known:
        return value
    floats = [v for v in known if isinstance(v, float) and math.isfinite(v)]
    if isinstance(value, bool | str) or not floats or not math.isfinite(value):
        return None
    other = min(floats, key=lambda one: abs(one - value))
    return other if _are_near(value, other) else None


def with_values_of(known: Plan, wanted: Plan) -> tuple[Plan, list[NearValues]]:
    """The tasks of `wanted`, with the values of `known` where they differ by rounding only.

    Also what was replaced by what. No two values become one.
    """
    columns, replaced = [], list[NearValues]()
    by_name = {column.name: column for column in known.columns}
    for column in wanted.columns:
        others = _replacements(by_name[column.name], column) if column.name in by_name else {}
        values = tuple(others.get(value, value) for value in column.values)
        columns.append(replace(column, values=values) if others else column)
        replaced += [NearValues(column.name, value, other) for value, other in others.items()]
    return (Plan(tuple(columns), wanted.id, wanted.earlier) if replaced else wanted), replaced


def _replacements(known: PlanColumn, wanted: PlanColumn) -> dict[Value, Value]:
    """For values that `known` lacks, the near ones that it has and `wanted` has not."""
    new = sorted(set(_floats(wanted)) - set(known.values))
    free = sorted(set(_floats(known)) - set(wanted.values)) if new else []
    found: dict[Value, Value] = {}
    taken: set[float] = set()
    for value in new:
        place = bisect(free, value)
        beside = [v for v in free[max(place - 1, 0) : place + 1] if v not in taken]
        near = [other for other in beside if _are_near(value, other)]
        if near:
            nearest = found[value] = min(near, key=lambda other: abs(other - value))
            taken.add(nearest)
    return found


def _floats(column: PlanColumn) -> list[float]:
    """The finite values of a parameter that is a float; none of any other."""
    return [v for v in column.values if isinstance(v, float) and math.isfinite(v)]


def _are_near(one: float, other: float) -> bool:
    return abs(one - other) <= MOST_ULPS * math.ulp(max(abs(one), abs(other)))
