"""Sentences about a state: what was lost, what no merge takes, which files cannot be read."""

from __future__ import annotations

from ..base.plan import key_text
from ..base.units import count_text
from ..runfolder.fitting_keys import misfit_text
from ..runfolder.records import RecordFile, RecordKind
from .state import FolderState


def damage_text(state: FolderState) -> str:
    """What damaged records have cost of what is missing; empty if that is nothing."""
    explained = {*state.failures, *state.running, *state.interrupted} | state.undeclared
    lost = [t for t in state.lost if t not in explained and not state.is_done(t)]
    if lost:
        records, them = ("a damaged record", "it") if len(lost) == 1 else _SEVERAL
        tasks = count_text(len(lost), "task")
        return f"{tasks} lost with {records}: the next run computes {them} again"
    known = sum(not state.is_done(task) for task in explained - state.undeclared)
    nameless = sum(damage.task is None for damage in state.damages)
    if not nameless or state.tasks_total - state.tasks_done <= known:
        return ""
    them = "it" if nameless == 1 else "them"
    records = count_text(nameless, "damaged record")
    return f"{records}: some of what is not finished may have been in {them}"


_SEVERAL = ("damaged records", "them")


def left_out_text(state: FolderState) -> str:
    """That there are results which no merge takes, and what is wrong with the first."""
    key, place = state.left_out[0]
    return (
        f"{count_text(len(state.left_out), 'result')} left out, first {key_text(key)} in "
        f"{state.paths[place.file]}: {misfit_text(key, state.types)}. Record it again with a key "
        "like the others, merge, and move that file away"
    )


def not_stored_text(state: FolderState) -> str:
    """That results lack values which could not be stored; empty if none does."""
    tasks = [task for task in lacking_values(state) if task not in state.done_undeclared]
    if not tasks:
        return ""
    lack = "result lacks" if len(tasks) == 1 else "results lack"
    first = f"{key_text(state.plan.key(tasks[0]))}: {read_note(state, tasks[0])}"
    return f"{len(tasks):,} {lack} values that could not be stored, first {first}"


def lacking_values(state: FolderState) -> list[int]:
    """The tasks whose result lacks a value that could not be stored."""
    return [
        task
        for task, place in sorted(state.notes.items())
        if state.kinds[task] == RecordKind.DONE and state.files[task] == place.file
    ]


def read_note(state: FolderState, task: int) -> str:
    """Which values a result lacks, and why."""
    place = state.notes[task]
    with RecordFile(state.paths[place.file]) as file:
        return str(file.header(place.offset, place.frame)["not_stored"])


def refusal_texts(state: FolderState) -> list[str]:
    """Which record files the system does not give wholly, where first, and what to do."""
    first = {d.path: d for d in reversed(state.damages) if d.refusal}
    return [
        f"{damage.path.name} cannot be read at byte {damage.offset:,} ({damage.refusal}): its disk "
        "may be failing; copy the run folder to another disk"
        for damage in reversed(first.values())
    ]
