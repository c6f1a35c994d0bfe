"""How the values of a result are encoded in the data of a record.

A result is a dict of named values; `returned` makes it of whatever a task returns. A value becomes
an array of one of these dtypes, little-endian, C order, arrays one after the other without gaps:

    int, uint, float, complex, bool of NumPy     its bytes
    datetime64, timedelta64                      int64 in the unit that the dtype names
    str                                          for each element: uint32 length, UTF-8 bytes

Python scalars are arrays of shape (). Whatever else raises UnsupportedValueError, which names the
value.
"""

from __future__ import annotations

import datetime
import json
import math
import re
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedValueError
from .plan import RESERVED_NAMES

STR = "str"
NOT_STORED = "not_stored"  # the note in a result on values that it lacks
VALUE = "value"  # what the values of a task are called that is a dataset

Array = npt.NDArray[Any]


class RecordCell(NamedTuple):
    """One named array of a result: what lies where in the data of its record."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_text(self) -> bool:
        return self.dtype == STR


ResultSchema = tuple[RecordCell, ...]


@dataclass(frozen=True, eq=False)
class RaggedRows:
    """Arrays of any shapes as the rows of one column, one behind the other."""

    elements: Array  # of all
    shapes: Array  # of each

    def __len__(self) -> int:
        return len(self.shapes)

    def ends(self) -> list[int]:
        """Where among the elements each array ends."""
        found: list[int] = np.cumsum(self.shapes.prod(axis=1)).tolist()
        return found


class ResultEncoder:
    """Turns results into the header and data of records; knows which names are the key's."""

    def __init__(self, key_names: Iterable[str] = ()) -> None:
        self._taken_names = frozenset(key_names) | RESERVED_NAMES
        self._schema_json: dict[tuple[Any, ...], bytes] = {}

    def encode(self, result: object) -> tuple[bytes, bytes]:
        """Return the schema of `result` as JSON and its arrays as bytes."""
        if type(result) is not dict and not isinstance(result, Mapping):
            raise UnsupportedValueError(
                f"the task returned {_describe(result)}; return a dict of named values, "
                'for example {"layout": xy, "aep": aep}'
            )
        parts: list[bytes] = []
        cells: list[Any] = []
        for name, value in result.items():
            dtype, shape, data = _encode_value(name, value)
            cells.append((name, dtype, shape))
            parts.append(data)
        return self._schema(tuple(cells)), b"".join(parts)

    def encode_rows(
        self, columns: Mapping[str, Array | RaggedRows]
    ) -> tuple[list[bytes], list[bytes]]:
        """The same for many results, each a row of all columns: the schemas and the data."""
        encoded = {name: _encode_column(name, values) for name, values in columns.items()}
        cells = [
            zip(repeat(name), repeat(encoded[name][0]), _shapes(values), strict=False)
            for name, values in columns.items()
        ]
        signatures = zip(*cells, strict=True)
        if any(isinstance(values, RaggedRows) for values in columns.values()):
            schemas = list(map(self._schema, signatures))
        else:
            rows = len(next(iter(columns.values())))
            schemas = [self._schema(next(signatures))] * rows
        return schemas, _join_rows([rows for _, rows in encoded.values()])

    def _schema(self, signature: tuple[Any, ...]) -> bytes:
        schema = self._schema_json.get(signature)
        if schema is None:
            schema = self._schema_json[signature] = self._new_schema(signature)
        return schema

    def _new_schema(self, signature: tuple[Any, ...]) -> bytes:
        if not signature:
            raise UnsupportedValueError(
                "the task returned an empty dict: return at least one named value"
            )
        for name, _, _ in signature:
            self._check_name(name)
        return schema_bytes(signature)

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise UnsupportedValueError(
                f"{name!r} cannot be the name of a result: use a Python identifier"
            )
        if name in self._taken_names:
            raise UnsupportedValueError(
                f"the result {name!r} has the name of a key or of a column that every output has; "
                "give it another name"
            )


@lru_cache(maxsize=4096)  # asked for every value of every task
def value_name(text: str, key_names: tuple[str, ...] = ()) -> str:
    """The name in a result for what another program calls `text`."""
    name = "".join(c if f"_{c}".isidentifier() else "_" for c in text) or "value"
    name = name if name.isidentifier() else f"_{name}"
    return f"{name}_" if name in RESERVED_NAMES or name in key_names else name


