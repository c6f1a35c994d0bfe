"""System calls by which a command touches its files, found by strace, and a kill before each."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from places import DOCS


@dataclass(frozen=True)
class CrashPoint:
    """The `ordinal`-th `call` of any thread of a process."""

    call: str
    ordinal: int

    def killing(self) -> list[str]:
        """The options by which strace kills there."""
        return ["-e", f"inject={self.call}:signal=SIGKILL:when={self.ordinal}"]


def points_in(log: Path, *marks: str) -> list[CrashPoint]:
    """The calls in a log of `strace -f -y` whose arguments name one of these.

    Not the opens behind a look through /proc, for who has a file open: that opens a folder of each
    process there is, so theirs is another ordinal in the next run. What they change is seen before
    the next write.
    """
    counts: dict[tuple[str, str], int] = {}
    points: dict[CrashPoint, None] = {}
    has_looked = set()
    for line in log.read_text(errors="replace").splitlines():
        if (match := re.match(r"(\d+) +(\w+)\((.*)", line)) is None:
            continue
        thread, call, arguments = match.groups()
        ordinal = counts[thread, call] = counts.get((thread, call), 0) + 1
        if re.search(r'"/proc/\d+/fd"', arguments):
            has_looked.add((thread, call))
        if (thread, call) not in has_looked and any(mark in arguments for mark in marks):
            points[CrashPoint(call, ordinal)] = None
    return list(points)


def a_few(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Three of them, from the beginning to the end."""
    return [points[len(points) * sixth // 6] for sixth in (1, 3, 5)]


def every_tenth(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    return list(points[::10])


# Of commands that take a second each time: all of their hundreds of points take half an hour.
some_or_many = pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(a_few, id="a few"),
        pytest.param(every_tenth, id="every tenth", marks=pytest.mark.exhaustive),
        pytest.param(list, id="every one", marks=pytest.mark.slow),
    ],
)
some_or_all = pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(a_few, id="a few"),
        pytest.param(list, id="every one", marks=pytest.mark.exhaustive),
    ],
)
Choice = Callable[[Sequence[CrashPoint]], list[CrashPoint]]


def try_all(
    points: Sequence[CrashPoint], folder: Path, attempt: Callable[[CrashPoint, Path], None]
) -> None:
    """Try each point in a folder of its own; AssertionError with all that did not hold."""

    def violation(numbered: tuple[int, CrashPoint]) -> str | None:
        number, point = numbered
        try:
            attempt(point, folder / str(number))
        except AssertionError as error:
            return f"{point}: {error}"
        shutil.rmtree(folder / str(number))
        return None

    with ThreadPoolExecutor(2) as executor:
        violations = [text for text in executor.map(violation, enumerate(points)) if text]
    assert not violations, "\n".join(violations)


def check_count(name: str, count: int) -> None:
    """The number of crash points that the documentation states is the one that was tried."""
    text = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    stated = re.search(rf"<!-- {name} -->(\d+)", text)
    assert stated is not None, f"docs/guarantees.md states no number for {name}; it is {count}"
    # Timing moves a few: how often the other threads sync depends on how long the run took.
    assert abs(int(stated[1]) - count) <= max(6, count // 10), (
        f"{name}: {count}, stated {stated[1]}"
    )
