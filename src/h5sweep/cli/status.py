"""h5sweep status: how far a sweep is, without NumPy and HDF5."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import options
from .full_screen import FullScreen
from .terminal import print_text, print_texts

if TYPE_CHECKING:
    from ..runner.status import Status


WATCH_S = 2.0
MOST_SHARE = 0.008  # of what all cores can do: a look takes no more of it from the run


@click.command("status")
@options.output
@options.as_json
@click.option("--watch", is_flag=True, help="Show it again and again until the run has ended.")
@options.parsed(
    "--by",
    metavar="NAMES",
    parse=lambda text: _names(text),
    help="Count each combination of the values of these key columns: farm_id,farm_type.",
)
@click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 1 unless the tasks are declared and every task has a result.",
)
def status_command(
    output: Path, as_json: bool, watch: bool, by: tuple[str, ...] | None, exit_code: bool
) -> int:
    """Show how far OUTPUT's sweep is, when it ends, and what failed.

    Works from any terminal, also during a run, and reads only the run folder. --watch redraws it
    every 2 s, or as much less often as a look takes longer, so that the run is not held up.

    \b
    h5sweep status layouts.h5 --watch
    """
    look = _Look(output, as_json, by or ())
    try:
        found = look.watch() if watch else look.show()
    except KeyboardInterrupt:
        if not watch:
            raise
        return 130  # That is how watching ends: there is nothing to say.
    return 1 if exit_code and found is not None and not found.is_complete else 0


class _Look:
    """Looks at a sweep, once or until its run has ended."""

    def __init__(self, output: Path, as_json: bool, by: tuple[str, ...]) -> None:
        self._output, self._as_json, self._by = output, as_json, by
        self._pause_s = WATCH_S

    def show(self) -> Status | None:
        """Print the state as it is now; None if nobody reads it any more."""
        from ..runner.status import status_json, status_text

        found = self._read()
        if self._as_json:
            return found if print_texts([status_json(found)]) else None
        return found if print_text(status_text(found)) else None

    def watch(self) -> Status | None:
        """Show the state until the run has ended or nobody reads it; on a terminal, in place."""
        screen = None if self._as_json else FullScreen.of_terminal()
        if screen is not None:
            return self._redraw(screen)
        found = self.show()
        while found is not None and _may_change(found):
            time.sleep(self._pause_s)
            found = self.show()
        return found

    def _redraw(self, screen: FullScreen) -> Status:
        found = self._read()
        try:
            if _may_change(found):
                with screen:
                    while _may_change(found):
                        screen.draw(self._lines(found, screen, footer=self._footer()))
                        screen.wait(self._pause_s)
                        found = self._read()
        finally:
            # Whatever has ended it: what was seen last stays on the terminal.
            print_texts(f"{line}\n" for line in self._lines(found, screen))
        return found

    def _lines(self, found: Status, screen: FullScreen, footer: str = "") -> list[str]:
        from ..runner.watch_screen import screen_lines

        columns, lines = screen.size()
        below = [footer[:columns]] if footer else []
        room = lines - len(below)
        return [*screen_lines(found, columns, room, has_colors=screen.has_colors), *below]

    def _footer(self) -> str:
        from ..base.units import duration_text

        again = duration_text(self._pause_s)
        return f"{time.strftime('%H:%M:%S')}, again in {again}; Ctrl-C leaves, the run goes on"

    def _read(self) -> Status:
        from ..runner.status import MOST_VALUES_COUNTED, read_status

        begun = time.process_time()
        most = None if self._as_json else MOST_VALUES_COUNTED
        found = read_status(self._output, most_values=most, by=self._by)
        spent_s = time.process_time() - begun
        self._pause_s = max(WATCH_S, spent_s / (MOST_SHARE * len(os.sched_getaffinity(0))))
        return found


def _names(text: str) -> tuple[str, ...]:
    """`farm_id,farm_type`"""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def _may_change(status: Status) -> bool:
    """Whether there is more to watch; what runs on other hosts counts while anything is missing."""
    return bool(status.is_active) or (status.is_active is None and not status.is_complete)
