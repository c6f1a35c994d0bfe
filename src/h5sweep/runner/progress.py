"""Show a run: a live view on a terminal or in a notebook, one line a minute elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from ..base.safe_text import printable
from ..base.units import cut_middle, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.progress import Progress

    from .time_left import Moment, Pace

LINE_EVERY_S = 60.0
REDRAW_EVERY_S = 0.25
SHOW_AFTER_S = 0.5  # what ends sooner shows nothing on its way
MOST_RUNNING = 8
MOST_SAID = 400  # characters of one message; a task's error may be of any length
NOTEBOOK_EVERY_S = 0.5
NOTEBOOK_WIDTH = 100
BAR_WIDTH = 40
KEYS_TYPED = 8  # columns left free for what the terminal echoes, such as ^C


class Count:
    """How far a run is; `kept` tasks were done before it."""

    def __init__(self, tasks_total: int, tasks_done: int, *, is_part: bool = False) -> None:
        """Of a part nobody knows how many tasks it will have run when all are done."""
        self.total = tasks_total
        self.kept = tasks_done
        self._is_part = is_part
        self._begun = time.monotonic()

    def pace(self, moment: Moment) -> Pace:
        from .time_left import Pace  # which only runs need

        ended = moment.done + moment.failed
        elapsed_s = time.monotonic() - self._begun
        is_unknown = self._is_part or moment.is_ending
        left = 0 if is_unknown else max(self.total - self.kept - ended, 0)
        return Pace(ended, elapsed_s, left, moment.quiet_s, moment.took(), moment.running())

    def describe(self, moment: Moment, pace: Pace | None = None) -> str:
        """`2,431 of 3,000 done, 13 failed, 644/h, 51 min left (until 17:32)`."""
        failed = [f"{moment.failed:,} failed"] if moment.failed else []
        done = f"{self.kept + moment.done:,} of {self.total:,} done"
        if self._is_part:
            done = f"{moment.done:,} done by this part"
        return ", ".join([done, *failed, *(pace.words() if pace else [])])


class _Steps:
    """The steps that commands take; each display shows them in its way."""

    def merging(self, rows: int, rows_total: int) -> None:
        # Rows count twice, when written and when read back: a share says more.
        self._show_step(
            rows, rows_total, lambda: f"merging: {_share(rows, rows_total)} %", at_once=True
        )

    def copying(self, done_bytes: int, bytes_total: int) -> None:
        self._show_step(done_bytes, bytes_total, lambda: _copying_text(done_bytes, bytes_total))

    def checking(self, files: int, files_total: int) -> None:
        self._show_step(files, files_total, lambda: f"{files:,} of {files_total:,} files checked")

    def replaying(self, rows: int, rows_total: int) -> None:
        self._show_step(rows, rows_total, lambda: f"{rows:,} of {rows_total:,} rows run again")

    def salvaging(self, files: int, files_total: int, results: int) -> None:
        files_text = f"{files:,} of {files_total:,} files searched"
        self._show_step(files, files_total, lambda: f"{files_text}, {results:,} results found")

    def _show_step(
        self, done: int, total: int, text: Callable[[], str], *, at_once: bool = False
    ) -> None:
        raise NotImplementedError


class PlainDisplay(_Steps):
    """Lines on a stream that is no terminal: a log, a pipe."""

    again = "press Ctrl-C again"  # how somebody says a second time that it is to stop

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _Forgiving(stream or sys.stderr)
        self._count = Count(0, 0)
        self._last_line = time.monotonic()

    def say(self, text: str) -> None:
        self._stream.write(f"h5sweep: {_one_line(text)}\n")
        self._stream.flush()

    def begin(self, *, tasks_total: int, tasks_done: int, is_part: bool = False) -> None:
        self._count = Count(tasks_total, tasks_done, is_part=is_part)
        self._last_line = time.monotonic()

    def update(self, moment: Moment) -> None:
        if self._is_time():
            pace = self._count.pace(moment)
            self._say_now([self._count.describe(moment, pace), *pace.long_line()])

    def _show_step(
        self, done: int, total: int, text: Callable[[], str], *, at_once: bool = False
    ) -> None:
        if self._is_time():
            self._say_now([text()])

    def _is_time(self) -> bool:
        return time.monotonic() - self._last_line >= LINE_EVERY_S

    def _say_now(self, lines: list[str]) -> None:
        self._last_line = time.monotonic()
        for line in lines:
            self.say(f"{time.strftime('%H:%M:%S')} {line}")

    def end(self) -> None:
        """Nothing to take down."""


class TerminalDisplay(_Steps):
    """A live view: a bar, counts, rate, time left, and the tasks that are running."""

    again = "press Ctrl-C again"

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(file=cast("IO[str]", _Forgiving(sys.stderr)))
        self._count = Count(0, 0)
        self._live: Live | None = None
        self._bar: Progress | None = None
        self._begun = time.monotonic()
        self._last_draw = 0.0

    def say(self, text: str) -> None:
        # Taken down and put up again below the text, so that no part of it stays above.
        live = self._live
        if live is not None:
            live.stop()
        self._console.print(_one_line(text), highlight=False, markup=False, soft_wrap=True)
        if live is not None:
            self._show(live.renderable)

    def begin(self, *, tasks_total: int, tasks_done: int, is_part: bool = False) -> None:
        self._count = Count(tasks_total, tasks_done, is_part=is_part)
        self._open(tasks_total, tasks_done)

    def update(self, moment: Moment) -> None:
        if self._is_early():
            return
        pace, width = self._count.pace(moment), self._width()
        running = pace.longest_first
        shown = [task.line(width) for task in running[:MOST_RUNNING]]
        more = [f"… and {len(running) - MOST_RUNNING} more"] if len(running) > MOST_RUNNING else []
        completed = self._count.kept + moment.done + moment.failed
        head = [self._count.describe(moment, pace), *pace.long_line(width)]
        self._draw(completed, [*head, *shown, *more])

    def _show_step(
        self, done: int, total: int, text: Callable[[], str], *, at_once: bool = False
    ) -> None:
        """Show what mostly ends at once, if it does not."""
        is_due = at_once or time.monotonic() - self._begun > SHOW_AFTER_S
        if self._live is None and is_due:
            self._open(total, 0)
        if self._live is not None and not self._is_early():
            self._draw(done, [text()])

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _open(self, total: int, completed: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        # Rounded down: 449 of 450 are not 100 %.
        share = TextColumn("[progress.percentage]{task.fields[share]:>3} %")
        self._bar = Progress(BarColumn(bar_width=None), share, expand=True)
        self._bar.add_task("", total=total, completed=completed, share=_share(completed, total))
        self._last_draw = 0.0
        self._show(self._narrowed(self._bar))

    def _show(self, content: RenderableType) -> None:
        from rich.live import Live

        self._live = Live(content, console=self._console, auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def _width(self) -> int:
        return max(self._console.width - KEYS_TYPED, 1)

    def _narrowed(self, content: RenderableType) -> RenderableType:
        from rich.constrain import Constrain

        # What is typed stands behind the last line; if that were full, it would take another one,
        # and the view would be taken down from the wrong place.
        return Constrain(content, self._width())

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
        task = self._bar.tasks[0]
        share = _share(completed, task.total or 0)
        self._bar.update(task.id, completed=completed, share=share)
        texts = [
            Text(printable(line, breaks=""), no_wrap=True, overflow="ellipsis") for line in lines
        ]
        self._live.update(self._narrowed(Group(self._bar, *texts)), refresh=True)


class NotebookDisplay(_Steps):
    """A bar of text below a cell, which is drawn again in its place; the last one stays."""

    again = "interrupt the kernel again"

    def __init__(self) -> None:
        self._messages = PlainDisplay()
        self._count = Count(0, 0)
        self._last_draw = 0.0
        self._last: Moment | None = None
        self._shown: Any = None
        self._draw(0, 1, "starting")

    def say(self, text: str) -> None:
        self._messages.say(text)

    def begin(self, *, tasks_total: int, tasks_done: int, is_part: bool = False) -> None:
        self._count = Count(tasks_total, tasks_done, is_part=is_part)
        self._draw(tasks_done, tasks_total, f"{tasks_done:,} of {tasks_total:,} done")

    def update(self, moment: Moment) -> None:
        self._last = moment
        if time.monotonic() - self._last_draw >= NOTEBOOK_EVERY_S:
            pace = self._count.pace(moment)
            lines = [self._count.describe(moment, pace), *pace.long_line(NOTEBOOK_WIDTH)]
            self._draw(self._ended(moment), self._count.total, *lines)

    def _ended(self, moment: Moment) -> int:
        return self._count.kept + moment.done + moment.failed

    def _show_step(
        self, done: int, total: int, text: Callable[[], str], *, at_once: bool = False
    ) -> None:
        if time.monotonic() - self._last_draw >= NOTEBOOK_EVERY_S:
            self._draw(done, total, text())

    def end(self) -> None:
        """Say how far it came, which stays; nothing if it did not begin."""
        if self._last is None:
            self._show("")
        else:
            ended = self._ended(self._last)
            self._draw(ended, self._count.total, self._count.describe(self._last))

    def _draw(self, done: int, total: int, *lines: str) -> None:
        filled = min(BAR_WIDTH * done // max(total, 1), BAR_WIDTH)
        bar = "█" * filled + "·" * (BAR_WIDTH - filled)
        safe = [printable(line, breaks="") for line in lines]
        self._show("\n".join([f"{bar} {_share(done, total):>3} %", *safe]))

    def _show(self, text: str) -> None:
        if self._shown is None:
            display = import_module("IPython.display").display
            self._shown = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._shown.update({"text/plain": text}, raw=True)
        self._last_draw = time.monotonic()


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


Display = PlainDisplay | TerminalDisplay | NotebookDisplay


def choose_display() -> Display:
    """The live view if messages go to a notebook, or to a terminal that can show one."""
    if _is_notebook():
        return NotebookDisplay()
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalDisplay()
    return PlainDisplay()


@contextmanager
def showing_progress() -> Iterator[Display]:
    """A display for as long as something goes on; it is gone before a result is printed."""
    display = choose_display()
    try:
        yield display
    finally:
        display.end()


def _is_notebook() -> bool:
    """Whether this is a kernel, of which somebody sees what its cells show."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _one_line(text: str) -> str:
    """A message as one line of bearable length; its end, which says what to do next, stays."""
    return printable(cut_middle(" ".join(text.split()), MOST_SAID), breaks="")


def _copying_text(done_bytes: int, bytes_total: int) -> str:
    # Each byte counts twice, when written and when read back.
    percent = _share(done_bytes, bytes_total)
    return f"merging: {percent} %, {size_text(done_bytes // 2)} of {size_text(bytes_total // 2)}"


def _share(done: int, total: float) -> int:
    return int(100 * done / max(total, 1))
