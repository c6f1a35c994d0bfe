"""What an engine calls, in a process of its own: a part of the run that sent it.

It runs its tasks in supervised workers as any part does, in whatever thread it is called, and
writes records into the shared folder. What comes back is how it ended, never a result. An engine
may call it twice, or long after the run has ended: claims and the order decide what it does.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..base.process_id import host_name
from ..code.payload import payload_here
from ..errors import HopelessError, InterruptedRunError, SweepError, UsageError
from ..runfolder.layout import RunFolder
from ..runfolder.orders import Order, OrderWatch
from ..runfolder.parts import PartNumber, registered
from ..runfolder.uniform_records import scan_stretches
from ..state.state import read_state
from .choose_tasks import TaskChoice
from .early_stop import EarlyStop
from .interruption import knowing_how_children_end
from .part_tasks import PartTasks
from .pool import Pool
from .progress import PlainDisplay
from .run_tasks import FIRST_FAILURE, launch_order, naming_next_step, run_tasks
from .settings import PoolSettings
from .time_left import Moment
from .walltime import Walltime, job_walltime

MOST_NOTES = 20
MOST_TEXT = 4000
NOT_SEEN, STOPPED, HOPELESS = "not seen", "stopped", "hopeless"


@dataclass(frozen=True)
class FarOrder:
    """What an engine is sent for one call, beside the function: which run, how to run its tasks."""

    version: str  # of h5sweep
    output: str
    order: Order
    code: str
    place: str  # the folder in which the run was started
    settings: PoolSettings
    choice: TaskChoice
    grace_s: float
    keep_going: bool
    end_time: float | None  # by the wall clock


@dataclass(frozen=True)
class FarOutcome:
    """How a call ended: all went well, or a word for what did not, and a text."""

    host: str
    trouble: str = ""  # one of the words above, or the name of an error
    text: str = ""
    notes: tuple[str, ...] = ()


def run_far_part(function: bytes, far: FarOrder, number: int, of: int, attempt: int) -> FarOutcome:
    """Run a part for the run that sent this; `attempt` tells one call from another."""
    notes = _Notes()
    try:
        # Who has MPI is a rank of it: an engine's, or one in which Dask has its worker.
        trouble = _run(
            function, far, PartNumber(number, of, is_rank="mpi4py.MPI" in sys.modules), notes
        )
    except InterruptedRunError as error:
        return _outcome(STOPPED, str(error), notes)
    except HopelessError as error:
        return _outcome(HOPELESS, str(error), notes)
    except SweepError as error:
        return _outcome(type(error).__name__, str(error), notes)
    return _outcome(trouble, "", notes)


def _outcome(trouble: str, text: str, notes: _Notes) -> FarOutcome:
    return FarOutcome(host_name(), trouble, text[-MOST_TEXT:], tuple(notes.said))


def _run(content: bytes, far: FarOrder, part: PartNumber, notes: _Notes) -> str:
    folder = RunFolder(Path(far.output))
    if far.version != __version__:
        raise UsageError(
            f"{host_name()} has h5sweep {__version__}, and the run {far.version}: install the same"
        )
    watch = OrderWatch(folder, far.order)
    if not watch.is_seen():
        return NOT_SEEN
    with naming_next_step(), payload_here(content) as function:
        _work(far, part, folder, function, watch, notes)
    return ""


def _work(
    far: FarOrder,
    part: PartNumber,
    folder: RunFolder,
    function: int,
    watch: OrderWatch,
    notes: _Notes,
) -> None:
    settings, plan = far.settings, folder.load_plan()
    assert plan is not None  # it was there before the order
    with (
        registered(folder, part, far.code, far.order.name, far.grace_s) as name,
        knowing_how_children_end(),
        Pool(launch_order(folder, function, settings, name, part, far.place), settings) as pool,
    ):
        tasks = PartTasks(folder, part, name, far.choice)
        state = read_state(folder, plan, scan=scan_stretches)
        tasks.begin(state)
        stop = None if far.keep_going else EarlyStop(tasks.wanted)
        end = _first_end(far.end_time)
        run_tasks(
            pool,
            [],
            folder,
            state,
            notes,
            far.grace_s,
            stop,
            far.code,
            tasks,
            end,
            watch.is_withdrawn,
            name,
        )


def _first_end(end_time: float | None) -> Walltime | None:
    """When the run ends, or the job that the engine is in."""
    known = [job_walltime(), None if end_time is None else Walltime.at(end_time)]
    return min((end for end in known if end), key=lambda end: end.end, default=None)


class _Notes(PlainDisplay):
    """Shows nothing: keeps what is said, for the run to say."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str) -> None:
        if text.startswith(FIRST_FAILURE):
            return  # of this part; the run says its own
        if len(self.said) < MOST_NOTES:
            self.said.append(text[:MOST_TEXT])

    def update(self, moment: Moment) -> None:
        """Nobody looks."""
