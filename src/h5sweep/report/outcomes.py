"""The outcome of every task, as numbers that NumPy counts, and its word and class on the page."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from ..base.missing_reason import MissingReason
from ..base.plan import Plan
from ..base.values import Array
from ..output.row_tasks import extended_plan
from ..runfolder.fitting_keys import plan_of_keys
from ..runfolder.records import RecordFile, RecordKind
from ..state.state import FolderState


class Outcome(IntEnum):
    """What the map shows of a task; the order is that of bars and legends."""

    DONE = 0
    SALVAGED = 1
    AGAIN = 2
    RUNNING = 3
    FAILED = 4
    LOST = 5
    CHANGED = 6
    INTERRUPTED = 7
    NEVER_STARTED = 8

    @property
    def words(self) -> str:
        """The word of `missing` for it, where it has one."""
        reasons = MissingReason.__members__
        return reasons[self.name].value if self.name in reasons else self.name.lower()

    @property
    def css(self) -> str:
        return self.name.lower().replace("_", "-")


NOT_SHOWN = 255  # stands for tasks that nobody asks for


@dataclass(frozen=True)
class Outcomes:
    """The outcome of each task of `plan`, which also has what only records know."""

    plan: Plan
    codes: Array
    finished_at: Array  # of what is done and still in a record; 0 elsewhere

    @property
    def shown(self) -> Array:
        """The numbers of the tasks that there should be."""
        tasks: Array = np.flatnonzero(self.codes != NOT_SHOWN)
        return tasks

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many tasks there are of each, without those of which there is none."""
        found = np.bincount(self.codes[self.shown], minlength=len(Outcome))
        return {outcome: int(found[outcome]) for outcome in Outcome if found[outcome]}


def outcomes_of(state: FolderState) -> Outcomes:
    """The reasons are those that `missing` gives; what is not missing is done."""
    codes = np.full(len(state.plan), Outcome.DONE, np.uint8)
    codes[_salvaged(state)] = Outcome.SALVAGED
    for missing in state.missing():
        codes[missing.task] = Outcome[missing.reason.name]
    codes[list(state.undeclared | state.done_undeclared)] = NOT_SHOWN
    finished_at = np.array(state.finished_at)
    plan = state.plan
    beyond = plan_of_keys([key for key, _ in state.beyond_plan], state.types)
    if beyond is not None:
        plan = extended_plan(plan, beyond, Path("the records"))
        added = len(plan) - len(codes)
        codes = np.append(codes, np.full(added, Outcome.DONE, np.uint8))
        finished_at = np.append(finished_at, np.zeros(added))
    return Outcomes(plan, codes, finished_at)


def _salvaged(state: FolderState) -> Array:
    """The tasks of which the results are those that a salvage has recorded."""
    files = []
    for number, path in enumerate(state.paths):
        with RecordFile(path) as file:
            if (file.about() or {}).get("role") == "salvage":
                files.append(number)
    kinds, of_file = np.frombuffer(state.kinds, np.uint8), np.frombuffer(state.files, np.int32)
    tasks: Array = np.flatnonzero((kinds == RecordKind.DONE) & np.isin(of_file, files))
    return tasks
