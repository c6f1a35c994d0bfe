"""h5sweep status: how far a sweep is, without NumPy and HDF5."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .terminal import print_text, print_texts, terminal_size

if TYPE_CHECKING:
    from ..runner.status import Status


WATCH_S = 2.0


@click.command("status")
@options.output
@options.as_json
@click.option("--watch", is_flag=True, help="Refresh every 2 s until the run has ended.")
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 1 unless the tasks are declared and every task has a result.",
)
def status_command(output: Path, as_json: bool, watch: bool, exit_code: bool) -> int:
    """Show the progress of OUTPUT's sweep: counts by key column, rate, time left, who runs it.

    Works from any terminal, also during a run, and reads only the run folder.

    \b
    h5sweep status layouts.h5
    """
    try:
        found = _watch(output, as_json) if watch else _show_status(output, as_json)
    except KeyboardInterrupt:
        if not watch:
            raise
        return 130  # That is how watching ends: there is nothing to say.
    return 1 if exit_code and found is not None and not found.is_complete else 0


def _watch(output: Path, as_json: bool) -> Status | None:
    """Show the state until the run has ended or nobody reads it; on a terminal, as fits there."""
    # Not let through but waited for, so that a terminal of another size is filled at once.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    found = _show_status(output, as_json, fit=True)
    while found is not None and _may_change(found):
        signal.sigtimedwait({signal.SIGWINCH}, WATCH_S)
        found = _show_status(output, as_json, fit=True, clear=True)
    return found


def _show_status(
    output: Path, as_json: bool, *, fit: bool = False, clear: bool = False
) -> Status | None:
    """Print the state as it is now; None if nobody reads it any more."""
    from ..runner.status import MOST_VALUES_COUNTED, read_status, status_json

    found = read_status(output, most_values=None if as_json else MOST_VALUES_COUNTED)
    if clear:
        click.clear()  # does nothing where there is no terminal
    is_read = print_texts([status_json(found)]) if as_json else print_text(_text(found, fit))
    return found if is_read else None


def _text(status: Status, fit: bool) -> str:
    from ..runner.status import status_screen, status_text

    size = terminal_size() if fit else None
    return status_text(status) if size is None else status_screen(status, *size)


def _may_change(status: Status) -> bool:
    """Whether there is more to watch; a run on another host counts while anything is missing."""
    return bool(status.run.alive) or (status.run.alive is None and not status.is_complete)
