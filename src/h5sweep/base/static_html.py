"""Small static HTML for notebooks: no script, no style sheet, nothing from the network.

Every text that is put in is escaped here, whatever names and messages hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .safe_text import printable

MOST_ROWS = 200


class ShownAsText:
    """What shows itself in a notebook as `print` does."""

    def _repr_html_(self) -> str:
        return text_html(str(self))


def text_html(text: str) -> str:
    """Lines as they are, each as long as it is."""
    return f"<pre>{_escaped(text)}</pre>"


def lines_html(lines: Iterable[str]) -> str:
    """Lines of words, the first of which says the most."""
    first, *others = [_escaped(line) for line in lines] or [""]
    return f"<p>{'<br>'.join([f'<b>{first}</b>', *others])}</p>"


def table_html(
    head: Sequence[str], rows: Sequence[Sequence[object]], total: int | None = None
) -> str:
    """A table of as many rows as anybody reads, and how many more of the total there are."""
    body = "".join(_row_html("td", row) for row in rows[:MOST_ROWS])
    left = (len(rows) if total is None else total) - MOST_ROWS
    more = f"<p>… and {left:,} more</p>" if left > 0 else ""
    return f"<table><thead>{_row_html('th', head)}</thead><tbody>{body}</tbody></table>{more}"


def _row_html(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_escaped(str(cell))}</{tag}>' for cell in cells)}</tr>"


def bar_html(shares: Iterable[tuple[str, int, str]], width: str = "40em") -> str:
    """One bar of what each share is called, how large it is, and its colour."""
    parts = "".join(
        f'<div title="{number:,} {_escaped(what)}" '
        f'style="flex:{number} 0 2px;background:{_escaped(color)}"></div>'
        for what, number, color in shares
        if number
    )
    return f'<div style="display:flex;height:1em;max-width:{width}">{parts}</div>'


def folded_html(title: str, content: str) -> str:
    """What is shown when somebody clicks on its title."""
    return f"<details><summary>{_escaped(title)}</summary>{content}</details>"


def _escaped(text: str) -> str:
    from html import escape  # which only notebooks need

    return escape(printable(text))
