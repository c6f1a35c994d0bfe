"""Names, units and axes that were changed after results were there. Pure.

Files keep what they were written with. Each says by an id which relabel was the last that it knows,
and those after it are applied when it is read; values are never touched.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from .plan import (
    CODES,
    Key,
    Plan,
    PlanColumn,
    Value,
    check_names,
    checked_value,
    key_text,
)

MARK = "relabel"  # under which a file says which one it knows
Change = tuple[Any, Any]  # from what to what; None for none
T = TypeVar("T")


@dataclass(frozen=True)
class Relabel:
    """What one command has changed, in this order; `units` and `dims` are by the new names."""

    id: str
    time: str
    drop: Key = field(default_factory=dict)  # parameters, of which all tasks had this value
    rename: dict[str, str] = field(default_factory=dict)  # of parameters and results
    add: Key = field(default_factory=dict)
    sweep: Change | None = None
    units: dict[str, Change] = field(default_factory=dict)
    dims: dict[str, Change] = field(default_factory=dict)
    undoes: str = ""  # the id of another
    also: tuple[str, ...] = ()  # ids, from other run folders, of files that were there before it

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Relabel:
        """KeyError, TypeError, ValueError or AttributeError if it is none."""
        found = cls(
            value["id"],
            value["time"],
            drop=dict(value["drop"]),
            rename=dict(value["rename"]),
            add=dict(value["add"]),
            sweep=value["sweep"] and _change(value["sweep"], str),
            units={name: _change(change, str) for name, change in value["units"].items()},
            dims={name: _change(change, list) for name, change in value["dims"].items()},
            undoes=value["undoes"],
            also=tuple(value["also"]),
        )
        texts = (found.id, found.time, found.undoes, *found.also, *found.rename)
        axes = [axis for change in found.dims.values() for axes in change for axis in axes or ()]
        if not all(isinstance(text, str) for text in (*texts, *axes)):
            raise TypeError("it has something else in the place of a text")
        check_names([*found.rename.values(), *found.add])
        for name, label in (*found.add.items(), *found.drop.items()):
            checked_value(name, label)
        return found

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def inverse(self, new_id: str, time: str) -> Relabel:
        """What takes all of it back."""
        names = {new: old for old, new in self.rename.items()}
        return Relabel(
            new_id,
            time,
            drop=self.add,
            rename=names,
            add=self.drop,
            sweep=self.sweep and _swapped(self.sweep),
            units={names.get(n, n): _swapped(change) for n, change in self.units.items()},
            dims={names.get(n, n): _swapped(change) for n, change in self.dims.items()},
            undoes=self.id,
        )

    def name_before(self, name: str) -> str:
        """What a column was called before it."""
        return next((old for old, new in self.rename.items() if new == name), name)

    def asks_the_same(self, other: Relabel) -> bool:
        """Whether both lead to the same names, units and axes."""
        return self._aims == other._aims

    @property
    def _aims(self) -> tuple[object, ...]:
        # 1, 1.0 and True are equal, and are three types.
        keys = [[(n, type(v), v) for n, v in sorted(key.items())] for key in (self.drop, self.add)]
        changes = [{n: after for n, (_, after) in it.items()} for it in (self.units, self.dims)]
        return keys, self.rename, self.sweep and self.sweep[1], changes

    def texts(self) -> Iterator[str]:
        """What it did, for people."""
        if self.drop:
            yield f"without {key_text(self.drop)}"
        yield from (f"{old} is {new}" for old, new in self.rename.items())
        yield from (f"{name}={value} in all rows there are" for name, value in self.add.items())
        if self.sweep:
            yield f"the sweep is {self.sweep[1]}"
        for what, changes in (("units", self.units), ("dims", self.dims)):
            yield from (f"{what} of {n}: {_label(after)}" for n, (_, after) in changes.items())

    def key(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """A key, or key columns, with the new names, and the values that were added."""
        kept = {name: value for name, value in key.items() if name not in self.drop}
        return {**self.add, **self.named(kept)}

    def named(self, by_name: Mapping[str, T]) -> dict[str, T]:
        """A mapping by the new names; one that has a new name already keeps what it has."""
        renamed = {self.rename.get(name, name): value for name, value in by_name.items()}
        return renamed if len(renamed) == len(by_name) else dict(by_name)

    def plan(self, plan: Plan) -> Plan:
        """The same tasks under the same numbers."""
        columns = {column.name: column for column in plan.columns}
        kept = {name: column for name, column in columns.items() if name not in self.drop}
        renamed = [replace(column, name=name) for name, column in self.named(kept).items()]
        missing = {n: v for n, v in self.add.items() if n not in {c.name for c in renamed}}
        added = [_same_in_all(name, value, len(plan)) for name, value in missing.items()]
        return Plan((*renamed, *added), plan.id, plan.earlier)

    def sweep_facts(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """What sweep.json says, in other words."""
        found = dict(about)
        if self.sweep and found.get("name") == self.sweep[0]:
            found["name"] = self.sweep[1]
        for what, changes in (("units", self.units), ("dims", self.dims)):
            found[what] = self.labels(found.get(what) or {}, changes)
        found["attributes"] = self.attributes(found.get("attributes") or {})
        return found

    def labels(self, by_name: Mapping[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
        """Units or axes as they are now called."""
        found = {**self.named(by_name), **{n: after for n, (_, after) in changes.items()}}
        return {name: label for name, label in found.items() if label is not None}

    def returned(self, name: str, axes: list[str], pairs: list[list[Any]]) -> list[Any]:
        """What a task has said of a value, with the unit and the axes that it has now."""
        _, unit = self.units.get(name, (None, None))
        if name in self.units:
            pairs = [[n, unit if n == "units" else v] for n, v in pairs if n != "units" or unit]
        _, new_axes = self.dims.get(name, (None, axes))
        return [(new_axes or []) if axes else axes, pairs]

    def attributes(self, by_name: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Attributes of columns; units that were changed are said elsewhere."""
        return {
            name: {k: v for k, v in about.items() if k != "units" or name not in self.units}
            for name, about in self.named(by_name).items()
        }


