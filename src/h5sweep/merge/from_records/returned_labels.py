"""What tasks have said of their results: the names of axes, units, other attributes.

A label is one of a column if all its rows have it. One that differs between rows is none, and a
note says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...base.attribute_json import attribute_text
from ...output.record_forms import Axes, Label, RowStructure

_MOST_SHOWN = 3
Cells = Iterable[tuple[RowStructure, tuple[Label, ...]]]
KeptLabels = dict[str, tuple[Axes, dict[str, Any]]]


@dataclass
class ReturnedLabels:
    """The labels of columns, by their names; `notes` are sentences for the user.

    `returned` names the attributes that come from tasks alone.
    """

    attributes: dict[str, dict[str, Any]]
    units: dict[str, str]
    dims: dict[str, list[str]]
    returned: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def with_returned_labels(
    cells: Cells,
    kept: KeptLabels,
    sweep: Mapping[str, Any],
) -> ReturnedLabels:
    """What is known of columns, and what tasks have said of their results.

    `kept` has the axes of results of which the old output has rows that stay, and what tasks have
    said of these.
    """
    attributes, units, dims = (sweep.get(name) or {} for name in ("attributes", "units", "dims"))
    found = ReturnedLabels({n: dict(a) for n, a in attributes.items()}, dict(units), dict(dims))
    said_of = _said(cells)
    for name in {**said_of, **kept}:
        said = said_of.get(name, [])
        if name in kept:
            axes, returned = kept[name]
            is_said = any(axes or about for axes, about in said)
            known = found.attributes.get(name, {}) if is_said else {}
            said.append(
                (axes, {**known, **(_declared(name, units) if is_said else {}), **returned})
            )
        if not any(axes or about for axes, about in said):
            continue
        _take_attributes(found, name, [about for _, about in said])
        _take_axes(found, name, {axes for axes, _ in said})
    return found


def _said(cells: Cells) -> dict[str, list[tuple[tuple[str, ...], dict[str, Any]]]]:
    """Axes and attributes by result, each combination that rows have once."""
    found: dict[str, dict[Label, None]] = {}
    for structure, labels in cells:
        for place, (name, *_) in enumerate(structure):
            label = labels[place] if place < len(labels) else ((), "")
            found.setdefault(name, {})[label] = None
    return {
        name: [(axes, json.loads(about) if about else {}) for axes, about in labels]
        for name, labels in found.items()
    }


def _declared(name: str, units: Mapping[str, str]) -> dict[str, str]:
    return {"units": units[name]} if name in units else {}


def _take_attributes(found: ReturnedLabels, name: str, said: list[dict[str, Any]]) -> None:
    known = found.attributes.setdefault(name, {})
    for attribute in dict.fromkeys(key for about in said for key in about):
        values = {json.dumps(about.get(attribute), sort_keys=True) for about in said}
        if len(values) == 1:
            if attribute not in known:
                found.returned.setdefault(name, []).append(attribute)
            known[attribute] = value = said[0][attribute]
            declared = found.units.get(name) if attribute == "units" else None
            if declared is not None and declared != value:
                found.notes.append(
                    f"{name} is returned in {attribute_text(value)}, and the study declares "
                    f"{declared}: the column says {attribute_text(value)}"
                )
                del found.units[name]
            continue
        known.pop(attribute, None)
        texts = [attribute_text(json.loads(value)) for value in sorted(values) if value != "null"]
        shown = ", ".join(map(repr, texts[:_MOST_SHOWN])) + (
            ", …" if len(texts) > _MOST_SHOWN else ""
        )
        some = " in some tasks, and none in others" if "null" in values else ""
        found.notes.append(
            f"the attribute {attribute} of {name} differs between tasks ({shown}{some}): the "
            "column has none"
        )


def _take_axes(found: ReturnedLabels, name: str, said: set[tuple[str, ...]]) -> None:
    named = said - {()}
    if len(named) == 1 and (len(said) == 1 or found.dims.get(name, []) in map(list, named)):
        (axes,) = named
        if found.dims.get(name, list(axes)) != list(axes):
            found.notes.append(
                f"the axes of {name} are returned as {', '.join(axes)}, and the study declares "
                f"{', '.join(found.dims[name])}: the column has {', '.join(axes)}"
            )
        found.dims[name] = list(axes)
    elif named:
        orders = " and ".join(sorted(", ".join(axes) for axes in named))
        orders += " in some, and none in others" if () in said else ""
        found.notes.append(f"the axes of {name} are not the same in all tasks ({orders})")
        found.dims.pop(name, None)
