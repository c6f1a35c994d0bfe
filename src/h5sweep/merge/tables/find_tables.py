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
        lengths = [_lengths(s, group, growing) for s in having]
        if all(len(one) == 1 for one in lengths):
            _take_group(group, growing, having, [one.pop() for one in lengths])
        else:
            notes += _take_each(group, growing, having)
    return notes


def _take_group(
    group: str, growing: set[str], having: list[InputStructure], rows: list[int]
) -> None:
    """Make one table of a group."""
    others = {p for s in having for p in s.groups[group]} - growing
    for structure, count in zip(having, rows, strict=True):
        for path in list(others):
            dataset = structure.groups[group].get(path)
            if dataset is not None and dataset.rows != count:
                others.discard(path)
    for structure, count in zip(having, rows, strict=True):
        datasets = structure.groups[group].items()
        columns = {path: d for path, d in datasets if path in growing | others}
        structure.tables[group] = TablePart(count, columns)


def _take_each(group: str, growing: set[str], having: list[InputStructure]) -> list[str]:
    for structure in having:
        for path, dataset in structure.groups[group].items():
            if path in growing:
                structure.tables[path] = TablePart(dataset.rows or 0, {path: dataset})
    return [
        f"the datasets of {group} have different lengths in some files: each is merged by itself"
    ]


def _lengths(structure: InputStructure, group: str, growing: set[str]) -> set[int]:
    datasets = structure.groups.get(group, {})
    return {d.rows or 0 for path, d in datasets.items() if path in growing}
