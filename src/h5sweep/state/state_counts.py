"""How many tasks of a state are done: by key column, by group, and from damaged files."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.plan import Counts, GroupCount
from ..runfolder.records import RecordKind
from .state import IN_OUTPUT, FolderState


def count_columns(state: FolderState, most_values: int | None = None) -> Counts:
    """For each key column, each value with its number of finished and of all tasks.

    Columns of more than `most_values` values are left out.
    """
    return state.plan.counts(_done_flags(state), most_values, _not_asked_for(state))


def count_groups(state: FolderState, names: Sequence[str]) -> list[GroupCount]:
    """The same for each combination of the values of these key columns."""
    return state.plan.group_counts(names, _done_flags(state), _not_asked_for(state))


def count_salvaged(state: FolderState) -> int:
    """How many results, of those in record files, were found in damaged files."""
    if not state.salvage_files:
        return 0
    pairs = zip(state.kinds, state.files, strict=True)
    return sum(k == RecordKind.DONE and file in state.salvage_files for k, file in pairs)


def _done_flags(state: FolderState) -> bytearray:
    done = state.kinds.translate(_DONE_FLAGS)
    for task in state.done_undeclared:
        done[task] = 0
    return done


def _not_asked_for(state: FolderState) -> set[int]:
    return state.undeclared | state.done_undeclared


_DONE_FLAGS = bytes(1 if kind in (RecordKind.DONE, IN_OUTPUT) else 0 for kind in range(256))
