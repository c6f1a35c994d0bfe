"""Read tasks, with what vouches for their values, out of a file that may be damaged.

The file is seen as groups with attributes and variables; `salvage.carved_view` and
`salvage.library_child` list it so. Where the tasks are is decided in `find_tasks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ..base.key_rule import KeyRule
from ..base.plan import RESERVED_NAMES, Key
from ..base.values import VALUE, free_name, naming_order, value_name
from ..hdf5.errors import Unsupported
from .file_view import (
    NO_KEY,
    Failures,
    FoundRows,
    FoundTask,
    FoundValue,
    Gap,
    Group,
    Proof,
    Variable,
    row_place,
)
from .find_tasks import ROWS, Table, Where, locate_tasks, path_in
from .skipped_names import MARK, Beside, Names, is_mark, is_named

FEW_ROWS = 16  # that are read one by one rather than by halves
MOST_ROWS_LOST = 10_000  # that are named one by one, behind all that is there


class FoundKey(NamedTuple):
    """The key of a task, and what vouches for it."""

    key: Key
    proof: Proof


FoundPlaces = Where[Group, FoundKey]


def guess_rule(groups: Sequence[Group], rule: KeyRule) -> KeyRule:
    """Take whole numbers and texts that all groups of tasks have as attributes for their key."""
    if rule.names:
        return rule
    tasks = [group for group in groups if group.variables and group.attributes]
    names: list[str] = []
    if tasks:
        shared = set.intersection(*(set(group.attributes) for group in tasks))
        names = [n for n in tasks[0].attributes if n in shared and _is_name(n)]
        names = [n for n in names if all(_may_be_key(group.attributes[n]) for group in tasks)]
    keys = {tuple(g.attributes[n].value.item() for n in names) for g in tasks}
    is_key = len(tasks) > 1 and len(keys) == len(tasks)
    return replace(rule, names=tuple(names), is_guess=True) if is_key and names else rule


def leave_out(groups: Sequence[Group], names: Names) -> list[Group]:
    """The groups that count, and in them the datasets that do; `skipped_names` says which."""
    kept = [group for group in groups if not is_named(group.path, names)]
    has_groups = any(group.variables for group in kept if group.path != "/")
    for group in kept:
        for name in [n for n in group.variables if is_named(path_in(group, n), names)]:
            del group.variables[name]
        if group.path == "/" and _has_mark(group, has_groups=has_groups):
            del group.variables[MARK]
    return kept


def _has_mark(root: Group, *, has_groups: bool) -> bool:
    mark = root.variables.get(MARK)
    if mark is None or mark.fields or mark.may_grow:
        return False
    others = [variable for variable in root.variables.values() if variable is not mark]
    beside = [Beside(v.shape[0] if v.shape else None, v.may_grow) for v in others]
    return is_mark(mark.shape, beside, has_groups=has_groups)


def _is_name(name: str) -> bool:
    return name.isidentifier() and name not in RESERVED_NAMES


def _may_be_key(cell: FoundValue) -> bool:
    return cell.value.shape == () and cell.value.dtype.kind in "biuU"


class ViewReader:
    """Keys in a file that may be damaged, and what vouches for each."""

    def __init__(self, rule: KeyRule) -> None:
        self._rule = rule

    def key_in_name(self, path: str, group: Group | None) -> FoundKey | None:
        pattern = self._rule.pattern
        key = None if pattern is None else self._rule.checked(pattern.key_of(path))
        is_checked = group is not None and group.has_checked_name
        return None if key is None else FoundKey(key, Proof(Proof.NOTHING + is_checked))

    def key_in_content(self, group: Group) -> FoundKey | None:
        """Where a name is lost, attributes called like the fields of the pattern tell the same."""
        rule, cells = self._rule, {}
        for name in rule.names:
            cell = group.attributes.get(name) or _single_value(group, name)
            if cell is None or cell.value.size != 1:
                return None
            cells[name] = cell
        values = {name: cell.value.reshape(()).item() for name, cell in cells.items()}
        if rule.pattern is not None and not rule.pattern.may_give(values):
            return None
        key = rule.checked(values)
        proof = min(cell.proof for cell in cells.values())
        return None if key is None else FoundKey(key, proof)


def locate_in_view(groups: Sequence[Group], rule: KeyRule, file_path: str) -> FoundPlaces:
    """Where the tasks are among groups as salvage and its child list them."""
    return locate_tasks(groups, rule, file_path, ViewReader(rule))


def drop_strays(groups: Sequence[Group], where: FoundPlaces) -> list[str]:
    """Take datasets that belong to no task out of their groups, and return their paths.

    Beside what is lost or was not read, they may belong to a task of which the key is there.
    """
    whole = [g for g in groups if not (g.lost or g.lost_attributes or g.unread)]
    strays = list(where.strays(whole))
    for group, name in strays:
        del group.variables[name]
    return [path_in(group, name) for group, name in strays]


def read_tasks(
    groups: Sequence[Group], where: FoundPlaces, rule: KeyRule
) -> Iterator[FoundTask | FoundRows]:
    """Every task of a file, with its values; of what could not be read, why.

    Groups that were read hold nothing afterwards.
    """
    if where.file is not None:
        yield _read_one(groups, where.file.key, rule)
        return
    inner: dict[Group, list[Group]] = {}
    for group in groups:
        if group not in where.groups and (task := where.task_of(group)) is not None:
            inner.setdefault(task, []).append(group)
    tables: dict[Group, list[Table[Group]]] = {}
    for table in where.tables:
        tables.setdefault(table.group, []).append(table)
    above = {group.parent for group in groups}
    for group in groups:
        if group in where.groups:
            within = inner.get(group, [])
            yield _read_group(group, within, where.groups[group], rule)
            for read in (group, *within):
                read.let_go()
        elif group in where.begun:
            yield FoundTask(group.place, where.begun[group].key, lost={"": "it holds no values"})
        elif group in tables:
            for table in tables[group]:
                yield from _read_table(table, rule)
            if all(table.name for table in tables[group]):  # else each row lacks what is lost
                yield from _lost_names(group, rule)
        elif where.task_of(group) is None:
            yield from _read_named(group, where, rule)
            is_leaf = group not in above
            if (columns := _keyless_columns(group)) and not where.datasets:
                yield from _read_table(Table(group, columns), KeyRule())
            else:
                yield from _lost_in(group, rule, is_leaf=is_leaf, is_known=bool(where))


def _read_named(group: Group, where: FoundPlaces, rule: KeyRule) -> Iterator[FoundTask]:
    """The datasets of a group that are tasks by their names."""
    for name in [name for name in group.variables if (group, name) in where.datasets]:
        key, proof = where.datasets[group, name]
        found = FoundTask(path_in(group, name), key, key_proof=proof, doubt=group.doubt)
        found.is_linked = group.is_linked
        _take_cells(found, VALUE, group.variables.pop(name), None, rule)
        yield found


def _lost_in(group: Group, rule: KeyRule, *, is_leaf: bool, is_known: bool) -> Iterator[FoundTask]:
    """What of a group that is no task may be lost tasks: what it names, or itself."""
    yield from _lost_names(group, rule)
    has_values = group.variables and (group.path != "/" or not is_known)
    if has_values or (group.attributes and is_leaf and not group.is_linked):
        yield FoundTask(group.place, lost={"": NO_KEY})
    elif group.unread:
        yield FoundTask("", lost={"": f"{group.place}: {group.unread}"})


def _lost_names(group: Group, rule: KeyRule) -> Iterator[FoundTask]:
    """What a group names that is not there: each may have been a task, or a table of them."""
    for name, why in group.lost.items():
        path = path_in(group, name)
        key = rule.checked(rule.pattern.key_of(path)) if rule.pattern else None
        yield FoundTask(path, key, lost={"": why})


def _single_value(group: Group, name: str) -> FoundValue | None:
    """A dataset of one element, which may be part of the key."""
    variable = group.variables.get(name)
    if variable is None or variable.shape is None or variable.may_grow:
        return None
    if math.prod(variable.shape) != 1:
        return None
    try:
        cell = variable.read(None).get("")
    except Failures:
        return None
    return None if cell is None else replace(cell, value=cell.value.reshape(()))


def _read_group(group: Group, groups: Sequence[Group], known: FoundKey, rule: KeyRule) -> FoundTask:
    key, proof = known
    found = FoundTask(group.place, key, key_proof=proof, order=group.address)
    found.is_linked = group.is_linked
    _take_variables(found, group, "", rule)
    for inner in groups:
        prefix = inner.path.removeprefix(group.path).strip("/").replace("/", "_")
        _take_variables(found, inner, prefix + "_", rule)
    _take_attributes(found, group, rule)
    return found


def _take_attributes(found: FoundTask, group: Group, rule: KeyRule) -> None:
    """Attributes that are not the key are values too."""
    for name, cell in group.attributes.items():
        if name not in rule.names and cell.value.dtype.kind in "biufcU":
            found.cells[_free_name(found, name, rule)] = cell
    for name, why in group.lost_attributes.items():
        found.doubt = found.doubt or f"its {name} cannot be read: {why}"


def _take_variables(found: FoundTask, group: Group, prefix: str, rule: KeyRule) -> None:
    """Everything in a group; what may be missing in it may be missing in the task."""
    found.doubt = found.doubt or group.doubt
    found.lost.update({prefix + name: why for name, why in group.lost.items()})
    if group.is_unsupported:
        found.lost[""], found.is_unsupported = group.unread, True
    else:
        found.doubt = found.doubt or group.unread
    for name, variable in _in_order(group.variables):
        if name not in rule.names or prefix:
            _take_cells(found, prefix + name, variable, None, rule)


def _in_order(variables: Mapping[str, Variable]) -> list[tuple[str, Variable]]:
    """Those first that keep their names, so that every reader gives the others the same new one."""
    return sorted(variables.items(), key=lambda item: naming_order(item[0]))


def _free_name(found: FoundTask, text: str, rule: KeyRule) -> str:
    """The name of a value; if another has it already, with a number behind it."""
    return free_name(text, found.cells, rule.names)


def _take_cells(
    found: FoundTask, name: str, variable: Variable, row: int | None, rule: KeyRule
) -> None:
    try:
        for member, cell in variable.read(row).items():
            found.cells[_free_name(found, _full_name(name, member), rule)] = cell
    except MemoryError:
        found.lost[name] = "it is larger than the memory"
    except Failures as error:
        found.lost[name] = str(error)
        found.is_unsupported |= isinstance(error, Unsupported)
        found.extents += variable.place(row)


def _full_name(name: str, member: str) -> str:
    return f"{name}_{member}" if name and member else name or member


def _keyless_columns(group: Group) -> dict[str, Variable]:
    """Columns without a key: those that may grow or, if none may, all of one length at the root."""
    growing = {n: v for n, v in group.variables.items() if v.may_grow and v.shape}
    lengths = {v.shape[0] if v.shape else None for v in group.variables.values()}
    is_even = len(group.variables) > 1 and len(lengths) == 1 and None not in lengths
    return growing or (dict(group.variables) if is_even and group.path in ("/", "") else {})


def rows_of(columns: Mapping[str, Variable]) -> int:
    """How many rows a table has: an append that was interrupted has reached some columns only.

    A length that is damaged may be of any size: what is there bounds it.
    """
    rows = min((v.shape[0] for v in columns.values() if v.shape), default=0)
    return min(rows, max((v.rows_there for v in columns.values()), default=0) + MOST_ROWS_LOST)


def _read_table(table: Table[Group], rule: KeyRule) -> Iterator[FoundTask | FoundRows]:
    columns = dict(_in_order(table.columns))
    total, row = rows_of(columns), 0
    while row < total:
        at_once = min(variable.rows_at_once(row) for variable in columns.values())
        rows = range(row, min(row + max(at_once, 1), total))
        yield from _read_some(replace(table, columns=columns), rule, rows)
        row = rows.stop


def _read_some(table: Table[Group], rule: KeyRule, rows: range) -> Iterator[FoundTask | FoundRows]:
    """Rows at once; around one that cannot be read so, fewer and fewer, and then one by one."""
    read_row = partial(_read_row, table, rule)
    if (found := _read_rows(table, rule, rows)) is not None:
        yield from _interleaved(found, read_row)
    elif len(rows) <= FEW_ROWS:
        yield from map(read_row, rows)
    else:
        yield from _read_some(table, rule, rows[: len(rows) // 2])
        yield from _read_some(table, rule, rows[len(rows) // 2 :])


def _read_row(table: Table[Group], rule: KeyRule, row: int) -> FoundTask:
    group, columns = table.group, table.columns
    found = FoundTask(row_place(table.path or group.place, row), is_row=True)
    found.is_linked, found.doubt = group.is_linked, group.doubt or group.unread
    has_key = any(name in columns or ROWS in columns for name in rule.names)
    found.lost.update({name: why for name, why in table.lost.items() if has_key})
    for name, variable in columns.items():
        _take_cells(found, name, variable, row, KeyRule())
    if has_key:
        _take_row_key(found, rule)
        found.key_fills -= _grown_names(columns, rule)
    return found


def _grown_names(columns: Mapping[str, Variable], rule: KeyRule) -> set[str]:
    """Which columns of the key grow: of these the length is written last; of others, values are."""
    sources = {name: columns.get(name) or columns.get(ROWS) for name in rule.names}
    return {name for name, column in sources.items() if column is not None and column.may_grow}


def _read_rows(table: Table[Group], rule: KeyRule, rows: range) -> FoundRows | None:
    """The same rows at once; None if they have to be read one by one."""
    group, columns = table.group, table.columns
    if len(rows) == 1 or table.lost:
        return None
    try:
        read = [
            (value_name(_full_name(name, member)), cells)
            for name, variable in columns.items()
            for member, cells in variable.read_rows(rows).items()
        ]
    except (MemoryError, *Failures):
        return None
    has_key = any(n in columns or ROWS in columns for n in rule.names)
    names = rule.names if has_key else ()
    values = dict(read)
    keys = {name: values.pop(name) for name in names if name in values}
    is_plain = len(values) + len(keys) == len(read) and all(
        k.values.ndim == 1 for k in keys.values()
    )
    if not values or not is_plain or len(keys) < len(names):
        return None
    lists = [cells.values.tolist() for cells in keys.values()]
    grown = _grown_names(columns, rule)
    nothing = np.zeros(len(rows), bool)
    return FoundRows(
        table.path or group.place,
        rows,
        values,
        [rule.checked(dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)]
        or [None] * len(rows),
        np.logical_and.reduce([cells.fills for cells in values.values()]) if keys else nothing,
        {name: cells.fills for name, cells in keys.items() if name not in grown},
        min((cells.proof for cells in keys.values()), default=Proof.NOTHING),
        group.doubt
        or group.unread
        or next((cells.doubt for cells in keys.values() if cells.doubt), ""),
        np.logical_or.reduce([cells.apart for cells in (*values.values(), *keys.values())]),
    )


def _interleaved(
    found: FoundRows, read_row: Callable[[int], FoundTask]
) -> Iterator[FoundTask | FoundRows]:
    """Rows that were read at once, and between them those that have to be read one by one."""
    first = 0
    for place in (*np.flatnonzero(found.apart).tolist(), len(found.rows)):
        if place > first:
            yield found.part(first, place)
        if place < len(found.rows):
            yield read_row(found.rows[place])
        first = place + 1


def _take_row_key(found: FoundTask, rule: KeyRule) -> None:
    """Move the key out of the cells of a row."""
    cells = {name: found.cells.pop(name, None) for name in rule.names}
    if any(cell is None or cell.value.shape != () for cell in cells.values()):
        return
    whole = {name: cell for name, cell in cells.items() if cell is not None}
    found.key = rule.checked({name: cell.value.item() for name, cell in whole.items()})
    found.key_proof = min((cell.proof for cell in whole.values()), default=Proof.NOTHING)
    if found.cells and not found.lost and all(cell.is_fill for cell in found.cells.values()):
        found.note_unwritten()
    found.key_fills = frozenset(name for name, cell in whole.items() if cell.is_fill)
    found.key_gaps = frozenset(name for name, cell in whole.items() if cell.gap is Gap.MAYBE)
    found.key_odd = frozenset(name for name, cell in whole.items() if cell.gap > Gap.MAYBE)
    found.doubt = found.doubt or next((c.doubt for c in whole.values() if c.doubt), "")


def _read_one(groups: Sequence[Group], key: Key, rule: KeyRule) -> FoundTask:
    """The file of one task."""
    found = FoundTask("/", key, order=0)
    for group in groups:
        prefix = group.path.strip("/").replace("/", "_")
        _take_variables(found, group, prefix + "_" if prefix else "", rule)
        if group.path == "/":
            _take_attributes(found, group, rule)
        elif not group.is_linked:
            found.doubt = found.doubt or f"no link points to {group.place}"
    return found
