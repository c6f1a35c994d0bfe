"""Arguments → one call → output → exit code. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import InterruptedRunError, StorageError, SweepError, UsageError
from .folder import SUFFIX, RunFolder
from .settings import START_METHODS, PoolSettings, Retries, parse_retries
from .units import count_text, parse_duration, parse_size, size_text

if TYPE_CHECKING:
    from .merge import MergeReport
    from .report import Status
    from .run import RunReport
    from .state import FolderState, Missing
    from .study import Declaration

INTERNAL_ERROR = 70
STOPPED = (
    "stopped; nothing finished is lost, and an output that was there is as it was: give the same "
    "command again"
)


def parsed_by(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback that turns an option's text into a value, or into a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


def parse_limit(parse: Callable[[str], float]) -> Callable[[str], float]:
    """The same parser for a limit, which must leave something to use."""

    def parse_above_zero(text: str) -> float:
        value = parse(text)
        if value <= 0:
            raise UsageError(f"{text!r} leaves a task nothing: give more than 0, or no limit")
        return value

    return parse_above_zero


def expecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command takes that can compare with the tasks there should be."""
    command = click.option(
        "--sweep", "name", metavar="NAME", help="Which sweep, if the study has several."
    )(command)
    return click.option(
        "--expect",
        type=click.Path(path_type=Path),
        help="A study or CSV that says which tasks there should be.",
    )(command)


def limiting_library(*, memory_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What every command takes that asks the HDF5 library about files it may not survive."""

    def add_options(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--memory",
            metavar="SIZE",
            callback=parsed_by(parse_limit(parse_size)),
            default="1GiB",
            show_default=True,
            help=memory_help,
        )(command)
        return click.option(
            "--timeout",
            metavar="DURATION",
            callback=parsed_by(parse_limit(parse_duration)),
            default="20s",
            show_default=True,
            help="Longest time that the HDF5 library may take for one file.",
        )(command)

    return add_options


class Commands(click.Group):
    """The commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def main() -> None:
    """Run the command line and exit with the code that DESIGN and `errors` promise."""
    _open_closed_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else somebody said to ignore it: nohup
            signal.signal(number, _stop)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = _run_command()
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up_stdout()
        if not isinstance(error, BrokenPipeError):
            _tell(f"h5sweep: {_refused_text(error)}")
            code = code or 1
    sys.exit(code)


def _stop(number: int, _: object) -> None:
    """End as after Ctrl-C, so that no half-written file stays; a run has its own way."""
    raise InterruptedRunError(STOPPED, number)


def _open_closed_streams() -> None:
    """Open /dev/null as what the shell has closed (`2>&-`).

    Otherwise the next file that we open, such as a record file, would be standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115 (it stays)
            setattr(sys, name, stream)


def _run_command() -> int:
    try:
        return cli(standalone_mode=False, prog_name="h5sweep") or 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        _tell(f"h5sweep: {STOPPED}")
        return 130
    except SweepError as error:
        _tell(f"h5sweep: {error}")
        return error.exit_code
    except PermissionError as error:
        _tell(f"h5sweep: cannot read {error.filename}: {error.strerror}; ask its owner")
        return 1
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _tell(f"h5sweep: {_refused_text(error)}")
            return 1
        return _say_bug()
    except Exception:
        return _say_bug()


def _say_bug() -> int:
    import traceback

    _tell(traceback.format_exc() + "h5sweep: this is a bug in h5sweep; nothing finished is lost.")
    return INTERNAL_ERROR


def _refused_text(error: OSError) -> str:
    where = error.filename or "standard output"
    return f"cannot write to {where}: {error.strerror}; see to that and give the command again"


def _give_up_stdout() -> None:
    """Let what is left in the buffer of standard output go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="h5sweep")
