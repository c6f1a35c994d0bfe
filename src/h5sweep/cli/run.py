"""h5sweep run: run what is missing, then write the output; and --try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..base.units import command_text, parse_duration, parse_size
from ..runner.settings import PoolSettings, Retries, parse_retries
from .merge import say_notes, say_wrote
from .options import parse_limit, parsed_by
from .terminal import tell

if TYPE_CHECKING:
    from ..runner.run import RunReport
    from ..state.study import Declaration


@click.command("run")
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The output file; default: STUDY.h5."
)
@click.option(
    "--sweep", "name", metavar="NAME", help="Which sweep to use if the study has several."
)
@click.option(
    "-j", "--workers", type=click.IntRange(1), help="Number of workers; default: one per core."
)
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=parsed_by(parse_limit(parse_duration)),
    help="Time limit per task, e.g. 20min.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=parsed_by(parse_limit(parse_size)),
    help="Memory limit per task, e.g. 2GB.",
)
@click.option(
    "--retries",
    metavar="COUNTS",
    callback=parsed_by(parse_retries),
    default="died=2",
    show_default=True,
    help="How often to retry a failed task in this run: 2, or died=3,timed-out=1,raised=0.",
)
@click.option(
    "--backoff",
    metavar="DURATION",
    callback=parsed_by(parse_duration),
    default="1s",
    show_default=True,
    help="Pause before the first retry; it doubles with each retry.",
)
@click.option(
    "--tasks-per-worker",
    metavar="N",
    type=click.IntRange(1),
    help="Replace each worker after N tasks.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    callback=parsed_by(parse_duration),
    default="20s",
    show_default=True,
    help="How long running tasks may continue after Ctrl-C or SIGTERM.",
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
    timeout: float | None,
    memory: int | None,
    retries: Retries,
    backoff: float,
    tasks_per_worker: int | None,
    grace: float,
    merge: bool,
    compress: bool,
    try_count: int | None,
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
    from ..state.study import load_study

    here = Path.cwd()
    declaration = load_study(study, name)
    if try_count is not None:
        return _try(declaration, try_count, workers)
    # A study may change the folder when it is imported; the output was named from here.
    os.chdir(here)
    output = output or Path(study.stem + ".h5")
    settings = PoolSettings(
        workers=default_workers() if workers is None else workers,
        timeout_s=timeout,
        memory_bytes=memory,
        retries=retries,
        backoff_s=backoff,
        tasks_per_worker=tasks_per_worker,
    )
    report = run_sweep(
        declaration,
        output,
        settings,
        choose_display(),
        merge=merge,
        compress=compress,
        grace_s=grace,
    )
    return _conclude_run(report, merge=merge)


def _try(declaration: Declaration, count: int, workers: int | None) -> int:
    from ..api import default_workers
    from ..runner.try_tasks import try_tasks

    return try_tasks(declaration, count, workers or default_workers(), tell)


def _conclude_run(report: RunReport, *, merge: bool) -> int:
    say_notes(report.merge)
    if report.tasks_failed:
        _say_failures(report.output)
    tell(f"{report.tasks_done:,} of {report.tasks_total:,} done, {report.tasks_failed:,} failed")
    if report.merge is not None:
        say_wrote(report.merge)
    elif merge and report.output.exists():
        tell(f"{report.output} is up to date")
    if report.is_complete:
        return 0
    missing = command_text("missing", report.output)
    tell(f"next: {missing} says why; the same command runs the missing tasks")
    return 1


def _say_failures(output: Path) -> None:
    from ..runfolder.layout import RunFolder
    from ..runner.status import failures_text, group_failures
    from ..state.expected_tasks import read_expected_state

    state = read_expected_state(RunFolder.of(output))
    tell(failures_text(state, group_failures(state.all_failures)))
