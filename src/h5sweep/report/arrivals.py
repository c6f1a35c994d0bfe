"""When results came, and what each worker did then."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.plan import key_text
from ..base.units import count_text
from ..base.values import Array
from ..runfolder.records import DURATION_S, FINISHED_AT, TAKEN_ROLES, RecordFile, RecordKind
from ..state.state import FolderState
from .html import Section, esc, number, seconds
from .outcomes import NOT_SHOWN, Outcome, Outcomes

MOST_DURATIONS = 20_000  # that are read; above, a worker counts as busy since its last result
MOST_LANES = 40
BINS = 60
SHORT_S = 10.0  # below this, clock times have tenths of a second
LEFT, WIDTH, HIGH, LANE = 130, 900, 110, 14
_SHOWN = (Outcome.DONE, Outcome.FAILED)


@dataclass(frozen=True)
class Arrivals:
    """Of each outcome that has a time: when, after how long, and in which record file."""

    outcomes: Array
    finished_at: Array
    duration_s: Array
    files: Array


def arrivals_section(state: FolderState, outcomes: Outcomes) -> Section | None:
    """None if no result is in a record: the output says when, but not by whom.

    Results that were taken out of files have the times of these, which say nothing.
    """
    found = _arrivals(state, outcomes)
    if not len(found.finished_at):
        return None
    first = float((found.finished_at - found.duration_s).min())
    last = max(float(found.finished_at.max()), first + 1)
    lanes = _lanes(state, found)
    body = _picture(found, first, last, lanes[:MOST_LANES])
    if len(lanes) > MOST_LANES:
        body += f"<p>… and {count_text(len(lanes) - MOST_LANES, 'more worker')}.</p>"
    span = f"{seconds(last - first)} from {_clock(first, True)} to {_clock(last, True)}"
    note = f"{count_text(len(found.finished_at), 'task')} in {span}; a row for each worker."
    return Section("arrivals", "When results came", body, note)


def _arrivals(state: FolderState, outcomes: Outcomes) -> Arrivals:
    kinds = np.frombuffer(state.kinds, np.uint8)
    is_shown = outcomes.codes[: len(kinds)] != NOT_SHOWN
    done = np.flatnonzero((kinds == RecordKind.DONE) & is_shown)
    files = np.frombuffer(state.files, np.int32)[done]
    roles = {file: _about(state, file).get("role") for file in np.unique(files).tolist()}
    taken = [file for file, role in roles.items() if role in TAKEN_ROLES]
    done = done[~np.isin(files, taken)]
    finished, files = np.array(state.finished_at)[done], np.frombuffer(state.files, np.int32)[done]
    failed = state.failures.values()
    return Arrivals(
        np.append(outcomes.codes[done], np.full(len(failed), Outcome.FAILED, np.uint8)),
        np.append(finished, [place.frame[FINISHED_AT] for place in failed]),
        np.append(_durations(state, done), [place.frame[DURATION_S] for place in failed]),
        np.append(files, np.array([place.file for place in failed], np.int32)),
    )


def _durations(state: FolderState, done: Array) -> Array:
    """How long each took; of very many tasks 0, because each would have to be read."""
    found = np.zeros(len(done))
    if len(done) > MOST_DURATIONS:
        return found
    files = np.frombuffer(state.files, np.int32)[done]
    for file in np.unique(files).tolist():
        chosen = np.flatnonzero(files == file)
        found[chosen] = state.durations_s(done[chosen].tolist())
    return found


@dataclass(frozen=True)
class _Lane:
    """One worker: what it is called, its outcomes, and what it was in when it died."""

    name: str
    chosen: Array
    ended_in: str


def _lanes(state: FolderState, found: Arrivals) -> list[_Lane]:
    """The workers in the order in which they began.

    What a coordinator has noted has no lane: how the task failed in which a worker was killed is
    in the lane of the worker.
    """
    in_hand = {process: task for task, process in state.interrupted.items()}
    lanes: list[_Lane] = []
    abouts = {file: _about(state, file) for file in np.unique(found.files).tolist()}
    noted = [file for file, about in abouts.items() if about.get("role") == "run"]
    first_failed = len(found.files) - len(state.failures)
    places = {task: first_failed + nth for nth, task in enumerate(state.failures)}
    for file, about in abouts.items():
        if file in noted:
            continue
        process = about.get("process") or {}
        task = next((t for p, t in in_hand.items() if p.as_json() == process), None)
        name = f"{about.get('role', 'worker')} {process.get('pid', '')} {process.get('host', '')}"
        ended = "" if task is None else f"ended in {key_text(state.plan.key(task))}"
        chosen = np.flatnonzero(found.files == file)
        if task in places and found.files[places[task]] in noted:
            chosen = np.append(chosen, places[task])
            ended += f", {seconds(float(found.duration_s[places[task]]))} after it had begun it"
        lanes.append(_Lane(name.strip(), chosen, ended))
    return sorted(lanes, key=lambda lane: float(found.finished_at[lane.chosen].min()))


def _about(state: FolderState, file: int) -> Mapping[str, Any]:
    with RecordFile(state.paths[file]) as opened:
        return opened.about() or {}


def _picture(found: Arrivals, first: float, last: float, lanes: list[_Lane]) -> str:
    """Bars of tasks for each stretch of time, and below it the lanes."""
    span = last - first
    bins = np.minimum(((found.finished_at - first) / span * BINS).astype(int), BINS - 1)
    counts = {o: np.bincount(bins[found.outcomes == o], minlength=BINS) for o in _SHOWN}
    most = max(int(np.sum(list(counts.values()), axis=0).max()), 1)
    parts = [*_axis(first, last, len(lanes)), *_bars(counts, most)]
    for place, lane in enumerate(lanes):
        y = HIGH + 26 + LANE * place
        parts.append(f'<text x="0" y="{y + 4}">{esc(lane.name[:20])}</text>')
        parts += _lane_paths(found, lane, first, span, y)
        if lane.ended_in:
            x = LEFT + WIDTH * (float(found.finished_at[lane.chosen].max()) - first) / span
            parts.append(
                f'<path class="s-lost" style="stroke-width:10" d="M{number(x)} {y}h3">'
                f"<title>{esc(lane.ended_in)}</title></path>"
            )
    of_bin = seconds(span / BINS)
    parts.append(f'<text class="dim" x="0" y="12">{count_text(most, "task")}</text>')
    parts.append(f'<text class="dim" x="0" y="26">in {esc(of_bin)}</text>')
    width, height = LEFT + WIDTH + 20, HIGH + 30 + LANE * len(lanes)
    killed = [lane for lane in lanes if lane.ended_in]
    says = f"Tasks that ended over time, at most {most:,} in {of_bin}; {len(lanes)} workers"
    return (
        '<div class="wide" role="region" tabindex="0" aria-label="When results came">'
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{esc(says)}">{"".join(parts)}</svg></div>'
        + "".join(f"<p>{esc(lane.name)} {esc(lane.ended_in)}.</p>" for lane in killed)
    )


def _bars(counts: Mapping[Outcome, Array], most: int) -> Iterator[str]:
    width, below = WIDTH / BINS, np.zeros(BINS)
    for outcome, of in counts.items():
        moves = []
        for place in np.flatnonzero(of).tolist():
            low = HIGH - HIGH * below[place] / most
            height = max(HIGH * int(of[place]) / most, 1.5)
            x = LEFT + width * (place + 0.5)
            moves.append(f"M{number(x)} {number(low)}v{number(-height)}")
        below = below + of
        if moves:
            stroke = number(width - 1.5)
            yield f'<path class="v-{outcome.css}" stroke-width="{stroke}" d="{"".join(moves)}"/>'


def _lane_paths(found: Arrivals, lane: _Lane, first: float, span: float, y: float) -> Iterator[str]:
    """Stretches in which a worker worked; those of one outcome closer than two pixels are one.

    However many tasks there are, a lane has no more of them than there is room for.
    """
    order = lane.chosen[np.argsort(found.finished_at[lane.chosen], kind="stable")]
    ends = (found.finished_at[order] - first) / span * WIDTH
    starts = ends - found.duration_s[order] / span * WIDTH
    if len(order) > 1 and not found.duration_s[order].any():
        starts[1:] = np.maximum(ends[1:] - np.median(np.diff(ends)) * 20 - 1, ends[:-1])
    for outcome in np.unique(found.outcomes[order]).tolist():
        chosen = np.flatnonzero(found.outcomes[order] == outcome)
        first_cuts = np.flatnonzero(starts[chosen[1:]] - ends[chosen[:-1]] > 2) + 1
        begins = starts[chosen[np.append(0, first_cuts)]]
        lasts = ends[chosen[np.append(first_cuts - 1, -1)]]
        path = "".join(
            f"M{number(LEFT + max(begin, 0))} {y}h{number(max(end - begin, 1))}"
            for begin, end in zip(begins.tolist(), lasts.tolist(), strict=True)
        )
        yield f'<path class="s-{Outcome(outcome).css}" style="stroke-width:9" d="{path}"/>'


def _axis(first: float, last: float, lanes: int) -> Iterator[str]:
    """Five clock times, with the date where it is another one."""
    day = ""
    low = HIGH + 18 + LANE * lanes
    for step in range(5):
        at = first + (last - first) * step / 4
        today = time.strftime("%Y-%m-%d", time.localtime(at))
        x = LEFT + WIDTH * step / 4
        anchor = "start" if not step else "end" if step == 4 else "middle"
        yield (
            f'<path class="axis" d="M{number(x)} 0V{low}"/><text class="dim" x="{number(x)}" '
            f'y="{HIGH + 14}" text-anchor="{anchor}">'
            f"{_clock(at, today != day, last - first < SHORT_S)}</text>"
        )
        day = today


def _clock(at: float, with_date: bool, with_tenths: bool = False) -> str:
    text = time.strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S", time.localtime(at))
    return f"{text}.{int(at * 10) % 10}" if with_tenths else text
