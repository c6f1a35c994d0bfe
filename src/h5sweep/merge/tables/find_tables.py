"""Which datasets of many inputs are the columns of one table."""

from __future__ import annotations

from collections.abc import Sequence

from .input_structure import InputStructure, TablePart


def find_tables(structures: Sequence[InputStructure]) -> list[str]:
    """Give every structure its tables: a group's columns, or each for itself.

    Columns of a group are one table if they are equally long in every file. A dataset that
    cannot grow is one of them if it has that length wherever it is. Returns notes for people.
    """
    notes = []
    by_group: dict[str, list[InputStructure]] = {}
    for structure in structures:
        for group in structure.groups:
            by_group.setdefault(group, []).append(structure)
    for group, found in by_group.items():
        growing = {p for s in found for p in s.groups[group] if p in s.growing}
        having = [s for s in found if growing & s.groups[group].keys()]
        if not _take_group(group, growing, having):
            _take_each(group, growing, having)
            notes.append(
                f"the datasets of {group} have different lengths in some files: each is merged by "
                "itself"
            )
    return notes


def _take_group(group: str, growing: set[str], having: list[InputStructure]) -> bool:
    """Make one table of a group; False if its columns differ in length."""
    rows: dict[InputStructure, int] = {}
    for structure in having:
        lengths = {d.rows or 0 for path, d in structure.groups[group].items() if path in growing}
        if len(lengths) > 1:
            return False
        rows[structure] = lengths.pop()
    unlike = {
        path
        for structure, count in rows.items()
        for path, dataset in structure.groups[group].items()
        if path not in growing and dataset.rows != count
    }
    for structure, count in rows.items():
        datasets = structure.groups[group].items()
        columns = {path: d for path, d in datasets if path not in unlike}
        structure.tables[group] = TablePart(count, columns)
    return True


def _take_each(group: str, growing: set[str], having: list[InputStructure]) -> None:
    for structure in having:
        for path, dataset in structure.groups[group].items():
            if path in growing:
                structure.tables[path] = TablePart(dataset.rows or 0, {path: dataset})
