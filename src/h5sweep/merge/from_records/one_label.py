"""Rows of one column have one unit and one order of axes, whichever code has made them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.coordinates import coordinates_text
from ...base.units import command_text, count_text
from ...base.values import Array
from ...code.changes import LABELS
from ...code.relabelled import labels_of_now, relabels_since
from ...code.version import CodeVersion
from ...errors import ChangedStudyError
from ...runfolder.layout import RunFolder
from ...state.declare_sweep import found_units, label_text, way_to_relabel
from ...state.run_command import run_again_text
from ...state.state import FolderState
from .rows import Sources

Labels = dict[str, Any]  # of columns, by name


def require_one_label(
    folder: RunFolder,
    sweep: Mapping[str, Any],
    versions: Mapping[int, CodeVersion],
    codes: Array,
    sources: Sources,
    state: FolderState,
) -> None:
    """Raise ChangedStudyError if rows were made under other units or axes than the sweep has now.

    So it is while they are being run again; the old output stays, with its own labels. Rows of
    known code that declared none have none, and are not given any.
    """
    _require_one_grid(folder, sweep, versions, codes, sources, state)
    for what in LABELS:
        labels, now = _labels(what, sweep, versions, state)
        for number in sorted(labels.keys() & set(codes.tolist())):
            for name, label in now.items():
                before = labels[number].get(name)
                if before == label:
                    continue
                rows = codes == number
                if before is None or name not in state.plan.names:
                    rows &= sources.rows_with(name)
                if rows.any():
                    known = f"{label_text(before, what)} in {count_text(int(rows.sum()), 'row')}"
                    raise ChangedStudyError(
                        f"{what}: {name} {_label_of_now(what, name, label, sweep)}, and {known} "
                        f"of code {number}"
                        f"{_way_on(folder, sweep, state, sources.rows.tasks[rows])}"
                        f"{_way_to_keep(folder, what, name, label) if before is None else ''}"
                    )


def _require_one_grid(
    folder: RunFolder,
    sweep: Mapping[str, Any],
    versions: Mapping[int, CodeVersion],
    codes: Array,
    sources: Sources,
    state: FolderState,
) -> None:
    """The same for the coordinates of axes; rows of code that declared none get those of now."""
    for axis, now in (sweep.get("coords") or {}).items():
        for number, version in sorted(versions.items()):
            before, rows = version.facts["coords"].get(axis, now), codes == number
            if before != now and rows.any():
                raise ChangedStudyError(
                    f"coords: {axis} is {coordinates_text(now)} in the study, and "
                    f"{coordinates_text(before)} in {count_text(int(rows.sum()), 'row')} of code "
                    f"{number}{_way_on(folder, sweep, state, sources.rows.tasks[rows])}"
                )


def _label_of_now(
    what: str, name: str, label: str | list[str] | None, sweep: Mapping[str, Any]
) -> str:
    is_said = label is None or name in (sweep.get(what) or {})
    where = "the study" if is_said else "an earlier study"
    return f"{'has' if label is None else 'is'} {label_text(label, what)} in {where}"


def _way_on(folder: RunFolder, sweep: Mapping[str, Any], state: FolderState, tasks: Array) -> str:
    """How the rows of these tasks get the label of now, or go."""
    if state.done_undeclared.issuperset(tasks.tolist()):
        command = command_text("merge", folder.output, "--declared-only")
        return f", of tasks that the study no longer has: {command} leaves them out"
    return (
        f", still to be run again: {run_again_text(sweep, folder.output, 'redo')}. "
        "Before that, take out of the study what fails each time"
    )


def _way_to_keep(folder: RunFolder, what: str, name: str, label: str | list[str]) -> str:
    command = way_to_relabel(folder, what, name, label)
    return f". If {label_text(label, what)} is right for them all the same: {command}"


def _labels(
    what: str, sweep: Mapping[str, Any], versions: Mapping[int, CodeVersion], state: FolderState
) -> tuple[dict[int, Labels], Labels]:
    """The labels that rows of each version have, and those that all are to be given.

    A unit stays when the study does not say it any more, but not if all is run again without it:
    `attributes` have those that stay. Without a study they have what merged files agree on.
    """
    attributes = sweep.get("attributes") or {}
    may_stay = what == "units" and "units" in sweep
    kept = found_units(attributes) if may_stay else {}
    found: dict[int, Labels] = {}
    staying: Labels = {}
    dropped: Labels = {}
    for number, version in sorted(versions.items()):
        own = labels_of_now(version, what, relabels_since(version, state.relabels))
        found[number] = staying | own
        staying |= {name: label for name, label in own.items() if kept.get(name) == label}
        if may_stay:
            dropped |= {name: None for name in own if "units" not in attributes.get(name, {})}
    return found, dropped | staying | (sweep.get(what) or {})
