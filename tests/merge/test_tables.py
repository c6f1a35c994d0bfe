"""Tables of many files joined into one: nothing lost, nothing invented, everything read back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
from xxhash import xxh3_64_intdigest

from check_samples import flip, set_flags
from h5sweep.errors import ChangedError, ConflictError, DamagedError, UsageError
from h5sweep.merge.tables import pack_chunks
from h5sweep.merge.tables.merge_tables import MergedTables
from h5sweep.merge.tables.prove_rows import datasets_in_columns
from h5sweep.worker_files.inputs import Input, Taken
from h5sweep.worker_files.skipped_names import parse_names
from h5sweep.worker_files.survey import Survey

GROWS: dict[str, Any] = {"chunks": True, "maxshape": True}
STORAGE: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "growing": GROWS,
    "gzip": {**GROWS, "compression": "gzip", "shuffle": True},
    "lzf": {**GROWS, "compression": "lzf"},
    "fletcher32": {**GROWS, "fletcher32": True},
}
TEXTS = [b"one", b"", "zwölf".encode(), b"a rather long text"]
COMPOUND = np.array([(1, 2.5, b"x"), (2, np.nan, b"yz")], "i4, >f8, S3")
VALUES: dict[str, Any] = {
    "i4": np.arange(4, dtype="i4"),
    "big-endian f8": np.arange(4, dtype=">f8"),
    "f2": np.arange(4, dtype="f2"),
    "fixed text": np.array(TEXTS, "S20"),
    "bool": np.array([True, False, True, True]),
    "complex": np.arange(4) * 1j,
    "compound": COMPOUND,
    "array in rows": np.arange(24.0).reshape(4, 3, 2),
    "enum": np.array([0, 2], h5py.enum_dtype({"CALM": 0, "STORM": 2}, "i2")),
    "opaque": np.array([b"abc", b"\0\1\2"], "V3"),
    "text of any length": np.array(TEXTS, h5py.string_dtype()),
    "texts in rows": np.array([TEXTS, TEXTS], h5py.string_dtype("ascii")),
}


def write_table(path: Path, columns: dict[str, Any], group: str = "/", **storage: Any) -> Path:
    """One file with a table; `maxshape=True` lets it grow, `chunks` may be a number of rows."""
    with h5py.File(path, "a", libver=storage.pop("libver", "earliest")) as file:
        for name, values in columns.items():
            values = np.asarray(values)
            settings = dict(storage)
            if settings.get("maxshape") is True:
                settings["maxshape"] = (None, *values.shape[1:])
            if type(settings.get("chunks")) is int:
                settings["chunks"] = (settings["chunks"], *values.shape[1:])
            file.require_group(group).create_dataset(name, data=values, **settings)
    return path


def write_rows(path: Path, first: int, rows: int, **storage: Any) -> Path:
    """The table of a worker: seeds, layouts and what they yield."""
    seed = np.arange(first, first + rows)
    layout = np.arange(rows * 6.0).reshape(rows, 3, 2) + first
    columns = {"seed": seed, "layout": layout, "aep": seed * 1.5}
    return write_table(path, columns, **{"chunks": 4, "maxshape": True, **storage})


pytestmark = pytest.mark.usefixtures("way")


def no_progress(done: int, total: int) -> None:
    assert 0 <= done <= total


class Join:
    """A join from beginning to end, in steps."""

    def __init__(self, *paths: Path, skip: str = "") -> None:
        self.survey = Survey(parse_names(skip))
        self.inputs: Sequence[Input] = self.survey.look_at_all(paths)
        self.joined = MergedTables(self.survey, self.inputs)
        folder = paths[0] if paths[0].is_dir() else paths[0].parent
        self.output = folder / "joined.out"
        self.taken: list[Taken] = []

    def write(self) -> Join:
        self.taken = list(self.joined.write(self.output, no_progress))
        return self

    def verify(self) -> Join:
        self.joined.verify(self.output, no_progress)
        return self

    def read(self, name: str) -> Any:
        with h5py.File(self.output) as file:
            return file[name][()]


def join(*paths: Path, skip: str = "") -> Join:
    return Join(*paths, skip=skip).write().verify()


# What is in the output ---------------------------------------------------------------------------


def test_rows_follow_each_other_in_the_natural_order_of_files(tmp_path: Path) -> None:
    """Files 9 and 10 follow in this order, whole, under the same names."""
    for number in (10, 9, 100):
        write_rows(tmp_path / f"worker_{number}.h5", 1000 * number, 6)
    done = join(tmp_path)
    seeds = [1000 * number + row for number in (9, 10, 100) for row in range(6)]
    assert done.read("seed").tolist() == seeds
    assert done.read("layout").shape == (18, 3, 2) and done.read("layout")[6, 0, 0] == 10_000
    assert [taken.rows for taken in done.taken] == [{"/": (0, 6)}, {"/": (6, 6)}, {"/": (12, 6)}]
    assert done.joined.notes == []


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("kind", VALUES)
def test_every_type_is_kept(kind: str, storage: str, tmp_path: Path) -> None:
    """Values and types are as they were, however the inputs were stored."""
    values = VALUES[kind]
    if storage == "fletcher32" and values.dtype == object:
        return  # the HDF5 library refuses to make such
    for number in range(3):
        columns = {"value": values, "number": np.full(len(values), number)}
        write_table(tmp_path / f"w{number}.h5", columns, **STORAGE[storage])
    done = join(tmp_path)
    with h5py.File(done.output) as file, h5py.File(tmp_path / "w0.h5") as first:
        assert file["value"].id.get_type() == first["value"].id.get_type()
        one = first["value"][()]
        if one.dtype == object:
            assert file["value"][()].tolist() == one.tolist() * 3
        else:
            assert file["value"][()].tobytes() == one.tobytes() * 3


def test_sequences_of_any_length_are_kept(tmp_path: Path) -> None:
    """Each row has its own number of values."""
    for number in range(2):
        with h5py.File(tmp_path / f"w{number}.h5", "w") as file:
            data = file.create_dataset("path", (3,), h5py.vlen_dtype("f4"), maxshape=(None,))
            for row in range(3):
                data[row] = np.arange(row + number)
    found = join(tmp_path).read("path")
    assert [row.tolist() for row in found] == [[], [0], [0, 1], [0], [0, 1], [0, 1, 2]]
    assert found[0].dtype == np.float32


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("block", [0, 512])
def test_every_version_of_the_format_is_read(libver: str, block: int, tmp_path: Path) -> None:
    """Old and new structures, also behind a user block, give the same rows."""
    for number in range(3):
        path = tmp_path / f"w{number}.h5"
        with h5py.File(path, "w", libver=libver, userblock_size=block):
            pass
        write_rows(path, 10 * number, 10, libver=libver)
    assert join(tmp_path).read("seed").tolist() == list(range(30))


def test_each_of_many_files_is_in_its_rows(tmp_path: Path) -> None:
    """Also where the last row might be one that was never written, and is judged by itself."""
    random = np.random.default_rng(1)
    layouts, seeds = random.random((130, 4, 2)), random.integers(0, 3, (130, 4))
    for number in range(130):
        with h5py.File(tmp_path / f"w{number:03}.h5", "w") as file:
            for name, values in (("layout", layouts[number]), ("seed", seeds[number])):
                limits = (None, *values.shape[1:])
                file.create_dataset(name, data=values, maxshape=limits, chunks=(2, *limits[1:]))
    done = join(tmp_path)
    assert np.array_equal(done.read("layout"), layouts.reshape(-1, 2))
    assert np.array_equal(done.read("seed"), seeds.reshape(-1))
    assert len({one.family for one in done.inputs}) == 1


@pytest.mark.parametrize("kind", VALUES)
def test_types_of_new_files_are_written_as_old_ones(kind: str, tmp_path: Path) -> None:
    """What the newest library wrote in new words is the same type in the output."""
    for number in range(2):
        columns = {"value": VALUES[kind], "number": np.full(len(VALUES[kind]), number)}
        write_table(tmp_path / f"w{number}.h5", columns, libver="latest", **GROWS)
    done = join(tmp_path)
    with h5py.File(done.output) as file, h5py.File(tmp_path / "w0.h5") as first:
        assert file["value"].id.get_type() == first["value"].id.get_type()
        assert file["value"][()].tolist() == first["value"][()].tolist() * 2 or kind == "compound"


def test_large_and_small_files_give_the_same(tmp_path: Path) -> None:
    """Files above the size that is kept in memory are joined like those below it."""
    paths = [
        write_rows(tmp_path / f"w{number}.h5", first, rows, chunks=500)
        for number, (first, rows) in enumerate(
            [(0, 5), (5, 60_000), (60_005, 60_000), (120_005, 7)]
        )
    ]
    done = join(tmp_path)
    assert (done.read("seed") == np.arange(120_012)).all()
    assert [taken.xxh3 for taken in done.taken] == [
        xxh3_64_intdigest(path.read_bytes()) for path in paths
    ]


def test_tables_in_groups_stay_there(tmp_path: Path) -> None:
    """Each group is a table of its own, of its own length."""
    for number in range(2):
        path = tmp_path / f"w{number}.h5"
        write_table(path, {"aep": np.full(3, number)}, "onshore/small", **GROWS)
        write_table(path, {"aep": np.full(2, 10 + number)}, "offshore", **GROWS)
    done = join(tmp_path)
    assert done.read("onshore/small/aep").tolist() == [0, 0, 0, 1, 1, 1]
    assert done.read("offshore/aep").tolist() == [10, 10, 11, 11]
    assert done.taken[1].rows == {"/onshore/small": (3, 3), "/offshore": (2, 2)}


def test_series_of_different_length_are_joined_each_by_itself(tmp_path: Path) -> None:
    """Datasets that are not equally long are no table, and none is cut."""
    for number in range(2):
        columns = {"cost": np.full(7, number), "gradient": np.full(3, number), "x": np.ones(20)}
        write_table(tmp_path / f"w{number}.h5", columns, **GROWS)
    done = join(tmp_path)
    assert done.read("cost").tolist() == [0] * 7 + [1] * 7
    assert done.read("gradient").tolist() == [0] * 3 + [1] * 3
    assert done.taken[1].rows == {"/cost": (7, 7), "/gradient": (3, 3), "/x": (20, 20)}
    assert any("have different lengths in some files" in note for note in done.joined.notes)


def test_what_is_no_column_is_not_joined(tmp_path: Path) -> None:
    """`init` is skipped; single values and datasets of another length are for others to keep."""
    for number in range(2):
        path = write_rows(tmp_path / f"w{number}.h5", 0, 5)
        write_table(path, {"init": 1, "version": 3, "grid": np.arange(9), "flag": np.ones(5)})
    done = join(tmp_path)
    assert [set(t.skipped) for t in done.taken] == [{"/init"}] * 2
    assert done.joined.have_more() == {t.source for t in done.taken}
    assert set(done.taken[0].datasets) == {"/seed", "/layout", "/aep", "/flag"}
    with h5py.File(done.output) as file:
        assert set(file) == {"seed", "layout", "aep", "flag"}


def test_files_without_rows_add_none(tmp_path: Path) -> None:
    """An empty table changes neither types nor rows."""
    write_table(tmp_path / "w0.h5", {"seed": np.empty(0, "f4"), "aep": np.empty(0)}, **GROWS)
    write_table(tmp_path / "w1.h5", {"seed": np.arange(4), "aep": np.ones(4)}, **GROWS)
    done = join(tmp_path)
    assert done.read("seed").tolist() == [0, 1, 2, 3] and done.read("seed").dtype == np.int64


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    """Tables are added to a file that holds other things."""
    write_rows(tmp_path / "w.h5", 0, 5)
    with h5py.File(tmp_path / "joined.out", "w") as file:
        file["farm1/aep"] = 3.0
        file.attrs["title"] = "was here first"
    done = Join(tmp_path / "w.h5").write().verify()
    assert done.read("farm1/aep") == 3.0 and done.read("seed").tolist() == list(range(5))


# Attributes --------------------------------------------------------------------------------------


def test_attributes_are_kept(tmp_path: Path) -> None:
    """Of the file, of groups and of columns, with their types."""
    for number in range(2):
        path = tmp_path / f"w{number}.h5"
        write_table(path, {"aep": np.full(3, 1.0 + number)}, "farm", **GROWS)
        with h5py.File(path, "a") as file:
            file.attrs["title"] = "Ekofisk, 50 Türme"
            file.attrs["names"] = ["a", "bc"]
            file.attrs["nothing"] = h5py.Empty("f4")
            file["farm"].attrs["hub_height_m"] = np.float32(119)
            file["farm/aep"].attrs["units"] = np.bytes_("GWh")
            file["farm/aep"].attrs["limits"] = np.array([[0, 1], [2, 3]], ">i2")
            file["farm/aep"].attrs["is_net"] = True
    done = join(tmp_path)
    with h5py.File(done.output) as file, h5py.File(tmp_path / "w0.h5") as first:
        for place in ("/", "farm", "farm/aep"):
            old, new = first[place].attrs, file[place].attrs
            assert set(new) == set(old)
            for name in old:
                assert new.get_id(name).get_type() == old.get_id(name).get_type()
                assert np.array_equal(new[name], old[name]) or new[name] == old[name]
    assert done.joined.notes == []
    assert "/farm/aep@units" in done.taken[0].attributes


def test_attributes_that_differ_are_named(tmp_path: Path) -> None:
    """The first file's value is kept, what only a later one has is added, and both are said."""
    for number in range(3):
        path = write_rows(tmp_path / f"w{number}.h5", 0, 4)
        with h5py.File(path, "a") as file:
            file.attrs["worker"] = number
            file["aep"].attrs["units"] = "GWh"
            if number == 2:
                file["aep"].attrs["late"] = "yes"
    done = join(tmp_path)
    with h5py.File(done.output) as file:
        assert file.attrs["worker"] == 0
        assert dict(file["aep"].attrs) == {"units": "GWh", "late": "yes"}
    (note,) = done.joined.notes
    assert "worker" in note and "w0.h5" in note and "w1.h5" in note


