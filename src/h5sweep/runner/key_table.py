"""How many tasks are done of each value of a key column, as lines with bars. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.plan import GroupCount
from ..base.units import cut_middle

LEAST_WIDTH = 16
MOST_WIDTH = 40  # of values; longer ones are cut only to fit a width
BAR_WIDTH = 20


def table_lines(
    title: str,
    counts: Sequence[GroupCount],
    most: int,
    width: int | None = None,
    *,
    is_declared: bool = True,
) -> Iterator[str]:
    """The title and a line a value; of more than `most` those that are least far, and a last line.

    Where nobody has declared how many tasks there should be, only those done are counted.
    """
    yield f"  {title}"
    labels = [", ".join(map(str, values)) for values, _, _ in counts]
    room = _label_width(labels, width)
    by_share = sorted(range(len(counts)), key=lambda place: _share(counts[place]))
    for place in sorted(by_share[:most]):
        _, done, total = counts[place]
        label = labels[place] if width is None else cut_middle(labels[place], room)
        line = f"    {label:>{room}}  {done:>9,}"
        yield _with_bar(line, done, total, width) if is_declared else line
    if rest := [_share(counts[place]) for place in by_share[most:]]:
        words = f", {_share_words(rest)}" if is_declared else ""
        yield f"    {'…':>{room}}  {len(rest):,} more{words}"


def _label_width(labels: list[str], width: int | None) -> int:
    longest = max(map(len, labels), default=0)
    most = MOST_WIDTH if width is None else max(LEAST_WIDTH, min(MOST_WIDTH, width // 2))
    return max(LEAST_WIDTH, longest) if longest <= most else LEAST_WIDTH


def _with_bar(line: str, done: int, total: int, width: int | None) -> str:
    """To fit a width, first the bar is shortened."""
    counts = f"{line} of {total:<9,} "
    room = BAR_WIDTH if width is None else min(BAR_WIDTH, max(width - len(counts), 0))
    filled = room * done // max(total, 1)
    return counts + "█" * filled + "·" * (room - filled)


def _share(count: GroupCount) -> float:
    _, done, total = count
    return done / max(total, 1)


def _share_words(ascending: list[float]) -> str:
    """How far those values are that are not shown because others are less far."""
    if ascending[0] == 1:
        return "all done"
    return "with an equal or larger share done" if ascending[-1] else "with nothing done"