@dataclass(frozen=True)
class Relabels:
    """What has been changed, or what of it a file does not know yet; the oldest first."""

    entries: tuple[Relabel, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries)

    def taken_back(self) -> Relabels:
        """What makes labels of now those of before all of these."""
        return Relabels(tuple(entry.inverse("", "") for entry in reversed(self.entries)))

    def about(self) -> dict[str, str]:
        """What a file says that is written now."""
        return {MARK: self.entries[-1].id} if self.entries else {}

    def unknown_to(self, about: Mapping[str, Any] | None) -> Relabels:
        """Those that a file does not know which says this; none if it is of another run folder."""
        known = (about or {}).get(MARK)
        if not isinstance(known, str):
            return self
        for place in reversed(range(len(self.entries))):
            if self.entries[place].id == known:
                return Relabels(self.entries[place + 1 :])
            if known in self.entries[place].also:
                return Relabels(self.entries[place:])
        return Relabels()

    def knows(self, known: str) -> bool:
        """Whether an id is that of one of these, or has its place among them."""
        return any(known == entry.id or known in entry.also for entry in self.entries)

    @property
    def standing(self) -> list[Relabel]:
        """Those that were not taken back among these, nor take one of these back."""
        undone = {entry.undoes for entry in self.entries} - {""}
        ids = {entry.id for entry in self.entries}
        return [e for e in self.entries if e.id not in undone and e.undoes not in ids]

    def last_to_undo(self) -> Relabel | None:
        """The last one that was not taken back, and takes none back itself."""
        undone = {entry.undoes for entry in self.entries}
        left = [e for e in self.entries if not e.undoes and e.id not in undone]
        return left[-1] if left else None

    @cached_property
    def names(self) -> dict[str, str]:
        """The new name of each column that has one, by its name in the file."""
        found: dict[str, str] = {}
        for entry in self.entries:
            # A name that was given by one of these was no column's before.
            first = {old: new for old, new in entry.rename.items() if old not in found.values()}
            found = {old: entry.rename.get(new, new) for old, new in found.items()} | first
        return {old: new for old, new in found.items() if old != new}

    @property
    def added(self) -> set[str]:
        """The parameters that were added, by the names they have now."""
        found: set[str] = set()
        for entry in self.entries:
            found = {entry.rename.get(name, name) for name in found - entry.drop.keys()}
            found |= entry.add.keys()
        return found

    def key(self, key: Mapping[str, Any], *, with_added: bool = True) -> dict[str, Any]:
        """A key, or what else there is by parameter, as it is called now."""
        found = dict(key)
        for entry in self.entries:
            found = (entry if with_added else replace(entry, add={})).key(found)
        return found

    def header(self, header: dict[str, Any]) -> dict[str, Any]:
        """The header of a record."""
        if isinstance(header.get("key"), dict):
            header = {**header, "key": self.key(header["key"])}
        if "data" in header:
            names = self.cell_names([name for name, _, _ in header["data"]])
            cells = [[new, *cell[1:]] for new, cell in zip(names, header["data"], strict=True)]
            said, before = header.get("labels", ()), header["data"]
            header = {**header, "data": cells}
            if any(said):
                known = self.returned(
                    {cell[0]: label for cell, label in zip(before, said, strict=True)}
                )
                header["labels"] = [known.get(name, []) for name in names]
        return header

    def returned(self, by_name: dict[str, Any]) -> dict[str, Any]:
        """What a task has said of its values, `[axes, [[attribute, value], …]]`, as it is now."""
        for entry in self.standing:
            by_name = entry.named(by_name)
            for name, label in by_name.items():
                if label:
                    by_name[name] = entry.returned(name, *label)
        return by_name

    def cell_names(self, names: list[str]) -> list[str]:
        """The new names of one result's values; as they are, if one has a new name already."""
        renamed = [self.names.get(name, name) for name in names]
        return renamed if len(set(renamed)) == len(names) else names

    def column_names(self, names: list[str]) -> list[str]:
        """The same for the columns of an output: of two, one taken back may make one."""
        if any(entry.undoes for entry in self.entries):
            return [self.names.get(name, name) for name in names]
        return self.cell_names(names)

    def plan(self, plan: Plan) -> Plan:
        for entry in self.entries if plan.columns else ():
            plan = entry.plan(plan)
        return plan

    def sweep_facts(self, about: dict[str, Any]) -> dict[str, Any]:
        for entry in self.entries:
            about = entry.sweep_facts(about)
        return about

    def attributes(self, by_name: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for entry in self.entries:
            by_name = entry.attributes(by_name)
        return by_name

    def dims(self, by_name: dict[str, list[str]]) -> dict[str, list[str]]:
        for entry in self.entries:
            by_name = entry.labels(by_name, entry.dims)
        return by_name

    def as_json(self) -> dict[str, Any]:
        return {"relabels": [entry.as_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Relabels:
        """KeyError, TypeError, ValueError or AttributeError if it is none."""
        return cls(tuple(map(Relabel.from_json, value.get("relabels", ()))))


def _same_in_all(name: str, value: Value, tasks: int) -> PlanColumn:
    return PlanColumn(name, type(value).__name__, (value,), array(CODES, [0]) * tasks)


def _change(value: Iterable[Any], kind: type) -> Change:
    before, after = value
    if not all(label is None or isinstance(label, kind) for label in (before, after)):
        raise TypeError(f"it changes {before!r} to {after!r}")
    return before, after


def _swapped(change: Change) -> Change:
    return change[1], change[0]


def _label(value: str | list[str] | None) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else ", ".join(value)
