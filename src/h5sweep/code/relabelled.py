"""Versions of the code and relabels: what a version says by the labels of today.

A version keeps the names, units and axes that it was run with, and knows by an id which relabel was
the last then. In an output it says as well what was relabelled since, up to the labels that the
output has, so that a copy of the output needs nothing beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.relabels import MARK, Relabels
from ..disk.inside_folder import parse_json
from ..errors import DamagedError
from .version import CodeVersion

_SINCE = "relabelled"  # under which a version says that: the relabels, and the id of the last


def relabels_since(version: CodeVersion, relabels: Relabels) -> Relabels:
    """What a version does not know yet: what it says itself, then what of these is later."""
    try:
        said = Relabels.from_json(version.about.get(_SINCE, {}))
        later = relabels.unknown_to({MARK: last_known(version)})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedError(f"a version of the code is damaged ({error})") from error
    return Relabels((*said.entries, *later.entries))


def last_known(version: CodeVersion) -> str | None:
    """The id of the last relabel that a version, or the output that it is from, knows."""
    known = version.about.get(_SINCE, version.about).get(MARK)
    return known if isinstance(known, str) else None


def by_labels_of_now(
    version: CodeVersion, relabels: Relabels, forms_now: Mapping[str, str]
) -> CodeVersion:
    """The version as it would be if it were run now, under the names, units and axes of today.

    Parameters that were added since have the forms that they have now.
    """
    since = relabels_since(version, relabels)
    forms = {name: form for name, form in forms_now.items() if name in since.added}
    facts = {
        **version.facts,
        **{what: labels_of_now(version, what, since) for what in ("units", "dims")},
        "forms": forms | since.key(version.facts["forms"], with_added=False),
    }
    about = {name: value for name, value in version.about.items() if name != MARK}
    return replace(version, facts=facts, about=about | relabels.about())


def is_unchanged(version: CodeVersion, now: CodeVersion) -> bool:
    """Whether all is as it was, also the names of its labels, whatever was relabelled since."""
    return replace(version, about=now.about).id == now.id


def labels_of_now(version: CodeVersion, what: str, since: Relabels) -> dict[str, Any]:
    """Units or dims as they were declared then, with what was relabelled since."""
    found = dict(version.facts[what])
    for entry in since.standing:
        found = entry.labels(found, getattr(entry, what))
    return found


def text_with_relabels(text: str, since: Relabels, known: Relabels) -> str:
    """What is said of a version where its rows have the labels of behind `since`.

    `known` are the relabels of the run folder that has these rows.
    """
    if not since and not known:
        return text
    said = {**parse_json(text), _SINCE: {**since.as_json(), **known.about()}}
    return json.dumps(said, indent=1) + "\n"
