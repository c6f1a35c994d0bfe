"""Arguments → one call → output → exit code. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import SweepError, UsageError
from .folder import RunFolder
from .units import parse_duration, parse_size, size_text

if TYPE_CHECKING:
    from .merge import MergeReport
    from .plan import Plan
    from .pool import Retries
    from .run import RunReport
    from .state import FolderState, Missing
    from .study import Declaration

INTERNAL_ERROR = 70


def parsed_by(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback that turns an option's text into a value, or into a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


def parse_retries(text: str) -> Retries:
    """`2`, or `died=3,timed-out=1,raised=0`."""
    from .pool import Retries

    if text.isdigit():
        return Retries(*[int(text)] * 4)
    try:
        pairs = [item.split("=") for item in text.split(",")]
        return Retries(**{name.strip().replace("-", "_"): int(count) for name, count in pairs})
    except (ValueError, TypeError) as error:
        advice = "write a number, or died=3,timed-out=1,raised=0,over-memory=0"
        raise UsageError(f"{text!r} is no count of retries: {advice}") from error


class Commands(click.Group):
    """The commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def main() -> None:
    """Run the command line and exit with the code that DESIGN and `errors` promise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli(standalone_mode=False, prog_name="h5sweep")
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except SweepError as error:
        _tell(f"h5sweep: {error}")
        code = error.exit_code
    except PermissionError as error:
        _tell(f"h5sweep: cannot read {error.filename}: {error.strerror}; ask its owner")
        code = 1
    except Exception:
        _say_bug()
        code = INTERNAL_ERROR
    sys.exit(code or 0)


def _say_bug() -> None:
    import traceback

    traceback.print_exc()
    click.echo("h5sweep: this is a bug in h5sweep; nothing finished is lost.", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="h5sweep")
def cli() -> None:
    """Run thousands of tasks in parallel, keep every finished result, get one HDF5 file.

    \b
    h5sweep run study.py -o layouts.h5     run what is missing, then merge
    h5sweep status layouts.h5              from any other terminal
    """


@cli.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The output; default: STUDY.h5."
)
@click.option("--sweep", "name", metavar="NAME", help="Which sweep, if the study has several.")
@click.option(
    "-j", "--workers", type=click.IntRange(1), help="Worker processes; default: all cores."
)
@click.option(
    "--timeout",
    metavar="DURATION",
    callback=parsed_by(parse_duration),
    help="Longest time for one task, e.g. 20min.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=parsed_by(parse_size),
    help="Most memory for one task, e.g. 2GB.",
)
@click.option(
    "--retries",
    metavar="COUNTS",
    callback=parsed_by(parse_retries),
    default="died=2",
    show_default=True,
    help="Tries again in this run: 2, or died=3,timed-out=1,raised=0.",
)
@click.option(
    "--backoff",
    metavar="DURATION",
    callback=parsed_by(parse_duration),
    default="1s",
    show_default=True,
    help="Pause before the first retry; it doubles each time.",
)
@click.option(
    "--tasks-per-worker",
    metavar="N",
    type=click.IntRange(1),
    help="Replace a worker after so many tasks.",
)
@click.option(
    "--start",
    type=click.Choice(["spawn", "forkserver"]),
    default="spawn",
    show_default=True,
    help="How workers start; forkserver imports the study once.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    callback=parsed_by(parse_duration),
    default="20s",
    show_default=True,
    help="How long running tasks may go on after SIGTERM.",
)
@click.option("--merge/--no-merge", default=True, help="Make the output at the end, or leave it.")
@click.option("--compress", is_flag=True, help="gzip the output.")
@click.option("--try", "try_count", type=click.IntRange(1), metavar="N", help="Run N tasks here.")
def run(
    study: Path,
    output: Path | None,
    name: str | None,
    workers: int | None,
    timeout: float | None,
    memory: int | None,
    retries: Retries,
    backoff: float,
    tasks_per_worker: int | None,
    start: str,
    grace: float,
    merge: bool,
    compress: bool,
    try_count: int | None,
) -> int:
    """Run every task of STUDY that has no result yet, then merge.

    Killed at any moment, the same command again runs the rest. --try N runs N tasks in this
    process, writes nothing, shows full tracebacks and says how long the whole will take.

    \b
    h5sweep run study.py -o layouts.h5 --workers 8 --timeout 20min --retries 2
    """
    from .study import load_study

    declaration = load_study(study, name)
    output = output or Path(study.stem + ".h5")
    if try_count is not None:
        return _try(declaration, try_count, workers)
    from .api import default_workers
    from .pool import PoolSettings
    from .progress import choose_display
    from .run import run_sweep

    settings = PoolSettings(
        workers=workers or default_workers(),
        timeout_s=timeout,
        memory_bytes=memory,
        retries=retries,
        backoff_s=backoff,
        tasks_per_worker=tasks_per_worker,
        start=start,
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
    return _conclude_run(report)


def _conclude_run(report: RunReport) -> int:
    _say_merge_notes(report.merge)
    if report.tasks_failed:
        _say_failures(report.output)
    _tell(f"{report.tasks_done:,} of {report.tasks_total:,} done, {report.tasks_failed:,} failed")
    if report.merge is not None:
        _say_wrote(report.merge)
    if report.is_complete:
        return 0
    _tell(f"next: h5sweep missing {report.output}; the same command again runs what is missing")
    return 1


def _say_failures(output: Path) -> None:
    from .report import failures_text, group_failures

    _, state = _load_state(output)
    _tell(failures_text(state, group_failures(state.all_failures)))


def _try(declaration: Declaration, count: int, workers: int | None) -> int:
    from .api import default_workers
    from .trial import try_tasks

    return try_tasks(declaration, count, workers or default_workers(), _tell)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command that reads a run folder takes."""

    @click.argument("output", type=click.Path(path_type=Path))
    @click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    return wrapped


