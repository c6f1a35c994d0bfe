"""The tasks of any input, and the rule that gives them their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ...base.key_rule import KeyRule
from ...base.plan import Plan
from ...errors import UsageError
from ...output.reader import OutputReader
from ...worker_files.inputs import Input
from ...worker_files.layouts import Style
from ...worker_files.survey import Survey
from .group_tasks import find_tasks
from .own_files import (
    OutputTasks,
    RecordTasks,
    first_key_names,
)
from .tasks_of_file import TasksOfFile
from .uniform_tasks import find_alike_tasks


def key_rule(key: str | None, plan: Plan, inputs: Sequence[Input]) -> KeyRule:
    """What the key is: as told, as the plan has it, or as files of ours among the inputs."""
    if key is not None:
        rule = KeyRule.parse(key)
        if len(plan) and set(rule.names) != set(plan.names):
            raise UsageError(
                f"--key names {', '.join(rule.names)}, but the run folder has results by "
                f"{', '.join(plan.names)}: choose another output with -o"
            )
        return rule
    names: Iterable[str] | None = plan.names if len(plan) else None
    for one in inputs:
        if names is None and one.style is Style.RECORDS:
            names = first_key_names(one.path)
        elif names is None and one.style is Style.OUTPUT:
            with OutputReader(one.path) as reader:
                names = str(reader.attributes["h5sweep_key"]).split()
    if names is None:
        raise UsageError(
            "no file says where a task's key is found: give --key, as a pattern such as "
            '"farm{farm_id:d}_s{seed:d}" or as names such as farm_id,seed'
        )
    return KeyRule(tuple(names))


@contextmanager
def opened_tasks(
    survey: Survey, one: Input, rule: KeyRule, *, skip_unmatched: bool = False
) -> Iterator[TasksOfFile]:
    """The tasks of any input; ChangedError if it is not what was looked at."""
    if one.style is Style.RECORDS:
        yield RecordTasks(one.path, rule)
    elif one.style is Style.OUTPUT:
        with OutputReader(one.path) as reader:
            yield OutputTasks(reader, rule)
    else:
        with ExitStack() as stack:
            tasks = None
            if one.is_alike:
                alike = stack.enter_context(survey.opened_alike(one))
                if alike is not None:
                    layout = survey.layout_of(alike.tree)
                    tasks = find_alike_tasks(
                        layout, alike, one, rule, skip_unmatched=skip_unmatched
                    )
            if tasks is None:
                layout = stack.enter_context(survey.opened(one))
                tasks = find_tasks(layout, one, rule, skip_unmatched=skip_unmatched)
            yield tasks
