"""Which task each row of an output is, and which rows are sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.attribute_json import Attributes
from ..base.listed_plan import plan_list
from ..base.plan import Plan
from ..base.relabels import Relabels
from ..base.values import Array
from ..errors import DamagedError, SweepError, UsageError, WrongFolderError
from .reader import OutputReader
from .stored_labels import StoredLabels
from .verify import damaged_rows

Held = tuple[
    Plan,
    list[list[int]],
    frozenset[int],
    Attributes,
    dict[str, list[str]],
    dict[str, Any],
    dict[int, str],
]


def read_rows(output: Path, plan: Plan, relabels: Relabels) -> Held:
    """What `HeldTasks` says of the output.

    A row counts if its checksum holds and if its key is that of its number.
    """
    with OutputReader(output, relabels) as reader:
        try:
            extended = _plan_with_output(plan, reader)
            tasks, is_sound = tasks_of_output(reader, extended), _has_own_keys(reader, plan)
            is_sound[damaged_rows(reader)] = False
            ranges = ranges_of(np.unique(tasks[is_sound]))
            unsound = frozenset(tasks[~is_sound].tolist())
            described = (
                StoredLabels(reader).declared(),
                reader.relabels.dims(_declared(reader, "dims")),
                _declared(reader, "coords"),
                reader.code_texts(),
            )
            return extended, ranges, unsound, *described
        except SweepError:
            raise
        except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
            # What h5py and NumPy may raise for a file that somebody has edited.
            raise DamagedError(
                f"{output} cannot be read as an output ({error}). Move it away and run the same "
                "command again: the records in the run folder are not affected"
            ) from error


def _declared(reader: OutputReader, what: str) -> dict[str, Any]:
    """The axes of results, or the coordinates of axes, that the sweep has declared."""
    try:
        return dict(json.loads(bytes(reader.whole(f"provenance/{what}"))))
    except KeyError:
        return {}


def tasks_of_output(reader: OutputReader, plan: Plan) -> Array:
    """The number in `plan` of the task in each row of the output."""
    if _has_same_numbers(reader, plan):
        return reader.tasks
    return np.array([plan.number(key) for key in reader.keys().rows()], np.int64)


def codes_of_rows(
    output: Path, plan: Plan, relabels: Relabels
) -> tuple[list[int], list[int], dict[int, str]]:
    """The task of each row, the version of its code, and what is said of each version."""
    with OutputReader(output, relabels) as reader:
        tasks, codes = tasks_of_output(reader, plan), reader.codes()
        return tasks.tolist(), codes.tolist(), reader.code_texts()


def ranges_of(tasks: npt.ArrayLike) -> list[list[int]]:
    """Ascending numbers as [first, last] pairs."""
    numbers = np.asarray(tasks, np.int64)
    if not len(numbers):
        return []
    gaps = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[np.append(0, gaps + 1)], numbers[np.append(gaps, len(numbers) - 1)]
    return [list(pair) for pair in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def _plan_with_output(plan: Plan, reader: OutputReader) -> Plan:
    if not len(reader.tasks) or _has_same_numbers(reader, plan):
        return plan
    return extended_plan(plan, plan_list(reader.keys()), reader.path)


def extended_plan(plan: Plan, wanted: Plan, where: Path) -> Plan:
    """The plan and, behind it, the tasks that were found at `where`."""
    if not len(plan):
        return wanted
    try:
        return plan.extended(wanted)[0]
    except UsageError as error:
        raise WrongFolderError(f"{where} holds results of another sweep: {error}") from error


def _has_same_numbers(reader: OutputReader, plan: Plan) -> bool:
    tasks = reader.tasks
    is_known = int(tasks.max(initial=-1)) < plan.tasks_shared_with(reader.plan_id)
    return is_known and int(tasks.min(initial=0)) >= 0


def _has_own_keys(reader: OutputReader, plan: Plan) -> Array:
    """Which rows have the key that the plan has under their number."""
    is_own = np.ones(len(reader.tasks), bool)
    if not _has_same_numbers(reader, plan):
        return is_own  # they are found by their keys
    keys = reader.keys()
    for column in plan.columns:
        values = np.array(column.values, object if column.type == "str" else None)
        is_own &= values[np.frombuffer(column.codes, np.uint32)[reader.tasks]] == keys[column.name]
    return is_own
