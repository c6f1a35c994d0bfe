"""Find tasks and their results among the groups and datasets of a file, by any reader.

A file is seen as groups with attributes and variables; `salvage.carved_view` and
`salvage.library_child` show it so. A task is a group with a key, a row of columns or of a compound,
or the whole file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from ..base.key_pattern import KeyPattern
from ..base.key_rule import KeyRule
from ..base.plan import RESERVED_NAMES, Key
from ..base.values import VALUE, free_name, naming_order, value_name
from ..hdf5.errors import Unsupported
from .file_view import (
    NO_KEY,
    ROWS,
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
from .skipped_names import MARK, Beside, Names, is_mark, is_named

FEW_ROWS = 16  # that are read one by one rather than by halves
MOST_ROWS_LOST = 10_000  # that are named one by one, behind all that is there


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
        for name in [name for name in group.variables if is_named(name, names)]:
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


def show_tasks(groups: Sequence[Group], rule: KeyRule, file_name: str) -> list[Group]:
    """Make a group of each dataset that is a task by its name, or has one in each row.

    The latter are compounds that have the key among their fields. Those in the group of a task, or
    beside columns that are the key, are values.
    """
    if rule.pattern is not None:
        has_keys = any(_group_key(group, rule) for group in groups)
        is_one = has_keys or _file_key(rule, file_name) is not None
        return list(groups) if is_one else [*groups, *_named_datasets(groups, rule.pattern)]
    if not rule.names:
        return list(groups)
    keyed = {id(group): True for group in groups if _group_key(group, rule) is not None}
    found = []
    for group in groups:
        found.append(group)
        is_task = id(group) in keyed or _keyed_above(group, keyed) is not None
        if not is_task and not _has_key_columns(group, rule):
            fields = {name: set(v.fields) for name, v in group.variables.items()}
            rows = [name for name, known in fields.items() if set(rule.names) <= known]
            found += [_taken_out(group, name, ROWS) for name in rows]
    return found


def _named_datasets(groups: Sequence[Group], pattern: KeyPattern) -> list[Group]:
    return [
        _taken_out(group, name, VALUE)
        for group in groups
        for name in list(group.variables)
        if pattern.key_of(_path_in(group, name)) is not None
    ]


def _taken_out(group: Group, name: str, new_name: str) -> Group:
    """A dataset as a group, which is not among the variables of its own any more."""
    return Group(
        _path_in(group, name),
        variables={new_name: group.variables.pop(name)},
        is_linked=group.is_linked,
        has_checked_name=group.has_checked_name,
        parent=group,
        doubt=group.doubt,
    )


def _path_in(group: Group, name: str) -> str:
    return f"{group.path.rstrip('/')}/{name}"


def drop_strays(groups: Sequence[Group], rule: KeyRule) -> list[str]:
    """Take datasets that are in no task out of their groups, and return their paths.

    These are beside tasks that have the key; where nothing has it, any may be tasks.
    """
    keyed = {id(group): True for group in groups if _group_key(group, rule) is not None}
    tables = {id(group) for group in groups if _has_key_columns(group, rule)}
    if rule.is_guess or not (keyed or tables):
        return []
    strays = [
        group
        for group in groups
        if not (id(group) in keyed or id(group) in tables or _keyed_above(group, keyed))
        and (columns_of(group, rule) or group.path == "/")
    ]
    paths = [_path_in(group, name) for group in strays for name in group.variables]
    for group in strays:
        group.variables.clear()
    return paths


def _has_key_columns(group: Group, rule: KeyRule) -> bool:
    return bool(rule.names) and set(rule.names) <= group.names | group.lost.keys()


def _is_name(name: str) -> bool:
    return name.isidentifier() and name not in RESERVED_NAMES


def _may_be_key(cell: FoundValue) -> bool:
    return cell.value.shape == () and cell.value.dtype.kind in "biuU"


def find_tasks(
    groups: Sequence[Group], rule: KeyRule, file_name: str
) -> Iterator[FoundTask | FoundRows]:
    """Every task of a file, with its values; of what could not be read, why.

    Groups that were read hold nothing afterwards.
    """
    keyed = {id(group): key for group in groups if (key := _group_key(group, rule)) is not None}
    tables = {id(g) for g in groups if id(g) not in keyed and columns_of(g, rule)}
    if not keyed and (own_key := _file_key(rule, file_name)) is not None:
        yield _read_one(groups, own_key, rule)
        return
    inner = _groups_within(groups, keyed)
    above = {id(group.parent) for group in groups}
    for group in groups:
        if id(group) in keyed:
            within = inner.get(id(group), [])
            yield _read_group(group, within, keyed[id(group)], rule)
            for read in (group, *within):
                read.let_go()
        elif id(group) in tables:
            yield from _read_table(group, rule)
        elif _keyed_above(group, keyed) is None:
            is_known = bool(keyed or tables)
            yield from _lost_in(group, rule, is_leaf=id(group) not in above, is_known=is_known)


def _lost_in(group: Group, rule: KeyRule, *, is_leaf: bool, is_known: bool) -> Iterator[FoundTask]:
    """What of a group that is no task may be lost tasks: groups it names, or itself."""
    for name, why in group.lost.items():
        path = _path_in(group, name)
        key = rule.checked(rule.pattern.key_of(path)) if rule.pattern else None
        yield FoundTask(path, key, lost={"": why})
    has_values = group.variables and (group.path != "/" or not is_known)
    if has_values or (group.attributes and is_leaf and not group.is_linked):
        yield FoundTask(group.place, lost={"": NO_KEY})
    elif group.unread:
        yield FoundTask("", lost={"": f"{group.place}: {group.unread}"})


def _group_key(group: Group, rule: KeyRule) -> tuple[Key, Proof] | None:
    """The key of a group that is a task; what its name says comes before its attributes.

    Where a name is lost, attributes called like the fields of the pattern tell the same.
    """
    by_name = rule.pattern.key_of(group.path) if rule.pattern and group.path != "/" else None
    if (key := rule.checked(by_name)) is not None:
        return key, Proof.CHECKSUM if group.has_checked_name else Proof.NOTHING
    if not rule.names or (rule.pattern is not None and group.path):
        return None
    cells = {}
    for name in rule.names:
        cell = group.attributes.get(name) or _single_value(group, name)
        if cell is None or cell.value.shape != ():
            return None
        cells[name] = cell
    values = {name: cell.value.item() for name, cell in cells.items()}
    if rule.pattern is not None and not rule.pattern.may_give(values):
        return None
    key = rule.checked(values)
    return None if key is None else (key, min(cell.proof for cell in cells.values()))


def _single_value(group: Group, name: str) -> FoundValue | None:
    """A dataset of one element, which may be part of the key."""
    variable = group.variables.get(name)
    if variable is None or variable.shape not in ((), (1,)) or variable.may_grow:
        return None
    try:
        cell = variable.read(None).get("")
    except Failures:
        return None
    return None if cell is None else replace(cell, value=cell.value.reshape(()))


def _keyed_above(group: Group, keyed: Mapping[int, object]) -> Group | None:
    """The group of a task that this one lies in."""
    above = group.parent
    for _ in range(32):
        if above is None or id(above) in keyed:
            return above
        above = above.parent
    return None


def _groups_within(groups: Sequence[Group], keyed: Mapping[int, object]) -> dict[int, list[Group]]:
    """The groups that lie in the group of a task, by that."""
    found: dict[int, list[Group]] = {}
    for group in groups:
        above = None if id(group) in keyed else _keyed_above(group, keyed)
        if above is not None:
            found.setdefault(id(above), []).append(group)
    return found


def _read_group(
    group: Group, groups: Sequence[Group], known: tuple[Key, Proof], rule: KeyRule
) -> FoundTask:
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


def columns_of(group: Group, rule: KeyRule) -> dict[str, Variable]:
    """The columns of a table: those that may grow or, if none may, all of equal length."""
    growing = {n: v for n, v in group.variables.items() if v.may_grow and v.shape}
    is_keyed = _has_key_columns(group, rule)
    if growing and (not is_keyed or set(rule.names) <= growing.keys() or ROWS in growing):
        return growing
    lengths = [v.shape[0] if v.shape else None for v in group.variables.values()]
    is_equal = len(lengths) > 1 and len(set(lengths)) == 1 and lengths[0] is not None
    if is_keyed or (is_equal and group.path in ("/", "")):
        return {n: v for n, v in group.variables.items() if v.shape}
    return {}


def find_tables(groups: Sequence[Group], rule: KeyRule) -> list[Group]:
    """The groups whose columns hold one task per row; none if nothing says what their key is."""
    tables = [group for group in groups if rule.names and columns_of(group, rule)]
    return [group for group in tables if _group_key(group, rule) is None]


def rows_of(columns: Mapping[str, Variable]) -> int:
    """How many rows a table has: an append that was interrupted has reached some columns only.

    A length that is damaged may be of any size: what is there bounds it.
    """
    rows = min((v.shape[0] for v in columns.values() if v.shape), default=0)
    return min(rows, max((v.rows_there for v in columns.values()), default=0) + MOST_ROWS_LOST)


def count_rows(groups: Sequence[Group], rule: KeyRule) -> int:
    """How many rows the tables of a file have."""
    return sum(rows_of(columns_of(table, rule)) for table in find_tables(groups, rule))


def _read_table(group: Group, rule: KeyRule) -> Iterator[FoundTask | FoundRows]:
    columns = dict(_in_order(columns_of(group, rule)))
    total, row = rows_of(columns), 0
    while row < total:
        at_once = min(variable.rows_at_once(row) for variable in columns.values())
        rows = range(row, min(row + max(at_once, 1), total))
        yield from _read_some(group, columns, rule, rows)
        row = rows.stop


def _read_some(
    group: Group, columns: Mapping[str, Variable], rule: KeyRule, rows: range
) -> Iterator[FoundTask | FoundRows]:
    """Rows at once; around one that cannot be read so, fewer and fewer, and then one by one."""
    read_row = partial(_read_row, group, columns, rule)
    if (found := _read_rows(group, columns, rule, rows)) is not None:
        yield from _interleaved(found, read_row)
    elif len(rows) <= FEW_ROWS:
        yield from map(read_row, rows)
    else:
        yield from _read_some(group, columns, rule, rows[: len(rows) // 2])
        yield from _read_some(group, columns, rule, rows[len(rows) // 2 :])


def _read_row(group: Group, columns: Mapping[str, Variable], rule: KeyRule, row: int) -> FoundTask:
    found = FoundTask(row_place(group.place, row), is_row=True)
    found.is_linked, found.doubt = group.is_linked, group.doubt or group.unread
    has_key = any(name in columns or ROWS in columns for name in rule.names)
    found.lost.update({name: why for name, why in group.lost.items() if has_key})
    for name, variable in columns.items():
        _take_cells(found, name, variable, row, KeyRule())
    if has_key and rule.pattern is None:
        _take_row_key(found, rule)
        found.key_fills -= _grown_names(columns, rule)
    return found


def _grown_names(columns: Mapping[str, Variable], rule: KeyRule) -> set[str]:
    """Which columns of the key grow: of these the length is written last; of others, values are."""
    sources = {name: columns.get(name) or columns.get(ROWS) for name in rule.names}
    return {name for name, column in sources.items() if column is not None and column.may_grow}


def _read_rows(
    group: Group, columns: Mapping[str, Variable], rule: KeyRule, rows: range
) -> FoundRows | None:
    """The same rows at once; None if they have to be read one by one."""
    if len(rows) == 1 or group.lost:
        return None
    try:
        read = [
            (value_name(_full_name(name, member)), cells)
            for name, variable in columns.items()
            for member, cells in variable.read_rows(rows).items()
        ]
    except (MemoryError, *Failures):
        return None
    has_key = rule.pattern is None and any(n in columns or ROWS in columns for n in rule.names)
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
        group.place,
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


def _file_key(rule: KeyRule, file_name: str) -> Key | None:
    if rule.pattern is None:
        return None
    return rule.checked(rule.pattern.key_of(PurePosixPath(file_name).stem))


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
