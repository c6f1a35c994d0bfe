"""Text made safe for where it goes: a terminal, CSV, JSON.

Keys, values, names of files and groups, and what exceptions say may hold anything: escapes that
steer a terminal, characters that turn the direction of writing, lines that look like ours. All that
a command prints has passed one of these. JSON and CSV lose nothing by it.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_END = 100  # what is shown of either end of a word that is too long
_LONG_WORD = re.compile(r"\S{401,}")  # no path that somebody typed is as long
_BREAKS = "\n\t"


def printable(text: str, *, breaks: str = _BREAKS) -> str:
    """A text of which no name fills or steers the screen: one of a file or a group may be any."""
    text = _LONG_WORD.sub(lambda word: f"{word[0][:_END]}…{word[0][-_END:]}", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in breaks else ascii(c)[1:-1] for c in text)


def json_text(value: Any, **options: Any) -> str:
    """A line of JSON, or lines, in ASCII: a parser gives back every character."""
    return json.dumps(value, **options).replace("\x7f", r"\u007f") + "\n"


def csv_lines(
    rows: Iterable[Iterable[object]], *, cell: Callable[[str], str] | None = None
) -> Iterator[str]:
    """Rows as CSV, a line at a time; `cell` makes a cell of a text, as `csv_cell` does."""
    import csv

    cell = cell or csv_cell

    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for row in rows:
        writer.writerow([cell(value) if isinstance(value, str) else value for value in row])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def csv_cell(text: str) -> str:
    """A text as a cell: as it is, or as a JSON string in its quotes if it could steer a terminal.

    So is what begins with a quote: a cell that does so is always JSON, and nothing is lost.
    """
    is_safe = all(c.isprintable() or c in _BREAKS for c in text) and not text.startswith('"')
    return text if is_safe else json_cell(text)


def json_cell(text: str) -> str:
    """A text as a cell: as a JSON string in its quotes."""
    return json_text(text).rstrip("\n")


def read_cell(cell: str, *, made_by: Callable[[str], str] = csv_cell) -> str:
    """The text that `csv_cell` made this of; what it would not have made is left as it is."""
    if cell.startswith('"'):
        try:
            text = json.loads(cell)
        except ValueError:
            return cell
        if isinstance(text, str) and made_by(text) == cell:
            return text
    return cell
