"""Whatever a task returns becomes named values with labels, and nothing is lost without a word."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import typing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from h5sweep.base.encode_returned import EncodedResult, ReturnedEncoder
from h5sweep.base.returned import result_names
from h5sweep.base.values import ResultEncoder, decode_result, schema_from_header
from h5sweep.errors import UnsupportedValueError


class Pair(typing.NamedTuple):
    aep: float
    layout: Any


@dataclasses.dataclass
class Farm:
    aep: float
    pair: Pair
    name: str | None = None


class Kind(enum.Enum):
    ONSHORE = 1


class Level(enum.IntEnum):
    HIGH = 3


class Model:
    def __repr__(self) -> str:
        return f"<Model at {id(self):#x}>"


def encoded(result: object, names: tuple[str, ...] = ()) -> EncodedResult:
    return ReturnedEncoder(["farm_id"], names)(result)


def stored(result: object, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values that come back from the record, as Python objects."""
    found = encoded(result, names)
    assert not found.not_stored
    return decoded(found)


def decoded(found: EncodedResult) -> dict[str, Any]:
    schema = schema_from_header({"data": json.loads(found.schema)})
    return {n: values.tolist() for n, values in decode_result(schema, found.data).items()}


def labels(result: object) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """The names of axes and the attributes of each value that has some."""
    found = encoded(result)
    names = [name for name, *_ in json.loads(found.schema)]
    said = zip(names, json.loads(found.labels or b"[]"), strict=False)
    return {name: (label[0], dict(label[1])) for name, label in said if label}


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (0.5, {"result": 0.5}),
        ("text", {"result": "text"}),
        (np.arange(3), {"result": [0, 1, 2]}),
        ([1, 2], {"result": [1, 2]}),
        ((1, "a"), {"result_0": 1, "result_1": "a"}),
        (Pair(1.5, [0, 1]), {"aep": 1.5, "layout": [0, 1]}),
        (
            Farm(1.0, Pair(2.0, [3])),
            {"aep": 1.0, "pair_aep": 2.0, "pair_layout": [3]},
        ),
        ({"a": {"b": 1, "c": {"d": 2}}}, {"a_b": 1, "a_c_d": 2}),
        ({"a": None, "b": 1}, {"b": 1}),
        ({"a": pd.NA, "b": 1}, {"b": 1}),
        ({"a": None}, {}),
        ({"a": enum.Enum("Local", "X").X}, {"a": "X"}),  # type: ignore[attr-defined]
        ({"a": Kind.ONSHORE, "b": Level.HIGH}, {"a": "ONSHORE", "b": 3}),
        ({"a": Path("data/x.csv")}, {"a": "data/x.csv"}),
        ({"a": datetime.date(2026, 3, 1)}, {"a": datetime.date(2026, 3, 1)}),
        ({"a": datetime.timedelta(seconds=90)}, {"a": datetime.timedelta(seconds=90)}),
        ({"a": b"\x00\xff"}, {"a": [0, 255]}),
        ({"a": np.array([b"abc"])}, {"a": ["abc"]}),
        ({"a": np.ma.masked_array(["x", "y"], [True, False])}, {"a": ["", "y"]}),
        ({"a": np.ma.masked_array([1, 2], [False, False])}, {"a": [1, 2]}),
        ({"a": ["x", None]}, {"a": ["x", ""]}),
        ({"a": ["x", float("nan")]}, {"a": ["x", ""]}),
        ({"a": np.array(["x"], np.dtypes.StringDType())}, {"a": ["x"]}),
        ({"a": np.array([], object)}, {"a": []}),
        ({"a": [Kind.ONSHORE]}, {"a": ["ONSHORE"]}),
        (
            {"a": [datetime.date(2026, 3, 1), None]},
            {"a": [datetime.date(2026, 3, 1), None]},
        ),
        ({"a": [datetime.timedelta(1)]}, {"a": [datetime.timedelta(1)]}),
        ({"mean power [kW]": 3.0}, {"mean_power__kW_": 3.0}),
        ({"a b": 1, "a_b": 2}, {"a_b": 1, "a_b_2": 2}),
        ({1: 2.0}, {"_1": 2.0}),
        ({"farm_id": 1, "code": 2}, {"farm_id_": 1, "code_": 2}),
        ({"a": pd.Categorical(["x", "y"])}, {"a": ["x", "y"]}),
        (np.array((1, 2.5), [("u", "i4"), ("v", "f8")])[()], {"u": 1, "v": 2.5}),
        (pd.Series([1, 2], name="aep"), {"aep": [1, 2]}),
        (pd.Series([1, 2], name=5), {"_5": [1, 2]}),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {"a": [1], "a_2": [2]}),
        (
            {"a": pd.Period("2026-03"), "b": pd.interval_range(0, 1)},
            {"a": "2026-03", "b": ["(0, 1]"]},
        ),
        (pd.DataFrame({"a": [1, 2], "b": ["x", None]}), {"a": [1, 2], "b": ["x", ""]}),
        (xr.DataArray([1, 2], name="aep"), {"aep": [1, 2]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_returned_becomes_named_values(result: object, values: dict[str, Any]) -> None:
    """Every kind of result, and every kind of value in it."""
    assert stored(result) == values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ma.masked_array([1.5, 2.0], [True, False]), [np.nan, 2.0]),
        (np.ma.masked_array([1, 2], [True, False]), [np.nan, 2.0]),
        (np.ma.masked_array([True, False], [True, False]), [np.nan, 0.0]),
        ([np.ma.masked_array([1, 2], [True, False])], [[np.nan, 2.0]]),
        ([1, None, 2.5], [1.0, np.nan, 2.5]),
        (pd.array([1, None], "Int64"), [1.0, np.nan]),
        (pd.array([1.5, None], "Float64"), [1.5, np.nan]),
    ],
    ids=repr,
)
def test_what_is_not_there_among_numbers_is_nan(value: object, expected: list[float]) -> None:
    np.testing.assert_array_equal(stored({"x": value})["x"], expected)


