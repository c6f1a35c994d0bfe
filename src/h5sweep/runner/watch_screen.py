"""The state of a sweep on a terminal of any size: what `status --watch` draws. Prints nothing.

From above: how far it is, one bar, when it ends; a line for each task that is running; why tasks
failed; as much of the key table as there is room for; who runs it, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..base.safe_text import printable
from ..base.units import count_text, cut_end, cut_middle, duration_text, size_text
from .key_table import table_lines
from .status import (
    MOST_CAUSES,
    MOST_VALUES,
    Status,
    cause_lines,
    closing_lines,
    head_line,
    note_lines,
    pace_lines,
)
from .time_left import Durations, RunningTask, short_text

LEAST_TABLE = 4  # lines: a title, two values, how many more there are
# What stands for a task in the bar: they can be told apart without colours, too.
CELLS = {"done": "█", "salvaged": "▓", "failed": "x", "running": "▒"}
REST = "·"
COLORS = {"█": 32, "▓": 36, "x": 31, "▒": 33}  # green, cyan, red, yellow


def screen_lines(
    status: Status, columns: int, lines: int, *, has_colors: bool = False
) -> list[str]:
    """The state in fewer than `lines` lines, of which none is longer than `columns`."""
    most = max(lines - 1, 1)  # one is for the cursor
    head, tail = list(_head_lines(status, columns)), list(closing_lines(status))
    found = [*head, *_body_lines(status, columns, most - len(head) - len(tail)), *tail]
    if len(found) > most:
        found = [*found[: most - 1], found[-1]]
    shown = [cut_middle(printable(line, breaks=""), columns) for line in found]
    bar = status_bar(status, columns)
    return [_colored(line) if has_colors and line == bar else line for line in shown]


def _head_lines(status: Status, columns: int) -> Iterator[str]:
    yield head_line(status)
    if bar := status_bar(status, columns):
        yield bar
    if status.counts:
        yield "  ".join(f"{CELLS.get(what, REST)} {n:,} {what}" for what, n in _shares(status))
    yield from pace_lines(status, columns)
    yield from note_lines(status)


def _shares(status: Status) -> list[tuple[str, int]]:
    """The same counts, each task once: salvaged ones are done too."""
    counts = status.counts
    if "done" in counts:
        counts["done"] -= status.salvaged
    return [(what, count) for what, count in counts.items() if count]


def status_bar(status: Status, columns: int) -> str:
    """One bar over all tasks; whatever is there has a cell, however few tasks it is."""
    if not status.is_declared or not status.tasks:
        return ""
    shares = [(CELLS[what], count) for what, count in _shares(status) if what in CELLS]
    # A task that is running or has failed again may be one of those done.
    rest = max(status.tasks - sum(count for _, count in shares), 0)
    shares += [(REST, rest)] if rest else []
    total = sum(count for _, count in shares)
    widths = [max(columns * count // total, 1) for _, count in shares]
    largest = widths.index(max(widths))
    widths[largest] = max(widths[largest] + columns - sum(widths), 1)
    return "".join(cell * width for (cell, _), width in zip(shares, widths, strict=True))


def _colored(bar: str) -> str:
    for cell, color in COLORS.items():
        first, last = bar.find(cell), bar.rfind(cell)
        if first >= 0:
            bar = f"{bar[:first]}\x1b[{color}m{bar[first : last + 1]}\x1b[0m{bar[last + 1 :]}"
    return bar


def _body_lines(status: Status, columns: int, room: int) -> Iterator[str]:
    """What is running, why tasks failed, the key table; each as far as there is room."""
    if room <= 0:
        return
    most = min(MOST_CAUSES, max(room // 3, 1))
    # Where it was stands at the beginning, and messages are of any length.
    causes = [
        f"  {cut_end(printable(c, breaks=''), columns - 2)}" for c in cause_lines(status, most)
    ]
    tables = status.tables
    for_table = min(LEAST_TABLE, sum(len(counts) + 1 for counts in tables.values()))
    workers = list(_worker_lines(status, columns, max(room - len(causes) - for_table, 2)))
    yield from workers[:room]
    yield from causes[: room - len(workers)]
    yield from _table_lines(status, columns, room - len(workers) - len(causes))


def _worker_lines(status: Status, columns: int, room: int) -> Iterator[str]:
    """A line for each task that is running, the longest first; how long others took."""
    running, took = status.pace.longest_first, status.pace.took
    if not running:
        return
    usual = "" if took.median_s is None else f"; a task takes {short_text(took.median_s)} (median)"
    yield f"  {count_text(len(running), 'task')} running{usual}"
    shown = running if len(running) < room else running[: max(room - 2, 0)]
    width = max((len(task.process) for task in shown), default=0)
    for task in shown:
        yield _worker_line(task, took, width, columns)
    if len(shown) < len(running):
        yield f"    … and {count_text(len(running) - len(shown), 'other')}, begun later"


def _worker_line(task: RunningTask, took: Durations, width: int, columns: int) -> str:
    times = _times_text(task.running_s / took.median_s) if took.median_s else ""
    memory = size_text(task.memory_bytes) if task.memory_bytes else ""
    about = f"    {task.process:<{width}} {duration_text(task.running_s):>10}{times:>9}{memory:>9}"
    return f"{about}  {cut_middle(task.key, max(columns - len(about) - 2, 1))}"


def _times_text(times: float) -> str:
    if times >= 1000:
        return "> 999 ×"
    return f"{times:.0f} ×" if times >= 10 else f"{times:.1f} ×"


def _table_lines(status: Status, columns: int, room: int) -> list[str]:
    """The most that fits: first fewer values of each key column, then fewer of these."""
    tables, found = list(status.tables.items()), list[str]()
    for kept in range(len(tables), 0, -1):
        for most in range(max(room, MOST_VALUES) if kept == 1 else MOST_VALUES, 0, -1):
            found = [
                line
                for title, counts in tables[:kept]
                for line in table_lines(
                    title, counts, most, columns, is_declared=status.is_declared
                )
            ]
            if len(found) <= room:
                return found
    return []
