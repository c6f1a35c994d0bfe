"""Distributions of numbers by key column, and how far tasks are from the best of their group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..base.plan import Plan
from ..base.units import count_text, cut_middle
from ..base.values import Array
from .html import Section, esc, number
from .map_layout import Axis, axis_of
from .results import Results, Scalar

MOST_VALUES = 40  # of a key column within which tasks are compared
MOST_LINES = 24  # of one key column, where each value has a line
MOST_SERIES = 8
MOST_SCALARS = 12
LABEL, PLOT, ROW = 110, 300, 15  # pixels
SMALL = 5.0  # per cent of tasks that may lie left of a line


@dataclass(frozen=True)
class Best:
    """Which of a group is the best: the one with the highest, or lowest, of one result."""

    scalar: Scalar
    is_lowest: bool = False

    @property
    def words(self) -> str:
        return f"{'lowest' if self.is_lowest else 'highest'} {self.scalar.name}"


def results_section(
    results: Results, plan: Plan, best: Best | None, drawings: str
) -> Section | None:
    """None if there is nothing to show."""
    scalars = [s for s in results.scalars if np.isfinite(s.values).any()][:MOST_SCALARS]
    if not scalars and not results.note and not drawings:
        return None
    parts = []
    if best is not None:
        parts.append(_distance_html(best, plan))
    parts += [drawings, _distributions_html(scalars, plan)]
    return Section("results", "Results", "".join(parts), results.note)


def _distributions_html(scalars: Sequence[Scalar], plan: Plan) -> str:
    if not scalars:
        return ""
    figures = "".join(f"<figure>{_of_scalar(scalar, plan)}</figure>" for scalar in scalars)
    note = "Line: 5 to 95 % of tasks; thick: the middle half; dot: median."
    return (
        f'<h3>Every number that tasks returned</h3><p class="note">{note}</p>'
        f'<div class="figures">{figures}</div>'
    )


def _of_scalar(scalar: Scalar, plan: Plan) -> str:
    """All tasks in one line, and a line for each value of each key column."""
    is_there = np.isfinite(scalar.values)
    tasks, values = scalar.tasks[is_there], scalar.values[is_there]
    low, high = float(values.min()), float(values.max())
    rows = list(_lines_of("", ["all"], np.zeros(len(tasks), np.int64), values))
    axes = _axes(plan, tasks)
    for axis in (axis for axis in axes if len(axis.values) <= MOST_LINES):
        rows += _lines_of(axis.name, list(axis.labels), axis.codes, values)
    unit = f" [{scalar.units}]" if scalar.units else ""
    title = f"{scalar.name}{unit}"
    median = f"median {np.median(values):.6g}"
    says = f"{title}: {len(values):,} values from {low:.6g} to {high:.6g}, {median}"
    caption = f"<figcaption><b>{esc(title)}</b> {low:.6g} to {high:.6g}</figcaption>"
    return caption + _svg(rows, low, high, says, (f"{low:.4g}", f"{high:.4g}"))


def _axes(plan: Plan, tasks: Array) -> list[Axis]:
    known = tasks[tasks < len(plan)]
    axes = [axis_of(column, known) for column in plan.columns]
    return [axis for axis in axes if 1 < len(axis.values) <= MOST_VALUES]


@dataclass(frozen=True)
class _Line:
    """What is drawn for some tasks: their percentiles."""

    group: str  # stands above the first of a group
    label: str
    percentiles: tuple[float, ...]
    series: int = 0
    count: int = 0

    @property
    def tasks(self) -> str:
        return count_text(self.count, "task")


def _lines_of(group: str, labels: list[str], codes: Array, values: Array) -> Iterator[_Line]:
    order = np.lexsort((values, codes))
    starts = np.searchsorted(codes[order], np.arange(len(labels) + 1))
    for place, label in enumerate(labels):
        ascending = values[order[starts[place] : starts[place + 1]]]
        if len(ascending):
            at = np.array([SMALL, 25, 50, 75, 100 - SMALL]) / 100 * (len(ascending) - 1)
            found = ascending[np.round(at).astype(int)].tolist()
            yield _Line("" if place else group, label, tuple(found), count=len(ascending))


def _svg(lines: Sequence[_Line], low: float, high: float, says: str, ends: tuple[str, str]) -> str:
    """Lines below each other, over one axis."""
    span = (high - low) or 1.0
    parts, y = [], 16.0

    def x(value: float) -> str:
        return number(LABEL + PLOT * min(max((value - low) / span, 0.0), 1.0))

    for line in lines:
        if line.group:
            y += 6
            parts.append(f'<text x="0" y="{number(y + 4)}" class="dim">{esc(line.group)}</text>')
            y += ROW
        a, b, middle, c, d = line.percentiles
        parts.append(
            f'<text x="{LABEL - 8}" y="{number(y + 4)}" text-anchor="end">'
            f"{esc(cut_middle(line.label, 16))}</text>"
            f'<path class="thin" d="M{x(a)} {number(y)}H{x(d)}"/>'
            f'<path class="thick" d="M{x(b)} {number(y)}H{x(c)}"/>'
            f'<circle cx="{x(middle)}" cy="{number(y)}" r="3.2">'
            f"<title>{esc(line.label)}: median {middle:.6g}, {line.tasks}</title></circle>"
        )
        y += ROW
    width, height = LABEL + PLOT + 10, y + 6
    return (
        f'<svg viewBox="0 0 {width} {number(height)}" width="{width}" height="{number(height)}" '
        f'role="img" aria-label="{esc(says)}" class="lines">'
        f'<text x="{LABEL}" y="10" class="dim">{esc(ends[0])}</text>'
        f'<text x="{LABEL + PLOT}" y="10" class="dim" text-anchor="end">{esc(ends[1])}</text>'
        f"{''.join(parts)}</svg>"
    )


def grouping(plan: Plan, tasks: Array) -> tuple[Axis, Axis | None] | None:
    """The key column whose values are compared within, and the one whose values are compared.

    The map's rows and panels: of those with few values, the longest and the next.
    """
    axes = sorted(_axes(plan, tasks), key=lambda axis: -len(axis.values))
    columns = [c for c in plan.columns if len(axis_of(c, tasks).values) > 1]
    if axes and len(axes) == len(columns):
        longest = max(axes, key=lambda axis: (len(axis.values), plan.names.index(axis.name)))
        axes.remove(longest)  # whose values are the attempts among which the best is sought
    if not axes:
        return None
    second = next((axis for axis in axes[1:] if len(axis.values) <= MOST_SERIES), None)
    return axes[0], second


def _distance_html(best: Best, plan: Plan) -> str:
    """How far all tasks are from the best with the same value of the first column."""
    is_there = np.isfinite(best.scalar.values)
    tasks, values = best.scalar.tasks[is_there], best.scalar.values[is_there]
    found = grouping(plan, tasks)
    if found is None or len(tasks) < 2:
        return ""
    rows, series = found
    sign = -1.0 if best.is_lowest else 1.0
    tops = np.full(len(rows.values), -np.inf)
    np.maximum.at(tops, rows.codes, sign * values)
    if not (np.abs(tops[np.isfinite(tops)]) > 0).all():
        return ""
    distance = (sign * values - tops[rows.codes]) / np.abs(tops[rows.codes]) * 100
    labels = list(series.labels) if series else [""]
    codes = series.codes if series else np.zeros(len(tasks), np.int64)
    combined = rows.codes * len(labels) + codes
    units = best.scalar.units
    names = [f"{row}|{label}" for row in rows.labels for label in labels]
    lines = list(_lines_of("", names, combined, distance))
    low = min((line.percentiles[0] for line in lines), default=0.0) or -1.0
    legend = "".join(
        f'<li><span class="swatch" style="background:var(--s{place})"></span>{esc(label)}</li>'
        for place, label in enumerate(labels)
        if series
    )
    of_series = f", a colour for each {series.name}" if series else ""
    return (
        f"<h3>{esc(best.scalar.name)}: how far each task is from the best of its "
        f"{esc(rows.name)}</h3>"
        f'<p class="note">Best: {esc(best.words)}. Line: 5 to 95 % of tasks{esc(of_series)}; dot: '
        'median.</p><figure><div class="wide" role="region" tabindex="0" aria-label="Distances">'
        f"{_distance_svg(lines, rows, labels, tops * sign, low, units)}</div>"
        f'<ul class="legend">{legend}</ul></figure>'
    )


def _distance_svg(
    lines: Sequence[_Line], rows: Axis, labels: Sequence[str], tops: Array, low: float, units: str
) -> str:
    thick = 12 if len(labels) == 1 else 5
    of_row = thick * len(labels) + 7
    width, plot = 760, 560
    head = f"best [{units}]" if units else "best"
    parts = [f'<text class="dim" x="155" y="11" text-anchor="end">{esc(head)}</text>']

    def x(value: float) -> str:
        return number(width - 20 - plot * min(value / low, 1.0))

    by_row: dict[str, list[tuple[int, _Line]]] = {}
    for line in lines:
        row, _, label = line.label.rpartition("|")
        by_row.setdefault(row, []).append((labels.index(label), line))
    places = {label: place for place, label in enumerate(rows.labels)}
    for step in range(5):
        at = low * step / 4
        parts.append(
            f'<path class="axis" d="M{x(at)} 18V{20 + of_row * len(by_row)}"/>'
            f'<text class="dim" x="{x(at)}" y="11" text-anchor="middle">'
            f"{f'{at:.2g} %' if step else 'best'}</text>"
        )
    for number_of_row, (row, of_this) in enumerate(by_row.items()):
        y = 22 + of_row * number_of_row
        middle = y + thick * len(labels) / 2 + 1
        parts.append(
            f'<text x="0" y="{number(middle)}">{esc(cut_middle(row, 14))}</text>'
            f'<text x="165" y="{number(middle)}" class="dim" text-anchor="end">'
            f"{tops[places[row]]:.6g}</text>"
        )
        for place, line in of_this:
            a, _, median, _, d = line.percentiles
            at = y + thick * place + thick / 2
            parts.append(
                f'<g class="s{place}"><path d="M{x(a)} {number(at)}H{x(d)}"/>'
                f'<circle cx="{x(median)}" cy="{number(at)}" r="2.8"><title>{esc(row)} '
                f"{esc(labels[place])}: median {median:.3g} % from the best, {line.tasks}"
                "</title></circle></g>"
            )
    height = 26 + of_row * len(by_row)
    says = f"Distance from the best of each {rows.name}, from {low:.3g} % to 0"
    return (
        f'<svg class="distance" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{esc(says)}">{"".join(parts)}</svg>'
    )
