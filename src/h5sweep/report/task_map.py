"""The map: a tick for each task, or above MOST_TASKS small bars for stretches of tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

import numpy as np

from ..base.values import Array
from .html import Section, esc, number
from .map_layout import MOST_TASKS, MapLayout, Namer, key_namer, lay_out
from .outcomes import Outcome, Outcomes

MOST_KEYS = 4_000  # that are written out, where no label tells them
WIDTH = 840  # pixels of a row
HEIGHT = 14
GAP = 10  # between panels
PANEL = 150
MOST_BIN_ROWS, MOST_BINS = 60, 240
ALL_DONE = "all done"
MOST_NAMED = 5  # stretches of a row that are named
DONE = (Outcome.DONE, Outcome.SALVAGED)
_LETTERS = "dsarflcin"  # of outcomes, in the data of a row


def map_section(outcomes: Outcomes) -> Section | None:
    tasks = outcomes.shown
    if not len(tasks):
        return None
    layout = lay_out(outcomes.plan, tasks)
    is_large = len(tasks) > MOST_TASKS
    shown = _binned(layout, tasks, outcomes) if is_large else _ticked(layout, tasks, outcomes)
    what = "A bar for each stretch of tasks" if is_large else "One tick per task"
    note = f"{what}; {_reading(layout)}."
    return Section("map", "Tasks", shown, note)


def _reading(layout: MapLayout) -> str:
    """How the map is read."""
    if not layout.is_grid:
        return "in the order of the plan"
    parts = [f"a row for each {layout.row_name}"] if layout.row_name else []
    parts += [f"a block for each {layout.panel_name}"] if layout.panel_name else []
    return ", ".join([*parts, f"{layout.tick_name} from left to right"])


def _ticked(layout: MapLayout, tasks: Array, outcomes: Outcomes) -> str:
    """A row of ticks for each row of the layout."""
    grid = np.full(len(layout.rows) * layout.width, -1, np.int64)
    grid[layout.places] = outcomes.codes[tasks]
    name = key_namer(layout, outcomes.plan, tasks)
    rows = []
    for row, label in enumerate(layout.rows):
        first = row * layout.width
        codes = grid[first : first + layout.width].tolist()
        svg = _row_svg(layout, _tick_paths(layout, codes), f"{label}: {_tally(codes)}")
        says = "".join(_LETTERS[code] if code >= 0 else " " for code in codes)
        data = f' data-s="{says}"'
        if not layout.is_grid and len(tasks) <= MOST_KEYS:
            keys = [name(first + place) for place, code in enumerate(codes) if code >= 0]
            data += f' data-k="{esc(json.dumps(keys))}"'
        words, where = _row_words(codes, first, layout, name)
        rows.append(_row_html(label, svg, words, where, data, codes))
    return _map_table(layout, rows)


def _tick_paths(layout: MapLayout, codes: list[int]) -> Iterator[str]:
    """One path for each outcome; each of its strokes is the tick of one task."""
    step = _step(layout)
    stroke = step - 1 if step >= 3 else step * 0.75
    for outcome in Outcome:
        at, moves = None, []
        for place, code in enumerate(codes):
            if code == outcome:
                x = _x(layout, place)
                begin = f"M{number(x)} {HEIGHT / 2:g}" if at is None else f"m{number(x - at)} 0"
                moves.append(f"{begin}h{number(stroke)}")
                # What is written is rounded, and so must be what the next move starts from.
                at = (float(number(x)) if at is None else at + float(number(x - at))) + float(
                    number(stroke)
                )
        if moves:
            yield f'<path class="s-{outcome.css}" d="{"".join(moves)}"/>'


def _step(layout: MapLayout) -> float:
    room = WIDTH - GAP * (len(layout.panels) - 1)
    widest = max(16, PANEL / len(layout.ticks))  # room for the label of a panel
    return min(max(room / layout.width, 1.5), widest)


def _x(layout: MapLayout, place: int) -> float:
    panel, tick = divmod(place, len(layout.ticks))
    return panel * (len(layout.ticks) * _step(layout) + GAP) + tick * _step(layout)


def _row_svg(layout: MapLayout, paths: Iterable[str], label: str) -> str:
    width = _x(layout, layout.width - 1) + _step(layout)
    return (
        f'<svg width="{number(width)}" height="{HEIGHT}" viewBox="0 0 {number(width)} {HEIGHT}" '
        f'preserveAspectRatio="none" role="img" aria-label="{esc(label)}">'
        f"{''.join(paths)}</svg>"
    )


def _tally(codes: Iterable[int]) -> str:
    counts = Counter(codes)
    return ", ".join(f"{counts[o]:,} {o.words}" for o in Outcome if counts[o])


def _row_words(codes: list[int], first: int, layout: MapLayout, name: Namer) -> tuple[str, str]:
    """What is not done in a row, in short, and where it is."""
    stretches, place = [], 0
    for code, group in groupby(codes):
        count = len(list(group))
        if code >= 0 and code not in DONE:
            begin, end = name(first + place), name(first + place + count - 1)
            where = begin if count == 1 else f"{begin} to {end}"
            stretches.append(f"{count:,} {Outcome(code).words}: {where}")
        place += count
    if not stretches:
        return ALL_DONE, ""
    short = stretches[0] if len(stretches) == 1 else _tally(c for c in codes if c not in DONE)
    more = [f"and {len(stretches) - MOST_NAMED:,} more"] if len(stretches) > MOST_NAMED else []
    return short, "; ".join([*stretches[:MOST_NAMED], *more])


def _row_html(label: str, svg: str, words: str, where: str, data: str, codes: Iterable[int]) -> str:
    is_whole = all(code < 0 or code in DONE for code in codes)
    css = "whole" if is_whole else "lacking"
    title = f' title="{esc(where)}"' if where not in ("", words) else ""
    return (
        f'<tr class="{css}"{data}><th scope="row">{esc(label)}</th><td>{svg}</td>'
        f'<td class="words"{title}>{esc(words)}</td></tr>'
    )


def _map_table(layout: MapLayout, rows: list[str]) -> str:
    axes = {
        "row": layout.row_name,
        "panel": layout.panel_name,
        "tick": layout.tick_name,
        "panels": layout.panels,
        "ticks": layout.ticks,
        "step": round(_step(layout), 4),
        "gap": GAP,
        "grid": layout.is_grid,
        "words": [outcome.words for outcome in Outcome],
    }
    heads = "".join(_panel_head(layout, place) for place in range(len(layout.panels)))
    return (
        '<p class="pickers"><label><input type="checkbox" id="lacking-only"> only rows in which '
        "something is missing</label></p>"
        '<div class="wide" role="region" tabindex="0" aria-label="Map of tasks">'
        f'<table id="task-map" data-axes="{esc(json.dumps(axes))}">'
        '<caption class="unseen">The outcome of every task, by its key</caption>'
        f'<thead><tr><th scope="col">{esc(layout.row_name)}</th><th scope="col">{heads}</th>'
        f'<th scope="col">not done</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _panel_head(layout: MapLayout, place: int) -> str:
    """The label of a panel and, below, of its first and last tick."""
    ticks = len(layout.ticks)
    width = ticks * _step(layout) + (GAP if place + 1 < len(layout.panels) else 0)
    share = 100 * width / (_x(layout, layout.width - 1) + _step(layout))
    ends = f"{layout.ticks[0]} … {layout.ticks[-1]}" if layout.is_grid else ""
    along = f"{layout.tick_name} {ends}" if layout.is_grid and not place else ends
    return (
        f'<span class="panel" style="--px:{number(width)}px;--share:{number(share)}%">'
        f"<b>{esc(layout.panels[place])}</b><small>{esc(along)}</small></span>"
    )


def _binned(layout: MapLayout, tasks: Array, outcomes: Outcomes) -> str:
    """The same with stretches of ticks, and of rows, put together."""
    bins = min(len(layout.ticks), max(MOST_BINS // len(layout.panels), 1))
    row_bins = min(len(layout.rows), MOST_BIN_ROWS)
    row, rest = np.divmod(layout.places, layout.width)
    panel, tick = np.divmod(rest, len(layout.ticks))
    to_row, to_bin = row * row_bins // len(layout.rows), tick * bins // len(layout.ticks)
    coarse = MapLayout(
        layout.row_name,
        layout.panel_name,
        layout.tick_name,
        _bin_labels(layout.rows, row_bins),
        layout.panels,
        _bin_labels(layout.ticks, bins),
        (to_row * len(layout.panels) + panel) * bins + to_bin,
        layout.is_grid,
    )
    kinds = len(Outcome)
    codes = coarse.places * kinds + outcomes.codes[tasks]
    counts = np.bincount(codes, minlength=row_bins * coarse.width * kinds)
    counts = counts.reshape(row_bins, coarse.width, kinds)
    rows = [
        _bin_row(coarse, label, of_row) for label, of_row in zip(coarse.rows, counts, strict=True)
    ]
    return _map_table(coarse, rows)


def _bin_labels(labels: tuple[str, ...], bins: int) -> tuple[str, ...]:
    firsts = [-(-number * len(labels) // bins) for number in range(bins + 1)]
    return tuple(
        labels[first] if after == first + 1 else f"{labels[first]} to {labels[after - 1]}"
        for first, after in pairwise(firsts)
    )


def _bin_row(layout: MapLayout, label: str, counts: Array) -> str:
    """Bars of one row; what is wholly done needs no data, and a single failure is still seen."""
    totals = counts.sum(axis=0)
    words = ", ".join(f"{totals[o]:,} {o.words}" for o in Outcome if totals[o])
    lacking = ", ".join(f"{totals[o]:,} {o.words}" for o in Outcome if totals[o] and o not in DONE)
    told = [_letters_of(of) for of in counts.tolist()]
    svg = _row_svg(layout, _bin_paths(layout, counts), f"{label}: {words}")
    data = f' data-m="{" ".join(told)}"' if any(told) else ""
    codes = [int(o) for o in Outcome if totals[o]]
    return _row_html(label, svg, lacking or ALL_DONE, "", data, codes)


def _letters_of(counts: list[int]) -> str:
    """`d28f6` for 28 done and 6 failed, in as few letters as it takes; nothing if all are done."""
    if not any(counts):
        return "-"
    if sum(counts) == counts[Outcome.DONE]:
        return ""
    return "".join(f"{_LETTERS[place]}{count}" for place, count in enumerate(counts) if count)


def _bin_paths(layout: MapLayout, counts: Array) -> Iterator[str]:
    sums = counts.sum(axis=1)
    shares = counts / np.maximum(sums, 1)[:, None]
    heights = np.where(counts > 0, np.maximum(np.round(shares * HEIGHT), 2), 0).astype(int)
    tops = HEIGHT - np.cumsum(heights, axis=1)
    step = _step(layout)
    for outcome in Outcome:
        moves = []
        for place in np.flatnonzero(counts[:, outcome]).tolist():
            x, low = (
                _x(layout, place) + step / 2,
                int(tops[place, outcome] + heights[place, outcome]),
            )
            moves.append(f"M{number(x)} {max(low, 2)}v{-int(heights[place, outcome])}")
        if moves:
            width = number(max(step - 0.5, 1))
            yield f'<path class="v-{outcome.css}" stroke-width="{width}" d="{"".join(moves)}"/>'
