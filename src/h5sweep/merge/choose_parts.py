"""Which inputs become columns of the output and which become groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..worker_files.inputs import Input, OnConflict
from ..worker_files.layouts import Style, tasks_that_grow
from ..worker_files.same_structure import Family
from ..worker_files.survey import Survey
from .merged_before import Addition

if TYPE_CHECKING:
    from .groups.merge_groups import MergedGroups
    from .tables.merge_tables import MergedTables


def choose_parts(
    survey: Survey, good: Sequence[Input], addition: Addition, on_conflict: OnConflict
) -> tuple[list[MergedTables | MergedGroups], str, list[str]]:
    """What goes into the output: columns, groups, or both, and which of these in one word.

    And what people should know of that.
    """
    notes: list[str] = []
    rows = {one for one in good if one.style is Style.ROWS}
    rows |= {*addition.tables} if rows else set()
    with_rows = [one for one in good if one in rows]
    with_groups = [one for one in good if one not in rows]
    if growing := _tasks_that_grow(good) & rows:
        with_rows = [one for one in with_rows if one not in growing]
        with_groups = [o for o in good if o in {*with_groups, *growing}]
    if not _have_common_column(survey, with_rows):
        notes.append(
            "these files share no dataset name, so they are not columns of one table: each file "
            "became a group with its name"
        )
        with_groups, with_rows = [o for o in good if o in {*with_groups, *with_rows}], []
    parts: list[MergedTables | MergedGroups] = []
    columns, way = None, "groups"
    if with_rows:
        from .tables.merge_tables import MergedTables  # which groups do not need

        columns, way = MergedTables(survey, with_rows, addition.held_rows), "columns"
        notes += [
            f"{one.path} became a group with its name: its datasets have different lengths"
            for one in with_groups
            if one.style is Style.ONE and one.contents and one.contents.tasks
        ]
        parts.append(columns)
        if more := columns.have_more():
            with_groups = [o for o in good if o in {*with_groups, *more}]
    if with_groups:
        from .groups.merge_groups import MergedGroups  # which columns do not need

        groups = MergedGroups(survey, with_groups, on_conflict=on_conflict, columns=columns)
        parts.append(groups)
        way = "both" if columns and groups.has_groups else way
    return parts, way, notes


def _have_common_column(survey: Survey, inputs: Sequence[Input]) -> bool:
    """Whether datasets of equal length are columns, and not a dataset a task in each file."""
    common: set[str] | None = None
    seen: set[Family | None] = {None}
    for one in inputs:
        if one.family in seen and one.family is not None:
            continue
        seen.add(one.family)
        with survey.opened(one) as layout:
            if layout.tables():
                return True  # what grows row by row is a column, whatever its name
            names = layout.by_group.get("/", {}).keys()
        common = set(names) if common is None else common & names
    return common is None or bool(common)


def _tasks_that_grow(inputs: Sequence[Input]) -> set[Input]:
    return tasks_that_grow((one, one.contents) for one in inputs if one.contents)
