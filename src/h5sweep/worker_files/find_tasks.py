"""Where the tasks of a file are, by their key: `check`, `merge`, `salvage` and `clean` ask here.

A file is seen as groups with attributes and datasets, whichever reader lists them. A task is

    a group         whose path fits the pattern, or whose attributes or single values are the key;
                    all that lies in it belongs to it
    a dataset       whose path fits the pattern, if no group and not the file's own name does
    a row           of columns, or of compounds, that have the key
    the whole file  if its own name has the key, or its root has and nothing else, and it has data

What is in none of them belongs to no task.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Generic, Protocol, TypeVar

from ..base.key_rule import KeyRule

ROWS = ""  # what a dataset of compounds is called among the columns of its table


class Shaped(Protocol):
    """What of a dataset says whether it is a column."""

    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def may_grow(self) -> bool: ...
    @property
    def fields(self) -> Collection[str]:
        """The names of a compound's members, if it is a row of compounds; else nothing."""


class ListedGroup(Protocol):
    """A group as a reader lists it."""

    @property
    def path(self) -> str: ...
    @property
    def variables(self) -> Mapping[str, Any]: ...
    @property
    def lost(self) -> Mapping[str, str]:
        """Names that lead nowhere, and why."""

    @property
    def parent(self) -> Any: ...


G = TypeVar("G", bound=ListedGroup)
K = TypeVar("K")
_G = TypeVar("_G", bound=ListedGroup, contravariant=True)
_K = TypeVar("_K", covariant=True)


class KeyReader(Protocol[_G, _K]):
    """How a reader makes a key of what is in a file."""

    def key_in_name(self, path: str, group: _G | None) -> _K | None:
        """The key in the path of a group, or of a dataset in it, or of the file (None)."""

    def key_in_content(self, group: _G) -> _K | None:
        """The key in the attributes of a group, or in single values in it."""


@dataclass(frozen=True)
class Table(Generic[G]):
    """Columns of a group, or a dataset of compounds in it, that have a key in each row."""

    group: G
    columns: Mapping[str, Any]  # of compounds: these, under ROWS
    name: str = ""  # of that dataset

    @property
    def path(self) -> str:
        return path_in(self.group, self.name) if self.name else self.group.path

    @property
    def lost(self) -> Mapping[str, str]:
        """Names of columns that lead nowhere, and why."""
        return {} if self.name else self.group.lost


@dataclass
class Where(Generic[G, K]):
    """Where the tasks of a file are."""

    groups: dict[G, K] = field(default_factory=dict)
    begun: dict[G, K] = field(default_factory=dict)  # with a key but no data, where others have it
    tables: list[Table[G]] = field(default_factory=list)
    file: K | None = None
    datasets: dict[tuple[G, str], K] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.groups or self.tables or self.datasets or self.file is not None)

    def task_of(self, group: G) -> G | None:
        """The group of a task that this one is or lies in."""
        return _nearest(group, self.groups)

    def strays(self, groups: Iterable[G]) -> Iterator[tuple[G, str]]:
        """The datasets that belong to no task, if there are any tasks."""
        if not self or self.file is not None:
            return
        inside = {(table.group, name) for table in self.tables for name in _names_of(table)}
        for group in groups:
            if self.task_of(group) is None:
                names = ((group, name) for name in group.variables)
                yield from (one for one in names if one not in inside and one not in self.datasets)


def locate_tasks(
    groups: Sequence[G], rule: KeyRule, file_path: str, reader: KeyReader[G, K]
) -> Where[G, K]:
    """Where the tasks of a file are; nowhere if none has a key."""
    columns = _find_columns(groups, rule.names)
    keyed = _keyed_groups(groups, rule, reader, columns)
    has_data = any(group.variables or group.lost for group in groups)
    if not keyed and rule.pattern and has_data:
        stem = str(PurePosixPath(file_path).with_suffix(""))
        if (key := reader.key_in_name(stem, None)) is not None:
            return Where(file=key)
        if named := _named_datasets(groups, reader):
            return Where(datasets=named)
    outside = [group for group in groups if _nearest(group, keyed) is None]
    tables = [t for g in outside for t in _tables_in(g, columns.get(g, {}), rule.names)]
    if keyed or tables:
        begun = _begun_groups(groups, keyed)
        return Where({g: k for g, k in keyed.items() if g not in begun}, begun, tables)
    root = next((group for group in groups if group.path == "/" and has_data), None)
    has_names = root is not None and rule.names and not rule.pattern
    return Where(file=reader.key_in_content(root) if root and has_names else None)


