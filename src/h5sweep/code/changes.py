"""What differs between two versions of the code, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..base.key_objects import form_text
from .describe_value import is_code, value_text
from .version import CodeVersion

_TITLES = {
    "packages": "",
    "environment": "the environment variable ",
    "globals": "",
    "constants": "the constant ",
}
LABELS = ("units", "dims")


def change_texts(before: CodeVersion, now: CodeVersion) -> list[str]:
    """Each difference as a short sentence, but those of labels."""
    return [
        *_source_texts(before, now),
        *(text for about in _TITLES for text in fact_texts(about, before, now)),
        *_input_texts(before, now),
        *form_texts(before, now),
        *_setting_texts(before, now),
    ]


def fact_texts(about: str, before: CodeVersion, now: CodeVersion) -> Iterator[str]:
    """`the constant scale was 1 and is 7`, for each that differs."""
    title = _TITLES.get(about, f"{about}: ")
    for name, old, new in _differing(before.facts[about], now.facts[about]):
        if is_code(old) and is_code(new) and old["value"] == new["value"]:
            if before.digest == now.digest:  # else the source says it
                yield f"{title}{name} is another {new['type']} of the same name"
        elif old is _ABSENT:
            yield f"{title}{name} is new" + ("" if is_code(new) else f": {value_text(new)}")
        elif new is _ABSENT:
            yield f"{title}{name} is gone" + ("" if is_code(old) else f"; it was {value_text(old)}")
        else:
            yield f"{title}{name} was {value_text(old)} and is {value_text(new)}"


def _source_texts(before: CodeVersion, now: CodeVersion) -> Iterator[str]:
    old = {source.name: source.digest for source in before.sources}
    new = {source.name: source.digest for source in now.sources}
    for name, was, is_now in _differing(old, new):
        what = "is new" if was is _ABSENT else "is gone" if is_now is _ABSENT else "has changed"
        yield f"{name} {what}"


def _input_texts(before: CodeVersion, now: CodeVersion) -> Iterator[str]:
    for name, was, is_now in _differing(before.facts["inputs"], now.facts["inputs"]):
        what = "is new" if was is _ABSENT else "is gone" if is_now is _ABSENT else "has changed"
        yield f"the input {name} {what}"


def form_texts(before: CodeVersion, now: CodeVersion) -> Iterator[str]:
    """`kind was given to the function as Kind and is given as text`, for each that differs."""
    old, new = before.facts["forms"], now.facts["forms"]
    for name in sorted(old.keys() | new.keys()):
        was, is_now = form_text(old.get(name)), form_text(new.get(name))
        if was != is_now:
            yield f"{name} was given to the function as {was} and is given as {is_now}"


def _setting_texts(before: CodeVersion, now: CodeVersion) -> Iterator[str]:
    """Of calls in one script that was run by itself and is imported now, or the other way round.

    Of another script its source says it.
    """
    old, new = set(before.not_in_workers), set(now.not_in_workers)
    for name in sorted(old ^ new) if before.digest == now.digest else ():
        texts = ("was", "is not") if name in new else ("was not", "is")
        yield f"{name} {texts[0]} done in workers and {texts[1]} now"
    for name, was, is_now in _differing(before.facts["settings"], now.facts["settings"]):
        if isinstance(was, dict) or isinstance(is_now, dict):  # of how it calculates
            yield f"{name} was {_arithmetic_text(was)} and is {_arithmetic_text(is_now)}"


def _arithmetic_text(values: object) -> str:
    return value_text(values) if isinstance(values, dict) else "as usual"


_ABSENT = object()


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(old.keys() | new.keys()):
        before, now = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before is _ABSENT or now is _ABSENT or _text(before) != _text(now):
            yield name, before, now


def _text(described: Any) -> str:
    return json.dumps(described, sort_keys=True)  # in which 1 is not true, nor 1.0
