"""The plan of a declaration: a list of tasks, a product of parameters, or every task of a list with
every combination of parameters.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from ..errors import UsageError
from .listed_plan import plan_list
from .plan import Plan, crossed, plan_product
from .study_function import SWEEP_ARGUMENTS, Callee, check_own_names, check_signature, file_of


def plan_declared(
    function: Callee,
    tasks: object,
    parameters: Mapping[str, Iterable[object]],
    constants: Iterable[str] = (),
) -> Plan:
    """Plan what a sweep over `tasks` and `parameters` runs; parameters vary faster than tasks."""
    constants = list(constants)
    if tasks is None:
        check_own_names(function, SWEEP_ARGUMENTS)
        _check_apart(constants, parameters)
        check_signature(function, [*parameters, *constants])
        return plan_product(parameters)
    check_own_names(function, ["tasks"])
    listed = plan_list(_found(function, tasks), function)
    check_own_names(function, set(SWEEP_ARGUMENTS) - set(listed.names))
    for name in parameters:
        if name in listed.names:
            raise UsageError(
                f"{name!r} is in the list of tasks and a parameter beside it: give it in one place"
            )
    _check_apart(constants, [*listed.names, *parameters])
    check_signature(function, [*listed.names, *parameters, *constants])
    return crossed(listed, plan_product(parameters)) if parameters else listed


def _check_apart(constants: Iterable[str], parameters: Container[str]) -> None:
    for name in constants:
        if name in parameters:
            raise UsageError(f"{name} is a constant and a parameter: leave one of them out")


def _found(function: Callee, tasks: object) -> object:
    """Tasks or, if they are the path of a file, where it is: beside the study, or else here."""
    if not isinstance(tasks, str | Path) or Path(tasks).is_absolute():
        return tasks
    study = file_of(function)
    places = [Path(tasks)] if study is None else [study.parent / tasks, Path(tasks)]
    for place in places:
        if place.exists():
            return place
    beside = "" if study is None else f"neither beside {study} nor "
    raise UsageError(
        f"cannot read the tasks from {tasks}: there is no such file, {beside}in the working "
        f"directory {Path.cwd()}: correct the path"
    )
