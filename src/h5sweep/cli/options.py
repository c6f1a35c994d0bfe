"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from ..base.units import parse_duration, parse_size
from ..errors import UsageError


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
