"""Which tasks there should be: those that a run declared, or those that `--expect` names.

They are compared with the run folder of an output, which the user named.
"""

from __future__ import annotations

from pathlib import Path

from ..base.listed_plan import plan_list
from ..base.near_floats import with_values_of
from ..base.number_ranges import ranges_of_numbers
from ..base.plan import Plan, types_text
from ..base.units import command_text
from ..disk.find_files import PathLike
from ..errors import UsageError
from ..runfolder.layout import Declared, RunFolder
from .state import FolderState, read_state
from .study import load_study


def read_plan(path: PathLike, *, sweep: str | None = None) -> Plan:
    """The tasks of a study (.py), of a CSV file (.csv), or of an output, from its run folder.

    `sweep` chooses among several of a study. A run folder in which only a Recorder has written has
    no tasks that anybody planned: its plan is empty.
    """
    if Path(path).suffix in (".py", ".csv"):
        return load_expected(Path(path), sweep)
    return existing_folder(path).load_plan() or Plan(())


def load_expected(path: Path, sweep_name: str | None) -> Plan:
    """The tasks of a study or of a CSV file."""
    return load_study(path, sweep_name).plan if path.suffix == ".py" else plan_list(path)


def read_expected_state(
    folder: RunFolder, expected: Plan | None = None, by: str = "what --expect names"
) -> FolderState:
    """The state of a run folder; what is missing in it is what `expected` has, if that is given.

    UsageError if `expected` is over other parameters than the results; `by` says who expects it.
    """
    plan = folder.load_plan()
    if expected is None:
        return read_state(folder, plan or Plan(()))
    expected, _ = with_values_of(plan or Plan(()), expected)
    known = expected if plan is None else _extended(plan, expected, by, folder)
    state = read_state(folder, known, declared=declared_by(by, known, expected))
    _check_same_types(state, expected, by)
    return state


def require_declared(state: FolderState, folder: RunFolder) -> None:
    """Raise UsageError if nobody has said which tasks there should be and none is known to lack."""
    if state.is_declared or any(True for _ in state.missing_tasks()):
        return
    raise UsageError(
        f"no run has declared the tasks of {folder.output}, so it is unknown which are missing: "
        "name the tasks with --expect study.py or --expect tasks.csv"
    )


def require_declaration(folder: RunFolder) -> None:
    """Raise UsageError if no run has said which tasks there should be."""
    if folder.load_declared() is None:
        raise UsageError(
            f"no run has declared the tasks of {folder.output}: run the study first, or leave out "
            "--declared-only"
        )


def declared_by(who: str, plan: Plan, wanted: Plan) -> Declared:
    """The declaration that of all tasks of `plan` those of `wanted` should be there."""
    without = [] if len(plan) == len(wanted) else plan.numbers_beyond(wanted)
    return Declared(who, plan.id, ranges_of_numbers(without))


def _extended(plan: Plan, expected: Plan, by: str, folder: RunFolder) -> Plan:
    """The plan on disk, whose numbers stay, and behind it what else is expected."""
    if plan.types != expected.types:
        raise UsageError(
            f"the plan on disk has the parameters {types_text(plan.types)}, {by} has "
            f"{types_text(expected.types)}: name a study or CSV of {folder.output}"
        )
    return plan.extended(expected)[0]


def _check_same_types(state: FolderState, expected: Plan, by: str) -> None:
    """Raise UsageError if results were recorded, but none under keys as they are expected."""
    if state.results or not state.left_out or state.beyond_plan:
        return
    key = state.left_out[0][0]
    ours, theirs = ", ".join(key), ", ".join(expected.names)
    if key.keys() == expected.types.keys():
        ours = types_text({name: type(value).__name__ for name, value in key.items()})
        theirs = types_text(expected.types)
    raise UsageError(
        f"the results have the parameters {ours}, {by} has {theirs}: name a study or CSV with "
        "the same parameters"
    )


def existing_folder(output: PathLike) -> RunFolder:
    """The run folder of `output`; UsageError with the next step if there is none."""
    folder = RunFolder.of(output)
    if folder.exists():
        return folder
    if folder.output.exists():
        raise UsageError(_without_folder(folder))
    raise UsageError(
        f"there is no run folder {folder.path}: name the output given to a run with -o"
    )


def _without_folder(folder: RunFolder) -> str:
    """What to do with a file that has no run folder: it depends on what the file is."""
    from ..worker_files.layouts import Style
    from ..worker_files.survey import Survey

    output = folder.output
    found = Survey().look_at(output)
    if found.style is Style.OUTPUT and found.is_readable:
        return (
            f"{output} exists but its run folder {folder.path} does not: "
            f"{command_text('run', 'STUDY', '-o', output)} continues from the output"
        )
    if output.suffix == ".py":
        return f"{output} is a study: name its output, such as {output.stem}.h5"
    if found.is_readable and found.style is not Style.NOTHING:
        return (
            f"{output} is not the output of a run, so it does not say which tasks it should have: "
            f"{command_text('merge', output, '-o', 'OTHER.h5', '--key', 'KEY')} writes one row "
            f"per task, and {command_text('missing', 'OTHER.h5', '--expect', 'TASKS')} compares "
            "these tasks with a study or CSV"
        )
    return f"{output} is not the output of a run: {command_text('check', output)} says what it is"
