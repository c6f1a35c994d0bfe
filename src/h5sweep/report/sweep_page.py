"""The page of a sweep: its sections in their order, from its run folder alone."""

from __future__ import annotations

import time

import numpy as np

from ..base.plan import Plan
from ..base.units import count_text
from ..errors import UsageError
from ..runfolder.layout import RunFolder
from ..runner.status import Status, state_and_status
from ..state.state import FolderState
from .arrivals import arrivals_section
from .drawings import best_tasks, drawings_html
from .failure_section import failure_section
from .file_section import file_section
from .html import Section
from .origin import code_section, origin_section
from .outcomes import outcomes_of
from .page import page_html
from .result_plots import Best, results_section
from .results import Results, read_drawings, read_results
from .task_map import map_section
from .verdict import next_section, verdict_section

MOST_READ = 200  # tasks of which positions are read


def sweep_page(folder: RunFolder, best: str | None = None, *, is_lowest: bool = False) -> str:
    """How the sweep stands now; right during a run, and of whatever a kill has left."""
    state, status = state_and_status(folder, most_values=0)
    outcomes = outcomes_of(state)
    sections = [
        verdict_section(status, outcomes.counts),
        next_section(folder, status),
        map_section(outcomes),
        failure_section(state, outcomes),
        arrivals_section(state, outcomes),
        file_section(folder, state, status),
        _results(folder, state, outcomes.plan, best, is_lowest),
        code_section(folder, state),
        origin_section(folder),
    ]
    about = [_over(outcomes.plan, len(outcomes.shown)), *_at_work(status)]
    title = str(folder.load_sweep().get("name") or folder.output.stem)
    return page_html(title, about, [s for s in sections if s is not None], time.time())


def _results(
    folder: RunFolder, state: FolderState, plan: Plan, name: str | None, is_lowest: bool
) -> Section | None:
    """Distributions, distances from the best, and what the best returned, drawn."""
    results = read_results(folder, state)
    best = _best(results, name, is_lowest)
    drawings = ""
    if best is not None:
        chosen = best_tasks(best, plan)
        for array in results.drawable:
            tasks = np.array(sorted(chosen.values())[:MOST_READ], np.int64)
            found = read_drawings(folder, state, array, tasks)
            drawings += drawings_html(
                array, results.units.get(array, ""), best, chosen, found, plan
            )
    return results_section(results, plan, best, drawings)


def _best(results: Results, name: str | None, is_lowest: bool) -> Best | None:
    """By the named result, or else by the first that differs between tasks."""
    by_name = {scalar.name: scalar for scalar in results.scalars}
    if name is not None and name not in by_name and by_name:
        raise UsageError(f"no result {name!r} is a number; there are: {', '.join(by_name)}")
    finite = ((s, s.values[np.isfinite(s.values)]) for s in results.scalars)
    differing = [scalar for scalar, values in finite if len(values) and np.ptp(values) > 0]
    chosen = by_name.get(name) if name else next(iter(differing), None)
    return None if chosen is None else Best(chosen, is_lowest)


def _over(plan: Plan, tasks: int) -> str:
    """How many tasks there are, over what: `3,000 tasks: farm_id (20) × seed (30)`."""
    columns = [f"{column.name} ({len(column.values):,})" for column in plan.columns]
    return count_text(tasks, "task") + (f": {' × '.join(columns)}" if columns else "")


def _at_work(status: Status) -> list[str]:
    return ["a run is active"] if status.is_active else []