def cli() -> None:
    """Run thousands of tasks in parallel, keep every finished result, get one HDF5 file.

    \b
    h5sweep run study.py -o layouts.h5     run what is missing, then merge
    h5sweep status layouts.h5              from any other terminal
    h5sweep check layouts.h5_temp          what is wrong with files of any program
    h5sweep salvage layouts.h5_temp        get the results out of damaged ones
    h5sweep clean layouts.h5               what is safe to remove
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
    callback=parsed_by(parse_limit(parse_duration)),
    help="Longest time for one task, e.g. 20min.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=parsed_by(parse_limit(parse_size)),
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
    type=click.Choice(START_METHODS),
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
    # All of it before the study: one called signal.py must not hide Python's own from us.
    from .api import default_workers
    from .progress import choose_display
    from .run import run_sweep
    from .study import load_study

    here = Path.cwd()
    declaration = load_study(study, name)
    if try_count is not None:
        return _try(declaration, try_count, workers)
    # A study may change the folder when it is imported; the output was named from here.
    os.chdir(here)
    output = output or Path(study.stem + ".h5")
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
    return _conclude_run(report, merge=merge)


def _conclude_run(report: RunReport, *, merge: bool) -> int:
    _say_merge_notes(report.merge)
    if report.tasks_failed:
        _say_failures(report.output)
    _tell(f"{report.tasks_done:,} of {report.tasks_total:,} done, {report.tasks_failed:,} failed")
    if report.merge is not None:
        _say_wrote(report.merge)
    elif merge and report.output.exists():
        _tell(f"{report.output} is up to date")
    if report.is_complete:
        return 0
    _tell(f"next: h5sweep missing {report.output}; the same command again runs what is missing")
    return 1


def _say_failures(output: Path) -> None:
    from .report import failures_text, group_failures

    folder, state = _load_state(output)
    _tell(failures_text(state, group_failures(state.all_failures), folder.logs_path))


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
@click.option("--watch", is_flag=True, help="Show it again every 2 s until the run has ended.")
@click.option(
    "--exit-code", is_flag=True, help="Exit with 1 while anything is missing or nothing recorded."
)
def status(output: Path, as_json: bool, watch: bool, exit_code: bool) -> int:
    """Say how far the sweep of OUTPUT is: counts by key column, rate, time left, who runs it.

    Reads the run folder only, from any terminal, also during a run.

    \b
    h5sweep status layouts.h5
    """
    try:
        found = _show_status(output, as_json)
        while watch and found is not None and _may_change(found):
            _pause(2.0)
            found = _show_status(output, as_json, clear=sys.stdout.isatty())
    except KeyboardInterrupt:
        if not watch:
            raise
        return 130  # Whoever watches ends it so: there is nothing to say.
    return 1 if exit_code and found is not None and not found.is_complete else 0


def _show_status(output: Path, as_json: bool, *, clear: bool = False) -> Status | None:
    """Print the state as it is now; None if nobody reads it any more."""
    from .report import status_json, status_text

    found = _status_now(output, all_values=as_json)
    if clear:
        click.clear()
    is_read = _print([status_json(found) if as_json else status_text(found)])
    return found if is_read else None


def _status_now(output: Path, *, all_values: bool) -> Status:
    from .lock import lock_owner
    from .report import MOST_VALUES_COUNTED, Run, status_of

    # Before the state: what is read after a run has ended is what it left.
    run = Run.of(lock_owner(_existing_folder(output).lock_path))
    folder, state = _load_state(output)
    return status_of(
        state,
        str(folder.output),
        folder.output.exists(),
        most_values=None if all_values else MOST_VALUES_COUNTED,
        run=run,
    )


def _may_change(status: Status) -> bool:
    """Whether there is more to watch; a run on another host counts while anything is missing."""
    return bool(status.run.alive) or (status.run.alive is None and not status.is_complete)


@cli.command()
@reading_options
@click.option("--csv", "as_csv", is_flag=True, help="CSV: the key columns, reason, detail.")
@expecting
def missing(
    output: Path, as_json: bool, as_csv: bool, expect: Path | None, name: str | None
) -> int:
    """List every task of OUTPUT without a result, and why.

    Never started, running, failed (how), lost with a damaged record, interrupted. Exit code 0 if
    nothing is missing, else 1. Where only a Recorder has written, nobody has said which tasks there
    should be: say it with --expect, or the exit code is 2.

    \b
    h5sweep missing layouts.h5 --csv > todo.csv
    """
    from .expected import find_missing, load_expected
    from .report import missing_json, missing_lines

    expected = load_expected(expect, name) if expect else None
    folder = _existing_folder(output)
    state, tasks = find_missing(folder, expected)
    if as_json:
        _print([missing_json(state.missing_of(tasks), str(folder.output))])
    elif as_csv:
        _print(_csv_lines(state.plan.names, state.missing_of(tasks)))
    else:
        _print(missing_lines(state.missing_of(tasks)))
    total = state.tasks_total if expected is None else len(expected)
    _tell(f"{len(tasks):,} of {total:,} missing" if tasks else "nothing is missing")
    return 1 if tasks else 0


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to merge files of other programs to.",
)
@click.option(
    "--key",
    metavar="PATTERN|NAMES",
    help="How files tell the task, which makes rows of tasks: farm{farm_id:d}_s{seed:d} for names "
    "of groups or files; farm_id,seed for attributes or columns.",
)
@click.option(
    "--on-damaged",
    type=click.Choice(["stop", "skip", "salvage"]),
    default="stop",
    show_default=True,
    help="What to do about files that cannot be read as they are.",
)
@click.option("--max-damaged", metavar="N|N%", help="Stop after all if more files are damaged.")
@click.option(
    "--on-conflict",
    type=click.Choice(["stop", "first", "last", "newest"]),
    default="stop",
    show_default=True,
    help="Which of two different results for one task to take.",
)
@click.option("--force", is_flag=True, help="Replace an output that is not ours; keep a backup.")
@click.option("--compress", is_flag=True, help="gzip the output (with --key, or of a run).")
@click.option(
    "--remove-merged", is_flag=True, help="Remove files that the output was proven to hold."
)
@click.option("--audit-text", is_flag=True, help="Print what was taken from where.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def merge(paths: tuple[str, ...], output: Path | None, **options: Any) -> int:
    """Make one HDF5 file of worker files, or an OUTPUT from its run folder.

    With -o, PATH is a file, a folder or a glob: worker files of any program, run folders, record
    files, earlier outputs. Groups stay groups and columns stay columns; with --key they become
    rows of tasks, and `h5sweep run STUDY -o OUTPUT` computes what is missing. Without -o, PATH is
    the output of a run. What was there stays until the new file is written, read back and compared.

    \b
    h5sweep merge layouts.h5
    h5sweep merge layouts.h5_temp -o layouts.h5
    h5sweep merge layouts.h5_temp -o layouts.h5 --key farm_id,farm_type,seed
    """
    if output is not None:
        return _merge_files(paths, output, **options)
    wrong = [n for n, v in options.items() if v not in (False, None, "stop") and n != "compress"]
    if len(paths) > 1 or wrong:
        raise UsageError("say where the merged file goes: -o layouts.h5")
    return _merge_run(Path(paths[0]), compress=options["compress"])


def _merge_run(output: Path, *, compress: bool) -> int:
    from .lock import holding
    from .merge import merge_run
    from .progress import choose_display

    if output.is_dir() and not output.name.endswith(SUFFIX):
        raise UsageError(f"{output} is a folder: say where the merged file goes: -o layouts.h5")
    folder = _existing_folder(output)
    display = choose_display()
    with holding(folder.lock_path, tell=display.say):
        try:
            report = merge_run(folder, compress=compress, progress=display.merging)
        finally:
            display.end()
    _say_merge_notes(report)
    _say_wrote(report)
    return 1 if report.tasks_left_out else 0


def _merge_files(
    paths: tuple[str, ...],
    output: Path,
    *,
    key: str | None,
    on_damaged: str,
    max_damaged: str | None,
    on_conflict: str,
    force: bool,
    compress: bool,
    remove_merged: bool,
    audit_text: bool,
    as_json: bool,
) -> int:
    from .files_report import closing_lines, report_json
    from .inputs import OnConflict
    from .join import merge_files
    from .policy import OnDamaged, Policy, Threshold
    from .progress import choose_display

    limit = None if max_damaged is None else Threshold.parse(max_damaged)
    display = choose_display()
    try:
        report = merge_files(
            paths,
            output,
            key=key,
            policy=Policy(OnDamaged(on_damaged), limit, OnConflict(on_conflict)),
            force=force,
            compress=compress,
            progress=display.copying,
            tell=display.say,
        )
    finally:
        display.end()
    if as_json:
        _print([report_json(report)])
    if audit_text:
        from . import audit

        _print([audit.audit_text(audit.read_entries(report.output)[-1])])
    for line in closing_lines(report):
        _tell(line)
    if remove_merged:
        _remove_merged(report.output)
    return 0


def _remove_merged(output: Path) -> None:
    from .clean import locked, remove_merged
    from .progress import choose_display

    display = choose_display()
    try:
        with locked(output, tell=display.say):
            purged, _ = remove_merged(output, progress=display.checking)
    finally:
        display.end()
    size = size_text(purged.freed_bytes)
    _tell(f"removed {count_text(purged.files, 'file')} that {output.name} holds, {size}")


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--quick", is_flag=True, help="First bytes and headers only, without HDF5.")
@click.option("--deep", is_flag=True, help="Read every byte; verify filters and checksums.")
@click.option(
    "--require", metavar="NAMES", help="Datasets that must be there, of equal length: a,b,c."
)
@expecting
@click.option(
    "--key", metavar="PATTERN", help="How names tell the task: farm{farm_id:d}_s{seed:d}."
)
@click.option(
    "-j",
    "--processes",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="How many processes ask the HDF5 library.",
)
@limiting_library(memory_help="Most memory that it may take.")
@click.option("--all", "show_all", is_flag=True, help="Show every file, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV: a line a file.")
def check(
    paths: tuple[str, ...],
    quick: bool,
    deep: bool,
    require: str | None,
    expect: Path | None,
    name: str | None,
    key: str | None,
    processes: int,
    timeout: float,
    memory: int,
    show_all: bool,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Say what is wrong with each HDF5 file, what is inside, and what to do next.

    PATH is a file, a folder or a glob: worker files of any program, record files, outputs. Nothing
    is ever written, and a file that somebody is writing is not touched. Exit code 0 if all are
    sound, 3 if not.

    \b
    h5sweep check layouts.h5_temp
    """
    if (quick and deep) or (as_json and as_csv):
        raise UsageError("--quick and --deep, or --json and --csv, exclude each other")
    from .check import check_files
    from .check_report import report_csv, report_json, report_text
    from .expected import load_expected
    from .progress import choose_display

    expected = load_expected(expect, name) if expect else None
    display = choose_display()
    try:
        report = check_files(
            paths,
            depth="quick" if quick else "deep" if deep else "structure",
            require=tuple(filter(None, (require or "").split(","))),
            expected=expected,
            key=key,
            processes=processes,
            timeout_s=timeout,
            memory_bytes=memory,
            progress=display.checking,
        )
    finally:
        display.end()
    if as_json:
        _print([report_json(report)])
    elif as_csv:
        _print(report_csv(report))
    else:
        _print([report_text(report, width=_terminal_width(), show_all=show_all)])
    return report.exit_code