def free_name(text: str, taken: Container[str], key_names: tuple[str, ...] = ()) -> str:
    """The same; if another value has that name already, with a number behind it."""
    name = wanted = value_name(text, key_names)
    number = 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name


@lru_cache(maxsize=4096)
def naming_order(text: str) -> tuple[bool, str]:
    """Sorts those first that keep their names, so that all readers give the others the same."""
    is_kept = value_name(text) == text
    return not is_kept, "" if is_kept else text


def schema_bytes(cells: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Names, dtypes and shapes as they stand in the header of a record."""
    return json.dumps(tuple(cells), separators=(",", ":"), ensure_ascii=False).encode()


def result_header(schema: bytes, key: bytes, labels: bytes = b"") -> bytes:
    """Join the JSON of a result's schema, of its labels and of its task's key into the header of a
    record.
    """
    labels = b',"labels":' + labels if labels else b""
    return b'{"data":' + schema + labels + b',"key":' + key + b"}"


def schema_from_header(header: Mapping[str, Any]) -> ResultSchema:
    """Read the schema back from the parsed header of a record."""
    return tuple(RecordCell(name, dtype, tuple(shape)) for name, dtype, shape in header["data"])


def least_bytes(schema: ResultSchema) -> int:
    """How many bytes the data of such a record have, texts apart; ValueError if there are none."""
    size_bytes = 0
    for cell in schema:
        dtype = np.dtype("<u4" if cell.is_text else cell.dtype)  # a text has its length before it
        if dtype.hasobject or min(cell.shape, default=0) < 0:
            raise ValueError(f"{cell.name} is {cell.dtype} of shape {list(cell.shape)}")
        size_bytes += dtype.itemsize * math.prod(cell.shape)
    if size_bytes >= 1 << 63:
        raise ValueError("its stated size is far too large")
    return size_bytes


def decode_result(schema: ResultSchema, data: bytes | memoryview) -> dict[str, Array]:
    """Read the arrays of one result back from the data of its record."""
    result = {}
    position = 0
    for cell in schema:
        if cell.is_text:
            array, position = decode_text(data, position, cell.shape)
        else:
            dtype = np.dtype(cell.dtype)
            count = int(np.prod(cell.shape, dtype=np.int64))
            array = np.frombuffer(data, dtype, count, position).reshape(cell.shape)
            position += array.nbytes
        result[cell.name] = array
    return result


def encode_text(strings: Iterable[str], name: str) -> bytes:
    """Lay strings out one after the other, each behind its length."""
    parts = []
    for string in strings:
        encoded = _utf8(string, name)
        parts += [_LENGTH.pack(len(encoded)), encoded]
    return b"".join(parts)


def decode_text(
    data: bytes | memoryview, position: int, shape: tuple[int, ...]
) -> tuple[Array, int]:
    """Read strings back; return them as an object array, and where they end."""
    array = np.empty(shape, object)
    for index in np.ndindex(*shape):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        array[index] = str(data[position : position + length], "utf-8")
        position += length
    return array, position


def _encode_value(name: object, value: object) -> tuple[str, tuple[int, ...], bytes]:
    """Return dtype, shape and bytes; the commonest types first, because every task passes here."""
    kind = type(value)
    if kind is float:
        return "<f8", (), _FLOAT.pack(value)
    if kind is np.ndarray:
        return _encode_array(name, value)  # type: ignore[arg-type]  # kind is its exact type
    if kind is bool:
        return "|b1", (), b"\1" if value else b"\0"
    if kind is int:
        return _encode_int(name, value)  # type: ignore[arg-type]  # kind is its exact type
    if isinstance(value, str):
        return STR, (), encode_text([value], str(name))
    if isinstance(value, datetime.datetime):
        return _encode_datetime(name, value)
    return _encode_array(name, _as_array(name, value))


def _encode_int(name: object, value: int) -> tuple[str, tuple[int, ...], bytes]:
    if not -(2**63) <= value < 2**63:
        # Not its digits: Python refuses to print more than 4,300 of them.
        raise UnsupportedValueError(
            f"{name} is an int of {value.bit_length()} bits: the limit is 63"
        )
    return "<i8", (), _INT.pack(value)


def _encode_datetime(name: object, value: datetime.datetime) -> tuple[str, tuple[int, ...], bytes]:
    if hasattr(value, "to_datetime64"):
        # Of pandas: it has nanoseconds, and NaT.
        return _encode_array(name, np.asarray(value.to_datetime64()))
    if value.tzinfo is not None:
        try:
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
        except OverflowError as error:
            raise UnsupportedValueError(f"{name} is {value}: in UTC it has no year") from error
    return "<M8[us]", (), np.datetime64(value, "us").tobytes()


def _as_array(name: object, value: object) -> Array:
    if any(hasattr(value, label) for label in _LABELS):
        raise UnsupportedValueError(f"{name} is {_describe(value)}: its labels would be lost")
    if value is None:
        raise UnsupportedValueError(f"{name} is None: leave it out, or return a number such as nan")
    if isinstance(value, list | tuple) and has_labels(value):
        raise UnsupportedValueError(
            f"{name} is {_describe(value)}: names or labels in it would be lost; return what has "
            "these by a name of its own"
        )
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedValueError(f"{name} is a masked array: fill it, as {name}.filled(nan)")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise UnsupportedValueError(
            f"{name} is {_describe(value)} and cannot become an array ({error}); return parts of "
            "different lengths under different names"
        ) from error
    if isinstance(value, list | tuple) and any(isinstance(v, np.ma.MaskedArray) for v in value):
        raise UnsupportedValueError(f"{name} has masked arrays: fill them, as with filled(nan)")
    if array.dtype == object:
        raise UnsupportedValueError(f"{name} is {_describe(value)}: {_ADVICE}")
    if array.dtype.kind == "U" and not _is_all_text(value):
        # NumPy has turned numbers into text, which is never what was meant.
        raise UnsupportedValueError(
            f"{name} is {_describe(value)}: do not mix numbers and text in one list"
        )
    if is_other(array, value):
        raise UnsupportedValueError(
            f"{name} is {_describe(value)}: in one array, some of these would be other values; "
            "return values of different kinds under different names"
        )
    return array


def has_labels(values: Iterable[Any]) -> bool:
    """Whether objects in a list, or in lists inside it, have names or units beside their values."""
    kinds = set(map(type, values)) - _PLAIN
    return any(
        hasattr(kind, label)
        for kind in kinds - _LISTS
        for label in (*_LABELS, *_NAMES)
        if not issubclass(kind, datetime.datetime | datetime.timedelta)  # those of pandas have unit
    ) or (
        bool(kinds & _LISTS)
        and any(has_labels(one) for one in values if isinstance(one, list | tuple))
    )


def is_other(array: Array, value: object) -> bool:
    """Whether NumPy has made other values of those in a list: of ints beside floats, of times in
    several units or beside ints, of texts that end with NUL.
    """
    kind = array.dtype.kind
    if not isinstance(value, list | tuple) or kind not in "fcmMUS":
        return False
    if kind in "fc" and not (np.abs(array) >= EXACT).any():
        return False
    if kind in "mM":
        return not all(_is_time_within(np.asarray(item), array.dtype) for item in _items(value))
    items = np.asarray(value, object).ravel().tolist()
    if kind in "US":
        texts = (item for item in items if isinstance(item, str | bytes))
        return any(text[-1:] in ("\0", b"\0") for text in texts)
    return any(isinstance(item, int | np.integer) and int(item) != float(item) for item in items)


def _items(value: Iterable[Any]) -> Iterator[Any]:
    """What is in a list, and in lists inside it."""
    for item in value:
        if isinstance(item, list | tuple):
            yield from _items(item)
        else:
            yield item


def _is_time_within(item: Array, dtype: np.dtype[Any]) -> bool:
    back = item.astype(dtype).astype(item.dtype) == item
    return item.dtype.kind == dtype.kind and bool((back | np.isnat(item)).all())


def _is_all_text(value: object) -> bool:
    return all(isinstance(item, str) for item in np.asarray(value, object).ravel())


def _encode_array(name: object, array: Array) -> tuple[str, tuple[int, ...], bytes]:
    dtype = array.dtype
    known = _KNOWN_DTYPES.get(dtype)
    if known is None:
        if dtype.kind == "U":
            return STR, array.shape, encode_text(array.ravel().tolist(), str(name))
        text = _dtype_text(name, array)
        known = _KNOWN_DTYPES[dtype] = (text, text == dtype.str)
    text, is_stored_as_is = known
    return text, array.shape, (array if is_stored_as_is else array.astype(text)).tobytes()


def _encode_column(name: str, values: Array | RaggedRows) -> tuple[str, Array | list[bytes]]:
    """The dtype of a column, and the bytes of its rows: an array if all have as many."""
    array = values.elements if isinstance(values, RaggedRows) else values
    if array.dtype.kind == "U":
        return STR, [encode_text(row.reshape(-1).tolist(), name) for row in _rows(values)]
    dtype, _, data = _encode_array(name, array)
    size = len(data) // max(len(array), 1)
    if not isinstance(values, RaggedRows):
        return dtype, np.frombuffer(data, np.uint8).reshape(len(array), size)
    ends = [end * size for end in values.ends()]
    return dtype, [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _rows(values: Array | RaggedRows) -> Iterator[Array]:
    if not isinstance(values, RaggedRows):
        yield from values.reshape(len(values), math.prod(values.shape[1:]))
        return
    ends = values.ends()
    for start, end in zip([0, *ends], ends, strict=False):
        yield values.elements[start:end]


def _shapes(values: Array | RaggedRows) -> Iterator[tuple[int, ...]]:
    """The shape of each row."""
    if not isinstance(values, RaggedRows):
        return repeat(values.shape[1:], len(values))
    inner = values.elements.shape[1:]
    return ((*lengths, *inner) for lengths in values.shapes.tolist())


def _join_rows(parts: list[Array | list[bytes]]) -> list[bytes]:
    """Data of whole rows out of those of columns."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts):
        whole = np.concatenate(arrays, axis=1)
        size, data = whole.shape[1], whole.tobytes()
        return [data[row * size : (row + 1) * size] for row in range(len(whole))]
    lists = [part if isinstance(part, list) else [row.tobytes() for row in part] for part in parts]
    return [b"".join(row) for row in zip(*lists, strict=True)]


def _dtype_text(name: object, array: Array) -> str:
    """The little-endian dtype to store, or an error for what no other program could read."""
    dtype = array.dtype
    if dtype.kind in "biufcmM" and dtype.char not in "gG":
        text = dtype.newbyteorder("<").str
        if dtype.kind in "mM" and "[" not in text:
            raise UnsupportedValueError(f"{name} has no time unit: give it one, such as 'us'")
        return text
    raise UnsupportedValueError(f"{name} is an array of {dtype}: {_ADVICE}")


def _utf8(string: str, name: str) -> bytes:
    if "\0" in string:
        raise UnsupportedValueError(
            f"{name} contains a NUL character, which HDF5 text cannot store"
        )
    try:
        return string.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedValueError(f"{name} is not valid Unicode: {error}") from error


def _describe(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # the repr of somebody else's class, or an int of too many digits
        return type(value).__name__
    text = _ADDRESS.sub("", text)  # which would be another one each time
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{type(value).__name__} {text}"


EXACT = 2**53  # beyond, a float does not have every int
# Of xarray, pandas, named tuples, and packages for quantities: `returned` takes them apart.
_LABELS = ("dims", "iloc", "isna", "_fields", "magnitude", "unit")
_PLAIN = {bool, int, float, complex, str, bytes, type(None)}
_LISTS = {list, tuple}
_NAMES = ("keys", "__dataclass_fields__", "__attrs_attrs__")  # of what is made of named values
_ADVICE = "return numbers, bools, strings, a datetime, or NumPy arrays of such"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LENGTH = struct.Struct("<I")
_FLOAT = struct.Struct("<d")
_INT = struct.Struct("<q")
_KNOWN_DTYPES: dict[np.dtype[Any], tuple[str, bool]] = {}


def value_text(values: Array | None) -> str:
    """A value of any kind for people, with all its digits."""
    if values is None:
        return "nothing"
    found = values.tolist()
    if isinstance(found, bytes):
        return found.decode("utf-8", "backslashreplace")
    return str(found)


def plain_array(values: Array) -> Any:
    """An array as JSON can hold it: NaN is None, infinity a text, a time ISO 8601."""
    if values.dtype.kind in "mM":
        return values.astype(str).tolist()
    found = values.tolist()
    is_plain = values.dtype.kind not in "fc" or (
        values.dtype.kind == "f" and bool(np.isfinite(values).all())
    )
    return found if is_plain else _plain_float(found)


def _plain_float(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_float(one) for one in value]
    if isinstance(value, complex):
        return [_plain_float(value.real), _plain_float(value.imag)]
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else str(value)
