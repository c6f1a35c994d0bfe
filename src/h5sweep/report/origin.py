"""Versions of the code, and where the results are from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..base.units import count_text, size_text
from ..code.version import CodeVersion
from ..runfolder.layout import RunFolder
from ..state.state import FolderState
from ..state.task_codes import known_versions, task_codes
from .html import Section, code, esc, table

_FACTS = ("command", "folder", "host", "user", "python", "versions", "git_commit", "study")


def code_section(folder: RunFolder, state: FolderState) -> Section | None:
    """Which code made how many of the results; None if none is known."""
    known = known_versions(folder, state)
    if not known:
        return None
    counts = np.bincount(np.frombuffer(task_codes(folder, state), np.uint16))
    unknown = state.results - int(counts[1:].sum())
    rows = [list(_version_row(number, v, _count(counts, number))) for number, v in known.items()]
    if unknown > 0:
        rows.append(["not known", f"{unknown:,}", "", "", ""])
    head = ("code", "results", "made", "sources", "commit")
    made = [number for number in known if _count(counts, number)]
    note = (
        f"{count_text(len(made), 'version')} of the code made these results: rows differ in more "
        "than their keys."
        if len(made) > 1
        else ""
    )
    return Section("code", "Versions of the code", table(head, rows, "Versions of the code"), note)


def _count(counts: Any, number: int) -> int:
    return int(counts[number]) if number < len(counts) else 0


def _version_row(number: int, version: CodeVersion, results: int) -> Iterator[str]:
    about = version.about
    names = sorted(source.name for source in version.sources)
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "")
    when = " ".join(str(about.get(name, "")) for name in ("time", "user", "host")).strip()
    commit = str(about.get("git_commit", ""))[:12]
    yield str(number)
    yield f"{results:,}"
    yield esc(when)
    yield esc(shown)
    yield esc(commit + (" and changes" if commit and about.get("git_dirty") else ""))


def origin_section(folder: RunFolder) -> Section | None:
    """What is known of the making of the output, as its provenance has it."""
    sweep = folder.load_sweep()
    facts = [(name, _fact(sweep, name)) for name in _FACTS]
    if folder.output.exists():
        size = size_text(folder.output.stat().st_size)
        facts.append(("output", f"{code(folder.output.name)}, {size}"))
    shown = "".join(f"<dt>{esc(name)}</dt><dd>{text}</dd>" for name, text in facts if text)
    return Section("origin", "Provenance", f"<dl>{shown}</dl>") if shown else None


def _fact(sweep: Mapping[str, Any], name: str) -> str:
    value = sweep.get(name)
    if not value:
        return ""
    if name in ("command", "folder"):
        return code(value)
    if isinstance(value, Mapping):
        return esc(", ".join(f"{key} {item}" for key, item in value.items()))
    dirty = " and changes since" if name == "git_commit" and sweep.get("git_dirty") else ""
    return esc(f"{value}{dirty}")
