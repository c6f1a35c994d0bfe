"""The file as a whole: nothing is fetched from anywhere, and no other script can run in it."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from .html import Section, esc

MARK = b"<!DOCTYPE html>\n<!-- a report of h5sweep -->\n"
_HERE = Path(__file__).parent


def page_html(title: str, about: Sequence[str], sections: Sequence[Section], now: float) -> str:
    """The page; `about` are short facts below its title."""
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = (_HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    made = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now))
    facts = "".join(f"<li>{esc(fact)}</li>" for fact in [*about, f"report of {made}"])
    links = "".join(f'<li><a href="#{s.name}">{esc(s.title)}</a></li>' for s in sections)
    return (
        f"{MARK.decode()}"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta name="generator" content="h5sweep {__version__}">\n'
        f"<title>{esc(title)}: report of h5sweep</title>\n<style>{style}</style></head>\n<body>"
        '<a class="skip" href="#main">Skip to the report</a>'
        f'<header><h1>{esc(title)}</h1><ul class="facts">{facts}</ul>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n'
        f'<main id="main">{"".join(map(_section_html, sections))}</main>\n'
        f"<footer><p>Made by h5sweep {__version__}. Nothing in this file is fetched from "
        "anywhere.</p></footer>"
        f'<output id="tip" hidden></output>\n<script>{script}</script></body></html>\n'
    )


def _section_html(section: Section) -> str:
    note = f'<p class="note">{esc(section.note)}</p>' if section.note else ""
    return (
        f'\n<section id="{section.name}" aria-labelledby="{section.name}-title">'
        f'<h2 id="{section.name}-title">{esc(section.title)}</h2>{note}\n{section.body}</section>'
    )
