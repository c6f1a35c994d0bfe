"""Where each task lies on the map: rows, panels side by side, and a tick for each task in these.

The key column with the most values runs along the rows, the next one down, the others are panels:
what always fails for one value, a block that one worker lost and a tail that never ran are then
stretches. If keys do not fill such a grid, tasks lie in the order of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..base.plan import Plan, PlanColumn, Value, key_text
from ..base.values import Array

Namer = Callable[[int], str]

MOST_TASKS = 20_000  # that have a tick of their own
MOST_TICKS = 600  # along a row, if each is a task
MOST_PANELS = 12  # where ticks are put together
LINE_TICKS = 200  # where tasks lie in the order of the plan
MOST_GRID_GAPS = 2  # times as many places as tasks


@dataclass(frozen=True)
class MapLayout:
    """The labels of all places; `places` says where each task is: (row × panels + panel) × ticks
    + tick.
    """

    row_name: str
    panel_name: str
    tick_name: str
    rows: tuple[str, ...]
    panels: tuple[str, ...]
    ticks: tuple[str, ...]
    places: Array
    is_grid: bool

    @property
    def width(self) -> int:
        """How many places a row has."""
        return len(self.panels) * len(self.ticks)


@dataclass(frozen=True)
class Axis:
    """One key column, of some tasks: its values in order, and which of them each task has."""

    name: str
    values: tuple[Value, ...]
    codes: Array

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, self.values))


def lay_out(plan: Plan, tasks: Array) -> MapLayout:
    """Where `tasks` of a plan lie."""
    axes = [axis for column in plan.columns if len((axis := axis_of(column, tasks)).values) > 1]
    sizes = [len(axis.values) for axis in axes]
    fits = len(tasks) > MOST_TASKS or max(sizes, default=0) <= MOST_TICKS
    is_grid = axes and fits and prod(sizes) <= MOST_GRID_GAPS * len(tasks)
    return _grid(axes, len(tasks)) if is_grid else _lines(plan, tasks)


def axis_of(column: PlanColumn, tasks: Array) -> Axis:
    """The values that these tasks have of a key column; numbers ascend."""
    used, codes = np.unique(np.frombuffer(column.codes, np.uint32)[tasks], return_inverse=True)
    values = [column.values[code] for code in used.tolist()]
    if column.type == "str":
        return Axis(column.name, tuple(values), codes)
    order = sorted(range(len(values)), key=values.__getitem__)  # a study may have grown downwards
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return Axis(column.name, tuple(values[place] for place in order), rank[codes])


def _grid(axes: list[Axis], count: int) -> MapLayout:
    by_size = sorted(axes, key=lambda axis: len(axis.values), reverse=True)
    # Of several that are as long, the last varies fastest, and so along a row.
    tick = max(axes, key=lambda axis: (len(axis.values), axes.index(axis)))
    others = [axis for axis in by_size if axis is not tick]
    rows, panels = others[:1], others[1:]
    while panels and _are_too_many(prod(len(a.values) for a in panels), len(tick.values), count):
        rows.append(panels.pop(0))
    row, panel = _joined(rows, axes, count), _joined(panels, axes, count)
    places = (row.codes * len(panel.values) + panel.codes) * len(tick.values) + tick.codes
    return MapLayout(
        *(row.name, panel.name, tick.name),
        *(row.labels if row.name else ("all",), panel.labels, tick.labels),
        places=places,
        is_grid=True,
    )


def _are_too_many(panels: int, ticks: int, tasks: int) -> bool:
    return panels > MOST_PANELS if tasks > MOST_TASKS else panels * ticks > MOST_TICKS


def _joined(axes: Sequence[Axis], order: list[Axis], count: int) -> Axis:
    """All combinations of some axes as one, in the order of the key."""
    joined = Axis("", ("",), np.zeros(count, np.int64))
    for axis in sorted(axes, key=order.index):
        joined = Axis(
            f"{joined.name}, {axis.name}" if joined.name else axis.name,
            tuple(f"{a}, {b}" if a else str(b) for a in joined.values for b in axis.values),
            joined.codes * len(axis.values) + axis.codes,
        )
    return joined


def _lines(plan: Plan, tasks: Array) -> MapLayout:
    """Tasks one behind the other; keys are told for each, since no label could."""
    starts = range(0, max(len(tasks), 1), LINE_TICKS)
    ends = [min(start + LINE_TICKS, len(tasks)) for start in starts]
    rows = tuple(f"{start + 1:,} to {end:,}" for start, end in zip(starts, ends, strict=True))
    ticks = tuple(str(place + 1) for place in range(min(LINE_TICKS, max(len(tasks), 1))))
    places = np.arange(len(tasks)) // LINE_TICKS * len(ticks) + np.arange(len(tasks)) % LINE_TICKS
    return MapLayout("tasks", "", ", ".join(plan.names), rows, ("",), ticks, places, False)


def key_namer(layout: MapLayout, plan: Plan, tasks: Array) -> Namer:
    """What a task at a place is called, beyond the label of its row."""
    of_place = dict(zip(layout.places.tolist(), tasks.tolist(), strict=True))

    def name(place: int) -> str:
        if not layout.is_grid:
            return key_text(plan.key(of_place[place])) if place in of_place else ""
        panel, tick = divmod(place % layout.width, len(layout.ticks))
        shown = [(layout.panel_name, layout.panels[panel]), (layout.tick_name, layout.ticks[tick])]
        return ", ".join(f"{name}={label}" for name, label in shown if name)

    return name
