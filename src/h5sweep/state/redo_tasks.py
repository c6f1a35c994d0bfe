"""Ask for tasks to be run again, or withdraw that. Results stay until new ones are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..base.listed_plan import plan_list
from ..base.near_floats import with_values_of
from ..base.number_ranges import numbers_in
from ..base.plan import Plan, key_text
from ..base.selection import Only, read_selection, select_tasks, values_text
from ..base.static_html import ShownAsText
from ..base.units import count_text
from ..disk.find_files import PathLike
from ..errors import UsageError
from ..runfolder.audit import append_event
from ..runfolder.layout import RunFolder
from ..runfolder.lock import holding_folder
from .expected_tasks import existing_folder
from .extend_plan import number_all
from .redo_order import redo_number
from .run_command import run_again_text
from .state import FolderState
from .task_codes import task_codes

Tell = Callable[[str], None]


@dataclass(frozen=True)
class RedoReport(ShownAsText):
    """Which tasks are to be run again by a request, or no longer are."""

    output: Path
    tasks: int
    with_result: int  # how many of them have one now, which counts until there is a new one
    is_cancelled: bool
    next_step: str

    def __str__(self) -> str:
        return f"{self._what()}\n{self.next_step}".rstrip("\n")

    def _what(self) -> str:
        tasks, are = count_text(self.tasks, "task"), "is" if self.tasks == 1 else "are"
        if self.is_cancelled:
            return f"{tasks} {are} no longer to be run again; every result stays as it is"
        if not self.with_result:
            return f"{tasks} {are} to be run again"
        have = "1 has a result" if self.with_result == 1 else f"{self.with_result:,} have a result"
        return f"{tasks} {are} to be run again; {have} now, kept until the new one is there"


def redo_tasks(
    output: PathLike,
    only: Only | None = None,
    *,
    failed: bool = False,
    tasks: object = None,
    code: int | None = None,
    tell: Tell = lambda text: None,
) -> RedoReport:
    """Have the next run of `output` run tasks again that meet all that is said here.

    `only` are their parameters, `tasks` is a list of them or the path of a CSV file, `code` the
    version of the code that made their rows, and `failed` leaves those that have failed last.
    Killed at any moment, all of them are to be run again, or none, and no result is touched.
    UsageError if there is no such task.
    """
    if not only and not failed and tasks is None and code is None:
        raise UsageError(
            "say which tasks are to be run again: farm_id=3 seed=0..9, --failed, --code 1 or "
            "--csv todo.csv"
        )
    folder = existing_folder(output)
    with holding_folder(folder, tell=tell):
        state = number_all(folder)
        chosen = _chosen(folder, state, only, failed, tasks)
        if code is not None:
            chosen = _of_code(folder, state, chosen, code)
        with_result = sum(map(state.is_done, chosen))
        request_again(folder, state, chosen)
    return RedoReport(folder.output, len(chosen), with_result, False, _next_step(folder))


def request_again(folder: RunFolder, state: FolderState, tasks: Iterable[int]) -> None:
    """Note that tasks are to be run again, durably; the lock must be held."""
    chosen = set(tasks)
    append_event(folder.output, f"asked for {count_text(len(chosen), 'task')} to be run again")
    known = max(map(redo_number, state.paths), default=0)
    folder.save_redo(folder.load_redo().with_request(state.plan, chosen, at_least=known))


def cancel_redo(output: PathLike, *, tell: Tell = lambda text: None) -> RedoReport:
    """Withdraw what is to be run again and was not yet; results that are new already stay so.

    Killed at any moment, all of that is withdrawn, or nothing.
    """
    folder = existing_folder(output)
    with holding_folder(folder, tell=tell):
        state, requests = number_all(folder), folder.load_redo()
        waiting = requests.open_tasks(state.plan) - state.redone
        if waiting:
            tasks = count_text(len(waiting), "task")
            append_event(folder.output, f"withdrew that {tasks} be run again")
            # First, so that the next run merges: results of before may count again.
            folder.save_merged({**folder.load_merged(), "record_bytes": None})
            folder.save_redo(requests.without_open(state.plan, waiting))
    with_result = sum(map(state.is_done, waiting))
    return RedoReport(folder.output, len(waiting), with_result, True, "")


def _chosen(
    folder: RunFolder, state: FolderState, only: Only | None, failed: bool, tasks: object
) -> set[int]:
    """The tasks that meet every condition; UsageError if there are none."""
    plan = state.plan
    if not len(plan):
        raise UsageError(f"there are no tasks in {folder.path}: run the sweep first")
    chosen = set(select_tasks(read_selection(only or {}, plan), plan))
    if not chosen:
        raise UsageError(f"no task has all of these values; there are {values_text(plan)}")
    if tasks is not None and not (chosen := chosen & _listed(plan, tasks)):
        raise UsageError(f"no listed task has all of these values; there are {values_text(plan)}")
    if failed and not state.failures:
        raise UsageError(f"no task has failed: name tasks by their values, {values_text(plan)}")
    if failed and not (chosen := chosen & state.failures.keys()):
        raise UsageError(f"none of these has failed; failed: {values_text(plan, state.failures)}")
    return _still_declared(folder, plan, chosen)


def _of_code(folder: RunFolder, state: FolderState, chosen: set[int], code: int) -> set[int]:
    """Those whose rows this version of the code has made."""
    codes = task_codes(folder, state)
    left = {task for task in chosen if state.is_done(task) and codes[task] == code}
    if not left:
        numbers = sorted({codes[task] for task in chosen if state.is_done(task)})
        there = ", ".join(map(str, numbers)) or "none, because they have no results"
        raise UsageError(f"none of these rows is of code {code}; their code is {there}")
    return left


def _listed(plan: Plan, tasks: object) -> set[int]:
    """The numbers of tasks in a list or a CSV file."""
    found = set()
    listed, _ = with_values_of(plan, plan_list(tasks))
    _require_same_names(listed, plan)
    for key in map(listed.key, range(len(listed))):
        number = plan.number(key)
        if number is None:
            raise UsageError(f"there is no task {key_text(key)}; there are {values_text(plan)}")
        found.add(number)
    return found


def _require_same_names(listed: Plan, plan: Plan) -> None:
    """Raise UsageError naming the columns that a list of tasks lacks, or has for nothing."""
    lacking = [name for name in plan.names if name not in listed.names]
    others = [name for name in listed.names if name not in plan.names]
    what = [f"has no column {', '.join(lacking)}"] if lacking else []
    what += [f"has a column {', '.join(others)}, which is no parameter"] if others else []
    if what:
        raise UsageError(
            f"the list of tasks {' and '.join(what)}: it must have {', '.join(plan.names)}"
        )


def _still_declared(folder: RunFolder, plan: Plan, chosen: set[int]) -> set[int]:
    """Without those that no run would run, because the study has them no longer."""
    declared = folder.load_declared()
    if declared is None or not plan.tasks_shared_with(declared.plan):
        return chosen
    left = chosen.difference(numbers_in(declared.without, below=len(plan)))
    if not left:
        raise UsageError(
            f"the study no longer declares {_first_key(plan, chosen)}, so no run would run it "
            "again: declare it first, and run"
        )
    return left


def _first_key(plan: Plan, chosen: Iterable[int]) -> str:
    return key_text(plan.key(min(chosen)))


def _next_step(folder: RunFolder) -> str:
    """The command that runs them, or what to do if no run has been here."""
    sweep = folder.load_sweep()
    if sweep.get("name"):
        return f"next: {run_again_text(sweep, folder.output)}"
    return "next: record them with a Recorder that is opened from now on"
