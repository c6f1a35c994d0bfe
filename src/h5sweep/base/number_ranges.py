"""Task numbers as files hold them: [first, last] pairs, both included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

Ranges = list[list[int]]


def ranges_of_numbers(ascending: Iterable[int]) -> Ranges:
    """The fewest pairs that hold exactly these numbers."""
    # Numbers without a gap have the same distance to their places.
    groups = groupby(enumerate(ascending), lambda placed: placed[1] - placed[0])
    stretches = [[number for _, number in group] for _, group in groups]
    return [[numbers[0], numbers[-1]] for numbers in stretches]


def numbers_in(ranges: Iterable[Sequence[int]], below: int) -> Iterator[int]:
    """All numbers in these pairs that are below a limit."""
    return chain.from_iterable(range(first, min(last + 1, below)) for first, last in ranges)


def are_ranges(value: object) -> bool:
    """Whether these are such pairs: files may hold anything."""
    return (
        isinstance(value, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
        and all(type(number) is int and number >= 0 for pair in value for number in pair)
    )