@pytest.mark.parametrize("second", [None, 0.5])
def test_what_values_are_decoded_by_holds_for_all_files_or_none(
    second: float | None, tmp_path: Path
) -> None:
    """A scale factor that some files lack, or have otherwise, is in the audit trail alone."""
    for name, factor in (("1", 0.1), ("2", second)):
        with h5py.File(write_rows(tmp_path / f"{name}.h5", int(name), 3), "a") as file:
            file["seed"].attrs["add_offset"] = 7.0
            if factor is not None:
                file["seed"].attrs["scale_factor"] = factor
    done = join(tmp_path)
    (note,) = done.joined.notes
    assert "scale_factor of /seed" in note and "1.h5" in note
    assert done.taken[0].left_out == {"/seed@scale_factor": "0.1"}
    assert "/seed@scale_factor" not in done.taken[0].attributes
    with h5py.File(done.output) as output:
        assert "scale_factor" not in output["seed"].attrs
        assert output["seed"].attrs["add_offset"] == 7.0


def test_references_in_attributes_are_named(tmp_path: Path) -> None:
    """A reference means nothing in another file: it is left out, and said."""
    path = write_rows(tmp_path / "w0.h5", 0, 4)
    with h5py.File(path, "a") as file:
        file["aep"].attrs["belongs_to"] = file["seed"].ref
    assert any("belongs_to of /aep is not kept" in note for note in join(tmp_path).joined.notes)


