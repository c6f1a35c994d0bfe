"""h5sweep run: run what is missing, then write the output; and --try."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.units import command_text, count_text, parse_duration
from ..batch.slurm import in_job
from ..batch.submissions import queued_jobs
from ..errors import HopelessError, LockedError, UsageError
from ..runfolder.layout import RunFolder
from ..runfolder.parts import PartNumber
from ..runner.part_number import AUTO, parse_part
from ..runner.settings import PoolSettings, parse_envs, parse_retries
from ..runner.walltime import Walltime, parse_until
from . import options
from .merge import say_notes, say_wrote
from .terminal import tell

if TYPE_CHECKING:
    from ..runner.run import RunReport
    from ..runner.run_part import PartReport


@click.command("run")
@click.argument("study", type=options.PATH)
@click.option("-o", "--output", type=options.PATH, help="The output file; default: STUDY.h5.")
@options.sweep
@click.option(
    "-j", "--workers", type=click.IntRange(1), help="Number of workers; default: one per core."
)
@options.time_limit(help="Time limit per task, e.g. 20min.")
@options.memory_limit(help="Memory limit per task, e.g. 2GB.")
@options.parsed(
    "--retries",
    metavar="COUNTS",
    parse=parse_retries,
    default="died=2",
    help="How often to retry a failed task in this run: 2, or died=3,timed-out=1,raised=0.",
)
@options.parsed(
    "--backoff",
    "backoff_s",
    metavar="DURATION",
    parse=parse_duration,
    default="1s",
    help="Pause before the first retry; it doubles with each retry.",
)
@click.option(
    "--tasks-per-worker",
    metavar="N",
    type=click.IntRange(1),
    help="Replace each worker after N tasks.",
)
@options.parsed(
    "--grace",
    "grace_s",
    metavar="DURATION",
    parse=parse_duration,
    default="20s",
    help="How long running tasks may continue after Ctrl-C or SIGTERM.",
)
@click.option(
    "--changed",
    type=click.Choice(["stop", "keep", "redo"]),
    help="If code, constants or inputs are not those of the results there: stop, keep these "
    "results and run the rest, or run all again. Default: keep; stop if constants differ.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME=VALUES",
    help="Run only tasks with these values: farm_id=3, seed=3,4, seed=0..9. May be repeated.",
)
@click.option(
    "--failed",
    type=click.Choice(["retry", "keep"]),
    default="retry",
    show_default=True,
    help="Run tasks again that failed before, or leave them alone.",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="Go on even if the first 20 tasks all fail with the same error.",
)
@options.parsed(
    "--part",
    metavar="I/N",
    parse=parse_part,
    help="Run part I of N, started anywhere that sees the folder; never merges. auto: the rank "
    "under mpirun or srun.",
)
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["dask", "mpi"]),
    help="Have Dask or MPI run the tasks, on other machines that share the folder of the output.",
)
@click.option("--address", metavar="ADDRESS", help="--engine dask: its scheduler, tcp://HOST:8786.")
@click.option(
    "--scheduler-file",
    type=options.PATH,
    help="--engine dask: the file in which the scheduler has written its address.",
)
@click.option(
    "--parts",
    type=click.IntRange(1),
    metavar="N",
    help="--engine: how many parts to send; default: as many as it runs at once. Each has "
    "--workers workers, by default one.",
)
@click.option(
    "--code",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Run the code that the run folder has by this number, not the study as it is now.",
)
@options.parsed(
    "--until",
    "walltime",
    metavar="TIME",
    parse=parse_until,
    help="Begin no task that would not be done by then: 3h50min from now, or 17:30. Default: the "
    "end of the Slurm job, if it is in one.",
)
@options.parsed(
    "--env",
    multiple=True,
    metavar="NAME=VALUES",
    parse=parse_envs,
    help="Deal values round the workers: CUDA_VISIBLE_DEVICES=0,1,2,3. May be repeated.",
)
@click.option("--merge/--no-merge", default=True, help="Write the output at the end, or do not.")
@click.option("--compress", is_flag=True, help="Compress the output with gzip.")
@click.option(
    "--report/--no-report",
    "writes_report",
    default=True,
    help="Write an HTML page into the run folder at the end, or do not.",
)
@click.option(
    "--try",
    "try_count",
    type=click.IntRange(1),
    metavar="N",
    help="Run N tasks in this process and write nothing.",
)
def run_command(
    study: Path,
    output: Path | None,
    name: str | None,
    workers: int | None,
    grace_s: float,
    changed: str | None,
    only: tuple[str, ...],
    failed: str,
    keep_going: bool,
    part: PartNumber | None,
    engine_name: str | None,
    address: str | None,
    scheduler_file: Path | None,
    parts: int | None,
    code: int | None,
    walltime: Walltime | None,
    env: dict[str, tuple[str, ...]],
    merge: bool,
    compress: bool,
    writes_report: bool,
    try_count: int | None,
    **limits: Any,
) -> int:
    """Run every task of STUDY that has no result yet, then merge.

    If a run is killed, the same command runs the remaining tasks. --try N runs N tasks in this
    process, writes nothing, shows full tracebacks and estimates how long the whole sweep will take.

    \b
    h5sweep run study.py -o layouts.h5 --workers 8 --timeout 20min --retries 2
    """
    # All of it before the study: one called signal.py must not hide Python's own from us.
    from ..api import default_workers
    from ..report.write_report import reporting_stop
    from ..runner.engine import Engine, connected
    from ..runner.progress import choose_display
    from ..runner.run import run_sweep
    from ..runner.run_part import run_part
    from ..runner.try_tasks import try_tasks
    from ..state.code_change import OnChange
    from ..state.known_code import known_code
    from ..state.known_forms import with_known_forms
    from ..state.study import load_study

    here = Path.cwd()
    output = output or Path(study.stem + ".h5")
    _require_one_way(engine_name, address, scheduler_file, parts, part)
    if part is not None and (compress or try_count is not None):
        raise UsageError("--part writes records only: leave out --compress and --try")
    # Before the study: all ranks of MPI but the first never come further than this.
    with connected(engine_name, address, scheduler_file) as executor:
        if engine_name is not None and executor is None:
            return 0
        for variable in env:
            os.environ.pop(variable, None)  # it has one value in each worker, and none here
        declaration = load_study(study, name, known_code(output, code))
        if try_count is not None:
            declaration = with_known_forms(RunFolder.of(here / output), declaration)
            workers_here = workers or default_workers()
            return try_tasks(declaration, try_count, workers_here, tell, only=only, grace_s=grace_s)
        # A study may change the folder when it is imported; the output was named from here.
        os.chdir(here)
        engine = None if executor is None else Engine.of(executor, parts)
        workers_here = workers or (1 if engine else default_workers())
        settings = PoolSettings(workers_here, env=env, **limits)
        _say_queued(RunFolder.of(output))
        order = (declaration, output, settings, choose_display())
        choices: dict[str, Any] = {
            "only": only,
            "failed": failed,
            "keep_going": keep_going,
            "grace_s": grace_s,
            "walltime": walltime,
            "changed": None if changed is None else OnChange(changed),
        }
        if part is not None:
            try:
                return _conclude_part(run_part(*order, part=part, **choices), only, failed)
            except HopelessError as error:
                if not part.is_rank:
                    raise
                tell(f"h5sweep: part {part}: {error}")
                return 0  # as for all that is wrong with tasks: other ranks go on
        try:
            with reporting_stop(output, tell) if writes_report else nullcontext():
                report = run_sweep(*order, merge=merge, compress=compress, engine=engine, **choices)
        except LockedError as error:
            raise LockedError(f"{error}{_launcher_hint()}") from error
    return _conclude_run(report, merge=merge, writes_report=writes_report)


def _require_one_way(
    engine: str | None,
    address: str | None,
    scheduler_file: Path | None,
    parts: int | None,
    part: PartNumber | None,
) -> None:
    """Raise UsageError for options that do not go together."""
    if engine is not None and part is not None:
        raise UsageError("--part runs a part here, --engine sends parts elsewhere: choose one")
    if engine is None and parts is not None:
        raise UsageError("--parts is for --engine; to run one part here, write --part 3/40")
    if engine != "dask" and (address or scheduler_file):
        raise UsageError("--address and --scheduler-file are for --engine dask")


def _launcher_hint() -> str:
    """What to write if a launcher has started the command several times."""
    with suppress(UsageError):
        if parse_part(AUTO).of > 1:
            return " (if mpirun or srun has started both, add --engine mpi or --part auto)"
    return ""


def _say_queued(folder: RunFolder) -> None:
    """Say which jobs have the same tasks, unless this is one: a thousand would ask."""
    if not in_job(os.environ) and (queued := queued_jobs(folder)):
        tell(
            f"these tasks were submitted too ({queued}), and jobs run what is missing when they "
            f"begin. To end them: {queued.cancel_command}"
        )


def _conclude_part(report: PartReport, only: tuple[str, ...], failed: str) -> int:
    """Say how far all parts are. Exit code 0: MPI launchers end all ranks if one gives another."""
    failures = f", {report.tasks_failed:,} failed" if report.tasks_failed else ""
    name = f"part {report.part}"  # on each line: those of several parts are mixed under mpirun
    tell(f"{name}: ended; {report.tasks_done:,} of {report.tasks_total:,} done{failures}")
    if report.tasks_taken_over:
        found = count_text(report.tasks_taken_over, "task")
        tell(f"{name}: took over {found} that nobody had in hand, from other parts' shares")
    if not report.tasks_missing:
        tell(f"next: {command_text('merge', report.output)} writes the output")
    elif report.others_at_work and report.has_left_out:
        tell(
            "another part at work has claimed tasks, and was told to run others (--only, --failed)"
        )
        tell("next: when that part has ended, the same command runs what it has left")
    elif report.others_at_work:
        parts = count_text(report.others_at_work, "other part")
        are = "is" if report.others_at_work == 1 else "are"
        status = command_text("status", report.output)
        tell(f"next: {parts} {are} at work; {status} says how far they are")
    else:
        missing = command_text("missing", report.output)
        # All parts: what has failed is tried again by the part that has it in its share.
        start = f"started again{_without_text(only, failed)}"
        tell(f"next: {missing} says why tasks are missing; the parts, {start}, run them")
    return 0


def _without_text(only: tuple[str, ...], failed: str) -> str:
    """Without which options tasks are run that a part was told to leave alone."""
    words = [*(["--only"] if only else []), *(["--failed keep"] if failed == "keep" else [])]
    return f" without {' and '.join(words)}" if words else ""


def _conclude_run(report: RunReport, *, merge: bool, writes_report: bool) -> int:
    from ..report.write_report import write_after_run
    from ..runner.status import undeclared_text

    say_notes(report.merge)
    if report.tasks_failed and not report.is_complete:
        _say_failures(report.output)
    more = undeclared_text(report.results_undeclared)
    done = f"{report.tasks_done:,} of {report.tasks_total:,} done"
    tell(f"{done}, {report.tasks_failed:,} failed{more}")
    if report.merge is not None:
        say_wrote(report.merge)
    elif merge and not report.is_refused and report.output.exists():
        tell(f"{report.output} is up to date")
    if writes_report:
        tell(write_after_run(report.output))
    if report.tasks_not_selected:
        others = count_text(report.tasks_not_selected, "other task")
        tell(f"{others} left to run: the same command without --only runs them")
    if report.is_complete:
        return 0
    if report.tasks_missing:
        missing = command_text("missing", report.output)
        tell(f"next: {missing} says why; {_way_to_run(report)}")
    return 1


def _way_to_run(report: RunReport) -> str:
    if report.tasks_missing == report.failures_kept:
        return "the same command without --failed keep tries these tasks again"
    return "the same command runs the missing tasks"


def _say_failures(output: Path) -> None:
    from ..runner.failures import failures_text
    from ..state.expected_tasks import read_expected_state

    state = read_expected_state(RunFolder.of(output))
    tell(failures_text(state.plan, state.all_failures))
    if kept := sum(map(state.is_done, state.failures)):
        results = "its old result is" if kept == 1 else "their old results are"
        tell(f"{count_text(kept, 'task')} failed when run again: {results} kept")
