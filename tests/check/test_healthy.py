"""Healthy files are never called damaged, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray

from cases import some_of
from h5sweep.check.check import check_files
from h5sweep.worker_files.findings import State
from hdf5_samples import FILTERS, INDEXES, LIBVERS, write_chunked, write_mixed

tables = pytest.importorskip("tables")


def assert_sound(folder: Path) -> None:
    for depth in ("quick", "structure", "deep"):
        report = check_files(folder, depth=depth)
        wrong = [(f.path, f.findings) for f in report.files if f.state is not State.SOUND]
        assert report.files and not wrong, depth


def test_files_of_every_version_with_user_blocks(tmp_path: Path) -> None:
    """A little of everything, in every version of the format, behind user blocks as MATLAB's."""
    for libver in LIBVERS:
        for user_block in (0, 512, 1024, 8192):
            write_mixed(tmp_path / f"{libver}_{user_block}.h5", libver, user_block=user_block)
    assert_sound(tmp_path)


def test_chunks_behind_a_user_block(tmp_path: Path) -> None:
    """What is last in a file with a user block is not taken for beyond its end."""
    for filters in FILTERS:
        path = tmp_path / f"{filters}.h5".replace(" ", "_")
        write_chunked(path, "latest", "extensible array", filters, user_block=4096)
    assert_sound(tmp_path)


def test_chunks_far_apart(tmp_path: Path) -> None:
    """A few chunks out of many millions that there could be, in one dimension or two."""
    for libver in ("earliest", "v110", "latest"):
        with h5py.File(tmp_path / f"{libver}.h5", "w", libver=libver) as file:
            line = file.create_dataset("line", (10**7,), "f8", chunks=(1,), maxshape=(None,))
            plane = file.create_dataset(
                "plane", (10**6, 10**6), "f8", chunks=(1, 1), maxshape=(None, None)
            )
            for place in (0, 7, 10**5, 10**6 - 1):
                line[10 * place] = plane[place, place] = 1
    assert_sound(tmp_path)


@pytest.mark.parametrize("libver", LIBVERS)
def test_names_that_are_no_utf_8(libver: str, tmp_path: Path) -> None:
    """Names as old programs wrote them, in Latin-1, come in the order of their bytes."""
    with h5py.File(tmp_path / "latin.h5", "w", libver=libver) as file:
        for name in ("süd".encode("latin-1"), b"\xff", "süd".encode(), b"sz", b"[", b"\\z"):
            file.create_dataset(name, data=1)
    assert_sound(tmp_path)


@pytest.mark.parametrize("libver", some_of(["earliest", "v110", "latest"], 3))
def test_every_chunk_index_and_filter(libver: str, tmp_path: Path) -> None:
    """Every kind of index, and every filter that comes with h5py."""
    for index in INDEXES:
        for filters in FILTERS:
            name = f"{index}_{filters}.h5".replace(" ", "_")
            write_chunked(tmp_path / name, libver, index, filters)
    assert_sound(tmp_path)


def test_netcdf_files(tmp_path: Path) -> None:
    """Unlimited dimensions, of which some variables are shorter than others, and groups."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 4)
        for number, rows in enumerate((10, 10, 9, 10, 3)):
            variable = file.createVariable(f"v{number}", "f8", ("time", "x"), zlib=bool(number % 2))
            variable[:rows] = np.ones((rows, 4))
        text = file.createGroup("inner").createVariable("text", str, ("time",))
        text[0] = "of any length"
    xarray.Dataset({"a": ("x", np.arange(3))}).to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    xarray.Dataset({"a": ("x", np.arange(3))}).to_netcdf(tmp_path / "c.nc", engine="netcdf4")
    assert_sound(tmp_path)


def test_pytables_files(tmp_path: Path) -> None:
    """Arrays that grow independently, tables, and arrays of any length."""
    with tables.open_file(str(tmp_path / "t.h5"), "w") as file:
        for number, rows in enumerate((10, 11, 10, 10)):
            array = file.create_earray("/", f"a{number}", tables.Float64Atom(), (0, 3))
            array.append(np.ones((rows, 3)))
        table = file.create_table("/", "table", {"x": tables.Int32Col(), "s": tables.StringCol(8)})
        table.append([(b"one", 1), (b"two", 2)])
        ragged = file.create_vlarray("/", "ragged", tables.Int32Atom())
        ragged.append([1, 2, 3])
        file.create_carray("/", "packed", obj=np.arange(1000), filters=tables.Filters(5, "zlib"))
    assert_sound(tmp_path)


@pytest.mark.exhaustive
def test_files_by_special_settings(tmp_path: Path) -> None:
    """Paged allocation, tracked order, closed SWMR, compact data, thousands of links."""
    with h5py.File(tmp_path / "paged.h5", "w", fs_strategy="page", fs_persist=True) as file:
        file["a"] = np.arange(100)
    with h5py.File(tmp_path / "order.h5", "w", track_order=True, libver="latest") as file:
        for number in reversed(range(100)):
            file[f"n{number}"] = number
            file.attrs[f"a{number}"] = number
    with h5py.File(tmp_path / "swmr.h5", "w", libver="latest") as file:
        data = file.create_dataset("a", (0,), "f8", maxshape=(None,), chunks=(4,))
        file.swmr_mode = True
        data.resize((9,))
        data[:] = 1
    with h5py.File(tmp_path / "compact.h5", "w") as file:
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_INT32, space, settings)
    with h5py.File(tmp_path / "many.h5", "w", libver="latest") as file:
        for number in range(3000):
            file[f"a_rather_long_name_of_a_task_{number}"] = number
    with h5py.File(tmp_path / "zeros.h5", "w") as file:
        for name in ("a", "b"):
            file.create_dataset(name, data=np.zeros(50), maxshape=(None,))
    assert_sound(tmp_path)