def test_groups_that_hold_only_attributes_are_kept(tmp_path: Path) -> None:
    """What a program notes beside its tables stays where it was."""
    path = write_rows(tmp_path / "w0.h5", 0, 4)
    with h5py.File(path, "a") as file:
        file.create_group("setup/solver").attrs["tolerance"] = 1e-6
    done = join(tmp_path)
    with h5py.File(done.output) as file:
        assert file["setup/solver"].attrs["tolerance"] == 1e-6


def write_netcdf(path: Path, first: int, x: Sequence[float] = (0.0, 0.5, 1.0)) -> None:
    """What netCDF programs write: a dimension that grows, one that does not, and coordinates."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("task", None)
        file.createDimension("x", len(x))
        file.createDimension("xy", 2)
        file.createVariable("x", "f8", ("x",))[:] = x
        file.createVariable("task", "i4", ("task",))[:4] = np.arange(first, first + 4)
        wind = file.createVariable("wind", "f4", ("task", "x", "xy"))
        wind.units = "m/s"
        wind[:4] = np.arange(4 * len(x) * 2).reshape(4, len(x), 2) + first


def test_files_of_netcdf_stay_such(tmp_path: Path) -> None:
    """Dimensions and coordinates are those of the inputs, so that xarray opens the output."""
    for number in range(3):
        write_netcdf(tmp_path / f"w{number}.nc", 4 * number)
    done = join(tmp_path)
    with netCDF4.Dataset(done.output) as file:
        assert file["wind"].dimensions == ("task", "x", "xy") and file["wind"].units == "m/s"
        assert file["task"][:].tolist() == list(range(12))
        assert file["x"][:].tolist() == [0.0, 0.5, 1.0]
    with xarray.open_dataset(done.output, engine="h5netcdf") as data:
        assert data.wind.sel(task=5, x=0.5).values.tolist() == [12.0, 13.0]
    assert set(done.taken[0].datasets) == {"/task", "/wind", "/x", "/xy"}
    assert not done.taken[0].skipped and not done.joined.notes


def test_axes_that_differ_stop_a_merge_and_the_step_works(tmp_path: Path) -> None:
    """Coordinates of one file are not passed off as those of another, nor left out unasked."""
    write_netcdf(tmp_path / "w0.nc", 0)
    write_netcdf(tmp_path / "w1.nc", 4, (0.0, 0.5, 2.0))
    with pytest.raises(ConflictError, match=r"/x is an axis .* differs .* --skip x\b"):
        join(tmp_path)
    done = join(tmp_path, skip="x")
    with h5py.File(done.output) as file:
        assert "x" not in file and file["wind"].shape == (8, 3, 2)
    assert done.taken[0].skipped == ("/x",)


def test_compounds_with_texts_are_merged(tmp_path: Path) -> None:
    """Rows of a text and an integer of two widths become one table."""
    for number, kind in enumerate(("i4", "i8")):
        dtype = np.dtype([("x", kind), ("s", "S4"), ("f", "?")])
        rows = np.array([(number, b"q", True), (7, b"long", False)], dtype)
        fill = np.zeros((), dtype)
        write_table(tmp_path / f"w{number}.h5", {"t": rows}, fillvalue=fill, **GROWS)
    assert join(tmp_path).read("t").tolist() == [
        *[(0, b"q", True), (7, b"long", False)],
        *[(1, b"q", True), (7, b"long", False)],
    ]


@pytest.mark.parametrize(
    "value, text", [(7, "7"), ("node1", "node1"), (np.array([1.5, np.nan]), "[1.5, nan]")]
)
def test_attributes_that_differ_are_named_and_their_values_kept(
    tmp_path: Path, value: Any, text: str
) -> None:
    """The output has one of them; the note names all files, and what was taken has the others."""
    for number in range(3):
        with h5py.File(write_rows(tmp_path / f"{number}.h5", number, 4), "a") as file:
            file.attrs["worker"] = value if number else 0.0
    done = join(tmp_path)
    (note,) = done.joined.notes
    assert "attribute worker of / differs" in note and "1.h5" in note and "2.h5" in note
    assert [one.left_out for one in done.taken] == [{}, {"/@worker": text}, {"/@worker": text}]
    assert ["/@worker" in one.attributes for one in done.taken] == [True, False, False]


def test_a_copy_of_a_file_is_named(tmp_path: Path) -> None:
    """Its rows are joined, for nobody knows their keys, but not without a word."""
    first = write_rows(tmp_path / "a.h5", 0, 4)
    (tmp_path / "b.h5").write_bytes(first.read_bytes())
    write_rows(tmp_path / "c.h5", 4, 4)
    (note,) = join(tmp_path).joined.notes
    assert "b.h5 is equal to" in note and "a.h5" in note


# Columns that differ -----------------------------------------------------------------------------


def test_a_fill_value_is_widened_with_its_column(tmp_path: Path) -> None:
    """What stands for rows that a file lacks is the fill value, whatever type the column got."""
    write_table(tmp_path / "a.h5", {"n": np.arange(2, dtype="i4")}, fillvalue=-1, **GROWS)
    write_table(tmp_path / "b.h5", {"n": np.arange(2, dtype="i8")}, **GROWS)
    for name in "abc":
        write_table(tmp_path / f"{name}.h5", {"seed": np.arange(2)}, **GROWS)
    done = join(tmp_path)
    assert done.read("n").tolist() == [0, 1, 0, 1, -1, -1]
    assert any("2 rows filled with -1" in note for note in done.joined.notes)


def test_a_column_that_some_files_lack_is_filled(tmp_path: Path) -> None:
    """NaN for numbers with a point, 0 or no text for others; the files are named."""
    write_table(tmp_path / "w0.h5", {"seed": [1, 2]}, **GROWS)
    columns = {"seed": [3], "aep": [2.5], "steps": [7], "kind": np.array(["on"], "O")}
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        for name, values in columns.items():
            dtype = h5py.string_dtype() if name == "kind" else None
            file.create_dataset(name, data=values, dtype=dtype, maxshape=(None,))
    done = join(tmp_path)
    assert done.read("seed").tolist() == [1, 2, 3]
    assert np.isnan(done.read("aep")[:2]).all() and done.read("aep")[2] == 2.5
    assert done.read("steps").tolist() == [0, 0, 7]
    assert done.read("kind").tolist() == [b"", b"", b"on"]
    notes = [note for note in done.joined.notes if "w0.h5" in note]
    assert len(notes) == 3 and all("2 rows filled" in note for note in notes)


WIDENED: dict[str, tuple[Any, Any, Any]] = {
    "i4 and i8": (np.array([1], "i4"), np.array([2**40]), np.dtype("i8")),
    "f4 and f8": (np.array([1.5], "f4"), np.array([0.1]), np.dtype("f8")),
    "u1 and i1": (np.array([255], "u1"), np.array([-1], "i1"), np.dtype("i2")),
    "u8 and i8": (np.array([2**62], "u8"), np.array([-1]), np.dtype("i8")),
    "i4 and f8": (np.array([2**31 - 1], "i4"), np.array([0.1]), np.dtype("f8")),
    "i8 and f8": (np.array([2**53]), np.array([0.1]), np.dtype("f8")),
    "orders of bytes": (np.array([258], ">i4"), np.array([3], "<i4"), np.dtype("i4")),
    "S2 and S5": (np.array([b"ab"]), np.array([b"abcde"]), np.dtype("S5")),
    "c8 and c16": (np.array([1j], "c8"), np.array([0.1j]), np.dtype("c16")),
    "compounds": (
        np.array([(1, 2)], "i2, f4"),
        np.array([(2**40, 0.1)], "i8, f8"),
        np.dtype("i8, f8"),
    ),
}


@pytest.mark.parametrize("kind", WIDENED)
@pytest.mark.parametrize("is_turned", [False, True])
def test_types_are_widened_where_no_value_is_lost(
    kind: str, is_turned: bool, tmp_path: Path
) -> None:
    """The output has the type that holds all values, and says so."""
    first, second, dtype = WIDENED[kind]
    values = (second, first) if is_turned else (first, second)
    for number, value in enumerate(values):
        write_table(tmp_path / f"w{number}.h5", {"x": value, "n": [number]}, **GROWS)
    done = join(tmp_path)
    assert done.read("x").dtype == dtype
    assert done.read("x").tolist() == [v.tolist()[0] for v in values]
    assert any(f"merged as {dtype}" in n or "text of 5" in n for n in done.joined.notes)


def test_fixed_texts_join_those_of_any_length(tmp_path: Path) -> None:
    """Texts of both kinds become texts of any length, without their padding."""
    write_table(tmp_path / "w0.h5", {"x": np.array([b"ab", b""], "S4")}, **GROWS)
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        file.create_dataset("x", data=["größer"], dtype=h5py.string_dtype(), maxshape=(None,))
    assert join(tmp_path).read("x").tolist() == [b"ab", b"", "größer".encode()]


REFUSED: dict[str, tuple[Any, Any]] = {
    "i8 beyond 2**53 and f8": (np.array([2**53 + 1]), np.array([0.5])),
    "u8 beyond 2**63 and i8": (np.array([2**63], "u8"), np.array([-1])),
    "bool and integer": (np.array([True]), np.array([3])),
    "text and number": (np.array([b"a"]), np.array([3])),
    "enums": (
        np.array([1], h5py.enum_dtype({"A": 1}, "i1")),
        np.array([1], h5py.enum_dtype({"B": 1}, "i1")),
    ),
    "compounds": (np.array([(1, 2)], "i4, i4"), np.array([(1,)], [("a", "i4")])),
    "shapes of rows": (np.ones((1, 3)), np.ones((1, 4))),
    "dimensions": (np.ones((1, 3)), np.ones(1)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_one_column_names_both_places(kind: str, tmp_path: Path) -> None:
    """Nothing is cast, cut or padded: the join is refused before anything is written."""
    for number, value in enumerate(REFUSED[kind]):
        write_table(tmp_path / f"w{number}.h5", {"x": value, "n": [number]}, **GROWS)
    with pytest.raises(UsageError, match=r"/x .*w[01]\.h5.*w[01]\.h5"):
        Join(tmp_path)


def test_data_in_other_files_are_refused_by_name(tmp_path: Path) -> None:
    """Neither virtual nor external storage is followed."""
    write_rows(tmp_path / "w0.h5", 0, 4)
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        layout = h5py.VirtualLayout((4,), "f8", maxshape=(None,))
        layout[:4] = h5py.VirtualSource(tmp_path / "w0.h5", "aep", (4,))
        file.create_virtual_dataset("aep", layout)
    with pytest.raises(UsageError, match=r"/aep in .*w1\.h5 has its data in other files"):
        Join(tmp_path)
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        outside = [(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("aep", (4,), "f8", external=outside, maxshape=(None,))
        file["seed"] = np.arange(4)
    with pytest.raises(UsageError, match=r"/aep in .*w1\.h5 has its data in other files"):
        Join(tmp_path)


# How columns are stored --------------------------------------------------------------------------


def chunks_of(path: Path, name: str) -> list[tuple[int, bytes]]:
    with h5py.File(path) as file:
        data = file[name].id
        starts = [data.get_chunk_info(n).chunk_offset for n in range(data.get_num_chunks())]
        return [data.read_direct_chunk(start) for start in sorted(starts)]


def test_chunks_are_copied_as_they_are(tmp_path: Path) -> None:
    """Compressed chunks are the same bytes in the output, which can grow as the inputs could."""
    paths = [
        write_rows(tmp_path / f"w{number}.h5", 8 * number, rows, **{**STORAGE["gzip"], "chunks": 4})
        for number, rows in enumerate([8, 8, 6])
    ]
    done = join(tmp_path)
    for name in ("seed", "layout", "aep"):
        assert chunks_of(done.output, name) == [c for p in paths for c in chunks_of(p, name)]
    with h5py.File(done.output) as file:
        assert file["layout"].maxshape == (None, 3, 2) and file["layout"].compression == "gzip"
    assert done.read("seed").tolist() == list(range(22)) and not done.joined.notes


def write_unknown(path: Path, rows: int) -> None:
    """A dataset behind a filter that is not installed, with chunks of any bytes."""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4,))
        properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (2, 2))
        space = h5py.h5s.create_simple((rows,), (h5py.h5s.UNLIMITED,))
        data = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, space, properties)
        for first in range(0, rows, 4):
            data.write_direct_chunk((first,), bytes([65 + first]) * 11)


def test_chunks_behind_unknown_filters_are_copied(tmp_path: Path) -> None:
    """Nobody here has to understand what is copied as it is."""
    for number in range(2):
        write_unknown(tmp_path / f"w{number}.h5", 8)
    done = join(tmp_path)
    assert [data for _, data in chunks_of(done.output, "x")] == [b"A" * 11, b"E" * 11] * 2


def test_chunks_behind_unknown_filters_are_not_moved(tmp_path: Path) -> None:
    """Where they would have to be unpacked, the file is named and nothing is written for it."""
    write_unknown(tmp_path / "w0.h5", 6)
    write_unknown(tmp_path / "w1.h5", 8)
    with pytest.raises(DamagedError, match=r"w0\.h5.*32001"):
        Join(tmp_path).write()


@pytest.mark.parametrize("second", ["gzip", "contiguous", "lzf", "fletcher32"])
def test_what_is_packed_otherwise_is_packed_anew(second: str, tmp_path: Path) -> None:
    """Lengths that are no multiples of a chunk, or other filters, cost time and no data."""
    write_rows(tmp_path / "w0.h5", 0, 7, **{**STORAGE["gzip"], "chunks": 4})
    settings = {"chunks": None, "maxshape": None} if second == "contiguous" else STORAGE[second]
    write_rows(tmp_path / "w1.h5", 7, 11, **settings)
    done = join(tmp_path)
    assert done.read("seed").tolist() == list(range(18))
    assert done.read("aep").tolist() == [1.5 * seed for seed in range(18)]
    with h5py.File(done.output) as file:
        assert file["layout"].compression == "gzip"
    notes = [note for note in done.joined.notes if "packed again" in note]
    assert notes == ["unpacked and packed again: /aep, /layout, /seed"]


PACKED_AGAIN: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip", "compression_opts": 9},
    "gzip, shuffle": {"compression": "gzip", "compression_opts": 1, "shuffle": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
    "shuffle": {"shuffle": True},
}


@pytest.mark.parametrize("filters", PACKED_AGAIN)
@pytest.mark.parametrize("threads", [1, 2])
def test_filters_are_kept_by_what_is_packed_again(
    filters: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output has the filters and levels of the inputs, and may grow as they may."""
    monkeypatch.setattr(pack_chunks, "THREADS", threads)
    values = np.random.default_rng(1).random((2, 7, 5)).round(2)
    for number in range(2):
        with h5py.File(tmp_path / f"w{number}.h5", "w") as file:
            settings = {"maxshape": (None, 5), "chunks": (4, 2), "fillvalue": -1.0}
            file.create_dataset("x", data=values[number], **settings, **PACKED_AGAIN[filters])
    done = join(tmp_path)
    with h5py.File(done.output, "r+") as file, h5py.File(tmp_path / "w0.h5") as old:
        plans = [each["x"].id.get_create_plist() for each in (file, old)]
        assert plans[0].get_nfilters() == plans[1].get_nfilters()
        steps = [[plan.get_filter(n) for n in range(plan.get_nfilters())] for plan in plans]
        assert steps[0] == steps[1] and file["x"].chunks == (4, 2)
        file["x"].resize(20, axis=0)
        assert (file["x"][:14] == values.reshape(14, 5)).all()
        assert (file["x"][14:] == -1.0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_shuffled_columns_of_two_types_are_packed_as_the_wider(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes are shuffled by the size of the new elements, not by that of the first file's."""
    monkeypatch.setattr(pack_chunks, "THREADS", threads)
    for number, dtype in enumerate(("f4", "f8")):
        with h5py.File(tmp_path / f"w{number}.h5", "w") as file:
            settings = {"maxshape": (None,), "chunks": (3,), **PACKED_AGAIN["all"]}
            file.create_dataset("x", data=np.arange(5, dtype=dtype) + number, **settings)
    assert join(tmp_path).read("x").tolist() == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}])
