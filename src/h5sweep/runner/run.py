"""Run what is missing: scan the folder, run, merge. The same call again finishes the job."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.selection import Only
from ..base.static_html import ShownAsText
from ..base.units import command_text, count_text, size_text
from ..errors import ChangedStudyError
from ..merge.from_records.build import merge_run
from ..merge.from_records.output_plan import MergeReport
from ..runfolder.layout import RunFolder
from ..runfolder.lock import RUNNING, holding_folder
from ..runfolder.records import RecordFile
from ..runfolder.uniform_records import scan_stretches
from ..state.code_change import OnChange
from ..state.declare_sweep import declare_sweep, read_code, require_own_folder
from ..state.extend_plan import is_up_to_date
from ..state.known_forms import with_known_forms
from ..state.state import FolderState, read_state
from ..state.study import Declaration
from .choose_tasks import TaskChoice
from .early_stop import EarlyStop
from .engine import Engine
from .hand_over import changed_input_texts, handed_over, sending_texts
from .interruption import DEFAULT_GRACE_S, knowing_how_children_end
from .pool import Pool
from .progress import Display
from .run_far import run_far
from .run_tasks import launch_order, naming_next_step, run_tasks, say_damage, threads_text
from .settings import PoolSettings
from .walltime import Walltime, job_walltime

ORPHANS_S = 3.0


@dataclass(frozen=True)
class RunReport(ShownAsText):
    """How a run ended."""

    output: Path
    tasks_total: int
    tasks_kept: int
    tasks_done: int
    tasks_failed: int
    tasks_missing: int  # also those that are still to be run again
    merge: MergeReport | None
    tasks_not_selected: int = 0  # missing too, but the run was told to leave them alone
    results_undeclared: int = 0  # of tasks that the sweep has no longer
    failures_kept: int = 0  # missing too, because they failed and are to be left alone
    is_refused: bool = False  # a merge: some rows have other units or axes than the study says now

    @property
    def is_complete(self) -> bool:
        """Whether every task has its result that is still declared, and was selected."""
        return self.tasks_missing == 0 and not self.is_refused

    def __str__(self) -> str:
        failed = f", {self.tasks_failed:,} failed" if self.tasks_failed else ""
        lines = [f"{self.output}: {self.tasks_done:,} of {self.tasks_total:,} done{failed}"]
        if self.merge is not None:
            rows = count_text(self.merge.tasks_merged, "task")
            lines.append(f"written with {rows}, {size_text(self.merge.size_bytes)}")
        if self.tasks_missing:
            missing = command_text("missing", self.output)
            lines.append(f"next: {missing} says why tasks are missing; the same call runs them")
        return "\n".join(lines)


def run_sweep(
    declaration: Declaration,
    output: Path,
    settings: PoolSettings,
    display: Display,
    *,
    merge: bool = True,
    compress: bool = False,
    grace_s: float = DEFAULT_GRACE_S,
    changed: OnChange | None = None,
    only: Only = (),
    failed: str = "retry",
    keep_going: bool = False,
    walltime: Walltime | None = None,
    engine: Engine | None = None,
) -> RunReport:
    """Run every task that has no result yet, then merge all results into `output`.

    `only` selects among them, `failed="keep"` leaves those alone that have failed before, `changed`
    is what to do with results of other code. HopelessError if the first tasks all fail of one
    cause, unless `keep_going` is said. No task is begun that would not be done by `walltime`, which
    Slurm tells if nobody does. With an `engine` it runs parts there, and none here.

    Killed at any moment, what was finished is kept and the same call runs the rest.
    """
    folder = RunFolder.of(output)
    declaration = with_known_forms(folder, declaration)
    choice = TaskChoice.of(declaration.plan, only, failed)
    require_own_folder(folder, declaration)
    version = read_code(folder, declaration, settings.env)
    with (
        naming_next_step(),
        handed_over(declaration, version, folder.output) as function,
        holding_folder(folder, tell=display.say, work=RUNNING),
        knowing_how_children_end(),
        _pool_here(folder, function, settings, engine) as pool,
    ):
        has_executor = engine is not None
        sending = sending_texts(declaration, version, folder.output, has_executor=has_executor)
        for text in (*sending, threads_text(settings)):
            if text:
                display.say(text)
        if pool and not folder.plan_path.exists() and not folder.output.exists():
            pool.warm_up(len(declaration.plan))
        _wait_for_orphans(folder)
        state = declare_sweep(folder, declaration, version, display.say, changed)
        say_damage(state, display)
        chosen = choice.choose(state)
        for text in chosen.texts(state):
            display.say(text)
        stop = None if keep_going else EarlyStop(len(chosen.tasks))
        end = walltime or job_walltime()
        if pool:
            run_tasks(
                pool, chosen.tasks, folder, state, display, grace_s, stop, version.id, walltime=end
            )
        elif engine:
            run_far(
                engine,
                function,
                version.id,
                folder,
                state,
                chosen.tasks,
                choice,
                settings,
                display,
                grace_s=grace_s,
                keep_going=keep_going,
                walltime=end,
            )
        for text in changed_input_texts(declaration, version):
            display.say(text)
        merged = None
        wants_merge = merge and (compress or not is_up_to_date(folder, state.plan))
        if wants_merge:
            merged = _merge(folder, compress, display)
        report = _report(folder, state, choice, chosen.tasks, merged)
        is_refused = wants_merge and merged is None
        return replace(report, is_refused=is_refused)


def _pool_here(
    folder: RunFolder, function: int, settings: PoolSettings, engine: Engine | None
) -> AbstractContextManager[Pool | None]:
    if engine is not None:
        return nullcontext()
    return Pool(launch_order(folder, function, settings), settings)


def _wait_for_orphans(folder: RunFolder) -> None:
    """Let the workers of a coordinator that was killed end, so that no task runs twice."""
    deadline = time.monotonic() + ORPHANS_S
    for path in folder.record_paths():
        with RecordFile(path) as file:
            about = file.about() or {}
            owner = file.owner() if about.get("role") == "worker" else None
        while owner is not None and owner.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)  # the kernel ends them; there is nothing to wait on across processes


def _merge(folder: RunFolder, compress: bool, display: Display) -> MergeReport | None:
    """None if rows are still to be run again before a merge has one label for all."""
    try:
        return merge_run(folder, compress=compress, progress=display.merging)
    except ChangedStudyError as error:
        display.end()
        display.say(f"not merged, {folder.output} stays as it is: {error}")
        return None
    finally:
        display.end()


def _report(
    folder: RunFolder,
    before: FolderState,
    choice: TaskChoice,
    wanted: list[int],
    merged: MergeReport | None,
) -> RunReport:
    """What there is now, counted where it lies: what workers have said may be damaged since."""
    if merged is not None and _has_all(merged, before):
        tasks_done, tasks_failed, tasks_missing, not_selected = before.tasks_total, 0, 0, 0
        failures_kept = 0
    else:
        is_as_before = not wanted and merged is None
        after = before if is_as_before else read_state(folder, before.plan, scan=scan_stretches)
        tasks_done, tasks_failed = after.tasks_done, after.tasks_failed
        left = choice.choose(after)
        not_selected, failures_kept = left.not_selected, left.failed_kept
        tasks_missing = len(left.tasks) + failures_kept
    return RunReport(
        folder.output,
        tasks_total=before.tasks_total,
        tasks_kept=before.tasks_done,
        tasks_done=tasks_done,
        tasks_failed=tasks_failed,
        tasks_missing=tasks_missing,
        merge=merged,
        tasks_not_selected=not_selected,
        results_undeclared=len(before.done_undeclared),
        failures_kept=failures_kept,
    )


def _has_all(merged: MergeReport, before: FolderState) -> bool:
    """Whether the output has a row of every task; not if recorders have added tasks meanwhile."""
    rows = before.tasks_total + len(before.done_undeclared)
    is_whole = merged.tasks_merged == rows and not before.again
    return is_whole and merged.tasks_planned == len(before.plan)
