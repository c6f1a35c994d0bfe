"""Number the tasks that the plan lacks: those of recorders and of other outputs.

A result that was recorded by hand carries its key, and so does every row of an output. Tasks found
there are appended to the plan, because results are never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.plan import Plan
from ..code.store import adopt_texts
from ..errors import UsageError
from ..output.row_tasks import extended_plan
from ..runfolder.fitting_keys import plan_of_keys
from ..runfolder.layout import RunFolder
from ..runfolder.records import FINISHED_AT
from ..runfolder.uniform_records import scan_stretches
from .state import FolderState, read_state
from .tasks_in_output import HeldTasks, held_tasks, output_identity


def adopt_output(folder: RunFolder, plan: Plan, held: HeldTasks | None = None) -> Plan:
    """Make the run folder know the rows of an output that it has not written itself.

    Afterwards merged.json names those that are sound, and `held_tasks` need not read them again.
    Tasks that the output has and the plan lacks are appended to the plan, durably: results are
    never dropped.
    """
    held = held or held_tasks(folder, plan)
    if held.described is None:
        return plan
    folder.create()
    sweep = folder.load_sweep()
    labels = with_labels(sweep, held)
    if any(labels[name] != (sweep.get(name) or {}) for name in ("dims", "coords", "attributes")):
        folder.save_sweep(labels)
    adopt_texts(folder, held.code_texts)
    if len(held.plan) > len(plan):
        folder.save_plan(held.plan)
    note_merged(folder, held.plan, held.ranges)
    return held.plan


def with_labels(sweep: Mapping[str, Any], held: HeldTasks) -> dict[str, Any]:
    """What is known about the sweep, with the labels of an output that was not noted yet."""
    if held.described is None:
        return dict(sweep)
    labels = {"dims": held.dims, "coords": held.coords}
    return {**labels, **sweep, "attributes": merged_attributes(sweep, held)}


def merged_attributes(sweep: Mapping[str, Any], held: HeldTasks) -> dict[str, dict[str, Any]]:
    """What the run folder knows of its columns and, where it does not, what the output says."""
    known = sweep.get("attributes") or {}
    units = sweep.get("units") or {}
    described = held.described or {}
    merged = {name: {**about, **known.get(name, {})} for name, about in described.items()}
    for name in merged.keys() & units.keys():
        merged[name].pop("units", None)
    return {**known, **merged}


def note_merged(folder: RunFolder, plan: Plan, ranges: list[list[int]], **details: object) -> None:
    """Say in merged.json which tasks the output holds; `details` as `merge_details` gives them."""
    about = {"plan": plan.id, "output": output_identity(folder.output), "tasks": ranges}
    folder.save_merged({**about, **details})


def merge_details(folder: RunFolder, *, declared_only: bool = False) -> dict[str, object]:
    """What an output depends on besides the plan: if none of it changed, nor would the output."""
    sweep = folder.load_sweep()
    only = {"declared_only": True, "declared": sweep.get("declared")} if declared_only else {}
    return {
        "record_bytes": sum(path.stat().st_size for path in folder.record_paths()),
        "dims": sweep.get("dims"),
        "coords": sweep.get("coords"),
        "units": sweep.get("units"),
        "attributes": sweep.get("attributes"),
        **folder.load_relabels().about(),
        **only,
    }


def is_up_to_date(folder: RunFolder, plan: Plan) -> bool:
    """Whether a merge would write the output that is there already."""
    merged = folder.load_merged()
    details = merge_details(folder, declared_only=is_declared_only(folder))
    current = {"plan": plan.id, "output": output_identity(folder.output), **details}
    return current["output"] is not None and current.items() <= merged.items()


def is_declared_only(folder: RunFolder) -> bool:
    """Whether the last merge left out what is not declared."""
    return folder.load_merged().get("declared_only") is True


def read_numbered_state(folder: RunFolder) -> FolderState:
    """The state of all tasks, when those that only the records know are in the plan as well.

    UsageError if there are none.
    """
    state = number_all(folder)
    if not len(state.plan):
        raise UsageError(f"there is nothing to merge in {folder.path}: run the sweep first")
    return state


def number_all(folder: RunFolder) -> FolderState:
    """Append to the plan what only records or the output know, durably; return the state then."""
    plan = adopt_output(folder, folder.load_plan() or Plan(()))
    state = read_state(folder, plan, scan=scan_stretches)
    if (extended := _with_unplanned(folder, state)) is not None:
        folder.save_plan(extended)
        state = read_state(folder, extended, scan=scan_stretches)
    return state


def read_all(folder: RunFolder) -> FolderState:
    """The same state, while nothing on disk changes: for those who have no lock."""
    held = held_tasks(folder, folder.load_plan() or Plan(()))
    state = read_state(folder, held.plan, scan=scan_stretches, held=held)
    if (extended := _with_unplanned(folder, state)) is not None:
        held = replace(held, plan=extended)
        state = read_state(folder, extended, scan=scan_stretches, held=held)
    return state


def _with_unplanned(folder: RunFolder, state: FolderState) -> Plan | None:
    """The plan with what only the records know; None if it has all of that."""
    found = sorted(
        state.beyond_plan, key=lambda it: (it[1].frame[FINISHED_AT], it[1].file, it[1].offset)
    )
    unplanned = plan_of_keys([key for key, _ in found], state.types) if found else None
    return None if unplanned is None else extended_plan(state.plan, unplanned, folder.path)