def test_chunks_that_cut_rows_are_put_together(filters: dict[str, Any], tmp_path: Path) -> None:
    """A chunk may hold a part of a row, reach beyond the data, or not be there at all."""
    for number in range(2):
        with h5py.File(tmp_path / f"w{number}.h5", "w") as file:
            limits, chunks = (None, 5), (3, 2)
            data = file.create_dataset(
                "x", (7, 5), "i4", maxshape=limits, chunks=chunks, fillvalue=-1, **filters
            )
            data[:2, 1:] = np.arange(8).reshape(2, 4) + number
            data[6] = 9
    done = join(tmp_path)
    expected = np.full((14, 5), -1)
    for number in range(2):
        expected[7 * number : 7 * number + 2, 1:] = np.arange(8).reshape(2, 4) + number
        expected[7 * number + 6] = 9
    assert (done.read("x") == expected).all()


# Whether it is safe ------------------------------------------------------------------------------


def make_plain(folder: Path) -> None:
    for number in range(3):
        write_rows(folder / f"w{number}.h5", 10 * number + 1, 10)


def make_large(folder: Path) -> None:
    for number in range(2):
        write_rows(folder / f"w{number}.h5", 5000 * number + 1, 5000, chunks=500)


def make_packed(folder: Path) -> None:
    for number in range(3):
        write_rows(folder / f"w{number}.h5", 8 * number + 1, 8, compression="gzip")