@cli.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Put what is recovered into the run folder of this output.",
)
@click.option("--to", type=click.Path(path_type=Path), help="Or into this folder.")
@click.option(
    "--key",
    metavar="KEY",
    help="How tasks are told apart: farm{farm_id:d}_s{seed:d}, or farm_id,seed.",
)
@expecting
@click.option(
    "--accept",
    type=click.Choice(["verified", "consistent", "unverified"]),
    default="consistent",
    show_default=True,
    help="The least that must speak for a result.",
)
@click.option(
    "--nameless",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write arrays that nothing names any more into this folder (npy).",
)
@limiting_library(memory_help="Most memory for one result.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def salvage(
    paths: tuple[str, ...],
    output: Path | None,
    to: Path | None,
    key: str | None,
    expect: Path | None,
    name: str | None,
    accept: str,
    nameless: Path | None,
    timeout: float,
    memory: int,
    as_json: bool,
) -> int:
    """Get the results out of damaged HDF5 files; the files themselves stay as they are.

    PATH is a file, a folder or a glob. With -o, what is recovered lies in the run folder of that
    output as if it had just been computed: merge, missing and run see it. Without -o and --to,
    nothing is written. Exit code 0 if all that there are signs of was recovered, 3 if not.

    \b
    h5sweep salvage layouts.h5_temp -o layouts.h5 --expect study.py
    """
    from .expected import load_expected
    from .progress import choose_display
    from .salvage import salvage_files
    from .salvage_report import report_json, report_text

    expected = load_expected(expect, name) if expect else None
    display = choose_display()
    try:
        report = salvage_files(
            paths,
            output=output,
            to=to,
            key=key,
            expected=expected,
            accept=accept,
            nameless=nameless,
            timeout_s=timeout,
            memory_bytes=memory,
            progress=display.checking,
        )
    finally:
        display.end()
    _print([report_json(report) if as_json else report_text(report)])
    return report.exit_code


