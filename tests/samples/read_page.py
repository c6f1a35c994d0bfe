"""A report as a test reads it: elements by their names and attributes, and what a reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "input", "br", "link", "img"}


class Element:
    """One element, with what is in it."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.inside: list[Element | str] = []

    @property
    def text(self) -> str:
        """What is read, in one line."""
        parts = [part if isinstance(part, str) else part.text for part in self.inside]
        return " ".join(" ".join(parts).split())

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def all(self, tag: str = "", css: str = "") -> list[Element]:
        """Every element inside with this tag and class."""
        return [e for e in self._below() if tag in ("", e.tag) and (not css or css in e.classes)]

    def of_id(self, name: str) -> Element:
        (found,) = [e for e in self._below() if e.attributes.get("id") == name]
        return found

    def _below(self) -> Iterator[Element]:
        for part in self.inside:
            if isinstance(part, Element):
                yield part
                yield from part._below()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inside.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read_page(path: Path) -> Element:
    """AssertionError unless every element is closed in its place."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def ticks(page: Element) -> dict[str, int]:
    """How many ticks the map has of each outcome."""
    found: dict[str, int] = {}
    for path in page.of_id("task-map").all("path"):
        (css,) = path.classes
        found[css] = found.get(css, 0) + len(re.findall("h", path.attributes["d"]))
    return {css.removeprefix("s-"): count for css, count in found.items()}