def test_times_of_pandas_keep_their_nanoseconds_and_are_in_utc() -> None:
    zone = pd.Timestamp(1, tz="Europe/Berlin")
    frame = pd.DataFrame({"at": [zone], "took": [pd.Timedelta(3, "ns")]})
    assert stored(frame) == {"at": [1], "took": [3]}
    assert stored({"took": pd.Timedelta(3, "ns"), "all": [zone, pd.NaT]})["took"] == 3
    schema = json.loads(encoded({"all": [zone, pd.NaT]}).schema)
    assert schema == [["all", "<M8[ns]", [2]]]


def test_names_that_were_changed_are_kept_as_long_names() -> None:
    assert labels({"mean power [kW]": 1.0, "a": {"b": 2}, "c": 3}) == {
        "mean_power__kW_": ([], {"long_name": "mean power [kW]"}),
        "a_b": ([], {"long_name": "a.b"}),
    }


def dataset() -> xr.Dataset:
    power = (("wd", "wind speed"), np.ones((2, 3)), {"units": "kW", "rated": 15.0})
    speeds = ("wind speed", [4.0, 8.0, 12.0], {"units": "m/s"})
    return xr.Dataset(
        {"power": power, "sum": ("wd", [3, 3])},
        {"wd": [0, 180], "wind speed": speeds, "hub": 119.0},
        {"model": "NOJ"},
    )