def make_packed_again(folder: Path) -> None:
    for number in range(3):
        write_rows(folder / f"w{number}.h5", 7 * number + 1, 7, compression="gzip", chunks=4)


def make_converted(folder: Path) -> None:
    write_table(folder / "w0.h5", {"seed": np.arange(1, 9, dtype="i4"), "aep": np.ones(8)}, **GROWS)
    write_table(folder / "w1.h5", {"seed": np.arange(1, 9), "aep": np.ones(8)}, **GROWS)


MAKERS: dict[str, Callable[[Path], None]] = {
    "small files": make_plain,
    "large files": make_large,
    "packed": make_packed,
    "packed again": make_packed_again,
    "converted": make_converted,
}


def places_of(path: Path, name: str) -> list[tuple[int, int]]:
    """Where the data of a dataset lie in a file: offsets and sizes."""
    with h5py.File(path) as file:
        data = file[name].id
        if data.get_offset() is not None:
            return [(data.get_offset(), data.get_storage_size())]
        infos = [data.get_chunk_info(number) for number in range(data.get_num_chunks())]
        return [(info.byte_offset, info.size) for info in infos]


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["seed", "aep"])
def test_a_changed_byte_in_the_output_is_noticed(kind: str, name: str, tmp_path: Path) -> None:
    """The first, the last and a middle byte of each column are verified."""
    MAKERS[kind](tmp_path)
    done = Join(tmp_path).write().verify()
    places = places_of(done.output, name)
    (start, _), (middle, size), (last, last_size) = places[0], places[len(places) // 2], places[-1]
    for place in (start, middle + size // 2, last + last_size - 1):
        flip(done.output, place)
        with pytest.raises(DamagedError, match=f"/{name} does not read back"):
            done.verify()
        flip(done.output, place)
    done.verify()


@pytest.mark.parametrize("kind", MAKERS)
def test_a_block_that_was_never_written_is_noticed(kind: str, tmp_path: Path) -> None:
    """Zeros where rows should be are no rows."""
    MAKERS[kind](tmp_path)
    done = Join(tmp_path).write()
    for offset, size in places_of(done.output, "seed")[:1]:
        with done.output.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(size))
    with pytest.raises(DamagedError, match="/seed does not read back"):
        done.verify()


@pytest.mark.parametrize("kind", ["small files", "packed"])
def test_rows_in_the_wrong_place_are_noticed(kind: str, tmp_path: Path) -> None:
    """Bytes that are right and lie where others should be are wrong."""
    MAKERS[kind](tmp_path)
    done = Join(tmp_path).write()
    with h5py.File(done.output, "r+") as file:
        seeds = file["seed"][()]
        file["seed"][()] = np.roll(seeds, 8)
    with pytest.raises(DamagedError, match="/seed does not read back"):
        done.verify()


def change_attribute(file: Any) -> None:
    file["aep"].attrs["units"] = "MWh"


def drop_attribute(file: Any) -> None:
    del file.attrs["title"]


def drop_column(file: Any) -> None:
    del file["seed"]


def change_type(file: Any) -> None:
    values = file["seed"][()]
    del file["seed"]
    file["seed"] = values.astype("u8")


def shorten(file: Any) -> None:
    values = file["seed"][:-1]
    del file["seed"]
    file["seed"] = values


CHANGES = [change_attribute, drop_attribute, drop_column, change_type, shorten]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_structure_of_the_output_is_noticed(
    change: Callable[[Any], None], tmp_path: Path
) -> None:
    """Names, types, shapes and attributes are verified too."""
    make_plain(tmp_path)
    with h5py.File(tmp_path / "w0.h5", "a") as file:
        file.attrs["title"] = "here"
        file["aep"].attrs["units"] = "GWh"
    done = Join(tmp_path).write().verify()
    with h5py.File(done.output, "r+") as file:
        change(file)
    with pytest.raises(DamagedError):
        done.verify()


def test_changed_texts_are_noticed(tmp_path: Path) -> None:
    """Texts of any length, which lie in heaps, are verified too."""
    with h5py.File(tmp_path / "w0.h5", "w") as file:
        file.create_dataset("x", data=["one", "two"], maxshape=(None,))
    done = join(tmp_path)
    place = done.output.read_bytes().index(b"two")
    flip(done.output, place)
    with pytest.raises(DamagedError, match="/x does not read back"):
        done.verify()


@pytest.mark.parametrize("kind", MAKERS)
def test_a_cut_output_is_noticed(kind: str, tmp_path: Path) -> None:
    """An output that ends too early is damaged, whatever h5py says of it."""
    MAKERS[kind](tmp_path)
    done = Join(tmp_path).write()
    os.truncate(done.output, done.output.stat().st_size // 2)
    with pytest.raises(DamagedError):
        done.verify()


@pytest.mark.parametrize("kind", MAKERS)
def test_an_input_that_changed_is_noticed(kind: str, tmp_path: Path) -> None:
    """A file that is written after it was looked at stops the join, though its size is the same.

    A small one was read when it was looked at: what it was then is joined, and that is said of it.
    """
    MAKERS[kind](tmp_path)
    looked = Join(tmp_path)
    path = tmp_path / "w1.h5"
    before = path.read_bytes()
    flip(path, path.stat().st_size - 1)
    os.utime(path, ns=(1, looked.inputs[1].modified_ns + 1))
    if looked.inputs[1].is_kept:
        taken = looked.write().taken[1]
        assert taken.xxh3 == xxh3_64_intdigest(before)
        return
    with pytest.raises(ChangedError, match=r"w1\.h5 changed"):
        looked.write()


@pytest.mark.parametrize("kind", MAKERS)
def test_checksums_are_those_of_whole_files(kind: str, tmp_path: Path) -> None:
    """The audit trail has the checksum of every input, however it was copied."""
    MAKERS[kind](tmp_path)
    for taken in join(tmp_path).taken:
        assert taken.xxh3 == xxh3_64_intdigest(taken.source.path.read_bytes())


def test_inputs_stay_as_they_are(tmp_path: Path) -> None:
    """Neither bytes nor times of an input change."""
    make_packed(tmp_path)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.glob("w*.h5")}
    join(tmp_path)
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in tmp_path.glob("w*.h5")}


