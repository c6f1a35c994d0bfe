"""h5sweep submit: give what is missing to a batch system, in parts."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..base.units import command_text, count_text, near_path, parse_duration, parse_size
from ..batch.submissions import BATCH_SYSTEMS
from ..errors import UsageError
from . import options
from .run import run_command
from .terminal import print_text, tell

if TYPE_CHECKING:
    from ..runner.submit import SubmitReport

# Options of `run` that each part is given as they are written here.
PASSED_ON = (
    "timeout_s",
    "memory_bytes",
    "retries",
    "backoff_s",
    "tasks_per_worker",
    "grace_s",
    "only",
    "failed",
    "keep_going",
)


def _options_of_run(*names: str) -> Callable[[click.Command], click.Command]:
    """The same options as `run` has; they are checked here, and their text is kept."""

    def add(command: click.Command) -> click.Command:
        by_name = {param.name: param for param in run_command.params}
        for name in names:
            option = copy.copy(by_name[name])
            if option.callback is not None:
                option.callback = _checked(option.callback)
            command.params.append(option)
        return command

    return add


def _checked(callback: Callable[..., Any]) -> Callable[..., Any]:
    def check(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
        callback(ctx, param, text)
        return text

    return check


def _parse_memory(text: str) -> int:
    """As for other sizes, or as batch systems write it: 16G. They take a bare number for MiB."""
    if text.strip().replace(".", "").isdigit():
        raise UsageError(f"{text!r} has no unit: write {text.strip()}M or 16G")
    if match := re.fullmatch(r"([0-9.]+)\s*([KMGT])", text.strip().upper()):
        text = f"{match[1]}{match[2]}iB"
    return parse_size(text)


@_options_of_run("name", "workers", "changed", "code", *PASSED_ON)
@click.command("submit")
@click.argument("study", type=options.PATH)
@click.option("-o", "--output", type=options.PATH, help="The output file; default: STUDY.h5.")
@click.option(
    "--engine",
    type=click.Choice(sorted(BATCH_SYSTEMS)),
    default="slurm",
    show_default=True,
    help="The batch system.",
)
@click.option(
    "--parts", type=click.IntRange(1), required=True, help="How many jobs share the work, at most."
)
@options.parsed(
    "--time",
    "time_s",
    metavar="DURATION",
    parse=options.above_zero(parse_duration),
    help="Time limit per part: 4h.",
)
@click.option(
    "--cpus",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Cores per part; it has as many workers, if --workers does not say otherwise.",
)
@options.parsed(
    "--mem",
    "part_bytes",
    metavar="SIZE",
    parse=options.above_zero(_parse_memory),
    help="Memory per part: 16G.",
)
@click.option(
    "--sbatch",
    "more",
    multiple=True,
    metavar="OPTIONS",
    help="More options of sbatch: '--partition long --account wind'. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the scripts; write and submit nothing.")
@click.pass_context
def submit_command(
    ctx: click.Context,
    /,
    study: Path,
    output: Path | None,
    engine: str,
    parts: int,
    time_s: float | None,
    cpus: int,
    part_bytes: int | None,
    more: tuple[str, ...],
    dry_run: bool,
    name: str | None,
    workers: int | None,
    changed: str | None,
    code: int | None,
    **passed_on: Any,
) -> int:
    """Submit the tasks of STUDY that have no result yet to Slurm.

    The tasks are shared by parts, which are one job array; when these have ended, another job
    merges and lists what is missing. If jobs were killed, the same command submits the remaining
    tasks. Parts run the study as it is now, even if it is edited before they begin.

    \b
    h5sweep submit study.py -o layouts.h5 --parts 40 --time 4h --cpus 8 --mem 16G
    """
    from ..batch.job import Resources
    from ..runner.submit import Order, submit_sweep, submit_texts
    from ..state.code_change import OnChange
    from ..state.known_code import known_code
    from ..state.study import load_study

    here = Path.cwd()
    output = output or Path(study.stem + ".h5")
    order = Order(
        study.absolute(),
        engine,
        parts,
        workers or cpus,
        Resources(cpus, time_s, part_bytes, more),
        tuple(_words_given(ctx, "name", *PASSED_ON)),
        passed_on["only"],
        passed_on["failed"],
    )
    declaration = load_study(study, name, known_code(output, code))
    os.chdir(here)  # a study may change the folder when it is imported
    choice = None if changed is None else OnChange(changed)
    if dry_run:
        texts = submit_texts(declaration, output, order, tell, changed=choice)
        for path, text in texts.items():
            print_text(f"# {path}\n{text}\n")
        if not texts:
            tell("nothing to submit")
        return 0
    return _conclude(submit_sweep(declaration, output, order, tell, changed=choice))


def _words_given(ctx: click.Context, *names: str) -> Iterator[str]:
    """What was written on the command line of these options."""
    params = {param.name: param for param in ctx.command.params}
    for name in names:
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        option, value = params[name].opts[-1], ctx.params[name]
        if value is True:
            yield option
        else:
            for one in value if isinstance(value, tuple) else [value]:
                yield from (option, str(one))


def _conclude(report: SubmitReport) -> int:
    if report.script is not None:
        tell(f"submitted {count_text(report.parts, 'part')}: {report.jobs}")
        tell(f"script: {near_path(report.script)}")
        tell(f"next: {command_text('status', report.output)} says how far they are")
    elif report.is_merged:
        tell(f"nothing to submit; {report.output} is up to date")
    else:
        merge = command_text("merge", report.output)
        tell(f"nothing to submit; next: {merge} writes the output")
    return 0