@cli.command()
@reading_options
@click.option("--yes", is_flag=True, help="Move what is safe to remove to quarantine.")
@click.option(
    "--also",
    metavar="FILE",
    multiple=True,
    help="This one too, though it was not merged: damaged or empty.",
)
@click.option(
    "--restore",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="Put a quarantine back where it was; without NAME, all.",
)
@click.option(
    "--purge", metavar="NAME", help="Delete a quarantine for good, after proving it again."
)
@click.option("--all", "show_all", is_flag=True, help="Show every file, however many there are.")
def clean(
    output: Path,
    as_json: bool,
    yes: bool,
    also: tuple[str, ...],
    restore: str | None,
    purge: str | None,
    show_all: bool,
) -> int:
    """List the worker and record files that are safe to remove now that OUTPUT is made.

    A file is safe if every result in it was read back from OUTPUT, now, and is equal. All others
    are kept, with the reason. Nothing changes without --yes, which moves files to
    OUTPUT.quarantine/DATE; nothing is deleted without --purge.

    \b
    h5sweep clean layouts.h5
    """
    if sum([yes or bool(also), restore is not None, purge is not None]) > 1:
        raise UsageError("--yes (with --also), --restore and --purge exclude each other")
    if restore is not None:
        return _restore(output, restore or None, as_json)
    if purge is not None:
        return _purge(output, purge, as_json)
    return _clean(output, as_json, also if yes or also else None, yes, show_all)


