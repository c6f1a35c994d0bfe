"""Give numbers to tasks that the plan does not know: those of recorders and of other outputs.

A result that was recorded by hand carries its key, and so does every row of an output. Tasks found
there are appended to the plan, because results are never dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import UsageError, WrongFolderError
from .folder import RunFolder
from .output import OutputReader
from .plan import TYPES, Key, Plan, key_text, plan_list
from .state import FolderState, output_identity, read_state
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
    if merged.get("plan") == plan.id and merged.get("output") == identity:
        return plan
    with OutputReader(folder.output) as reader:
        extended = _plan_with_output(folder, plan, reader)
        tasks = np.sort(tasks_of_output(reader, extended))
    folder.create()
    if len(extended) > len(plan):
        folder.save_plan(extended)
    note_merged(folder, extended, tasks)
    return extended


def _plan_with_output(folder: RunFolder, plan: Plan, reader: OutputReader) -> Plan:
    if not len(reader.tasks) or _has_same_numbers(reader, plan):
        return plan
    return _extended(plan, plan_list(reader.keys()), folder.output)


def _has_same_numbers(reader: OutputReader, plan: Plan) -> bool:
    return reader.plan_id == plan.id and int(reader.tasks.max(initial=-1)) < len(plan)


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


def read_numbered_state(folder: RunFolder) -> FolderState:
    """The state of all tasks, when those that only the records know are in the plan as well."""
    plan = adopt_output(folder, folder.load_plan() or Plan(()))
    state = read_state(folder, plan, scan=scan_stretches)
    if state.beyond_plan:
        found = sorted(state.beyond_plan, key=lambda it: (it[1].frame[6], it[1].file, it[1].offset))
        plan = _extended(plan, _plan_of_keys([key for key, _ in found], plan), folder.path)
        folder.save_plan(plan)
        state = read_state(folder, plan, scan=scan_stretches)
    if not len(state.plan):
        raise UsageError(f"there is nothing to merge in {folder.path}: run the sweep first")
    return state


def _plan_of_keys(keys: list[Key], plan: Plan) -> Plan:
    """A plan of the keys that records carry, each once, typed as in `plan` if it has columns."""
    names = plan.names or tuple(keys[0])
    for key in keys:
        if set(key) != set(names):
            raise WrongFolderError(
                f"a result was recorded for {key_text(key)}, but this sweep is over "
                f"{', '.join(names)}: record it into another output"
            )
    columns = {name: _typed([key[name] for key in keys], name, plan) for name in names}
    rows = dict.fromkeys(zip(*columns.values(), strict=True))
    return plan_list([dict(zip(names, row, strict=True)) for row in rows])


def _typed(values: list[Any], name: str, plan: Plan) -> list[Any]:
    """Values from JSON, where infinity is a text, in the type of the plan's column."""
    column = next((column for column in plan.columns if column.name == name), None)
    if column is None:
        is_number = any(isinstance(value, float) for value in values)
        return [float(v) if is_number and v in ("inf", "-inf") else v for v in values]
    parsed = [column.parsed(value) for value in values]
    converted = [TYPES[column.type](v) if type(v) in (int, float) else v for v in parsed]
    # Where conversion changes a value, the plan says what is wrong with it.
    return converted if converted == parsed else parsed


def _extended(plan: Plan, wanted: Plan, where: Path) -> Plan:
    if not len(plan):
        return wanted
    try:
        return plan.extended(wanted)[0]
    except UsageError as error:
        raise WrongFolderError(f"{where} holds results of another sweep: {error}") from error
