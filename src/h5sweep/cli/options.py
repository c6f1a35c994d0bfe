"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.units import parse_duration, parse_size
from ..errors import UsageError

if TYPE_CHECKING:
    from ..base.plan import Plan

PATH = click.Path(path_type=Path)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def keep_process_small() -> None:
    """Do without threads for linear algebra: for commands that run no code of the user's.

    Called before NumPy is imported, which starts them. Without threads, children can be forked.
    """
    from ..library import child_process

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    child_process.may_fork = True


def parsed(*names: str, parse: Callable[[str], Any], **settings: Any) -> Decorator:
    """An option whose text `parse` turns into a value, or into a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except UsageError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return click.option(*names, callback=callback, show_default=True, **settings)


def time_limit(**settings: Any) -> Decorator:
    parse = above_zero(parse_duration)
    return parsed("--timeout", "timeout_s", parse=parse, metavar="DURATION", **settings)


def memory_limit(**settings: Any) -> Decorator:
    parse = above_zero(parse_size)
    return parsed("--memory", "memory_bytes", parse=parse, metavar="SIZE", **settings)


def above_zero(parse: Callable[[str], float]) -> Callable[[str], float]:
    """The same parser for a limit, which must leave something to use."""

    def parse_above_zero(text: str) -> float:
        value = parse(text)
        if value <= 0:
            raise UsageError(
                f"{text!r} is not a usable limit: give more than 0, or leave the option out"
            )
        return value

    return parse_above_zero


paths = click.argument(  # a type for the shell, which completes them; globs stay texts
    "paths", type=click.Path(), nargs=-1, required=True, metavar="PATH..."
)
output = click.argument("output", type=PATH)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
show_all = click.option(
    "--all", "show_all", is_flag=True, help="List every file, however many there are."
)
sweep = click.option(
    "--sweep", "name", metavar="NAME", help="Which sweep to use if the study has several."
)
expect = click.option(
    "--expect", type=PATH, help="Study or CSV that lists the tasks there should be."
)
key = click.option(
    "--key",
    metavar="KEY",
    help="Where each task's key is found: farm{farm_id:d}_s{seed:d}, or farm_id,seed.",
)
skip = click.option(
    "--skip", metavar="NAMES", help="Names of datasets and groups to leave out: init,meta."
)
library_time_limit = time_limit(
    default="20s", help="Time limit for the HDF5 library per file, plus 0.1 s per MB."
)


def load_expected(expect: Path | None, name: str | None) -> Plan | None:
    """The tasks that `--expect` names."""
    if expect is None:
        return None
    from ..state import expected_tasks  # which other commands need not load

    return expected_tasks.load_expected(expect, name)
