"""The page of HDF5 files of other programs: what `check` says of them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from ..base.units import command_text, count_text
from ..check.report import FILE_HEAD, CheckReport, NextStep, file_rows, next_step, summary_lines
from ..disk.find_files import PathLike
from ..worker_files.findings import State
from .html import Section, code, esc, table
from .page import page_html
from .verdict import stacked_bar, typed_note

MERGED = "merged.h5"  # what a merge is to write
MOST_ROWS = 200
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
    verdict, *more = summary_lines(report)
    says = f'<p class="verdict">{esc(verdict)}</p>' + "".join(
        f"<p>{esc(line)}</p>" for line in more
    )
    sections = [Section("verdict", "Verdict", says + stacked_bar(counts, "files"))]
    if step := _step(report, named):
        items = f'<ul class="next"><li>{step}</li></ul>'
        sections.append(Section("next", "What to do next", items, typed_note()))
    if report.files:
        note = f"The same as {command_text('check', *named)} says."
        sections.append(Section("files", "Files", _files_html(report), note))
    about = [count_text(totals["files"], "file"), *named[:3]]
    return page_html(named[0], about, sections, time.time())


def _step(report: CheckReport, named: list[str]) -> str:
    """What comes next, with the whole command: a reader of the page has not typed the paths."""
    match next_step(report):
        case NextStep.SALVAGE:
            return f"{code(command_text('salvage', *named))} shows what can be recovered"
        case NextStep.MERGE_REST:
            command = command_text("merge", *named, "-o", MERGED, "--on-damaged", "skip")
            return f"{code(command)} puts the others into one file"
        case NextStep.EXPECT:
            command = command_text("check", *named, "--expect", "study.py")
            return f"{code(command)}, with your study or a CSV of keys, shows what is missing"
        case NextStep.LATER:
            command = command_text("check", *named)
            return f"{code(command)}, when their writers have ended, says more"
    if report.totals["mergeable"]:
        return f"{code(command_text('merge', *named, '-o', MERGED))} puts them into one file"
    return ""


def _files_html(report: CheckReport) -> str:
    rows = file_rows(report)
    shown = [[code(path), *map(_with_code, rest)] for path, *rest in rows[:MOST_ROWS]]
    more = len(rows) - MOST_ROWS
    tail = f"<p>… and {count_text(more, 'more file')}.</p>" if more > 0 else ""
    return table(FILE_HEAD, shown, "Files") + tail


def _with_code(text: str) -> str:
    """Escaped, and what stands in back quotes as a command."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", esc(text))
