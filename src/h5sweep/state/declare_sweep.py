"""Check a declaration against what a run folder and its output know, then note it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..base import provenance
from ..base.attribute_json import attribute_text, decoding_texts
from ..base.coordinates import coordinates_text
from ..base.listed_plan import cell_value
from ..base.near_floats import NearValues, near_values, with_values_of
from ..base.plan import Plan, PlanColumn, key_text
from ..base.relabels import MARK, Relabels
from ..base.units import command_text, count_text
from ..code.relabelled import labels_of_now, relabels_since
from ..code.store import keep_version
from ..code.version import CodeVersion
from ..errors import LockedError, UsageError, WrongFolderError
from ..runfolder.audit import now_text
from ..runfolder.layout import Declared, RunFolder
from ..runfolder.uniform_records import scan_stretches
from .code_change import CodeChange, OnChange
from .expected_tasks import declared_by
from .extend_plan import adopt_output, merged_attributes
from .redo_tasks import request_again
from .result_names import result_names
from .run_command import run_changed_text
from .state import FolderState, read_state
from .study import Declaration
from .task_codes import known_versions
from .tasks_in_output import held_tasks

Tell = Callable[[str], None]
SweepFacts = dict[str, Any]  # what sweep.json says


def require_own_folder(folder: RunFolder, declaration: Declaration) -> None:
    """Raise WrongFolderError if the run folder is another sweep's."""
    name = folder.load_sweep().get("name") if folder.exists() else None
    if name is not None and name != declaration.name:
        raise WrongFolderError(
            f"{folder.path} belongs to the sweep {name!r}, not to {declaration.name!r}: choose "
            "another output with -o. If you renamed the function: "
            f"{command_text('relabel', folder.output, '--sweep', declaration.name)}"
        )


def read_code(
    folder: RunFolder, declaration: Declaration, dealt: Iterable[str] = ()
) -> CodeVersion:
    """The version of the code now, which knows what was relabelled in the run folder."""
    version = declaration.version(dealt)
    return replace(version, about={**version.about, **folder.load_relabels().about()})


def require_labels_known(folder: RunFolder, version: CodeVersion) -> None:
    """Raise LockedError if somebody has relabelled since the code was read."""
    if folder.load_relabels().about().get(MARK) != version.about.get(MARK):
        raise LockedError(
            f"{folder.output} was relabelled while the study was read: run the same command again"
        )


def declare_sweep(
    folder: RunFolder,
    declaration: Declaration,
    version: CodeVersion,
    tell: Tell,
    on_change: OnChange | None = None,
    part: str = "",
) -> FolderState:
    """Bring plan and sweep on disk up to what is declared; task numbers stay as they are.

    Everything that may refuse the declaration comes before anything is written.
    """
    require_labels_known(folder, version)
    stored = folder.load_plan()
    wanted, replaced = with_values_of(stored or Plan(()), declaration.plan)
    plan = wanted if stored is None else _extended(folder, stored, wanted)
    held = held_tasks(folder, plan)
    declared = declared_by(declaration.name, held.plan, wanted)
    state = read_state(folder, held.plan, scan=scan_stretches, declared=declared, held=held)
    sweep = folder.load_sweep()
    attributes = merged_attributes(sweep, held)
    if on_change is OnChange.REDO:
        _drop_units(attributes, known_versions(folder, state).values(), state.relabels)
    else:
        _keep_units(attributes, sweep, declaration)
    if state.results and on_change is not OnChange.REDO:
        units = {**found_units(attributes), **(sweep.get("units") or {})}
        dims = {**held.dims, **(sweep.get("dims") or {})}
        is_declared = "units" in sweep or bool(held.code_texts)
        unknown = declaration.units.keys() - units.keys() | declaration.dims.keys() - dims.keys()
        # Nobody has said what the results of a Recorder, or of other programs, are in.
        unlabelled = result_names(folder, state) if unknown and is_declared else set[str]()
        _require_same_labels(folder, units, dims, declaration, state.results, unlabelled, part)
    coords = declaration.coords
    if state.results:
        known = {**held.coords, **(sweep.get("coords") or {})}
        if on_change is not OnChange.REDO:
            _require_same_coordinates(folder, known, declaration, state.results, part)
        coords = {**known, **coords}
    change = CodeChange.find(folder, declaration, version, state, part)
    change.require_choice(on_change)
    for text in _changes(sweep, attributes, stored, plan, declared):
        tell(text)
    if text := change.text(on_change):
        tell(text)
    for text in _rounding_texts(wanted, replaced):
        tell(text)
    if plan is not stored:
        folder.save_plan(plan)
    adopt_output(folder, plan, held)
    about = provenance.describe(declaration.path or Path.cwd() / "cell", folder.output)
    known = {**_needed_to_replay(declaration), "time": now_text(), **about}
    keep_version(folder, replace(version, about={**version.about, **known}), change.before)
    is_redone = on_change is OnChange.REDO and bool(change.others)
    if is_redone:
        # Before the code is noted: a part that finds the new one there asks for nothing any more.
        request_again(folder, state, change.others)
    _save_sweep(folder, declaration, attributes, coords, declared, {"code_id": version.id, **about})
    if is_redone:
        return read_state(folder, held.plan, scan=scan_stretches, declared=declared, held=held)
    return state