def _clean(
    output: Path, as_json: bool, also: tuple[str, ...] | None, yes: bool, show_all: bool
) -> int:
    from .clean import find_removable, locked, move_to_quarantine
    from .clean_report import clean_text, next_text, quarantine_text, report_json
    from .progress import choose_display

    display = choose_display()
    moved = None
    try:
        if yes:
            with locked(output, tell=display.say):
                report = find_removable(output, progress=display.checking)
                moved = move_to_quarantine(report, also=also or ())
        else:
            report = find_removable(output, progress=display.checking)
    finally:
        display.end()
    made = None if moved is None else moved.quarantine
    _print([report_json(report, made) if as_json else clean_text(report, show_all=show_all)])
    for path in () if moved is None else moved.changed:
        _tell(f"{path} changed meanwhile and stays where it is")
    if made is not None:
        _tell(f"{quarantine_text(made)}; next: h5sweep clean {output} --purge {made.name}")
    elif also and not yes:
        _tell(f"nothing was changed; next: the same with --yes moves {', '.join(also)} as well")
    else:
        _tell("nothing to move" if yes else next_text(report))
    return 0


def _restore(output: Path, name: str | None, as_json: bool) -> int:
    from .clean import locked, restore

    with locked(output, tell=_tell):
        restored = restore(output, name)
    put_back = [str(path) for one in restored for path in one.put_back]
    in_the_way = [str(path) for one in restored for path in one.in_the_way]
    if as_json:
        _print_json({"schema": "h5sweep.restore/1", "put_back": put_back, "left": in_the_way})
    for path in in_the_way:
        _tell(f"{path} is another file now: what was there stays in quarantine")
    _tell(f"{count_text(len(put_back), 'file')} put back")
    return 1 if in_the_way else 0


