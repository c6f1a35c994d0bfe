"""Run one part of a sweep: no coordinator, nothing to keep alive but the shared folder.

Parts may be started in any number, hours apart, on any machine that sees the folder; be killed,
queued again, run twice. Each runs tasks in a pool of its own and writes records of its own. None
merges: `h5sweep merge` does, when they have ended or while they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..base.selection import Only
from ..base.static_html import ShownAsText
from ..base.units import count_text
from ..runfolder.layout import RunFolder
from ..runfolder.parts import PartNumber, read_parts, refresh_listing, registered
from ..runfolder.uniform_records import scan_stretches
from ..state.code_change import OnChange
from ..state.declare_sweep import read_code, require_own_folder
from ..state.join_sweep import join_sweep
from ..state.known_forms import with_known_forms
from ..state.state import FolderState, read_state
from ..state.study import Declaration
from .choose_tasks import TaskChoice
from .early_stop import EarlyStop
from .hand_over import changed_input_texts, handed_over, sending_texts
from .interruption import DEFAULT_GRACE_S, knowing_how_children_end
from .part_tasks import PartTasks
from .pool import Pool
from .progress import Display
from .run_tasks import launch_order, naming_next_step, run_tasks, say_damage, threads_text
from .settings import PoolSettings
from .walltime import Walltime, job_walltime


@dataclass(frozen=True)
class PartReport(ShownAsText):
    """How far the sweep is when a part has nothing left to do."""

    output: Path
    part: PartNumber
    tasks_total: int
    tasks_done: int  # by all parts
    tasks_failed: int
    tasks_missing: int  # also those that are still to be run again
    tasks_taken_over: int  # by this part, from others
    others_at_work: int  # other parts, as far as anybody here can say
    has_left_out: bool = False  # tasks claimed by parts at work that were told to run others

    def __str__(self) -> str:
        failed = f", {self.tasks_failed:,} failed" if self.tasks_failed else ""
        return f"part {self.part}: {self.tasks_done:,} of {self.tasks_total:,} done{failed}"


def run_part(
    declaration: Declaration,
    output: Path,
    settings: PoolSettings,
    display: Display,
    *,
    part: PartNumber,
    grace_s: float = DEFAULT_GRACE_S,
    changed: OnChange | None = None,
    only: Only = (),
    failed: str = "retry",
    keep_going: bool = False,
    walltime: Walltime | None = None,
) -> PartReport:
    """Run the share of a part in what is missing, then what no other part has in hand.

    The choices are those of `run_sweep`. If the code is not that of the other parts or of the
    results there, and `changed` says nothing, ChangedStudyError.

    Killed at any moment, what was finished is kept; other parts, or the same call, run the rest.
    """
    folder = RunFolder.of(output)
    declaration = with_known_forms(folder, declaration)
    choice = TaskChoice.of(declaration.plan, only, failed)
    require_own_folder(folder, declaration)
    version = read_code(folder, declaration, settings.env)
    with (
        naming_next_step(),
        handed_over(declaration, version, folder.output, str(part)) as function,
        registered(folder, part, version.id) as name,
        knowing_how_children_end(),
        Pool(launch_order(folder, function, settings, name, part), settings) as pool,
    ):
        sending = sending_texts(declaration, version, folder.output, str(part))
        for text in (*sending, threads_text(settings)):
            if text:
                display.say(text)
        pool.warm_up(len(declaration.plan))  # to read a large plan takes as long as to start them
        tasks = PartTasks(folder, part, name, choice, display.say)
        state = join_sweep(folder, declaration, version, str(part), display.say, changed)
        say_damage(state, display)
        own = tasks.begin(state)
        display.say(_begin_text(part, state, own))
        stop = None if keep_going else EarlyStop(tasks.wanted)
        end = walltime or job_walltime()
        run_tasks(
            pool, [], folder, state, display, grace_s, stop, version.id, tasks, end, part=name
        )
        for text in changed_input_texts(declaration, version):
            display.say(text)
    refresh_listing(folder.records_path)
    # Another part may have declared more tasks meanwhile.
    after = read_state(folder, folder.load_plan() or state.plan, scan=scan_stretches)
    return PartReport(
        folder.output,
        part,
        tasks_total=after.tasks_total,
        tasks_done=after.tasks_done,
        tasks_failed=after.tasks_failed,
        tasks_missing=sum(1 for _ in after.missing_tasks()),
        tasks_taken_over=tasks.taken_over,
        others_at_work=sum(one.is_alive is not False for one in read_parts(folder)),
        has_left_out=tasks.has_left_out,
    )


def _begin_text(part: PartNumber, state: FolderState, own: int) -> str:
    again = len(state.again_done)
    are = "is" if again == 1 else "are"
    more = f"; of all, {again:,} {are} run again" if again else ""
    done = f"{state.tasks_done:,} kept, {count_text(own, 'task')} of its own to do"
    return f"part {part}: {done}{more}"