def _needed_to_replay(declaration: Declaration) -> SweepFacts:
    """How the function is found in its sources again."""
    return {"sweep": declaration.name, "imported": declaration.is_imported}


def _extended(folder: RunFolder, stored: Plan, wanted: Plan) -> Plan:
    """The plan on disk and, behind it, what else is declared; UsageError with what to do."""
    try:
        return stored.extended(wanted)[0]
    except UsageError as error:
        raise UsageError(f"{error}{_way_to_rename(folder, stored, wanted)}") from error


def _way_to_rename(folder: RunFolder, stored: Plan, wanted: Plan) -> str:
    """How results get the parameters that a study has, if it has new ones or one changed name."""
    gone = [column for column in stored.columns if column.name not in wanted.names]
    new = [column for column in wanted.columns if column.name not in stored.names]
    if len(gone) == len(new) == 1 and gone[0].type == new[0].type:
        old_name, name = gone[0].name, new[0].name
        command = command_text("relabel", folder.output, "--rename", f"{old_name}={name}")
        return f". If {old_name} is called {name} now: {command}"
    if gone or not new:
        return ""
    words = [word for column in new for word in ("--add", f"{column.name}={_added(column)}")]
    values = key_text({column.name: column.values[0] for column in new})
    command = command_text("relabel", folder.output, *words)
    return f". If the results there were made with {values}, or another value: {command}"


def _added(column: PlanColumn) -> str:
    """A value as `relabel --add` reads it: a text that looks like a number is in quotes."""
    value = str(column.values[0])
    return f'"{value}"' if column.type == "str" and type(cell_value(value)) is not str else value


def _keep_units(
    attributes: dict[str, dict[str, Any]], sweep: SweepFacts, declaration: Declaration
) -> None:
    """Note units that were declared once: results there are in them."""
    for name, unit in (sweep.get("units") or {}).items():
        if name not in declaration.units:
            attributes[name] = {**attributes.get(name, {}), "units": unit}


def _drop_units(
    attributes: dict[str, dict[str, Any]], versions: Iterable[CodeVersion], relabels: Relabels
) -> None:
    """Forget units that stayed from earlier studies: no result there stays in them."""
    for version in versions:
        for name in labels_of_now(version, "units", relabels_since(version, relabels)):
            attributes.get(name, {}).pop("units", None)