def _keyed_groups(
    groups: Sequence[G], rule: KeyRule, reader: KeyReader[G, K], tables: Container[G]
) -> dict[G, K]:
    """The groups with a key, none within another.

    A pattern is about names; only where the name itself is lost, the content tells as much.
    """
    found: dict[G, K] = {}
    for group in groups:
        key = None
        if rule.pattern and group.path not in ("", "/"):
            key = reader.key_in_name(group.path, group)
        elif rule.names and group.path != "/" and group not in tables:
            key = reader.key_in_content(group)
        if key is not None:
            found[group] = key
    return {g: key for g, key in found.items() if _nearest(g.parent, found) is None}


def _begun_groups(groups: Sequence[G], keyed: dict[G, K]) -> dict[G, K]:
    """The groups with a key whose writer came to no result: they have no data, others have."""
    having = {_nearest(group, keyed) for group in groups if group.variables or group.lost}
    return {g: key for g, key in keyed.items() if g not in having} if having - {None} else {}


def _nearest(group: Any, groups: Mapping[G, object]) -> G | None:
    """The group itself or the next one above that is among `groups`."""
    for _ in range(64):  # the links of a damaged file may go round in a circle
        if group is None or group in groups:
            return group  # type: ignore[no-any-return]  # it is a key of `groups`
        group = group.parent
    return None


def _tables_in(group: G, columns: Mapping[str, Any], names: Sequence[str]) -> Iterator[Table[G]]:
    compounds = {n: v for n, v in group.variables.items() if names and set(names) <= {*v.fields}}
    if own := {n: v for n, v in columns.items() if n not in compounds}:
        yield Table(group, own)
    for name, variable in compounds.items():
        yield Table(group, {ROWS: variable}, name)


def _find_columns(groups: Sequence[G], names: Sequence[str]) -> dict[G, dict[str, Any]]:
    """The columns of each group that has the key among them.

    A single row that cannot grow is the values of its group, unless that is the root, or the only
    one of the kind in its file and not numbered.
    """
    found = {group: columns for group in groups if (columns := _columns_of(group, names))}
    single = {g for g, columns in found.items() if g.path != "/" and _is_single(columns, names)}
    if len(single) > 1 or any(letter.isdigit() for group in single for letter in group.path):
        return {group: columns for group, columns in found.items() if group not in single}
    return found


def _is_single(columns: Mapping[str, Any], names: Sequence[str]) -> bool:
    keys = [columns[name] for name in names if name in columns]
    return all(key.shape == (1,) for key in keys) and not all(key.may_grow for key in keys)


def _columns_of(group: ListedGroup, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a group, if the key is among them; else nothing.

    Columns that grow do so together; others are of one length. If they have a single row that
    cannot grow, all else in the group has one too.
    """
    variables = group.variables
    if not names or not set(names) <= variables.keys() | group.lost.keys():
        return {}
    keys: list[Shaped] = [variables[name] for name in names if name in variables]
    if any(len(key.shape or ()) != 1 for key in keys):
        return {}
    grow, lengths = all(key.may_grow for key in keys), {key.shape[0] for key in keys if key.shape}
    fitting = {
        name: variable
        for name, variable in variables.items()
        if variable.shape and (variable.shape[0] in lengths or (grow and variable.may_grow))
    }
    is_even = len(lengths) == 1 and (lengths != {1} or len(fitting) == len(variables))
    return fitting if grow or is_even else {}


def _named_datasets(groups: Sequence[G], reader: KeyReader[G, K]) -> dict[tuple[G, str], K]:
    found = {}
    for group in groups:
        for name in group.variables:
            if (key := reader.key_in_name(path_in(group, name), group)) is not None:
                found[group, name] = key
    return found


def _names_of(table: Table[G]) -> Iterable[str]:
    return [table.name] if table.name else table.columns


def path_in(group: ListedGroup, name: str) -> str:
    """The path of something in a group."""
    return f"{group.path.rstrip('/')}/{name}"
