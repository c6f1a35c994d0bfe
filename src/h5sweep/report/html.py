"""Text made safe for HTML, and the few elements that all sections use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..base.safe_text import printable
from ..base.units import duration_text


@dataclass(frozen=True)
class Section:
    """A part of the page, with its heading; `body` is HTML."""

    name: str  # by which it is linked to
    title: str
    body: str
    note: str = ""  # one sentence below the heading


def esc(text: object, *, breaks: str = "") -> str:
    """Any text, as text of a page or as an attribute in quotes."""
    return escape(printable(str(text), breaks=breaks))


def code(text: object) -> str:
    return f"<code>{esc(text)}</code>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of cells that are HTML; the first of each row is its heading."""
    heads = "".join(f'<th scope="col">{esc(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{esc(caption)}"><table>'
        f'<caption class="unseen">{esc(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def seconds(value: float) -> str:
    """A duration, also one of less than a second."""
    if value < 0.01:
        return "under 0.01 s"
    return duration_text(value) if value >= 9.5 else f"{value:.2g} s"


def number(value: float) -> str:
    """A coordinate of a drawing, in as few letters as it takes."""
    return f"{value:.1f}".removesuffix(".0")
