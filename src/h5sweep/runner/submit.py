"""Give what is missing to a batch system: parts as one job array, then a merge.

The run folder has plan, code and scripts before the first job exists. Jobs run that code, whatever
becomes of the study meanwhile. Killed at any moment, the same call submits what is missing then.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.selection import Only
from ..base.units import command_text, count_text, near_path
from ..batch.job import Job, Resources
from ..batch.submissions import (
    BATCH_SYSTEMS,
    Submission,
    next_number,
    note_submission,
    queued_jobs,
    script_paths,
)
from ..code.store import load_versions, numbers_by_id
from ..disk import durable
from ..errors import LockedError, SubmitError
from ..runfolder.audit import now_text
from ..runfolder.layout import RunFolder
from ..runfolder.lock import DECLARING, holding, holding_folder
from ..state.code_change import CodeChange, OnChange
from ..state.declare_sweep import declare_sweep, read_code, require_own_folder
from ..state.expected_tasks import read_expected_state
from ..state.extend_plan import is_up_to_date
from ..state.join_sweep import require_same_code
from ..state.known_forms import with_known_forms
from ..state.run_command import SUBMITTED
from ..state.study import Declaration
from .choose_tasks import TaskChoice

Tell = Callable[[str], None]
ASKING_S = 10.0  # so long an answer is waited for on which it depends whether tasks run twice
# Not what lies in the folder where it is run: a module there may have the name of one of ours.
PROGRAM = (sys.executable, "-P", "-m", "h5sweep")


@dataclass(frozen=True)
class Order:
    """What a user wants of a batch system, and of `run` in each part."""

    study: Path
    engine: str
    parts: int
    workers: int
    resources: Resources
    run_options: tuple[str, ...] = ()
    only: Only = ()
    failed: str = "retry"


@dataclass(frozen=True)
class SubmitReport:
    """What was submitted; no script if there was nothing to do."""

    output: Path
    is_merged: bool  # whether the output has all results that are there
    parts: int = 0
    jobs: str = ""  # in words
    script: Path | None = None


@dataclass(frozen=True)
class Script:
    """A job, and where its script lies."""

    path: Path
    job: Job
    text: str


def submit_sweep(
    declaration: Declaration,
    output: Path,
    order: Order,
    tell: Tell,
    *,
    changed: OnChange | None = None,
) -> SubmitReport:
    """Declare the sweep, write scripts for what is missing, and submit them.

    LockedError if jobs of an earlier submission are not over: what is missing is in their hands.
    SubmitError if the batch system refuses, or does not say whether they are over; what is declared
    stays.
    """
    system = BATCH_SYSTEMS[order.engine]
    folder = RunFolder(RunFolder.of(output).output.absolute())
    declaration = with_known_forms(folder, declaration)
    choice = TaskChoice.of(declaration.plan, order.only, order.failed)
    system.require_installed()
    _scripts(folder, declaration.name, order, 1, 1, 1)  # refused before anything is written
    require_own_folder(folder, declaration)
    _require_nothing_queued(folder, output)
    version = read_code(folder, declaration)
    with holding_folder(folder, tell=tell, work=DECLARING):
        require_same_code(folder, version, tell)
        on_change = changed or OnChange.STOP
        state = declare_sweep(folder, declaration, version, tell, on_change, SUBMITTED)
    chosen = choice.choose(state)
    for text in chosen.texts(state):
        tell(text)
    report = SubmitReport(output, is_up_to_date(folder, state.plan))
    if not (tasks := len(chosen.tasks)):
        return report
    code = numbers_by_id(load_versions(folder))[version.id]
    with holding(folder.lock_path, tell=tell, work=DECLARING):
        _require_nothing_queued(folder, output)  # by who was faster
        scripts = _scripts(folder, declaration.name, order, tasks, code, next_number(folder))
        noted = _submit(folder, order.engine, *scripts)
    jobs = f"{system.title} job {noted.job}; job {noted.merge_job} merges when they have ended"
    return replace(report, parts=noted.parts, jobs=jobs, script=scripts[0].path)


def _submit(folder: RunFolder, engine: str, parts: Script, merge: Script) -> Submission:
    """Write both scripts, then submit them; each job is noted as soon as there is one."""
    durable.make_folder(folder.submit_path)
    for script in (parts, merge):
        durable.replace_text(script.path, script.text)
    job = BATCH_SYSTEMS[engine].submit(parts.path, parts.job)
    number = int(parts.path.stem)
    noted = Submission(number, engine, parts.job.parts or 0, job, time=now_text())
    note_submission(folder, noted)
    noted = replace(noted, merge_job=_submit_merge(folder, merge, noted))
    note_submission(folder, noted)
    return noted


def submit_texts(
    declaration: Declaration,
    output: Path,
    order: Order,
    tell: Tell,
    *,
    changed: OnChange | None = None,
) -> dict[Path, str]:
    """The scripts that would be submitted now, by where they would lie; nothing is written.

    What `submit_sweep` refuses of output and code is refused here too.
    """
    folder = RunFolder(RunFolder.of(output).output.absolute())
    folder.require_place()
    choice = TaskChoice.of(declaration.plan, order.only, order.failed)
    require_own_folder(folder, declaration)
    state = read_expected_state(folder, declaration.plan, f"the sweep {declaration.name}")
    version = read_code(folder, declaration)
    change = CodeChange.find(folder, declaration, version, state, SUBMITTED)
    change.require_choice(changed or OnChange.STOP)
    if changed is OnChange.REDO:
        state.again |= change.others  # what would be noted on disk
    chosen = choice.choose(state)
    for text in chosen.texts(state):
        tell(text)
    known = numbers_by_id(load_versions(folder))
    code = known.get(version.id, max(known.values(), default=0) + 1)
    tasks, number = len(chosen.tasks), next_number(folder)
    scripts = _scripts(folder, declaration.name, order, max(tasks, 1), code, number)
    return {script.path: script.text for script in scripts} if tasks else {}


def _require_nothing_queued(folder: RunFolder, output: Path) -> None:
    queued = queued_jobs(folder, within_s=ASKING_S)
    if queued is None:
        return
    if not queued.is_answered:
        raise SubmitError(
            str(queued),
            "Submit again when it does. If it never will: once they have ended, remove "
            f"{near_path(folder.submit_path)}, then submit again",
        )
    raise LockedError(
        f"jobs of an earlier submission are not over ({queued}), and run what is missing. "
        f"Watch them with: {command_text('status', output)}, or end them with: "
        f"{queued.cancel_command}, then submit again"
    )


def _submit_merge(folder: RunFolder, merge: Script, noted: Submission) -> str:
    """The parts are submitted by now: say so, if what follows them is refused."""
    system = BATCH_SYSTEMS[noted.engine]
    try:
        return system.submit(merge.path, merge.job, after=noted.job)
    except SubmitError as error:
        parts = count_text(noted.parts, "part")
        raise SubmitError(
            f"{system.title} job {noted.job} runs {parts}, but no job will merge: {error.refusal}",
            f"When it has ended: {command_text('merge', near_path(folder.output))}",
        ) from error


def _scripts(
    folder: RunFolder, name: str, order: Order, tasks: int, code: int, number: int
) -> tuple[Script, Script]:
    """That of the parts, and that of the merge."""
    system = BATCH_SYSTEMS[order.engine]
    # As many workers as there are tasks are enough.
    parts = min(order.parts, -(-tasks // order.workers))
    path, merge_path = script_paths(folder, number)
    run = [*PROGRAM, "run", str(order.study.absolute()), "-o", str(folder.output)]
    # Kept: whatever was run between submission and start, a job computes what was submitted.
    options = ["--code", str(code), "--changed", "keep", "--workers", str(order.workers)]
    part = f'--part "{system.part_variable}/{parts}"'
    job = Job(
        name,
        f"{name}: {count_text(tasks, 'task')} in {count_text(parts, 'part')}, made by h5sweep\n"
        "exec: signals are sent to the process of this script, and are meant for h5sweep",
        [f"exec {shlex.join(run)} {part} {shlex.join([*options, *order.run_options])}"],
        order.resources,
        Path.cwd(),
        folder.logs_path,
        parts,
    )
    merge = replace(
        job,
        name=f"{name}-merge",
        about=f"{name}: what the parts have done becomes the output; then what is missing, if any",
        lines=[
            shlex.join([*PROGRAM, "merge", str(folder.output)]),
            "merged=$?",
            f"{shlex.join([*PROGRAM, 'missing', str(folder.output)])} || exit",
            "exit $merged",
        ],
        resources=replace(order.resources, cpus=1),
        parts=None,
    )
    return (
        Script(path, job, system.script_text(job)),
        Script(merge_path, merge, system.script_text(merge)),
    )
