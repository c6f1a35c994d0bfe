"""What an output looks like to other programs, and that it notices damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

from h5sweep import check_files
from h5sweep.base.plan import Plan, plan_product
from h5sweep.errors import DamagedError, WrongFolderError
from h5sweep.merge.from_records import build
from h5sweep.merge.from_records.build import merge_run
from h5sweep.output import reader as output
from h5sweep.output import writer
from h5sweep.output.verify import verify_rows
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import RecordKind
from terminal import Terminal
from written_records import write_failure, write_records

ENGINES = ["h5netcdf", "netcdf4"]


def seeds(count: int) -> Plan:
    return plan_product({"farm": ["Øresund", "anholt"], "seed": range((count + 1) // 2)})


def all_kinds(task: int) -> dict[str, Any]:
    """A result with a value of every dtype that a task may return."""
    result: dict[str, Any] = {
        np.dtype(dtype).name: np.array([task, task + 1, 7], dtype)
        for dtype in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
    }
    days = np.array(["2026-11-15T01:02:03", "1969-12-31"], "M8[s]") + np.timedelta64(task, "h")
    units = ["ns", "us", "ms", "s", "m", "h", "D", "W"]
    times = {f"at_{unit}": days.astype(f"M8[{unit}]") for unit in units}
    lengths = {
        f"for_{unit}": np.array([task, -5], f"m8[{unit}]") for unit in ["ns", "us", "ms", "s", "D"]
    }
    return (
        result
        | times
        | lengths
        | {
            "flag": task % 2 == 0,
            "flags": np.array([True, False, task % 3 == 0]),
            "number": task,
            "value": task / 3,
            "nan": np.array([np.nan, -0.0, np.inf]),
            "text": f"Grüße {task} 風",
            "empty_text": "",
            "texts": np.array([["a", "ß" * task], ["", "風"]]),
            "matrix": np.arange(6.0).reshape(2, 3) * task,
            "zero_d": np.array(task * 1.5),
            "nothing": np.empty((0,)),
            "no_width": np.empty((2, 0), np.int32),
            "big_endian": np.array([task, 2], ">i4"),
        }
    )


@pytest.fixture
def everything(tmp_path: Path) -> tuple[RunFolder, dict[int, dict[str, Any]]]:
    """An output with a value of every kind, a failure, and non-ASCII names for good measure."""
    folder, plan = RunFolder(tmp_path / "out.h5"), seeds(8)
    results = {task: all_kinds(task) for task in range(7)}
    write_records(folder, plan, results)
    write_failure(folder, plan, 7, message="nix\0 \ud800 gefunden", where="study.py:3")
    folder.save_sweep(
        {
            "name": "Größe",
            "dims": {"matrix": ["turbine", "xy"]},
            "units": {"value": "GW h"},
            "source": "def optimise(): ...\n",
            "versions": {"numpy": np.__version__},
        }
    )
    merge_run(folder)
    return folder, results


@pytest.mark.parametrize("engine", ENGINES)
def test_every_dtype_reads_back_in_xarray(everything: Any, engine: str) -> None:
    """Both engines of xarray give every value back, in the dtype's own meaning."""
    folder, results = everything
    with xr.open_dataset(folder.output, engine=engine) as dataset:
        loaded = dataset.load()
    assert dict(loaded.sizes) | {"task": 7, "turbine": 2, "xy": 3} == dict(loaded.sizes)
    assert set(loaded.coords) == {"task", "farm", "seed"}
    for name in results[0]:
        expected = np.stack([np.asarray(result[name]) for result in results.values()])
        found = loaded[name].values
        if expected.dtype.kind in "mM":
            assert found.dtype.kind == expected.dtype.kind, name
            assert (found == expected).all(), name
        elif expected.dtype.kind == "U":
            assert (found.astype(str) == expected).all(), name
        else:
            # The netcdf4 engine gives complex numbers as pairs of fields.
            found = found.view(expected.dtype) if expected.dtype.kind == "c" else found
            np.testing.assert_array_equal(found, expected, err_msg=name)
    assert loaded["flags"].dtype == bool
    assert loaded["finished_at"].dtype.kind == "M"
    assert loaded["finished_at"].values[3] == np.datetime64("2023-11-14T22:13:23")
    assert loaded["duration_s"].dtype == float
    assert loaded["farm"].values.tolist()[:5] == ["Øresund"] * 4 + ["anholt"]


