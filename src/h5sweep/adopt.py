"""Give numbers to tasks that the plan does not know: those of recorders and of other outputs.

A result that was recorded by hand carries its key, and so does every row of an output. Tasks found
there are appended to the plan, because results are never dropped.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .attributes import Attributes
from .errors import UsageError, WrongFolderError
from .folder import RunFolder
from .output import OutputReader
from .plan import Key, Plan, Value, plan_list
from .records import FINISHED_AT
from .state import FolderState, Scanner, output_identity, read_state
from .stretches import scan_stretches
from .values import Array


def adopt_output(folder: RunFolder, plan: Plan) -> Plan:
    """Make the run folder know the rows of an output that it has not written itself.

    Afterwards merged.json names them, so that `read_state` counts them as done. Tasks that the
    output has and the plan lacks are appended to the plan, durably: results are never dropped.
    """
    identity = output_identity(folder.output)
    if identity is None:
        return plan
    merged = folder.load_merged()
    if plan.tasks_shared_with(merged.get("plan")) and merged.get("output") == identity:
        return plan
    with OutputReader(folder.output) as reader:
        extended = _plan_with_output(folder, plan, reader)
        tasks = np.sort(tasks_of_output(reader, extended))
        described = reader.described()
    folder.create()
    _keep_described(folder, described)
    if len(extended) > len(plan):
        folder.save_plan(extended)
    note_merged(folder, extended, tasks)
    return extended


def _keep_described(folder: RunFolder, described: Attributes) -> None:
    """Remember what the output says of its columns, unless the run folder knows."""
    sweep = folder.load_sweep()
    known = sweep.get("attributes") or {}
    units = sweep.get("units") or {}
    united = {name: {**about, **known.get(name, {})} for name, about in described.items()}
    for name in united.keys() & units.keys():
        united[name].pop("units", None)
    if {**known, **united} != known:
        folder.save_sweep({**sweep, "attributes": {**known, **united}})


def _plan_with_output(folder: RunFolder, plan: Plan, reader: OutputReader) -> Plan:
    if not len(reader.tasks) or _has_same_numbers(reader, plan):
        return plan
    return _extended(plan, plan_list(reader.keys()), folder.output)


def _has_same_numbers(reader: OutputReader, plan: Plan) -> bool:
    return int(reader.tasks.max(initial=-1)) < plan.tasks_shared_with(reader.plan_id)


def tasks_of_output(reader: OutputReader, plan: Plan) -> Array:
    """The number in `plan` of the task in each row of the output."""
    if _has_same_numbers(reader, plan):
        return reader.tasks
    return np.array([plan.number(key) for key in reader.keys().rows()], np.int64)


def note_merged(folder: RunFolder, plan: Plan, tasks: Array, **details: object) -> None:
    """Say in merged.json which tasks the output holds; `details` as `merge_details` gives them."""
    folder.save_merged(
        {
            "plan": plan.id,
            "output": output_identity(folder.output),
            "tasks": ranges_of(tasks),
            **details,
        }
    )


def merge_details(folder: RunFolder) -> dict[str, object]:
    """What an output depends on besides the plan: if none of it changed, nor would the output."""
    sweep = folder.load_sweep()
    return {
        "record_bytes": sum(path.stat().st_size for path in folder.record_paths()),
        "dims": sweep.get("dims"),
        "units": sweep.get("units"),
        "attributes": sweep.get("attributes"),
    }


def is_up_to_date(folder: RunFolder, plan: Plan) -> bool:
    """Whether a merge would write the output that is there already."""
    merged = folder.load_merged()
    current = {"plan": plan.id, "output": output_identity(folder.output), **merge_details(folder)}
    return current["output"] is not None and current.items() <= merged.items()


def ranges_of(tasks: npt.ArrayLike) -> list[list[int]]:
    """Ascending numbers as [first, last] pairs."""
    numbers = np.asarray(tasks, np.int64)
    if not len(numbers):
        return []
    gaps = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[np.append(0, gaps + 1)], numbers[np.append(gaps, len(numbers) - 1)]
    return [list(pair) for pair in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def read_numbered_state(folder: RunFolder, scan: Scanner = scan_stretches) -> FolderState:
    """The state of all tasks, when those that only the records know are in the plan as well.

    UsageError if there are none.
    """
    state = number_all(folder, scan)
    if not len(state.plan):
        raise UsageError(f"there is nothing to merge in {folder.path}: run the sweep first")
    return state


def number_all(folder: RunFolder, scan: Scanner = scan_stretches) -> FolderState:
    """Append to the plan what only records or the output know, durably; return the state then."""
    plan = adopt_output(folder, folder.load_plan() or Plan(()))
    state = read_state(folder, plan, scan=scan)
    if state.beyond_plan:
        found = sorted(
            state.beyond_plan, key=lambda it: (it[1].frame[FINISHED_AT], it[1].file, it[1].offset)
        )
        unplanned = _plan_of_keys([key for key, _ in found], plan)
        if unplanned is not None:
            plan = _extended(plan, unplanned, folder.path)
            folder.save_plan(plan)
            state = read_state(folder, plan, scan=scan)
    return state


def _plan_of_keys(keys: list[Key], plan: Plan) -> Plan | None:
    """A plan of the keys that records carry, each once; None if none fits.

    What fits is what `plan` has columns for or, if it has none, what most of the keys are like. One
    process that forgot a parameter must not keep the results of all others from being merged.
    """
    types = {column.name: column.type for column in plan.columns} or _commonest_types(keys)
    rows = [
        [_typed(key[name], types[name]) for name in types] for key in keys if set(key) == set(types)
    ]
    fitting = dict.fromkeys(tuple(row) for row in rows if None not in row)
    return plan_list([dict(zip(types, row, strict=True)) for row in fitting]) if fitting else None


def _commonest_types(keys: list[Key]) -> dict[str, str]:
    """The parameters that most keys have, and of each the type that most of its values have."""
    names = Counter(tuple(key) for key in keys).most_common(1)[0][0]
    alike = [key for key in keys if set(key) == set(names)]
    types = {}
    for name in names:
        counts = Counter(type(key[name]).__name__ for key in alike)
        numbers = counts["int"] + counts["float"]
        has_floats = counts["float"] > 0 and numbers >= counts["str"]
        types[name] = "float" if has_floats else counts.most_common(1)[0][0]
    return types


def _typed(value: Value, type_name: str) -> Value | None:
    """A value from JSON, where infinity is a text, in this type; None if it is of another."""
    if type(value).__name__ == type_name:
        return value
    if type_name == "float" and (type(value) is int or value in ("inf", "-inf")):
        return float(value)
    return None


def _extended(plan: Plan, wanted: Plan, where: Path) -> Plan:
    if not len(plan):
        return wanted
    try:
        return plan.extended(wanted)[0]
    except UsageError as error:
        raise WrongFolderError(f"{where} holds results of another sweep: {error}") from error