def not_closed(folder: Path) -> Path:
    """Three packed files, of which the second was not closed."""
    for number in range(3):
        storage = {**STORAGE["gzip"], "chunks": 4, "libver": "latest"}
        write_rows(folder / f"w{number}.h5", 8 * number + 1, 8, **storage)
    set_flags(folder / "w1.h5", 1)
    return folder / "w1.h5"


def test_a_file_that_was_not_closed_is_joined_if_all_can_be_read(tmp_path: Path) -> None:
    """What is whole in it is taken as it is."""
    not_closed(tmp_path)
    assert join(tmp_path).read("seed").tolist() == list(range(1, 25))


def test_every_chunk_of_a_file_that_was_not_closed_is_unpacked(tmp_path: Path) -> None:
    """A chunk that cannot be unpacked stops the join, although it could be copied."""
    path = not_closed(tmp_path)
    (place, size), *_ = places_of(tmp_path / "w0.h5", "layout")  # which has the same structure
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * size)
    with pytest.raises(DamagedError, match=r"w1\.h5.*/layout"):
        Join(tmp_path).write()


# Whether a file is in an output ------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_a_joined_file_is_found_in_the_output(kind: str, tmp_path: Path) -> None:
    """Each input is there at its rows, and at no others."""
    MAKERS[kind](tmp_path)
    done = join(tmp_path)
    survey, last = done.survey, done.taken[-1]
    assert all(is_in_columns(survey, t.source, done.output, t.rows) for t in done.taken)
    (name, (first, count)), *_ = last.rows.items()
    assert not is_in_columns(survey, last.source, done.output, {name: (first - 1, count)})
    assert not is_in_columns(survey, last.source, done.output, {name: (first, count - 1)})
    assert not is_in_columns(survey, last.source, done.output, {})


def is_in_columns(survey: Survey, one: Input, output: Path, rows: Any) -> bool:
    """Whether every dataset of a file is in the output."""
    with survey.opened(one) as layout:
        every = {path for path, _ in layout.tree.datasets}
    return datasets_in_columns(survey, one, output, rows) == every


def test_a_file_with_another_value_is_not_in_the_output(tmp_path: Path) -> None:
    """One value that differs is enough, in either file."""
    make_plain(tmp_path)
    done = join(tmp_path)
    last = done.taken[-1]
    with h5py.File(done.output, "r+") as file:
        file["layout"][25, 1, 1] += 1e-9
    assert not is_in_columns(done.survey, last.source, done.output, last.rows)
    assert is_in_columns(done.survey, done.taken[0].source, done.output, done.taken[0].rows)


def test_a_file_with_a_new_column_is_not_in_the_output(tmp_path: Path) -> None:
    """A file that has more than what was merged may not be taken for merged."""
    make_plain(tmp_path)
    done = join(tmp_path)
    path = done.taken[0].source.path
    write_table(path, {"late": np.arange(10.0)}, **GROWS)
    again = Survey().look_at(path)
    assert not is_in_columns(Survey(), again, done.output, done.taken[0].rows)
