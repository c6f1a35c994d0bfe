"""Whatever a task returns, encoded: what can be stored, and a note of what cannot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedValueError
from .attribute_json import attribute_json, has_place, is_attribute_name, is_decoding
from .plain_values import plain_value
from .returned import Labelled, Returned
from .values import NOT_STORED, Array, ResultEncoder, free_name, schema_bytes, value_name

_LONG_NOTE = 1000


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
        values: dict[str, Any] = {}
        labels: list[list[Any]] = []
        refused: dict[str, str] = {}
        for name, labelled in found.items():
            try:
                value = plain_value(labelled.value)
                schema, _ = self._encoder.encode({name: value})
            except UnsupportedValueError as error:
                refused[name] = str(error)
                continue
            except Exception as error:  # of somebody else's class
                refused[name] = f"{name} is {type(labelled.value).__name__}: {error}"
                continue
            values[name] = value
            attributes, without_place = _attributes(
                labelled, is_time=json.loads(schema)[0][1][1] in "mM"
            )
            pairs = list(map(list, attributes.items()))
            labels.append([list(labelled.dims), pairs] if labelled.dims or pairs else [])
            for attribute in without_place:
                what = f"the attribute {attribute!r} of {name}"
                refused[what] = f"{what} is too long"
        note = _note(refused)
        if refused and not values:
            raise UnsupportedValueError(note)
        if refused:
            values[free_name(NOT_STORED, values, self._key_names)] = note
            labels.append([])
        if not values:  # all are None
            return EncodedResult(schema_bytes(()), b"")
        text = json.dumps(labels, separators=(",", ":")).encode() if any(labels) else b""
        return EncodedResult(*self._encoder.encode(values), text, note)


def _note(refused: Mapping[str, str]) -> str:
    """What is not stored, and why; if that is long, only the names of the others."""
    texts: list[str] = []
    for what, why in refused.items():
        is_long = sum(map(len, texts)) > _LONG_NOTE
        texts.append(f"{what} too" if is_long else why[:_LONG_NOTE])
    return "; ".join(texts)


def _attributes(labelled: Labelled, *, is_time: bool) -> tuple[dict[str, Any], list[str]]:
    """Attributes as records and outputs can have them: texts, numbers, arrays of these. And those
    that have no place there.
    """
    found: dict[str, Any] = {}
    without_place = []
    for key, given in labelled.attributes.items():
        name = str(key) if is_attribute_name(str(key)) else value_name(str(key))
        said = attribute_json(_attribute(given))
        # Not as it is, if readers would make other values of those that were returned.
        is_taken = name in found or is_decoding(name, said) or (is_time and name == "units")
        names = [f"{name}_", f"_{name}"] if is_taken else [name, f"{name}_", f"_{name}"]
        free = [one for one in names if one not in found and has_place(one, said)]
        if free:
            found[free[0]] = said
        else:
            without_place.append(str(key))
    return found, without_place


def _attribute(given: Any) -> Array:
    """What cannot be an attribute as it is, as a text."""
    if isinstance(given, bytes):  # a text, as h5py reads some
        given = given.decode("utf-8", "backslashreplace")
    try:
        value = np.asarray(plain_value(given))
    except Exception:  # lists of other lengths, somebody else's class
        value = np.asarray(None)
    if value.dtype.kind == "b":
        value = value.astype(int)
    if value.dtype.kind in "mM":
        value = value.astype(str)
    is_number = value.dtype.kind in "iufc" and value.dtype.char not in "gG"
    is_text = value.dtype.kind == "U" and _is_legal("".join(value.ravel().tolist()))
    if value.ndim <= 1 and value.size and (is_number or is_text):
        return value
    text = value.tolist() if is_number or value.dtype.kind == "U" else given
    if isinstance(text, np.ndarray):  # of which str would leave out the middle
        text = text.tolist()
    return np.asarray(str(text).encode("utf-8", "replace").decode().replace("\0", ""))


def _is_legal(text: str) -> bool:
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()
