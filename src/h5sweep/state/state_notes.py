"""Sentences about a state: results that no merge takes, and files that cannot be read."""

from __future__ import annotations

from ..base.plan import key_text
from ..base.units import count_text
from ..runfolder.fitting_keys import misfit_text
from .state import FolderState


def left_out_text(state: FolderState) -> str:
    """That there are results which no merge takes, and what is wrong with the first."""
    key, place = state.left_out[0]
    return (
        f"{count_text(len(state.left_out), 'result')} left out, first {key_text(key)} in "
        f"{state.paths[place.file]}: {misfit_text(key, state.types)}. Record it again with a key "
        "like the others, merge, and move that file away"
    )


def refusal_texts(state: FolderState) -> list[str]:
    """Which record files the system does not give wholly, where first, and what to do."""
    first = {d.path: d for d in reversed(state.damages) if d.refusal}
    return [
        f"{damage.path.name} cannot be read at byte {damage.offset:,} ({damage.refusal}): its disk "
        "may be failing; copy the run folder to another disk"
        for damage in reversed(first.values())
    ]
