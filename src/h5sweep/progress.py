"""How a run shows itself: a live view on a terminal, a line a minute anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from .units import duration_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

LINE_EVERY_S = 60.0
REDRAW_EVERY_S = 0.25
MOST_CURRENT = 8


class Pace:
    """How fast a run goes, and how long it will take."""

    def __init__(self, tasks_total: int, tasks_done: int) -> None:
        self.total = tasks_total
        self.kept = tasks_done
        self._begun = time.monotonic()

    def describe(self, done: int, failed: int) -> str:
        """`2,431 of 3,000 done, 13 failed, 644/h, 51 min left`."""
        parts = [f"{self.kept + done:,} of {self.total:,} done"]
        if failed:
            parts.append(f"{failed:,} failed")
        ended = done + failed
        elapsed_s = time.monotonic() - self._begun
        if ended and elapsed_s > 0:
            rate = ended / elapsed_s
            left = max(self.total - self.kept - ended, 0)
            parts += [_rate_text(rate), f"{duration_text(left / rate)} left"]
        return ", ".join(parts)


class PlainDisplay:
    """Lines on a stream that is no terminal: a log, a pipe, a notebook."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _Forgiving(stream or sys.stderr)
        self._pace = Pace(0, 0)
        self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        self._stream.write(f"h5sweep: {text}\n")
        self._stream.flush()

    def begin(self, *, tasks_total: int, tasks_done: int) -> None:
        self._pace = Pace(tasks_total, tasks_done)
        self._last_line = time.monotonic()

    def update(self, *, done: int, failed: int, current: Callable[[], list[str]]) -> None:
        if time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(f"{time.strftime('%H:%M:%S')} {self._pace.describe(done, failed)}")

    def merging(self, rows: int, rows_total: int) -> None:
        if time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(f"{time.strftime('%H:%M:%S')} merging: {rows:,} of {rows_total:,}")

    def end(self) -> None:
        """Nothing to take down."""


class TerminalDisplay:
    """A live view: a bar, counts, rate, time left, and the tasks that are running."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=cast("IO[str]", _Forgiving(sys.stderr)))
        self._pace = Pace(0, 0)
        self._live: Live | None = None
        self._bar: Progress | None = None
        self._last_draw = 0.0

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin(self, *, tasks_total: int, tasks_done: int) -> None:
        self._pace = Pace(tasks_total, tasks_done)
        self._open(tasks_total, tasks_done)

    def update(self, *, done: int, failed: int, current: Callable[[], list[str]]) -> None:
        if self._is_early():
            return
        lines = current()
        more = [f"… and {len(lines) - MOST_CURRENT} more"] if len(lines) > MOST_CURRENT else []
        completed = self._pace.kept + done + failed
        self._draw(completed, [self._pace.describe(done, failed), *lines[:MOST_CURRENT], *more])

    def merging(self, rows: int, rows_total: int) -> None:
        if self._live is None:
            self._open(rows_total, 0)
        if not self._is_early():
            self._draw(rows, [f"merging: {rows:,} of {rows_total:,}"])

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _open(self, total: int, completed: int) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TaskProgressColumn

        self._bar = Progress(BarColumn(bar_width=None), TaskProgressColumn(), expand=True)
        self._bar.add_task("", total=total, completed=completed)
        self._live = Live(self._bar, console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        self._last_draw = 0.0

    def _is_early(self) -> bool:
        early = time.monotonic() - self._last_draw < REDRAW_EVERY_S
        if not early:
            self._last_draw = time.monotonic()
        return early

    def _draw(self, completed: int, lines: list[str]) -> None:
        from rich.console import Group
        from rich.text import Text

        if self._live is None or self._bar is None:
            return
        self._bar.update(self._bar.task_ids[0], completed=completed)
        texts = [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]
        self._live.update(Group(self._bar, *texts), refresh=True)


class _Forgiving:
    """A stream whose reader may go away (`| head`, a closed terminal): the run goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def choose_display() -> PlainDisplay | TerminalDisplay:
    """The live view if messages go to a terminal that can show one."""
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalDisplay()
    return PlainDisplay()


def _rate_text(rate: float) -> str:
    if rate >= 1:
        return f"{rate:,.0f}/s"
    if rate * 60 >= 1:
        return f"{rate * 60:,.0f}/min"
    return f"{rate * 3600:,.1f}/h"