@cli.command()
@reading_options
@click.option("--watch", is_flag=True, help="Show it again every 2 s until all is done.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 while anything is missing.")
def status(output: Path, as_json: bool, watch: bool, exit_code: bool) -> int:
    """Say how far the sweep of OUTPUT is: counts by key column, rate, time left.

    Reads the run folder only, from any terminal, also during a run.

    \b
    h5sweep status layouts.h5
    """
    from .report import MOST_VALUES_COUNTED, status_json, status_of, status_text

    while True:
        folder, state = _load_state(output)
        most_values = None if as_json else MOST_VALUES_COUNTED
        found = status_of(
            state, str(folder.output), folder.output.exists(), most_values=most_values
        )
        if watch and sys.stdout.isatty():
            click.clear()
        click.echo(status_json(found) if as_json else status_text(found), nl=False)
        if not watch or not found.missing:
            return 1 if exit_code and found.missing else 0
        _pause(2.0)


@cli.command()
@reading_options
@click.option("--csv", "as_csv", is_flag=True, help="CSV: the key columns, reason, detail.")
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    help="A study or CSV that says which tasks there should be.",
)
@click.option("--sweep", "name", metavar="NAME", help="Which sweep, if the study has several.")
def missing(
    output: Path, as_json: bool, as_csv: bool, expect: Path | None, name: str | None
) -> int:
    """List every task of OUTPUT without a result, and why.

    Never started, running, failed (how), lost with a damaged record, interrupted. Exit code 0 if
    nothing is missing, else 1.

    \b
    h5sweep missing layouts.h5 --csv > todo.csv
    """
    from .report import missing_json, missing_lines

    expected = _expected_plan(expect, name) if expect else None
    folder, state = _load_state(output, expected)
    tasks = _expected_among(state, expected)
    if as_json:
        click.echo(missing_json(state.missing_of(tasks), str(folder.output)), nl=False)
    elif as_csv:
        _write_csv(state.plan.names, state.missing_of(tasks))
    else:
        _write_lines(missing_lines(state.missing_of(tasks)))
    total = state.tasks_total if expected is None else len(expected)
    _tell(f"{len(tasks):,} of {total:,} missing" if tasks else "nothing is missing")
    return 1 if tasks else 0


@cli.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--compress", is_flag=True, help="gzip the output.")
def merge(output: Path, compress: bool) -> int:
    """Make OUTPUT from the results in its run folder.

    Written beside, read back and compared, then renamed: the old output stays whole until then.
    The records stay.

    \b
    h5sweep merge layouts.h5
    """
    from .lock import holding
    from .merge import merge_run
    from .progress import choose_display

    folder = _existing_folder(output)
    display = choose_display()
    with holding(folder.lock_path, tell=display.say):
        try:
            report = merge_run(folder, compress=compress, progress=display.merging)
        finally:
            display.end()
    _say_merge_notes(report)
    _say_wrote(report)
    return 0


def _say_merge_notes(report: MergeReport | None) -> None:
    for note in report.notes if report is not None else ():
        _tell(f"note: {note}")


def _say_wrote(report: MergeReport) -> None:
    size = size_text(report.output.stat().st_size)
    _tell(f"wrote {report.output} ({report.tasks_merged:,} tasks, {size})")


def _existing_folder(output: Path) -> RunFolder:
    folder = RunFolder.of(output)
    if not folder.exists():
        raise UsageError(
            f"there is no run folder {folder.path}: name the output that a run was given with -o"
        )
    return folder


def _load_state(output: Path, expected: Plan | None = None) -> tuple[RunFolder, FolderState]:
    from .plan import Plan
    from .state import read_state

    folder = _existing_folder(output)
    plan = folder.load_plan()
    if expected is not None:
        plan = expected if plan is None else _same_numbers(plan, expected)
    return folder, read_state(folder, plan or Plan(()), declared_only=expected is None)


def _same_numbers(plan: Plan, expected: Plan) -> Plan:
    """The plan on disk, whose numbers stay, and behind it what else is expected."""
    return plan.extended(expected)[0]


def _expected_among(state: FolderState, expected: Plan | None) -> list[int]:
    """The missing tasks; of those that the folder knows besides, none that is not expected."""
    tasks = state.missing_tasks()
    if expected is None:
        return list(tasks)
    return [task for task in tasks if expected.number(state.plan.key(task)) is not None]


def _expected_plan(path: Path, name: str | None) -> Plan:
    from .plan import plan_list

    if path.suffix == ".py":
        from .study import load_study

        plan = load_study(path, name).plan
        assert plan is not None  # only workers declare without a plan
        return plan
    return plan_list(path)


def _write_csv(names: Iterable[str], missing: Iterable[Missing]) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([*names, "reason", "detail"])
    for task in missing:
        writer.writerow([*task.key.values(), task.reason.value, task.detail])


def _write_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line)
    sys.stdout.flush()


def _tell(text: str) -> None:
    # Nobody may be listening any more (`2>&1 | head`): what is done is done all the same.
    with suppress(OSError):
        click.echo(text, err=True)


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)  # for the eye of whoever watches
