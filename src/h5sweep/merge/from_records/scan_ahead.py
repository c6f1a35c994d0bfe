"""Scan record files in threads, ahead of the caller that takes them one by one.

What is scanned ahead is bounded: a few files, and so many records or stretches of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...runfolder.records import RecordFile, Scan
from ...state.state import RecordsTaken, Scanner

THREADS = 2
MOST_RECORDS = 2048  # or stretches of records

_Scanned = RecordsTaken | tuple[Any, ...]


@dataclass(frozen=True)
class _Begun:
    """A scan of one file that has come some way."""

    file: RecordFile
    found: Scan
    first: list[_Scanned]
    rest: Iterator[_Scanned]


@contextmanager
def scanning_ahead(scan: Scanner, paths: Sequence[Path]) -> Iterator[Scanner]:
    """`scan` for files that are taken in the order of `paths`: the next ones are begun already."""
    left = iter(paths)
    begun: dict[Path, Future[_Begun]] = {}

    with ThreadPoolExecutor(THREADS) as executor:

        def begin_more() -> None:
            for path in islice(left, THREADS + 1 - len(begun)):
                begun[path] = executor.submit(_begin, scan, path)

        def go_on(file: RecordFile, found: Scan) -> Iterator[_Scanned]:
            future = begun.pop(file.path, None)
            begin_more()
            if future is None:
                yield from scan(file, found)
                return
            mine = future.result()
            with mine.file:
                yield from mine.first
                yield from mine.rest
            found.damages += mine.found.damages
            found.end, found.torn_bytes = mine.found.end, mine.found.torn_bytes

        begin_more()
        yield go_on


def _begin(scan: Scanner, path: Path) -> _Begun:
    file, found = RecordFile(path), Scan()
    records = scan(file, found)
    return _Begun(file, found, list(islice(records, MOST_RECORDS)), records)
