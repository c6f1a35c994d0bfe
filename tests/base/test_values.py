"""Values: what a task returned comes back to the last bit, or is refused by name."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from h5sweep.base.plan import key_json
from h5sweep.base.values import (
    RESERVED_NAMES,
    Array,
    ResultEncoder,
    decode_result,
    result_header,
    schema_from_header,
)
from h5sweep.errors import UnsupportedValueError


def stored(result: Mapping[str, object]) -> dict[str, Array]:
    """What is read back from a record with this result."""
    schema, data = ResultEncoder(["seed"]).encode(result)
    header = json.loads(result_header(schema, key_json({"seed": 1}).encode()))
    assert header["key"] == {"seed": 1}
    return decode_result(schema_from_header(header), memoryview(data))


def assert_same(read: Array, array: Array) -> None:
    """The same shape, values and bits; the byte order may differ."""
    assert read.shape == array.shape
    if array.dtype.kind == "U":
        assert read.tolist() == array.tolist()
    else:
        assert read.dtype == array.dtype.newbyteorder("<")
        assert read.tobytes() == array.astype(read.dtype).tobytes()


NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]
TIMES = [f"{kind}8[{unit}]" for kind in "mM" for unit in ("D", "h", "s", "ms", "us", "ns", "25s")]


@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("dtype", NUMBERS + TIMES)
def test_every_dtype_comes_back(dtype: str, byte_order: str) -> None:
    """An array of any stored dtype and byte order comes back bit for bit."""
    native = np.arange(6).astype(np.dtype(dtype).newbyteorder("<")).reshape(2, 3)
    array = native.astype(np.dtype(dtype).newbyteorder(byte_order))
    assert_same(stored({"x": array})["x"], native)


BASE = np.arange(24.0).reshape(2, 3, 4)
LAYOUTS = {
    "C order": BASE,
    "Fortran order": np.asfortranarray(BASE),
    "transposed": BASE.T,
    "strided": BASE[:, ::2, 1::2],
    "reversed": BASE[::-1, :, ::-1],
    "broadcast": np.broadcast_to(np.arange(3.0), (2, 3)),
    "0-d": np.array(0.5),
    "a scalar of NumPy": np.float32(0.5),
    "empty": np.empty((0,)),
    "empty, 3-d": np.empty((2, 0, 3), "i2"),
    "read-only": np.frombuffer(b"12345678", "i4"),
    "unaligned": np.frombuffer(b"x12345678", "i4", offset=1),
    "text": np.array([["a", "ü"], ["", "\u20ac"]]),
    "text, Fortran order": np.asfortranarray(np.array([["a", "b"], ["c", "d"]])),
    "text, big-endian": np.array(["a", "bc"], ">U2"),
    "text, empty": np.empty((0, 2), "U1"),
    "text, 0-d": np.array("x"),
    "special floats": np.array([math.nan, -0.0, math.inf, -math.inf, 5e-324]),
    "NaN with a payload": np.array([0x7FF8_0000_DEAD_BEEF], "u8").view("f8"),
    "not a time": np.array(["NaT", "2020-01-01"], "M8[us]"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_in_memory_comes_back(name: str) -> None:
    """However an array lies in memory, its values come back in their places."""
    array = np.asarray(LAYOUTS[name])
    assert_same(stored({"x": LAYOUTS[name]})["x"], array)


def test_arrays_lie_one_after_the_other() -> None:
    """Several values of one result do not mix, whatever their sizes."""
    result = {f"n{place}": array for place, array in enumerate(LAYOUTS.values())}
    read = stored(result)
    assert list(read) == list(result)
    for name, array in result.items():
        assert_same(read[name], np.asarray(array))


UTC = datetime.UTC
CET = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 250_001)


@pytest.mark.parametrize(
    ("value", "array"),
    [
        (True, np.array(True)),
        (False, np.array(False)),
        (0, np.array(0, "i8")),
        (2**63 - 1, np.array(2**63 - 1, "i8")),
        (-(2**63), np.array(-(2**63), "i8")),
        (0.1, np.array(0.1)),
        (-0.0, np.array(-0.0)),
        (math.nan, np.array(math.nan)),
        (1 + 2j, np.array(1 + 2j)),
        ("", np.array("")),
        ("Blåvand \N{WIND BLOWING FACE}", np.array("Blåvand \N{WIND BLOWING FACE}")),
        (np.str_("a"), np.array("a")),
        (NOON, np.array(NOON, "M8[us]")),
        (NOON.replace(tzinfo=UTC), np.array(NOON, "M8[us]")),
        (NOON.replace(tzinfo=CET), np.array(NOON - datetime.timedelta(hours=1), "M8[us]")),
        (pd.Timestamp(1), np.array(1, "M8[ns]")),
        (pd.Timestamp(1, tz="Europe/Berlin"), np.array(1, "M8[ns]")),
        (np.timedelta64(3, "m"), np.array(3, "m8[m]")),
        ([1, 2], np.array([1, 2], "i8")),
        ((0.5, 1), np.array([0.5, 1.0])),
        ([[True], [False]], np.array([[True], [False]])),
        ([], np.array([])),
        (["a", "bc"], np.array(["a", "bc"])),
        ([["a"], ["bc"]], np.array([["a"], ["bc"]])),
        (range(3), np.arange(3)),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], np.array([[1.0, 2.0], [3.0, 4.0]])),
    ],
    ids=repr,
)
def test_python_values_become_arrays(value: object, array: Array) -> None:
    """Scalars, texts, times and lists of Python are stored as the arrays they stand for."""
    assert_same(stored({"x": value})["x"], array)


def test_not_a_time_of_pandas_is_not_a_time() -> None:
    """NaT of pandas comes back as NaT."""
    assert np.isnat(stored({"x": pd.NaT})["x"])


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "None"),
        (object(), "object"),
        (NoRepr(), "NoRepr"),
        ([[1, 2], [3]], "cannot become an array"),
        ([1, None], "list"),
        ([1, "a"], "numbers and text"),
        (b"abc", "S3"),
        (np.array([b"a"]), "S1"),
        (np.longdouble(1), "longdouble|float128"),
        (np.clongdouble(1), "longdouble|complex256"),
        (np.array([{}]), "object"),
        (np.array([(1, 2.0)], "i4,f8"), "f0"),
        ({"a": 1}, "dict"),
        ({1, 2}, "set"),
        (2**63, "int of 64 bits"),
        (10**5000, "int of 16610 bits"),
        ([2**64], "list"),
        ([10**5000], "list"),
        ("a\0b", "NUL"),
        (["a", "b\0c"], "NUL"),
        ("\ud800", "Unicode"),
        (np.datetime64("NaT"), "time unit"),
        (np.timedelta64(3), "time unit"),
        (datetime.date(2020, 1, 1), "date"),
        (datetime.datetime(1, 1, 1, tzinfo=CET), "UTC"),
        (np.ma.masked_array([1, 2], [False, True]), "masked"),
        ((x for x in "ab"), "generator"),
        (lambda: None, "function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_cannot_be_stored_is_named(value: object, words: str) -> None:
    """The message names the value, and nothing else is raised."""
    with pytest.raises(UnsupportedValueError, match=rf"^layout\b.*({words})") as caught:
        stored({"aep": 1.0, "layout": value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "NoneType"),
        (np.zeros(2), "ndarray"),
        (0.5, "float"),
        ([("a", 1)], "list"),
        ({}, "empty dict"),
        ({"seed": 1}, "'seed'"),
        ({"a b": 1}, "'a b'"),
        ({"a/b": 1}, "'a/b'"),
        ({"": 1}, "''"),
        ({1: 1}, "1 cannot be the name"),
        ({None: 1}, "None cannot be the name"),
        *(({name: 1}, repr(name)) for name in sorted(RESERVED_NAMES)),
    ],
    ids=str,
)
def test_a_result_that_is_no_dict_of_names_is_refused(result: object, words: str) -> None:
    """A task returns a dict whose names are free identifiers."""
    with pytest.raises(UnsupportedValueError, match=words):
        ResultEncoder(["seed"]).encode(result)


def test_a_refused_result_does_not_spoil_the_next() -> None:
    """An encoder that refused a result refuses it again and takes a good one."""
    encoder = ResultEncoder(["seed"])
    for _ in range(2):
        with pytest.raises(UnsupportedValueError):
            encoder.encode({"seed": 1.0})
    assert encoder.encode({"x": 1.0}) == encoder.encode({"x": 1.0})


def test_results_of_other_types_have_schemas_of_their_own() -> None:
    """One encoder tells 1, 1.0 and True apart, and shapes too."""
    encoder = ResultEncoder()
    values = (1, 1.0, True, "1", np.zeros(1), np.zeros((1, 1)), np.zeros(1, "f4"))
    assert len({encoder.encode({"x": value})[0] for value in values}) == len(values)


ARRAYS = hnp.arrays(
    dtype=st.one_of(
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
        hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
        hnp.boolean_dtypes(),
        hnp.datetime64_dtypes(endianness="?"),
        hnp.timedelta64_dtypes(endianness="?"),
    ),
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)
TEXTS = hnp.arrays(
    dtype=st.sampled_from(["<U6", ">U6"]),
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
    elements=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)


@given(
    st.dictionaries(
        st.from_regex(r"r[a-z]{0,3}", fullmatch=True), st.one_of(ARRAYS, TEXTS), min_size=1
    )
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_result_comes_back_bit_for_bit(result: dict[str, Array]) -> None:
    """Encode and decode are a pair for whatever NumPy can make of the stored dtypes."""
    read = stored(result)
    assert list(read) == list(result)
    for name, array in result.items():
        assert_same(read[name], array)
        assert read[name].tolist() == array.tolist() or array.dtype.kind in "fcmM"