def _require_same_labels(
    folder: RunFolder,
    units: dict[str, str],
    dims: dict[str, list[str]],
    declaration: Declaration,
    results: int,
    names: Set[str],
    part: str,
) -> None:
    """Raise WrongFolderError if results would be given other units or axes than they have.

    Those of these `names` have none if none are known.
    """
    known: Mapping[str, str | list[str]]
    declared: Mapping[str, str | list[str]]
    for what, known, declared in (
        ("units", units, declaration.units),
        ("dims", dims, declaration.dims),
    ):
        for name in declared.keys() & (known.keys() | names):
            if known.get(name) != declared[name]:
                before = label_text(known.get(name), what)
                keep = f"Keep {before}" if name in known else f"Leave it out of {what}"
                redo = run_changed_text(declaration.about(), folder.output, "redo", part)
                raise WrongFolderError(
                    f"{what}: {name} is {label_text(declared[name], what)} in the study but "
                    f"{before} in the "
                    f"{count_text(results, 'result')} of {folder.output}, and a column has one "
                    f"label. {keep}, return the new values under another name, choose another "
                    f"output with -o, or run them all again: {redo}. If only the label was wrong: "
                    f"{way_to_relabel(folder, what, name, declared[name])}"
                )


def _require_same_coordinates(
    folder: RunFolder, known: Mapping[str, Any], declaration: Declaration, results: int, part: str
) -> None:
    """Raise WrongFolderError if the axes of results would be given other coordinates."""
    for axis in known.keys() & declaration.coords.keys():
        if known[axis] != declaration.coords[axis]:
            before = coordinates_text(known[axis])
            redo = run_changed_text(declaration.about(), folder.output, "redo", part)
            raise WrongFolderError(
                f"coords: {axis} is {coordinates_text(declaration.coords[axis])} in the study but "
                f"{before} in the {count_text(results, 'result')} of {folder.output}, and an axis "
                f"has the same in all rows. Keep {before}, choose another output with -o, or run "
                f"them all again: {redo}"
            )


def found_units(attributes: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The units that the output, or files that were merged, give; none where these differ."""
    found = {name: about["units"] for name, about in attributes.items() if about.get("units")}
    return {name: attribute_text(value) for name, value in found.items()}


def label_text(value: str | list[str] | None, what: str) -> str:
    """A label, or that there is none, for people."""
    if value is None:
        return f"no {what.removesuffix('s')}"
    return repr(value if isinstance(value, str) else ", ".join(value))


def way_to_relabel(folder: RunFolder, what: str, name: str, now: str | list[str]) -> str:
    """The command by which all rows there are get this label."""
    label = now if isinstance(now, str) else ",".join(now)
    return command_text("relabel", folder.output, f"--{what}", f"{name}={label}")


def _changes(
    sweep: SweepFacts,
    attributes: dict[str, dict[str, Any]],
    stored: Plan | None,
    plan: Plan,
    declared: Declared,
) -> Iterator[str]:
    """What to say of what is not as it was in earlier runs."""
    if stored is not None and len(plan) > len(stored):
        yield f"the sweep has grown by {count_text(len(plan) - len(stored), 'task')}"
    if dropped := sum(last - first + 1 for first, last in declared.without):
        are = "is" if dropped == 1 else "are"
        tasks = count_text(dropped, "task")
        yield f"{tasks} of earlier runs {are} no longer declared; results stay, none is run"
    yield from decoding_texts(attributes)


def _rounding_texts(wanted: Plan, replaced: list[NearValues]) -> Iterator[str]:
    """What to say of values that are almost surely meant to be one; once for each parameter."""
    for name, group in groupby(replaced, lambda one: one.name):
        first, *more = group
        others = f", and {count_text(len(more), 'other value')} likewise" if more else ""
        yield (
            f"{name}={first.value} differs from {first.other}, which earlier runs had, by rounding "
            f"only, and is taken for it{others}"
        )
    for near in near_values(wanted):
        yield (
            f"{near.name} has the values {near.value} and {near.other}, which differ by rounding "
            f"only: both are run; if they are meant to be one, round the values of {near.name}"
        )


def _save_sweep(
    folder: RunFolder,
    declaration: Declaration,
    attributes: dict[str, dict[str, Any]],
    coords: Mapping[str, Any],
    declared: Declared,
    about: Mapping[str, Any],
) -> None:
    """Note what is declared, with what, by whom."""
    folder.save_sweep(
        {
            **declaration.about(),
            "declared": declared.as_json(),
            "dims": declaration.dims,
            "coords": coords,
            "units": declaration.units,
            "attributes": attributes,
            **about,
        }
    )
