"""Rows of one column have one unit and one order of axes, whichever code has made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base.units import command_text, count_text
from ...base.values import Array
from ...code.changes import LABELS
from ...code.relabelled import labels_of_now, relabels_since
from ...code.version import CodeVersion
from ...errors import ChangedStudyError
from ...runfolder.layout import RunFolder
from ...state.run_command import run_again_text


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
        since = relabels_since(versions[number], relabels)
        for name, label in labels_of_now(versions[number], what, since).items():
            now = (sweep.get(what) or {}).get(name, label)
            if now != label:
                raise ChangedStudyError(
                    f"{what}: {name} is {now!r} in the study, and {label!r} in "
                    f"{count_text(int(counts[number]), 'row')} of code {number}, still to be "
                    f"run again: {run_again_text(sweep, folder.output, 'redo')}. Rows of tasks "
                    f"that the study no longer has can be left out: {_without_undeclared(folder)}"
                )


def _without_undeclared(folder: RunFolder) -> str:
    return command_text("merge", folder.output, "--declared-only")
