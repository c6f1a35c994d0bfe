"""Which tasks there should be: those that a run has declared, or those that `--expect` names."""

from __future__ import annotations

from pathlib import Path

from .errors import UsageError
from .folder import RunFolder
from .plan import Plan, plan_list
from .state import FolderState, read_state
from .study import load_study


def load_expected(path: Path, sweep_name: str | None) -> Plan:
    """The tasks of a study or of a CSV file."""
    if path.suffix != ".py":
        return plan_list(path)
    plan = load_study(path, sweep_name).plan
    assert plan is not None  # only workers declare without a plan
    return plan


def find_missing(folder: RunFolder, expected: Plan | None) -> tuple[FolderState, list[int]]:
    """The state of a run folder, and its tasks that should have a result and have none.

    UsageError if nobody has said which tasks there should be, or if `expected` is over other
    parameters than the results.
    """
    if expected is None:
        return _find_declared(folder)
    plan = folder.load_plan()
    known = expected if plan is None else _extended(plan, expected, folder)
    state = read_state(folder, known, declared_only=False)
    _check_same_names(state, expected)
    # The folder may know tasks besides, which nobody expects.
    tasks = [t for t in state.missing_tasks() if expected.number(known.key(t)) is not None]
    return state, tasks


def _find_declared(folder: RunFolder) -> tuple[FolderState, list[int]]:
    state = read_state(folder, folder.load_plan() or Plan(()))
    tasks = list(state.missing_tasks())
    if not tasks and not (folder.plan_path.exists() and folder.sweep_path.exists()):
        raise UsageError(
            f"what is missing in {folder.output} cannot be known, because no run has said which "
            "tasks there should be: say it with --expect study.py or --expect tasks.csv"
        )
    return state, tasks


def _extended(plan: Plan, expected: Plan, folder: RunFolder) -> Plan:
    """The plan on disk, whose numbers stay, and behind it what else is expected."""
    if _types(plan) != _types(expected):
        raise UsageError(
            f"the plan on disk is over {_types_text(plan)}, what --expect names is over "
            f"{_types_text(expected)}: name a study or CSV of {folder.output}"
        )
    return plan.extended(expected)[0]


def _types(plan: Plan) -> dict[str, str]:
    return {column.name: column.type for column in plan.columns}


def _types_text(plan: Plan) -> str:
    return ", ".join(f"{name} ({type_name})" for name, type_name in _types(plan).items())


def _check_same_names(state: FolderState, expected: Plan) -> None:
    """Raise UsageError if results were recorded, but none under keys as they are expected."""
    if state.tasks_done or not state.beyond_plan:
        return
    recorded = state.beyond_plan[0][0]
    if set(recorded) != set(expected.names):
        raise UsageError(
            f"the results are recorded over {', '.join(recorded)}, what --expect names is over "
            f"{', '.join(expected.names)}: name a study or CSV with the same parameters"
        )
