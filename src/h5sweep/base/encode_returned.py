"""Whatever a task returns, encoded: what can be stored, and a note of what cannot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedValueError
from .attribute_json import attribute_json, has_place, is_attribute_name, is_decoding
from .plain_values import plain_value
from .returned import Labelled, Returned
from .values import NOT_STORED, Array, ResultEncoder, free_name, schema_bytes, value_name

_LONGEST_NOTE = 1000


class EncodedResult(NamedTuple):
    """Schema, labels and data of a record; `not_stored` says of which values, and why."""

    schema: bytes
    data: bytes
    labels: bytes = b""
    not_stored: str = ""


class ReturnedEncoder:
    """Encodes results of any kind; `names` are what the function calls its results, if it does."""

    def __init__(self, key_names: Iterable[str] = (), names: Sequence[str] = ()) -> None:
        self._key_names, self._names = tuple(key_names), names
        self._encoder = ResultEncoder(self._key_names)

    def __call__(self, result: object) -> EncodedResult:
        """UnsupportedValueError if nothing of the result can be stored."""
        if type(result) is dict:
            try:
                return EncodedResult(*self._encoder.encode(result))
            except Exception:  # also one of somebody else's class
                pass  # some values are to be unfolded, converted or left out
        if result is None or (isinstance(result, dict | tuple) and not result):
            what = "None" if result is None else f"an empty {type(result).__name__}"
            raise UnsupportedValueError(
                f"the task returned {what}: return its "
                'results, for example {"layout": xy, "aep": aep}'
            )
        return self._encode(Returned(result, self._names, self._key_names).values)

    def _encode(self, found: dict[str, Labelled]) -> EncodedResult:
        values, refused = {}, []
        for name, labelled in found.items():
            try:
                value = plain_value(labelled.value)
                self._encoder.encode({name: value})
                values[name] = value
            except UnsupportedValueError as error:
                refused.append(str(error))
            except Exception as error:  # of somebody else's class
                refused.append(f"{name} is {type(labelled.value).__name__}: {error}")
        note = "; ".join(refused)[:_LONGEST_NOTE]
        if refused and not values:
            raise UnsupportedValueError(note)
        labels = [_labels_json(found[name]) for name in values]
        if refused:
            values[free_name(NOT_STORED, values, self._key_names)] = note
            labels.append([])
        if not values:  # all are None
            return EncodedResult(schema_bytes(()), b"")
        text = json.dumps(labels, separators=(",", ":")).encode() if any(labels) else b""
        return EncodedResult(*self._encoder.encode(values), text, note)


def _labels_json(labelled: Labelled) -> list[Any]:
    """The names of its axes, and its attributes as pairs; nothing if there are neither."""
    pairs = [[name, value] for name, value in _attributes(labelled)]
    return [list(labelled.dims), pairs] if labelled.dims or pairs else []


def _attributes(labelled: Labelled) -> Iterable[tuple[str, Any]]:
    """Attributes as records and outputs can have them: texts, numbers, arrays of these."""
    found: dict[str, Any] = {}
    for given_name, given in labelled.attributes.items():
        name = given_name if is_attribute_name(given_name) else value_name(given_name)
        said = attribute_json(_attribute(given))
        if is_decoding(name, said):  # readers would make other values of those that were returned
            name = f"{name}_"
        if has_place(name, said):
            found.setdefault(name, said)
    return found.items()


def _attribute(given: Any) -> Array:
    """What cannot be an attribute as it is, as a text."""
    try:
        value = np.asarray(int(given) if isinstance(given, bool | np.bool_) else plain_value(given))
    except Exception:  # lists of other lengths, somebody else's class
        value = np.asarray(None)
    is_number = value.dtype.kind in "iufc" and value.dtype.char not in "gG"
    is_text = value.dtype.kind == "U" and _is_legal("".join(value.ravel().tolist()))
    if value.ndim <= 1 and value.size and (is_number or is_text):
        return value
    text = value.tolist() if is_number or value.dtype.kind == "U" else given
    return np.asarray(str(text).encode("utf-8", "replace").decode().replace("\0", ""))


def _is_legal(text: str) -> bool:
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()
