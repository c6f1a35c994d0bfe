"""How much comes back from files of killed writers of other libraries, and of packed columns.

    python benchmarks/salvage_writers.py [--tasks 24] [--states 30] [--kills 2] [STYLE ...]
    python benchmarks/salvage_writers.py --write FILE STYLE TASKS     the writer, as it is recorded

A real writer's writes are recorded with strace and some of the file's states are read, and some
files of writers that were really killed. h5sweep has `--key` and no list of expected tasks; beside
it, the tools of benchmarks/salvage.py, which read row by row where a column fails. Prints the table
of docs/salvage.md; of all styles it also writes benchmarks/results/salvage_writers.json. Needs
strace, h5clear (hdf5-tools), pyfive, PyTables, pandas, netCDF4, xarray and h5netcdf.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

# The first of them finds the other two, which lie beside the tests.
from salvage import compare, new_sums, print_row, shares  # isort: skip
from recorded_writes import record_writes, states_of  # isort: skip
from salvage_checks import Results  # isort: skip

RESULTS = Path(__file__).parent / "results" / "salvage_writers.json"
WRITER = (__file__, "--write")
TURBINES = 20
KEY_OF_GROUPS, KEY_OF_ROWS = "s{seed:d}", "seed"
Result = dict[str, Any]
State = tuple[int, bytes]  # how many tasks had been flushed, and the file


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--states", type=int, default=30)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("styles", nargs="*", metavar="STYLE", help=", ".join(STYLES))
    given = parser.parse_args()
    print("| writer | h5py | h5clear | pyfive | **h5sweep** | wrong |")
    print("|---|---:|---:|---:|---:|---|")
    found = {}
    for name in given.styles or STYLES:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(Path(folder), name, given.tasks, given.states, given.kills)
        print_row(STYLES[name].title, found[name], wrong_of="h5clear")
    if not given.styles:
        settings = {"tasks": given.tasks, "states": given.states, "kills": given.kills}
        RESULTS.write_text(json.dumps({**settings, "styles": found}, indent=1) + "\n")


def measure(folder: Path, name: str, tasks: int, states: int, kills: int) -> dict[str, Any]:
    """Let every tool read states at random in which two tasks or more had been flushed."""
    style, chance = STYLES[name], random.Random(f"{name} 1")
    writes = record_writes(folder / "recorded.h5", name, tasks, WRITER)
    some = [state for state in states_of(writes) if state[0] > 1]
    some = chance.sample(some, min(states, len(some)))
    some += [killed_state(folder / "killed.h5", name, tasks, chance) for _ in range(kills)]
    truth: Results = {(task,): style.values_of(task) for task in range(tasks)}
    listed = partial(style.listed, names=list(truth[0,]))
    sums = new_sums()
    for completed, content in some:
        keys = {(task,) for task in range(completed)}
        compare(content, folder, truth, keys, sums, listed=listed, same=has_values, key=style.key)
    return shares(sums) | {"states": len(some)}


def killed_state(path: Path, name: str, tasks: int, chance: random.Random) -> State:
    """The file of a writer that was killed within 4 ms of the flush of some task."""
    path.unlink(missing_ok=True)
    words = [sys.executable, *WRITER, str(path), name, str(tasks)]
    last = chance.randrange(3, tasks - 1)
    with subprocess.Popen(words, stderr=subprocess.PIPE) as process:
        assert process.stderr
        for line in process.stderr:
            if line == f"done {last}\n".encode():
                break
        time.sleep(0.004 * chance.random())
        process.kill()
        return last + 1 + process.stderr.read().count(b"done"), path.read_bytes()


def has_values(found: Result, true: Result) -> bool:
    """Libraries add values of their own: only those of the task are compared."""
    return all(name in found and is_same(found[name], value) for name, value in true.items())


def is_same(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype == object and one.shape == ():
        one = np.asarray(one.item())
    if one.size == other.size == 1:
        one, other = one.reshape(()), other.reshape(())
    return bool(np.array_equal(one, other))


def list_groups(file: Any, names: list[str]) -> Results:
    found: Results = {}
    for name in list(file):
        with contextlib.suppress(Exception):  # what cannot be read is left out
            group = file[name]
            found[int(name.removeprefix("s")),] = {name: group[name][()] for name in names}
    return found


def list_columns(file: Any, names: list[str]) -> Results:
    names = ["seed", *names]
    rows = min(file[name].shape[0] for name in names)
    columns = [read_rows(file[name], rows) for name in names]
    found: Results = {}
    for row in set.intersection(*map(set, columns)):
        seed, *values = (column[row] for column in columns)
        found[int(seed),] = dict(zip(names[1:], values, strict=True))
    return found


def list_table(file: Any, names: list[str]) -> Results:
    table = file["results"]
    table = table if hasattr(table, "dtype") else table["table"]  # as pandas has it
    rows = read_rows(table, table.shape[0]).values()
    return {(int(row["seed"]),): {name: row[name] for name in names} for row in rows}


def read_rows(dataset: Any, rows: int) -> dict[int, Any]:
    """The first rows at once; if that fails, those that can be read alone."""
    with contextlib.suppress(Exception):
        return dict(enumerate(dataset[:rows]))
    found = {}
    for row in range(rows):
        with contextlib.suppress(Exception):
            found[row] = dataset[row]
    return found


def result_of(task: int) -> Result:
    chance = np.random.default_rng(task)
    return {"layout": chance.uniform(0, 5000, (TURBINES, 2)), "aep": chance.uniform(2e5, 3e5)}


def ragged_of(task: int) -> Result:
    chance = np.random.default_rng(task)
    return {"track": chance.uniform(0, 5000, 3 + task % 5), "aep": chance.uniform(2e5, 3e5)}


def frame_values_of(task: int) -> Result:
    return {"block0_values": result_of(task)["layout"]}


def row_values_of(task: int) -> Result:
    result = result_of(task)
    return {"aep": result["aep"], "x": result["layout"][0, 0]}


def each_task(
    tasks: int,
    flush: Callable[[], object] = lambda: None,
    values_of: Callable[[int], Result] = result_of,
) -> Iterator[tuple[int, Result]]:
    """Each task and its result; when it has been written, flush and say so on stderr."""
    for task in range(tasks):
        yield task, values_of(task)
        flush()
        sys.stderr.write(f"done {task}\n")
        sys.stderr.flush()


def write_pytables_groups(path: Path, tasks: int) -> None:
    import tables

    with tables.open_file(str(path), "w") as file:
        for task, result in each_task(tasks, file.flush):
            group = file.create_group("/", f"s{task}")
            for name, value in result.items():
                file.create_array(group, name, value)


def write_pytables_rows(path: Path, tasks: int, **packing: Any) -> None:
    import tables

    columns = {
        "seed": tables.Int64Col(),
        "layout": tables.Float64Col(shape=(TURBINES, 2)),
        "aep": tables.Float64Col(),
    }
    filters = tables.Filters(**packing) if packing else None
    with tables.open_file(str(path), "w") as file:
        table = file.create_table("/", "results", columns, filters=filters, expectedrows=tasks)
        for task, result in each_task(tasks, file.flush):
            row = table.row
            for name, value in {"seed": task, **result}.items():
                row[name] = value
            row.append()
            table.flush()


def write_pandas_fixed(path: Path, tasks: int) -> None:
    import pandas as pd

    with pd.HDFStore(path, "w") as store:
        for task, result in each_task(tasks, store.flush):
            frame = pd.DataFrame(result["layout"], columns=["x", "y"])
            store.put(f"s{task}", frame, format="fixed")


def write_pandas_reopened(path: Path, tasks: int) -> None:
    import pandas as pd

    for task, result in each_task(tasks):
        frame = pd.DataFrame(result["layout"], columns=["x", "y"])
        frame.to_hdf(path, key=f"s{task}", mode="a")


def write_pandas_table(path: Path, tasks: int) -> None:
    import pandas as pd

    with pd.HDFStore(path, "w") as store:
        for task, values in each_task(tasks, store.flush, row_values_of):
            row = pd.DataFrame({"seed": [task], **{name: [v] for name, v in values.items()}})
            store.append("results", row, format="table", data_columns=True, index=False)


def write_netcdf_rows(path: Path, tasks: int, **packing: Any) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("task", None), ("turbine", TURBINES), ("xy", 2)):
            file.createDimension(name, size)
        file.createVariable("seed", "i8", ("task",), **packing)
        file.createVariable("layout", "f8", ("task", "turbine", "xy"), **packing)
        file.createVariable("aep", "f8", ("task",), **packing)
        for task, result in each_task(tasks, file.sync):
            for name, value in {"seed": task, **result}.items():
                file[name][task] = value


def write_netcdf_groups(path: Path, tasks: int) -> None:
    import netCDF4

    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("turbine", TURBINES)
        file.createDimension("xy", 2)
        for task, result in each_task(tasks, file.sync):
            group = file.createGroup(f"s{task}")
            group.createVariable("layout", "f8", ("turbine", "xy"))[:] = result["layout"]
            group.createVariable("aep", "f8", ())[...] = result["aep"]


def write_xarray_groups(path: Path, tasks: int) -> None:
    import xarray as xr

    for task, result in each_task(tasks):
        values = {"layout": (("turbine", "xy"), result["layout"]), "aep": ((), result["aep"])}
        mode = "a" if task else "w"
        xr.Dataset(values).to_netcdf(path, mode=mode, group=f"s{task}", engine="netcdf4")


def write_h5netcdf_groups(path: Path, tasks: int) -> None:
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"turbine": TURBINES, "xy": 2}
        for task, result in each_task(tasks, partial(flush_h5netcdf, file)):
            group = file.create_group(f"s{task}")
            group.create_variable("layout", ("turbine", "xy"), data=result["layout"])
            group.create_variable("aep", (), data=result["aep"])


def write_h5netcdf_rows(path: Path, tasks: int) -> None:
    import h5netcdf

    with h5netcdf.File(path, "w") as file:
        file.dimensions = {"task": None, "turbine": TURBINES, "xy": 2}
        file.create_variable("seed", ("task",), "i8")
        file.create_variable("layout", ("task", "turbine", "xy"), "f8")
        file.create_variable("aep", ("task",), "f8")
        for task, result in each_task(tasks, partial(flush_h5netcdf, file)):
            file.resize_dimension("task", task + 1)
            for name, value in {"seed": task, **result}.items():
                file[name][task] = value


def flush_h5netcdf(file: Any) -> None:
    file.flush()
    file._h5file.flush()  # its own flush leaves what HDF5 holds in memory


def write_h5py_groups(path: Path, tasks: int) -> None:
    with h5py.File(path, "w") as file:
        for task, result in each_task(tasks, file.flush):
            group = file.create_group(f"s{task}")
            group.create_dataset("layout", data=result["layout"], compression="gzip")
            group["aep"] = result["aep"]


def write_h5py_columns(
    path: Path, tasks: int, *, libver: str = "earliest", is_guessed: bool = False, **packing: Any
) -> None:
    """Rows of columns; `is_guessed`: h5py chooses the chunks."""
    with h5py.File(path, "w", libver=libver) as file:
        for name, inner in (("seed", ()), ("layout", (TURBINES, 2)), ("aep", ())):
            file.create_dataset(
                name,
                (0, *inner),
                "i8" if name == "seed" else "f8",
                maxshape=(None, *inner),
                chunks=True if is_guessed else (16 if inner else 256, *inner),
                **packing,
            )
        append_rows(file, tasks, result_of)


def write_h5py_ragged(path: Path, tasks: int) -> None:
    with h5py.File(path, "w") as file:
        for name, dtype in (("seed", "i8"), ("track", h5py.vlen_dtype("f8")), ("aep", "f8")):
            file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(64,))
        append_rows(file, tasks, ragged_of)


def append_rows(file: Any, tasks: int, values_of: Callable[[int], Result]) -> None:
    file.flush()
    for task, result in each_task(tasks, file.flush, values_of):
        for name, value in {"seed": task, **result}.items():
            file[name].resize(task + 1, axis=0)
            file[name][task] = value


@dataclass(frozen=True)
class Style:
    """One way to write tasks, and how others list them."""

    title: str
    write: Callable[..., None]
    listed: Callable[..., Results]
    values_of: Callable[[int], Result] = result_of

    @property
    def key(self) -> str:
        return KEY_OF_GROUPS if self.listed is list_groups else KEY_OF_ROWS


GZIP_COLUMNS = partial(write_h5py_columns, compression="gzip")
LZF_COLUMNS = partial(write_h5py_columns, compression="lzf")
STYLES = {
    "pytables_groups": Style("PyTables, one group per task", write_pytables_groups, list_groups),
    "pytables_rows": Style("PyTables, rows", write_pytables_rows, list_table),
    "pytables_rows_zlib": Style(
        "PyTables, rows with zlib",
        partial(write_pytables_rows, complevel=5, complib="zlib"),
        list_table,
    ),
    "pandas_fixed": Style("pandas, fixed", write_pandas_fixed, list_groups, frame_values_of),
    "pandas_reopen": Style(
        "pandas, fixed, opened for each task", write_pandas_reopened, list_groups, frame_values_of
    ),
    "pandas_table": Style("pandas, table", write_pandas_table, list_table, row_values_of),
    "netcdf_unlimited": Style("netCDF4, unlimited dimension", write_netcdf_rows, list_columns),
    "netcdf_unlimited_zlib": Style(
        "netCDF4, unlimited dimension, zlib", partial(write_netcdf_rows, zlib=True), list_columns
    ),
    "netcdf_groups": Style("netCDF4, one group per task", write_netcdf_groups, list_groups),
    "xarray_groups": Style(
        'xarray, `to_netcdf(mode="a", group=...)`', write_xarray_groups, list_groups
    ),
    "h5netcdf_groups": Style("h5netcdf, one group per task", write_h5netcdf_groups, list_groups),
    "h5netcdf_unlimited": Style("h5netcdf, unlimited dimension", write_h5netcdf_rows, list_columns),
    "gzip_groups": Style("h5py, gzip, one group per task", write_h5py_groups, list_groups),
    "gzip_columns": Style("h5py, gzip columns", GZIP_COLUMNS, list_columns),
    "gzip_columns_auto": Style(
        "h5py, gzip columns, rows in eight chunks",
        partial(GZIP_COLUMNS, is_guessed=True),
        list_columns,
    ),
    "lzf_columns": Style("h5py, lzf columns", LZF_COLUMNS, list_columns),
    "lzf_columns_latest": Style(
        "h5py, lzf columns, `libver` latest", partial(LZF_COLUMNS, libver="latest"), list_columns
    ),
    "vlen_columns": Style("h5py, ragged columns", write_h5py_ragged, list_columns, ragged_of),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        STYLES[sys.argv[3]].write(Path(sys.argv[2]), int(sys.argv[4]))
    else:
        main()
