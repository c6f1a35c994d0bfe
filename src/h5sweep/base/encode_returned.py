"""Whatever a task returns, encoded: what can be stored, and a note of what cannot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedValueError
from .attribute_json import attribute_json, has_place
from .returned import Labelled, Returned, plain_value
from .values import NOT_STORED, ResultEncoder, free_name, schema_bytes

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
            except UnsupportedValueError:
                pass  # some values are to be unfolded, converted or left out
        if result is None or (isinstance(result, dict) and not result):
            raise UnsupportedValueError(
                f"the task returned {'None' if result is None else 'an empty dict'}: return its "
                'results, for example {"layout": xy, "aep": aep}'
            )
        return self._encode(Returned(result, self._names, self._key_names).values)

    def _encode(self, found: dict[str, Labelled]) -> EncodedResult:
        values, refused = {}, []
        for name, labelled in found.items():
            value = plain_value(labelled.value)
            try:
                self._encoder.encode({name: value})
                values[name] = value
            except UnsupportedValueError as error:
                refused.append(str(error))
        note = "; ".join(refused)[:_LONGEST_NOTE]
        if refused and not values:
            raise UnsupportedValueError(note)
        if refused:
            values[free_name(NOT_STORED, values, self._key_names)] = note
        labels = [_labels_json(found[name]) if name in found else [] for name in values]
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
    for name, given in labelled.attributes.items():
        value = np.asarray(int(given) if isinstance(given, bool | np.bool_) else plain_value(given))
        if value.dtype.kind not in "iufcU" or value.dtype.char in "gG":
            value = np.asarray(str(given))
        if has_place(name, said := attribute_json(value)):
            yield name, said
