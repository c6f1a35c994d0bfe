"""Positions drawn to scale: what the best task of each group returned."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base.plan import Plan, key_text
from ..base.values import Array
from .html import esc, number
from .result_plots import Best, grouping

MOST_DRAWINGS = 60
MOST_POINTS = 500  # of one drawing
SIZE = 210  # pixels of the longer side
MARGIN = 10


def best_tasks(best: Best, plan: Plan) -> dict[tuple[str, str], int]:
    """The best task of each group, by the labels of its row and of its series."""
    is_there = np.isfinite(best.scalar.values)
    tasks, values = best.scalar.tasks[is_there], best.scalar.values[is_there]
    found = grouping(plan, tasks)
    if not len(tasks):
        return {}
    order = np.argsort(values if best.is_lowest else -values, kind="stable")
    if found is None:
        return {("", ""): int(tasks[order[0]])}
    rows, series = found
    labels = series.labels if series else ("",)
    codes = rows.codes * len(labels) + (series.codes if series else 0)
    groups, firsts = np.unique(codes[order], return_index=True)
    return {
        (rows.labels[group // len(labels)], labels[group % len(labels)]): int(tasks[order[first]])
        for group, first in zip(groups.tolist(), firsts.tolist(), strict=True)
    }


def drawings_html(
    name: str,
    units: str,
    best: Best,
    chosen: Mapping[tuple[str, str], int],
    positions: Mapping[int, Array],
    plan: Plan,
) -> str:
    """One drawing for each group, all to one scale; a picker shows those of one row."""
    shown = {group: task for group, task in chosen.items() if _can_draw(positions.get(task))}
    shown = dict(list(shown.items())[:MOST_DRAWINGS])
    if not shown:
        return ""
    span = max(float(np.ptp(positions[task], axis=0).max()) for task in shown.values()) or 1.0
    values = dict(zip(best.scalar.tasks.tolist(), best.scalar.values.tolist(), strict=True))
    rows = list(dict.fromkeys(row for row, _ in shown))
    figures = []
    for (row, _), task in shown.items():
        value = f"{best.scalar.name} {values[task]:.6g} {best.scalar.units}".rstrip()
        key = key_text(plan.key(task))
        points = f"{len(positions[task]):,} points"
        figures.append(
            f'<figure data-of="{esc(name)}" data-is="{esc(row)}">'
            f"{_drawing(positions[task], span, units, f'{name} of {key}')}"
            f"<figcaption><b>{esc(key)}</b><br>{esc(value)}, {points}</figcaption></figure>"
        )
    found = grouping(plan, best.scalar.tasks)
    return (
        f"<h3>{esc(name)}: the best of each group, to scale</h3>"
        f'<p class="note">Best: {esc(best.words)}.</p>'
        f"{_picker(name, found[0].name if found else '', rows)}"
        f'<div class="figures">{"".join(figures)}</div>'
    )


def _can_draw(points: Array | None) -> bool:
    return points is not None and len(points) > 0 and bool(np.isfinite(points).all())


def _picker(name: str, column: str, rows: list[str]) -> str:
    if len(rows) < 2:
        return ""
    options = "".join(f'<option value="{esc(row)}">{esc(row)}</option>' for row in rows)
    return (
        f'<p class="pickers"><label>{esc(column)} <select data-picks="{esc(name)}">{options}'
        "</select></label></p>"
    )


def _drawing(points: Array, span: float, units: str, says: str) -> str:
    """Points, north up, and a bar that says how long a length is."""
    scale = SIZE / span
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (high - low) * scale + 2 * MARGIN
    width, height = max(float(width), 90.0), float(height) + 18
    places = np.unique(np.round((points - low) * scale, 1), axis=0)[:MOST_POINTS]
    moves = "".join(
        f"M{number(MARGIN + x)} {number(height - 18 - MARGIN - y)}h0" for x, y in places.tolist()
    )
    length = _round_length(span / 4)
    bar = length * scale
    return (
        f'<svg viewBox="0 0 {number(width)} {number(height)}" width="{number(width)}" '
        f'height="{number(height)}" role="img" aria-label="{esc(says)}">'
        f'<rect class="area" width="{number(width)}" height="{number(height)}"/>'
        f'<path class="points" d="{moves}"/>'
        f'<path class="scale" d="M{MARGIN} {number(height - 5)}h{number(bar)}"/>'
        f'<text x="{number(MARGIN + bar + 5)}" y="{number(height - 3)}">{length:g} {esc(units)}'
        "</text></svg>"
    )


def _round_length(length: float) -> float:
    """1, 2 or 5 times a power of ten, at most `length`."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(max(step for step in (1, 2, 5) if step * power <= length) * power)
