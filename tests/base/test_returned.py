"""Whatever a task returns becomes named values with labels, and nothing is lost without a word."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import typing
from pathlib import Path
from typing import Annotated, Any

import dask.array
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


def test_all_levels_of_a_stacked_axis_stay() -> None:
    """Numbers and texts; not the tuples of both."""
    levels = pd.MultiIndex.from_tuples([(1, "u"), (2, "v")], names=["n", "site"])
    stacked = xr.DataArray([5, 6], {"z": levels, "hub": ("z", ["a", "b"])}, ["z"])
    expected = {"n": [1, 2], "site": ["u", "v"], "hub": ["a", "b"], "p": [5, 6]}
    assert stored({"p": stacked}) == expected
    assert labels({"p": stacked}) == {name: (["z"], {}) for name in expected}


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
    assert [said[n][0] for n in ("lat", "a_b_lat", "a_b_lat_2")] == [
        ["wd"],
        ["a_b_wd"],
        ["a_b_wd_2"],
    ]


def power(start: float, wd: list[int], unit: str = "kW") -> xr.DataArray:
    coords = {"wd": wd, "hub": start}
    return xr.DataArray([start, start + 1], coords, ["wd"], attrs={"units": unit})


@pytest.mark.parametrize("make", [list, tuple])
def test_a_list_of_arrays_with_the_same_labels_is_one_array(make: Any) -> None:
    """With an axis of its own before theirs. What is the same for all is there once."""
    result = {"p": make([power(1, [0, 90]), power(3, [0, 90])])}
    assert stored(result) == {
        "wd_coord": [0, 90],
        "hub": [1, 3],
        "p": [[1.0, 2.0], [3.0, 4.0]],
    }
    said = labels(result)
    assert said["p"] == (["p_item", "wd"], {"units": "kW"})
    assert said["hub"][0] == ["p_item"]
    assert said["wd_coord"][0] == ["wd"]
    twice = labels({"p": [make([power(1, [0, 90])])]})
    assert twice["p"] == (["p_item_2", "p_item", "wd"], {"units": "kW"})
    alone = labels([power(1, [0, 90])] * 2)
    assert alone["result"] == (["result_item", "wd"], {"units": "kW"})


def test_a_list_of_unlike_arrays_is_values_with_numbers() -> None:
    """No array gets the labels of another, and None is a gap."""
    result = {"p": [power(1, [0, 90]), None, power(3, [0, 180]), power(1, [0, 90], "MW")]}
    found, said = stored(result), labels(result)
    assert [found[name] for name in ("p_0", "p_2", "p_3")] == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]
    assert said["p_0"] == (["wd"], {"long_name": "p.0", "units": "kW"})
    assert said["p_2"] == (["p_2_wd"], {"long_name": "p.2", "units": "kW"})
    assert said["p_3"] == (["wd"], {"long_name": "p.3", "units": "MW"})
    assert (found["wd_coord"], found["p_2_wd_coord"]) == ([0, 90], [0, 180])
    assert said["p_2_wd_coord"] == (["p_2_wd"], {"long_name": "wd"})


def test_lists_of_whatever_has_names_or_units_keep_them() -> None:
    """Tables, named tuples, dicts, quantities; NumPy would make plain arrays of some."""

    class Quantity:
        magnitude, units = 2.0, "kW"

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(self.magnitude)

    frame = pd.DataFrame({"aep": [1.0, 2.0]}, pd.Index(["a", "b"], name="site"))
    result = {
        "f": [frame, frame + 1],
        "s": [frame.aep] * 2,
        "n": [Pair(1.5, [0, 1]), Pair(2.5, [2, 3])],
        "d": [{"x": 1, "name": "u"}, {"x": 2.5, "name": "vw"}],
        "q": [Quantity(), Quantity()],
        "at": [pd.Timestamp(1), pd.Timestamp(2)],
    }
    found, said = stored(result), labels(result)
    assert found["site_coord"] == ["a", "b"]
    assert found["f_aep"] == [[1.0, 2.0], [2.0, 3.0]]
    assert said["f_aep"][0] == ["f_item", "site"]
    assert said["s"] == (["s_item", "site"], {"name": "aep"})
    assert (found["n_aep"], found["n_layout"]) == ([1.5, 2.5], [[0, 1], [2, 3]])
    assert (found["d_x"], found["d_name"]) == ([1.0, 2.5], ["u", "vw"])
    assert (found["q"], said["q"]) == ([2.0, 2.0], (["q_item"], {"units": "kW"}))
    assert found["at"] == [1, 2]
    assert "at" not in said


def test_many_unlike_objects_in_a_list_are_not_stored() -> None:
    """Instead of a value for each; a note names the list."""
    found = encoded({"aep": 1.0, "x": [{"a": 1} if n % 2 else {"b": 1} for n in range(101)]})
    assert decoded(found).keys() == {"aep", "not_stored"}
    assert found.not_stored.startswith("x is list [{'b': 1}, {'a': 1}")
    assert "names or labels in it would be lost" in found.not_stored


def test_labels_of_a_tree_stay() -> None:
    """Attributes of the tree and of each node are values, as those of a dataset."""
    inner = xr.Dataset({"p": power(1, [0, 90])}, attrs={"model": "NOJ", "run": {"step": 2}})
    nodes = {"/": xr.Dataset({"aep": 3.0}, attrs={"who": "me"}), "/farm": inner}
    nodes["/farm/far"] = xr.Dataset({"q": ("wd", [5, 6])}, attrs={"hubs": [1, 2]})
    tree = xr.DataTree.from_dict(nodes, name="root")
    expected = {
        "aep": 3.0,
        "who": "me",
        "name": "root",
        "wd_coord": [0, 90],
        "hub": 1.0,
        "farm_p": [1.0, 2.0],
        "farm_model": "NOJ",
        "farm_run_step": 2,
        "farm_far_q": [5, 6],
        "farm_far_hubs": [1, 2],
    }
    assert stored(tree) == expected
    assert stored(xr.Dataset({"name": ("x", [])}))["name"] == []
    assert labels(tree)["farm_p"] == (["wd"], {"long_name": "farm.p", "units": "kW"})
    assert labels(tree)["farm_far_q"][0] == ["wd"]
    assert stored({"t": tree})["t_farm_model"] == "NOJ"


def test_names_of_the_levels_of_columns_stay() -> None:
    """A column has an attribute for each level with a name: what it is called there."""
    frame = pd.DataFrame([[1.0, 2.0]], columns=pd.Index(["north", "south"], name="farm"))
    assert labels(frame) == {"north": ([], {"farm": "north"}), "south": ([], {"farm": "south"})}
    columns = pd.MultiIndex.from_tuples([("aep", "GWh", 1)], names=["what", "units", None])
    about = {"long_name": "aep.GWh.1", "what": "aep", "units": "GWh"}
    assert labels(pd.DataFrame([[1.0]], columns=columns)) == {"aep_GWh_1": ([], about)}


def test_what_an_object_calls_itself_stays() -> None:
    """Where it was returned under another name."""
    result = {
        "a": xr.DataArray(1, name="aep"),
        "b": xr.DataArray(1, name="aep", attrs={"name": "x"}),
        "c": pd.Series([1], name="c"),
        "d": pd.Index([1, 2], name="site"),
        "e": xr.DataArray(dask.array.ones(2)),  # which has a name that nobody gave it
    }
    assert labels(result) == {
        "a": ([], {"name": "aep"}),
        "b": ([], {"name_": "aep", "name": "x"}),
        "d": ([], {"name": "site"}),
        "e": (["dim_0"], {}),
    }


def test_an_axis_with_the_name_of_a_value_keeps_its_coordinates() -> None:
    """It gets `_` behind its name, also if the value is None this time."""
    for value in (3.0, None, np.arange(2), power(1, [0, 90]).wd):
        for result in (
            {"wd": value, "p": power(1, [0, 90])},
            {"p": power(1, [0, 90]), "wd": value},
        ):
            assert stored(result)["wd__coord"] == [0, 90]
            assert labels(result)["wd__coord"] == (["wd_"], {"long_name": "wd"})
            assert labels(result)["p"][0] == ["wd_"]


def test_an_axis_of_another_length_has_no_coordinates() -> None:
    """Nor does it take them from one of its name."""
    three = [xr.DataArray([1, 2, 3], dims=["wd"])] * 2
    result = {"a": three[0], "p": power(1, [0, 90]), "b": three[1]}
    axes = {name: axes for name, (axes, _) in labels(result).items()}
    assert axes["a"] == axes["b"] == ["wd_"]
    assert axes["p"] == axes["wd_coord"] == ["wd"]


def test_coordinates_of_other_labels_stay_apart() -> None:
    """Equal numbers with another unit, or of another axis; a value may be called like some."""
    one, other = power(1, [0, 90]), power(1, [0, 90])
    one["wd"].attrs["units"], other["wd"].attrs["units"] = "deg", "rad"
    said = labels({"a": one, "b": other})
    assert said["wd_coord"] == (["wd"], {"units": "deg"})
    assert said["b_wd_coord"] == (["b_wd"], {"long_name": "wd", "units": "rad"})
    assert (said["a"][0], said["b"][0]) == (["wd"], ["b_wd"])
    result = {"wd_coord": 5, "hub": 6, "a": power(1, [0, 90])}
    assert stored(result)["a_wd_coord"] == [0, 90]
    assert labels(result)["a"][0] == ["a_wd"]
    assert labels(result)["a_hub"] == ([], {"long_name": "hub"})


class Unreadable:
    """What an array may be made of: a file that is closed, a package that refuses."""

    shape, ndim, dtype = (2,), 1, np.dtype("f8")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise OSError("the file is closed")

    def __array_function__(self, *args: Any) -> Any:
        return NotImplemented

    def __array_ufunc__(self, *args: Any) -> Any:
        return NotImplemented


class Mapping(typing.Mapping[str, int]):
    def __getitem__(self, name: str) -> int:
        raise OSError("the file is closed")

    def __iter__(self) -> Any:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_what_cannot_be_read_costs_itself_only() -> None:
    """One array of a dataset, a dict that refuses, a list that has itself in it."""
    loop: list[Any] = [{}]
    loop.append(loop)
    broken = xr.Variable(["wd"], Unreadable())
    result = {"d": xr.Dataset({"p": power(1, [0, 90]), "q": broken}), "m": Mapping(), "x": loop}
    found = encoded(result)
    assert {name: decoded(found)[name] for name in ("d_p", "wd_coord")} == {
        "d_p": [1.0, 2.0],
        "wd_coord": [0, 90],
    }
    assert "d_q is OSError OSError('the file is closed')" in found.not_stored
    assert "m is OSError OSError('the file is closed')" in found.not_stored
    assert "x_1 is RecursionError" in found.not_stored


def test_a_note_names_all_that_is_not_stored() -> None:
    """However many there are: of the last, only the names."""
    names = [f"x{number}" for number in range(30)]
    note = encoded({"aep": 1.0, **{name: Model() for name in names}}).not_stored
    assert [name for name in names if name not in note.replace(";", " ").split()] == []
    assert len(note) < 2000


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


def test_attributes_that_an_output_says_itself_have_other_names() -> None:
    """So do those whose names are the same as text. One that is too long is named in the note."""
    given = {"coordinates": "x", "CLASS": "y", "h5sweep_name": "z", "a/b": "1", "a_b": "2"}
    given["_nc3_strict"] = "6"
    about = labels(xr.DataArray(1, attrs={**given, 3: "4", "3": "5"}))["result"][1]
    assert about == {
        "_nc3_strict_": "6",
        "coordinates_": "x",
        "CLASS_": "y",
        "_h5sweep_name": "z",
        "a_b": "1",
        "a_b_": "2",
        "3": "4",
        "3_": "5",
    }
    found = encoded({"x": xr.DataArray(1, attrs={"units": "m", "long": "x" * 60_001})})
    assert found.not_stored == "the attribute 'long' of x is too long"
    assert decoded(found)["x"] == 1
    times = {"units": "h", "calendar": "noleap"}
    when = xr.DataArray(np.array([1], "M8[ns]"), attrs=times)
    assert labels(when)["result"][1] == {"units_": "h", "calendar_": "noleap"}


def test_long_attributes_are_whole() -> None:
    """Truths, times and objects of which `str` would leave out the middle."""
    given = {
        "flags": np.arange(2000) % 2 == 0,
        "times": np.arange(2000).astype("M8[s]"),
        "mixed": np.array([1, "a"] * 1000, object),
        "bytes": np.bytes_(b"kW"),
    }
    about = labels(xr.DataArray(1, attrs=given))["result"][1]
    assert about["flags"]["shape"] == [2000]
    assert about["times"]["texts"][1999] == "1970-01-01T00:33:19"
    assert about["mixed"].count("'a'") == 1000
    assert about["bytes"] == "kW"


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
        ([1, 2, {}], "x is list [1, 2, {}]: names or labels in it would be lost"),
        ([1.5, xr.DataArray(2.0)], "x is list"),
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
