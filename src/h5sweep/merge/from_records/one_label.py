"""Rows of one column have one unit and one order of axes, whichever code has made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...base.relabels import Relabels
from ...base.units import command_text, count_text, near_path
from ...base.values import Array
from ...code.changes import LABELS
from ...code.version import CodeVersion
from ...errors import ChangedStudyError
from ...runfolder.layout import RunFolder


def require_one_label(
    folder: RunFolder, sweep: Mapping[str, Any], versions: Mapping[int, CodeVersion], codes: Array
) -> None:
    """Raise ChangedStudyError if rows were made under other units or axes than the sweep has now.

    So it is while they are being run again; the old output stays, with its own labels.
    """
    relabels = folder.load_relabels()
    counts = dict(zip(*np.unique(codes, return_counts=True), strict=True))
    known = [(number, what) for number in counts if number in versions for what in LABELS]
    for number, what in known:
        for name, label in _labels_now(relabels, what, versions[number]).items():
            now = (sweep.get(what) or {}).get(name, label)
            if now != label:
                raise ChangedStudyError(
                    f"{what}: {name} is {now!r} in the study, and {label!r} in "
                    f"{count_text(int(counts[number]), 'row')} of code {number}, which were not "
                    f"run again yet: {_command(folder, sweep)}. Rows of tasks that the study no "
                    f"longer has can be left out: {_without_undeclared(folder)}"
                )


def _labels_now(relabels: Relabels, what: str, version: CodeVersion) -> dict[str, Any]:
    """Labels as they were declared once, with what was relabelled since."""
    found = dict(version.facts[what])
    for entry in relabels.entries:
        if entry.time >= str(version.about.get("time", "")):
            found = entry.labels(found, getattr(entry, what))
    return found


def _without_undeclared(folder: RunFolder) -> str:
    return command_text("merge", folder.output, "--declared-only")


def _command(folder: RunFolder, sweep: Mapping[str, Any]) -> str:
    study = sweep.get("study")
    if not isinstance(study, str):
        return f"{sweep.get('name')}.run({str(folder.output)!r}, changed='redo')"
    return command_text("run", near_path(Path(study)), "-o", folder.output, "--changed", "redo")
