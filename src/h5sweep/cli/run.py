"""h5sweep run: run what is missing, then write the output; and --try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.units import command_text, count_text, parse_duration
from ..runner.settings import PoolSettings, parse_retries
from . import options
from .merge import say_notes, say_wrote
from .terminal import tell

if TYPE_CHECKING:
    from ..runner.run import RunReport


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
@click.option("--merge/--no-merge", default=True, help="Write the output at the end, or do not.")
@click.option("--compress", is_flag=True, help="Compress the output with gzip.")
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
    merge: bool,
    compress: bool,
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
    from ..runner.progress import choose_display
    from ..runner.run import run_sweep
    from ..runner.try_tasks import try_tasks
    from ..state.code_change import OnChange
    from ..state.study import load_study

    here = Path.cwd()
    declaration = load_study(study, name)
    workers = workers or default_workers()
    if try_count is not None:
        return try_tasks(declaration, try_count, workers, tell, only=only)
    # A study may change the folder when it is imported; the output was named from here.
    os.chdir(here)
    output = output or Path(study.stem + ".h5")
    settings = PoolSettings(workers, **limits)
    display = choose_display()
    report = run_sweep(
        declaration,
        output,
        settings,
        display,
        merge=merge,
        compress=compress,
        grace_s=grace_s,
        changed=None if changed is None else OnChange(changed),
        only=only,
        failed=failed,
        keep_going=keep_going,
    )
    return _conclude_run(report, merge=merge)


def _conclude_run(report: RunReport, *, merge: bool) -> int:
    from ..runner.status import undeclared_text

    say_notes(report.merge)
    if report.tasks_failed and not report.is_complete:
        _say_failures(report.output)
    more = undeclared_text(report.results_undeclared)
    done = f"{report.tasks_done:,} of {report.tasks_total:,} done"
    tell(f"{done}, {report.tasks_failed:,} failed{more}")
    if report.merge is not None:
        say_wrote(report.merge)
    elif merge and report.output.exists():
        tell(f"{report.output} is up to date")
    if report.tasks_not_selected:
        others = count_text(report.tasks_not_selected, "other task")
        tell(f"{others} left to run: the same command without --only runs them")
    if report.is_complete:
        return 0
    missing = command_text("missing", report.output)
    tell(f"next: {missing} says why; the same command runs the missing tasks")
    return 1


def _say_failures(output: Path) -> None:
    from ..runfolder.layout import RunFolder
    from ..runner.failures import failures_text
    from ..state.expected_tasks import read_expected_state

    state = read_expected_state(RunFolder.of(output))
    tell(failures_text(state.plan, state.all_failures))
    if kept := sum(map(state.is_done, state.failures)):
        results = "its old result is" if kept == 1 else "their old results are"
        tell(f"{count_text(kept, 'task')} failed when run again: {results} kept")