def test_labels_of_a_dataset_stay() -> None:
    """Axes, coordinates, units and other attributes; attributes of the whole are values."""
    assert stored(dataset()) == {
        "wd_coord": [0, 180],
        "wind_speed_coord": [4.0, 8.0, 12.0],
        "hub": 119.0,
        "power": [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
        "sum": [3, 3],
        "model": "NOJ",
    }
    found = labels(dataset())
    assert found["power"][0] == ["wd", "wind_speed"]
    assert found["power"][1]["units"] == "kW"
    assert found["power"][1]["rated"]["hex"] == np.float64(15).tobytes().hex()
    about = {"long_name": "wind speed", "units": "m/s"}
    assert found["wind_speed_coord"] == (["wind_speed"], about)
    assert found["sum"] == (["wd"], {})


def test_an_axis_that_two_arrays_have_with_other_coordinates_is_two() -> None:
    """Neither array gets the coordinates of the other."""
    one = xr.DataArray([1.0, 2.0], {"wd": [0, 90]}, ["wd"])
    other = xr.DataArray([3.0, 4.0], {"wd": [0, 180]}, ["wd"])
    assert stored({"a": one, "b": other, "c": one}) == {
        "wd_coord": [0, 90],
        "a": [1.0, 2.0],
        "b_wd_coord": [0, 180],
        "b": [3.0, 4.0],
        "c": [1.0, 2.0],
    }
    axes = {name: dims for name, (dims, _) in labels({"a": one, "b": other, "c": one}).items()}
    assert axes["a"] == axes["c"] == ["wd"]
    assert axes["b"] == axes["b_wd_coord"] == ["b_wd"]


def test_labels_of_pandas_stay() -> None:
    """The index is an axis with coordinates; one that only counts is none."""
    frame = pd.DataFrame({"aep": [1.0, 2.0]}, pd.Index(["a", "b"], name="site"))
    frame.attrs["model"] = "NOJ"
    assert stored(frame) == {"site_coord": ["a", "b"], "aep": [1.0, 2.0], "model": "NOJ"}
    assert labels(frame)["aep"] == (["site"], {})
    assert labels(pd.Series([1, 2])) == {}
    assert labels(pd.Series([1, 2], [5, 6]))["result"] == (["index"], {})
    levels = pd.MultiIndex.from_tuples([(1, "x"), (2, "y")], names=["n", None])
    assert stored(pd.Series([0.5, 1.5], levels, name="s")) == {
        "n": [1, 2],
        "index_1": ["x", "y"],
        "s": [0.5, 1.5],
    }


def test_axes_and_coordinates_of_like_names_stay_apart() -> None:
    """What makes one legal name is two, in whatever order; the original names are kept."""
    coords = {"a b": [1, 2], "a-b": [3, 4], "l a": ("a b", [5, 6]), "l-a": ("a b", [7, 8])}
    one = xr.DataArray(np.ones((2, 2)), coords, ["a b", "a-b"], name="p")
    kept = {"a_b_coord": [1, 2], "a_b_2_coord": [3, 4], "l_a": [5, 6], "l_a_2": [7, 8]}
    for array, dims in ((one, ["a_b", "a_b_2"]), (one.T, ["a_b_2", "a_b"])):
        found = stored(array)
        assert {name: found[name] for name in kept} == kept
        assert labels(array)["p"][0] == dims
        assert labels(array)["a_b_2_coord"] == (["a_b_2"], {"long_name": "a-b"})
    of_key = xr.DataArray([1, 2], {"farm_id": [5, 6]}, ["farm_id"], name="p")
    assert labels(of_key)["p"][0] == ["farm_id_"]
    assert stored(of_key)["farm_id__coord"] == [5, 6]
    levels = pd.MultiIndex.from_tuples([(1, "u"), (2, "v")], names=["x", "x"])
    assert stored(pd.Series([0, 1], levels, name="s"))["x_2"] == ["u", "v"]


def test_an_array_has_its_own_coordinates_where_others_differ() -> None:
    """Also those that lie along an axis of which the coordinates come later."""

    def array(wd: int, lat: int) -> xr.DataArray:
        coords = {"lat": ("wd", [lat, 0]), "wd": [wd, 9], "hub": wd}
        return xr.DataArray([1, 2], coords, ["wd"])

    result = {"p": array(1, 1), "a": {"b": array(2, 1)}, "a_b": array(3, 3)}
    found, said = stored(result), labels(result)
    assert [found[n] for n in ("hub", "a_b_hub", "a_b_hub_2")] == [1, 2, 3]
    for name, axis, coordinate in (
        ("p", "wd", [1, 9]),
        ("a_b", "a_b_wd", [2, 9]),
        ("a_b_2", "a_b_wd_2", [3, 9]),
    ):
        assert said[name][0] == [axis]
        assert found[f"{axis}_coord"] == coordinate
    assert said["lat"][0] == ["wd"]
    assert said["a_b_lat"][0] == ["a_b_wd_2"]


def test_an_attribute_of_any_kind_costs_nothing() -> None:
    """What none can be is a text. One by which readers decode has another name."""
    given = {
        "a/b": 1,
        "ragged": [[1], [2, 3]],
        "bad": "\ud800\0",
        "table": np.ones((1, 2)),
        "e": [],
    }
    array = xr.DataArray(1.0, attrs={**given, "_FillValue": 0, "none": None})
    time = {"units": "events since start", "scale_factor": 0.1}
    assert labels(xr.DataArray(1, attrs=time))["result"][1].keys() == {"units_", "scale_factor_"}
    about = labels({"x": array, "y\ud800": 1})
    assert about["x"][1].keys() == {"a_b", "ragged", "bad", "table", "e", "_FillValue_"}
    assert about["x"][1]["ragged"] == "[[1], [2, 3]]"
    assert about["x"][1]["table"] == "[[1.0, 1.0]]"
    assert about["x"][1]["bad"] == "?"
    assert about["y_"][1] == {"long_name": "y?"}


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise OSError("the file is closed")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Model(), "x is Model <Model>: return numbers"),
        (Broken(), "x is Broken: the file is closed"),
        ({1, 2}, "x is set"),
        ([[1], [2, 3]], "cannot become an array"),
        (np.ma.masked_array([2**60, 1], [False, True]), "masked array"),
        ([2**60, None], "x is"),
        ([2**60 + 1, 0.5], "x is"),
        ([0.5, np.int64(2**60 + 1)], "x is"),
        (2**70, "int of 71 bits"),
        (pd.array([2**60 + 1, None], "Int64"), "x is an array of object"),
        ([1, "a"], "do not mix numbers and text"),
        ([pd.Timestamp(1), datetime.datetime(9999, 1, 1)], "x is list"),
        (np.array([2**60 + 1, 0.5], object), "x is an array of object"),
        ([np.datetime64("9999-01-01"), np.datetime64(1, "ns")], "would be other values"),
        ([np.array(["9999-01-01"], "M8[D]"), np.array([1], "M8[ns]")], "would be other values"),
        ([np.timedelta64(1, "s"), 5], "would be other values"),
        (["x", "a\0"], "would be other values"),
        (np.array(["a\0"], object), "x is an array of object"),
        ([b"a", b"a\0"], "would be other values"),
        ("a\0b", "NUL"),
        (np.longdouble(1), "x is an array of"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_cannot_be_stored_costs_that_value_only(value: object, words: str) -> None:
    """The others are kept, and a note names it, the same each time; alone, it fails the task."""
    found = encoded({"aep": 1.0, "x": value})
    assert words in found.not_stored
    assert decoded(found) == {"aep": 1.0, "not_stored": found.not_stored}
    with pytest.raises(UnsupportedValueError, match=r"^x\b"):
        encoded({"x": value})


@pytest.mark.parametrize("nothing", [None, {}, ()])
def test_a_task_that_returns_nothing_fails(nothing: object) -> None:
    with pytest.raises(UnsupportedValueError, match="return its results"):
        encoded(nothing)


def test_a_plain_dict_is_encoded_as_ever() -> None:
    """Without labels, byte by byte as the encoder of plain values has it."""
    result = {"aep": 1.5, "layout": np.ones((2, 3)), "ok": True, "n": 3, "s": "x"}
    assert encoded(result)[:3] == (*ResultEncoder().encode(result), b"")


def test_quantities_keep_their_units() -> None:
    """Packages for units have a magnitude or, as arrays, a unit."""

    class Quantity:
        magnitude, units = np.array([1.0, 2.0]), "kW"

    class UnitArray(np.ndarray):
        unit = "m"

    result = {"power": Quantity(), "length": np.ones(2).view(UnitArray)}
    assert stored(result) == {"power": [1.0, 2.0], "length": [1.0, 1.0]}
    assert {n: about for n, (_, about) in labels(result).items()} == {
        "power": {"units": "kW"},
        "length": {"units": "m"},
    }


def test_an_annotation_names_the_values_of_a_tuple() -> None:
    def both() -> tuple[Annotated[float, "aep"], Annotated[int, "rounds"]]: ...
    def some() -> tuple[Annotated[float, "aep"], int]: ...
    def one() -> Annotated[float, "aep"]: ...
    def none() -> tuple[float, int]: ...
    def broken() -> Unknown: ...  # type: ignore[name-defined]  # noqa: F821

    assert result_names(both) == ("aep", "rounds")
    assert stored((1.0, 2), result_names(both)) == {"aep": 1.0, "rounds": 2}
    assert result_names(some) == ("aep", "result_1")
    assert stored(1.0, result_names(one)) == {"aep": 1.0}
    assert result_names(none) == result_names(broken) == ()