def _purge(output: Path, name: str, as_json: bool) -> int:
    from .clean import locked, purge
    from .progress import choose_display

    display = choose_display()
    try:
        with locked(output, tell=display.say):
            purged = purge(output, name, progress=display.checking)
    finally:
        display.end()
    left = [str(item.path) for item in purged.left]
    if as_json:
        facts = {"files": purged.files, "freed_bytes": purged.freed_bytes, "left": left}
        _print_json({"schema": "h5sweep.purge/1", "name": name, **facts})
    for path in left:
        _tell(f"{path} was not merged, so it stays in quarantine: remove it by hand")
    _tell(f"{count_text(purged.files, 'file')} deleted, {size_text(purged.freed_bytes)} free")
    return 0


def _print_json(value: dict[str, Any]) -> None:
    import json

    _print([json.dumps(value, indent=1) + "\n"])


def _terminal_width() -> int | None:
    """How wide lines may be; None where nobody looks at them on a terminal."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _say_merge_notes(report: MergeReport | None) -> None:
    for note in report.notes if report is not None else ():
        _tell(f"note: {note}")


def _say_wrote(report: MergeReport) -> None:
    size = size_text(report.output.stat().st_size)
    _tell(f"wrote {report.output} ({count_text(report.tasks_merged, 'task')}, {size})")


def _existing_folder(output: Path) -> RunFolder:
    folder = RunFolder.of(output)
    if not folder.exists() and folder.output.exists():
        raise UsageError(
            f"{folder.output} is there but its run folder {folder.path} is not: "
            f"h5sweep run STUDY -o {folder.output} goes on from the output"
        )
    if not folder.exists():
        raise UsageError(
            f"there is no run folder {folder.path}: name the output that a run was given with -o"
        )
    return folder


def _load_state(output: Path) -> tuple[RunFolder, FolderState]:
    from .plan import Plan
    from .state import read_state

    folder = _existing_folder(output)
    return folder, read_state(folder, folder.load_plan() or Plan(()))


def _csv_lines(names: Iterable[str], missing: Iterable[Missing]) -> Iterator[str]:
    import csv

    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    writer.writerow([*names, "reason", "detail"])
    for task in missing:
        writer.writerow([*task.key.values(), task.reason.value, task.detail])
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()


def _print(texts: Iterable[str]) -> bool:
    """Write to standard output; False if whoever read it has seen enough (`| head`)."""
    try:
        for text in texts:
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_stdout()
        return False
    except OSError as error:
        _give_up_stdout()
        raise StorageError(_refused_text(error)) from error
    return True


def _tell(text: str) -> None:
    # Nobody may be listening any more (`2>&1 | head`): what is done is done all the same.
    with suppress(OSError):
        click.echo(text, err=True)


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)  # for the eye of whoever watches
