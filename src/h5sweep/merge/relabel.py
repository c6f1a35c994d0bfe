"""Give other names, units and axes to what an output and its run folder hold; values stay.

What is changed is one entry in `relabels.json`, which is replaced durably: from then on every file
is read with the new labels. The output is merged anew behind that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.plan import Key, check_names
from ..base.progress_callback import Progress
from ..base.relabels import MARK, Change, Relabel, Relabels
from ..base.units import count_text
from ..code.relabelled import last_known
from ..code.store import load_versions
from ..disk.find_files import PathLike
from ..errors import UsageError
from ..output.columns import Variant
from ..output.reader import RELABEL, OutputReader
from ..runfolder.audit import append_event, now_text
from ..runfolder.layout import RunFolder, save_relabels
from ..runfolder.lock import holding_folder
from ..runfolder.records import RecordFile
from ..state.declare_sweep import found_units
from ..state.expected_tasks import existing_folder
from ..state.extend_plan import is_up_to_date, number_all
from ..state.state import FolderState
from ..state.study import checked_axes
from .from_records.build import merge_run
from .from_records.output_plan import MergeReport
from .from_records.rows import Sources
from .row_labels import RowLabels

Tell = Callable[[str], None]


@dataclass(frozen=True)
class NewLabels:
    """What somebody asks for; `units` and `dims` are by the new names."""

    add: Key = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    sweep: str | None = None
    units: dict[str, str] = field(default_factory=dict)
    dims: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class RelabelReport:
    """What a relabel did; `is_new` is false if it had been done before, and was only finished."""

    relabel: Relabel
    is_new: bool
    merge: MergeReport | None  # None if there is no output, or if it had the labels already


def change_labels(
    output: PathLike,
    wanted: NewLabels | None,
    *,
    progress: Progress | None = None,
    tell: Tell = lambda _: None,
) -> RelabelReport:
    """Change labels, or with None take the last change back; then merge anew.

    Killed at any moment, all that is there has the old labels or the new ones, and the same call
    finishes. UsageError, before anything is changed, if a name is taken or is not there.
    """
    folder = RunFolder.of(output)
    if not folder.output.exists():
        existing_folder(output)
    with holding_folder(folder, tell=tell):
        state = number_all(folder)
        if not len(state.plan):
            raise UsageError(f"there is no result in {folder.path}: run the sweep first")
        relabel = _undo(folder, state) if wanted is None else _wanted(state.relabels, wanted)
        is_new = relabel not in state.relabels.entries
        if is_new:
            relabel = _commit(folder, state, relabel)
        merged = None
        if folder.output.exists() and not is_up_to_date(folder, state.plan):
            with OutputReader(folder.output) as old:
                compress = old.is_compressed
            merged = merge_run(folder, compress=compress, progress=progress)
        return RelabelReport(relabel, is_new, merged)


def _wanted(known: Relabels, wanted: NewLabels) -> Relabel:
    """What was asked for as a relabel: the last one, if that was the same."""
    relabel = Relabel(
        _new_id(),
        now_text(),
        rename=wanted.rename,
        add=wanted.add,
        sweep=None if wanted.sweep is None else (None, wanted.sweep),
        units={name: (None, unit) for name, unit in wanted.units.items()},
        dims={name: (None, axes) for name, axes in wanted.dims.items()},
    )
    last = known.entries[-1] if known.entries else None
    return last if last is not None and last.asks_the_same(relabel) else relabel


def _undo(folder: RunFolder, state: FolderState) -> Relabel:
    """What takes the last relabel back: the one that was begun, if its merge has not ended."""
    for newest in state.relabels.entries[-1:]:
        is_merged = folder.load_merged().get(MARK) == newest.id
        if newest.undoes and not is_merged and folder.output.exists():
            return newest
    last = state.relabels.last_to_undo()
    if last is None:
        raise UsageError(f"no relabel of {folder.output} is left to undo")
    return last.inverse(_new_id(), now_text())


def _new_id() -> str:
    return os.urandom(8).hex()


def _commit(folder: RunFolder, state: FolderState, relabel: Relabel) -> Relabel:
    """Check the relabel and note it, durably; the audit trail has it before it counts."""
    old = OutputReader(folder.output, state.relabels) if folder.output.exists() else None
    try:
        sources = Sources(state, old)
        results, joined = sources.variants(), _joined(relabel, sources)
        marks = {old.attributes.get(RELABEL)} if old is not None else set()
    finally:
        if old is not None:
            old.close()
    _require_possible(folder, state, relabel, results, joined)
    labels = RowLabels.read(folder, state)
    for what, name in labels.changed_by(relabel):
        labels.require_one(what, name)
    marks |= {_mark_of(path) for path in state.paths}
    marks |= {last_known(version) for version in load_versions(folder).values()}
    named = {mark for mark in marks if isinstance(mark, str)}
    others = sorted(mark for mark in named if not state.relabels.knows(mark))
    relabel = replace(_with_labels_before(folder, relabel, labels), also=tuple(others))
    what = "relabel taken back" if relabel.undoes else "relabel"
    append_event(folder.output, f"{what}: {'; '.join(relabel.texts())}")
    save_relabels(folder, Relabels((*state.relabels.entries, relabel)))
    return relabel


def _joined(relabel: Relabel, sources: Sources) -> set[str]:
    """Names that results get back, while others of these names came since: of no row both."""
    renamed = relabel.rename.items() if relabel.undoes else ()
    return {new for old, new in renamed if not sources.have_both(old, new)}


def _mark_of(path: Path) -> Any:
    with RecordFile(path) as file:
        return (file.about() or {}).get(MARK)


def _require_possible(
    folder: RunFolder,
    state: FolderState,
    relabel: Relabel,
    results: list[Variant],
    joined: set[str],
) -> None:
    """Raise UsageError if a name is not there, is taken, or cannot be one."""
    there = [*state.plan.names, *{variant.name: None for variant in results}]
    for name in relabel.rename:
        _require_column(folder, name, there)
    new = [*relabel.rename.values(), *relabel.add]
    check_names(new)
    left = [name for name in there if name not in {*relabel.rename, *relabel.drop}]
    for name in new:
        if name in left and name not in joined:
            raise UsageError(f"{folder.output} has a column {name} already: choose another name")
    for name in relabel.units:
        _require_column(folder, name, [*left, *new])
    for name, (_, axes) in relabel.dims.items():
        _require_axes(folder, name, axes, relabel, results)
    for name, value in relabel.drop.items():
        _require_one_value(folder, state, name, value)


def _require_column(folder: RunFolder, name: str, there: list[str]) -> None:
    if name not in there:
        raise UsageError(f"{folder.output} has no column {name}: name one of {', '.join(there)}")


def _require_axes(
    folder: RunFolder, name: str, axes: list[str] | None, relabel: Relabel, results: list[Variant]
) -> None:
    """Raise UsageError if a result has not so many axes, or they cannot have these names."""
    named = [(relabel.rename.get(one.name, one.name), one) for one in results]
    _require_column(folder, name, list({new: None for new, _ in named}))
    found = {ndim for new, one in named if new == name for ndim in one.shapes}
    if axes is not None and found != {len(checked_axes(name, axes))} and len(found) == 1:
        raise UsageError(
            f"{name} has {found.pop()} axes, not {len(axes)}: name each of them, in their order"
        )


def _require_one_value(folder: RunFolder, state: FolderState, name: str, value: object) -> None:
    column = next(column for column in state.plan.columns if column.name == name)
    others = sum(column.values[code] != value for code in column.codes)
    if others:
        raise UsageError(
            f"{count_text(others, 'task')} of {folder.output} have another {name} than {value}, "
            f"and would not be told from others without it: to go on without {name}, choose "
            "another output with -o"
        )


def _with_labels_before(folder: RunFolder, relabel: Relabel, labels: RowLabels) -> Relabel:
    """The same, with the units, axes and name that it replaces: by these it is taken back."""
    sweep = folder.load_sweep()
    units = {**found_units(sweep.get("attributes") or {}), **(sweep.get("units") or {})}
    units, dims = units | labels.of("units"), (sweep.get("dims") or {}) | labels.of("dims")

    def changes(known: Mapping[str, Any], wanted: Mapping[str, Change]) -> dict[str, Change]:
        return {n: (known.get(relabel.name_before(n)), after) for n, (_, after) in wanted.items()}

    return replace(
        relabel,
        sweep=relabel.sweep and (sweep.get("name"), relabel.sweep[1]),
        units=changes(units, relabel.units),
        dims=changes(dims, relabel.dims),
    )


def relabels_of(output: PathLike) -> Relabels:
    """What was relabelled so far, the oldest first."""
    return existing_folder(output).load_relabels()