def test_every_dtype_is_bit_exact(everything: Any) -> None:
    """What h5py reads has the very bytes that the task returned."""
    folder, results = everything
    with h5py.File(folder.output) as file:
        for name, first in results[0].items():
            for task, result in results.items():
                value = np.asarray(result[name])
                if value.dtype.kind == "U":
                    texts = file[name].asstr()[task]
                    assert np.array_equal(np.asarray(texts, object), value.astype(object))
                elif name in ("at_W", "for_D"):
                    coarse = value.astype("M8[D]" if name == "at_W" else "m8[s]")
                    assert file[name][task].tobytes() == coarse.tobytes()
                elif value.dtype == np.float16:
                    assert file[name][task].tobytes() == value.astype("f4").tobytes()
                else:
                    little = value.astype(value.dtype.newbyteorder("<"))
                    assert file[name][task].tobytes() == little.tobytes(), name
            assert first is not None


@pytest.mark.parametrize("arguments", [["ncdump", "-h"], ["ncdump"], ["h5dump", "-H"], ["h5dump"]])
def test_command_line_tools_open_it(everything: Any, arguments: list[str]) -> None:
    """The netCDF and HDF5 tools of the oldest supported systems print the file."""
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed")
    folder, _ = everything
    shown = subprocess.run([*arguments, folder.output], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "farm" in shown.stdout


def test_attributes_are_fixed_ascii_wherever_they_can_be(everything: Any) -> None:
    """ASCII attributes are fixed-length; only text that is not ASCII is of variable length."""
    folder, _ = everything
    with h5py.File(folder.output) as file:
        types = {name: file.attrs.get_id(name).dtype for name in file.attrs}
        assert types["Conventions"].kind == "S"
        assert types["title"].kind == "O"
        assert file.attrs["Conventions"] == b"CF-1.11, ACDD-1.3"
        assert file.attrs["h5sweep_key"] == b"farm seed"
        assert (file.attrs["tasks_done"], file.attrs["tasks_planned"]) == (7, 8)
        assert np.isnan(file["value"].fillvalue)
        assert "_FillValue" not in file["value"].attrs
        assert file["value"].attrs["units"] == b"GW h"


def test_failures_and_provenance_are_groups(everything: Any) -> None:
    """A failed task is a row of /failures, and the sweep's source a text in /provenance."""
    folder, _ = everything
    with h5py.File(folder.output) as file:
        failures = file["failures"]
        assert failures["task"][:].tolist() == [7]
        assert failures["farm"].asstr()[:].tolist() == ["anholt"]
        assert failures["outcome"].asstr()[:].tolist() == ["raised"]
        assert failures["message"].asstr()[0] == "nix ? gefunden"
        assert file["provenance/source"].asstr()[()] == "def optimise(): ...\n"
    with xr.open_dataset(folder.output, group="failures", engine="h5netcdf") as dataset:
        assert dataset.sizes == {"failure": 1}


def test_row_checksums_hold_and_notice_a_flipped_byte(everything: Any) -> None:
    """Every row's checksum holds; after one byte is flipped, exactly that row's fails."""
    folder, _ = everything
    assert verify_rows(folder.output) == []
    with h5py.File(folder.output) as file:
        offset = file["matrix"].id.get_offset() + 4 * 6 * 8 + 3
    with folder.output.open("r+b") as raw:
        raw.seek(offset)
        byte = raw.read(1)
        raw.seek(offset)
        raw.write(bytes([byte[0] ^ 0xFF]))
    assert verify_rows(folder.output) == [4]


def test_row_checksum_is_the_one_of_the_record(tmp_path: Path) -> None:
    """A row stored as it was recorded has the checksum that its worker computed."""
    folder, plan = RunFolder(tmp_path / "out.h5"), seeds(2)
    path = write_records(folder, plan, {0: {"x": 1.5, "name": "ß"}, 1: {"x": 2.5, "name": ""}})
    merge_run(folder)
    from h5sweep.runfolder.records import read_records

    checksums = [r.data_crc32 for r in read_records(path)[0] if r.kind is RecordKind.DONE]
    with h5py.File(folder.output) as file:
        assert file["row_crc32"][:].tolist() == checksums
    assert verify_rows(folder.output) == []


@pytest.fixture
def many_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run folder with 400 tasks of four farms, written a few rows at a time."""
    monkeypatch.setattr(writer, "LIBRARY_ROWS", 64)
    monkeypatch.setattr(build, "LIBRARY_ROWS", 64)
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, FARMS, {task: {"aep": task / 7} for task in range(len(FARMS))})
    return folder


FARMS = plan_product({"farm": ["onshore", "", "überall", "x" * 40_000], "seed": range(100)})


def test_key_texts_of_many_rows_read_back(many_texts: RunFolder) -> None:
    """Empty texts, long ones and those that are not ASCII; `check --deep` has no objection."""
    merge_run(many_texts)
    farms = [FARMS.key(task)["farm"] for task in range(len(FARMS))]
    with h5py.File(many_texts.output) as file:
        assert file["farm"].asstr()[:].tolist() == farms
    [found] = check_files([many_texts.output], depth="deep").files
    assert not found.findings


def test_a_key_text_that_is_written_wrongly_is_noticed(
    many_texts: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever row it is, no output takes its place."""
    write = writer.OutputWriter.write

    def go_wrong(self: writer.OutputWriter, name: str, first: int, values: Any) -> None:
        if name == "farm":
            values = values.copy()
            values[350] = b"y" * 40_000
        write(self, name, first, values)

    monkeypatch.setattr(writer.OutputWriter, "write", go_wrong)
    with pytest.raises(DamagedError, match="farm does not read back"):
        merge_run(many_texts)
    assert not many_texts.output.exists()


def test_keys_read_back(everything: Any) -> None:
    """The key columns of an output tell which tasks it holds."""
    folder, _ = everything
    with output.OutputReader(folder.output) as reader:
        rows = list(reader.keys().rows())
    assert rows[0] == {"farm": "Øresund", "seed": 0}
    assert len(rows) == 7


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """An HDF5 file that h5sweep did not write is neither read nor replaced."""
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(WrongFolderError, match="choose another output"):
        output.OutputReader(path)


def test_a_file_that_is_no_hdf5_is_damaged(tmp_path: Path) -> None:
    """A truncated output is named, with what to do next."""
    path = tmp_path / "out.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 50)
    with pytest.raises(DamagedError, match=r"out\.h5.*Move it away"):
        output.OutputReader(path)


def test_plug_ins_are_off() -> None:
    """The HDF5 library was loaded without the means to load filters from elsewhere."""
    code = "import os, h5sweep.output; print(os.environ['HDF5_PLUGIN_PRELOAD'])"
    import sys

    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "::\n"


def test_an_output_that_is_open_in_the_same_process_is_read(terminal: Terminal) -> None:
    """However it is locked; for writing it has to be closed, and is not called damaged."""
    terminal.write(
        "main.py",
        """
        import h5py, h5sweep, h5sweep.errors
        def f(seed):
            return {"x": seed}
        h5sweep.sweep(seed=range(2))(f).run("out.h5")
        for seeds, locking in ((3, None), (4, True), (5, False)):
            with h5py.File("out.h5", locking=locking) as file:
                print(h5sweep.sweep(seed=range(seeds))(f).run("out.h5").tasks_done, len(file["x"]))
        with h5py.File("out.h5", "r+") as file:
            try:
                h5sweep.sweep(seed=range(6))(f).run("out.h5")
                h5sweep.verify_output("out.h5")
            except h5sweep.errors.UsageError as error:
                print(error)
        """,
    )
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "3 2",
        "4 3",
        "5 4",
        "out.h5 is open in this process, for writing: close it there first",
    ], done.stderr
