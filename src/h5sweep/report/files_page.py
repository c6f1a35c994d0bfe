"""The page of HDF5 files of other programs: what `check` says of them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..base.units import command_text, count_text
from ..check.report import CheckReport, report_html, report_text
from ..disk.find_files import PathLike
from ..worker_files.findings import State
from .html import Section, code, esc
from .page import page_html
from .verdict import stacked_bar

_NEXT, _SAME_PATHS = "next: ", " with the same paths"
_CSS = {
    State.SOUND: "done",
    State.LIVE: "running",
    State.EMPTY: "never-started",
    State.NOT_HDF5: "lost",
    State.DAMAGED: "failed",
}


def files_page(paths: Iterable[PathLike], report: CheckReport) -> str:
    """What is in these files and what is wrong with them."""
    named = [str(path) for path in paths]
    totals = report.totals
    counts = {_CSS[s]: (s.value, totals[s.value]) for s in reversed(State) if totals[s.value]}
    lines = _closing(report)
    says = "".join(f"<p>{esc(line)}</p>" for line in lines if not line.startswith(_NEXT))
    steps = "".join(f"<li>{_step(line, named)}</li>" for line in lines if line.startswith(_NEXT))
    check = command_text("check", *named)
    sections = [
        Section("verdict", "Verdict", stacked_bar(counts, "files") + says),
        *([Section("next", "What to do next", f'<ul class="next">{steps}</ul>')] if steps else []),
        Section("files", "Files", report_html(report), f"The same as {check} says."),
    ]
    about = [count_text(totals["files"], "file"), *named[:3]]
    return page_html(named[0], about, sections, time.time())


def _step(line: str, named: list[str]) -> str:
    """What comes next, with the whole command: a reader of the page has not typed the paths."""
    before, found, after = line.removeprefix(_NEXT).partition(_SAME_PATHS)
    if not found:
        return esc(before)
    command = command_text(before.rpartition("h5sweep ")[2], *named)
    before, found, options = after.partition(" and ")
    return code(f"{command} {options}") if found else code(command) + esc(before)


def _closing(report: CheckReport) -> list[str]:
    """The last words of `check`: how many files, and what comes next."""
    lines = report_text(report, width=10_000).splitlines()
    return [line for line in lines if line[:1] not in (" ", "")]
