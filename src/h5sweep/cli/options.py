"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.units import parse_duration, parse_size
from ..errors import UsageError

if TYPE_CHECKING:
    from ..base.plan import Plan


def keep_process_small() -> None:
    """Do without threads for linear algebra: for commands that run no code of the user's.

    Called before NumPy is imported, which starts them. Without threads, children can be forked.
    """
    from ..library import child_process

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    child_process.may_fork = True


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
            raise UsageError(
                f"{text!r} is not a usable limit: give more than 0, or leave the option out"
            )
        return value

    return parse_above_zero


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command that reads a run folder takes."""

    @click.argument("output", type=click.Path(path_type=Path))
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return command(*args, **kwargs)

    return wrapped


def expecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command takes that can compare with the tasks there should be."""
    command = click.option(
        "--sweep", "name", metavar="NAME", help="Which sweep to use if the study has several."
    )(command)
    return click.option(
        "--expect",
        type=click.Path(path_type=Path),
        help="Study or CSV that lists the tasks there should be.",
    )(command)


def load_expected(expect: Path | None, name: str | None) -> Plan | None:
    """The tasks that `--expect` names."""
    if expect is None:
        return None
    from ..state import expected_tasks  # which other commands need not load

    return expected_tasks.load_expected(expect, name)


def skipping(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command takes that counts or takes the tasks of other programs' files."""
    return click.option(
        "--skip",
        metavar="NAMES",
        help="Names of datasets and groups to leave out: init,meta.",
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
            help="Time limit for the HDF5 library per file, plus 0.1 s per MB.",
        )(command)

    return add_options
