"""How long a merge takes beside `cat` of the same bytes, and beside the loops that people write.

    python benchmarks/merge.py [WORKLOAD...] [--folder /tmp/merge-bench] [--repetitions 5]
                               [--command] [--no-peers]

Workloads are made once into the folder and kept there. Prints a table each and writes
benchmarks/results/merge.json. Contenders take turns, each in a process of its own right after a run
of the floor, `cat FILES > out`; both with an fsync of the output. A contender's ratio is the median
of its ratios to those floors. Files are in the page cache. Imports do not count, except where the
whole command is measured.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from h5sweep import merge_files

RESULTS = Path(__file__).resolve().parent / "results" / "merge.json"
CHUNK_ROWS = 1280
LONG_S = 20.0
KEY = "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"
NESTED_KEY = "farm{farm_id:d}/type{farm_type:d}/seed{seed:d}"
COLUMNS_KEY = "farm_id,seed"


# What is merged ----------------------------------------------------------------------------------


def make_one_row_files(folder: Path) -> None:
    """W1: 3,000 files of one row."""
    random = np.random.default_rng(1)
    for number in range(3_000):
        values = _columns(random, 1, number)
        with h5py.File(folder / f"task_{number:05}.h5", "w") as file:
            for name, column in values.items():
                file[name] = column


def make_worker_files(folder: Path) -> None:
    """W2: 100 files of 1,000 rows, in chunks of 250, which may grow."""
    random = np.random.default_rng(2)
    for number in range(100):
        values = _columns(random, 1_000, 1_000 * number)
        _write_chunked(folder / f"worker_{number:03}.h5", values, 250)


def make_large_files(folder: Path) -> None:
    """W3: 16 files of 129 MB, in chunks of 1 MB."""
    _make_large(folder)


def make_compressed_files(folder: Path) -> None:
    """W3 with gzip and shuffle."""
    _make_large(folder, compression="gzip", shuffle=True)


def make_group_files(folder: Path) -> None:
    """W4: 100 files of 300 groups with a layout, a yield and three attributes each."""
    random = np.random.default_rng(4)
    for file_number in range(100):
        with h5py.File(folder / f"worker_{file_number:03}.h5", "w") as file:
            for number in range(300 * file_number, 300 * file_number + 300):
                _write_group(file, number, random.random((50, 2)) * 5000, random.random() * 1e9)


def make_stamped_files(folder: Path) -> None:
    """3,000 files of one row, with a time stamp and a number in attributes."""
    random = np.random.default_rng(5)
    for number in range(3_000):
        values = _columns(random, 1, number)
        with h5py.File(folder / f"task_{number:05}.h5", "w") as file:
            file.attrs["created"] = f"2026-11-{number % 28 + 1:02}T{number % 24:02}:15:{number:05}"
            file.attrs["duration_s"] = random.random() * 100
            for name, column in values.items():
                file[name] = column


def make_one_group_files(folder: Path) -> None:
    """3,000 files of one group, with a layout, a yield and three attributes."""
    random = np.random.default_rng(6)
    for number in range(3_000):
        with h5py.File(folder / f"task_{number:05}.h5", "w") as file:
            _write_group(file, number, random.random((50, 2)) * 5000, random.random() * 1e9)


def make_one_task_files(folder: Path) -> None:
    """3,000 files of one task, its datasets at the root."""
    random = np.random.default_rng(7)
    for number in range(3_000):
        with h5py.File(folder / f"{_group_name(number)}.h5", "w") as file:
            file["layout"] = random.random((50, 2)) * 5000
            file["aep"] = random.random() * 1e9


def make_growable_files(folder: Path) -> None:
    """3,000 files of one row that may grow."""
    random = np.random.default_rng(8)
    for number in range(3_000):
        _write_chunked(folder / f"task_{number:05}.h5", _columns(random, 1, number), 1)


def make_text_files(folder: Path) -> None:
    """100 files of 1,000 rows with a column of texts."""
    random = np.random.default_rng(9)
    for number in range(100):
        values = _columns(random, 1_000, 1_000 * number)
        kinds = [kind.decode() for kind in values.pop("farm_type").tolist()]
        path = folder / f"worker_{number:03}.h5"
        _write_chunked(path, values, 250)
        with h5py.File(path, "a") as file:
            file.create_dataset("farm_type", data=kinds, maxshape=(None,), chunks=(250,))


def make_uneven_files(folder: Path) -> None:
    """100 files of 1,030 rows in gzip chunks of 250, which do not line up."""
    random = np.random.default_rng(10)
    for number in range(100):
        values = _columns(random, 1_030, 1_030 * number)
        values["layout"] = np.round(values["layout"] * 64) / 64
        path = folder / f"worker_{number:03}.h5"
        _write_chunked(path, values, 250, compression="gzip", shuffle=True)


def make_ragged_groups(folder: Path) -> None:
    """100 files of 300 groups whose layouts have 66 to 100 turbines."""
    random = np.random.default_rng(11)
    for file_number in range(100):
        with h5py.File(folder / f"worker_{file_number:03}.h5", "w") as file:
            for number in range(300 * file_number, 300 * file_number + 300):
                layout = random.random((random.integers(66, 101), 2)) * 5000
                _write_group(file, number, layout, random.random() * 1e9)


def make_nested_groups(folder: Path) -> None:
    """100 files of 300 groups, /farm/type/seed, whose layouts have 66 to 100 turbines."""
    random = np.random.default_rng(12)
    for file_number in range(100):
        with h5py.File(folder / f"worker_{file_number:03}.h5", "w") as file:
            for number in range(300 * file_number, 300 * file_number + 300):
                group = file.create_group(_nested_name(number))
                group["layout"] = random.random((random.integers(66, 101), 2)) * 5000
                group["aep"] = random.random() * 1e9


def make_full_groups(folder: Path) -> None:
    """100 files of 300 groups with six datasets, four of 66 to 100 turbines, and attributes."""
    random = np.random.default_rng(13)
    for file_number in range(100):
        with h5py.File(folder / f"worker_{file_number:03}.h5", "w") as file:
            for number in range(300 * file_number, 300 * file_number + 300):
                turbines = random.integers(66, 101)
                group = _write_group(
                    file, number, random.random((turbines, 2)) * 5000, random.random() * 1e9
                )
                group["initial"] = random.random((turbines, 2)) * 5000
                group["power"] = random.random(turbines)
                group["wake_loss"] = random.random(turbines)
                group["history"] = random.random(40)
                group["layout"].attrs["units"] = "m"
                group.attrs["finished"] = f"2026-11-{number % 28 + 1:02}T{number:08}"


def _group_name(number: int) -> str:
    return f"farm{number // 3000}_t{number % 3}_s{number}"


def _nested_name(number: int) -> str:
    return f"farm{number // 3000}/type{number % 3}/seed{number}"


def _write_group(file: h5py.File, number: int, layout: np.ndarray, aep: float) -> h5py.Group:
    group = file.create_group(_group_name(number))
    group.attrs["farm_id"] = number // 3000
    group.attrs["farm_type"] = np.bytes_("offshore")
    group.attrs["seed"] = number
    group["layout"] = layout
    group["aep"] = aep
    return group


def _make_large(folder: Path, **filters: object) -> None:
    random, rows = np.random.default_rng(3), 120 * CHUNK_ROWS
    for number in range(16):
        values = _columns(random, rows, rows * number)
        # On a grid of 1/64 m, so that there is something to compress.
        values["layout"] = np.round(values["layout"] * 64) / 64
        _write_chunked(folder / f"worker_{number:02}.h5", values, CHUNK_ROWS, **filters)


def _columns(random: np.random.Generator, rows: int, first: int) -> dict[str, np.ndarray]:
    """840 bytes a task: a key, 50 turbine positions and what they yield."""
    task = np.arange(first, first + rows)
    kinds = np.array([b"onshore", b"offshore"], "S16")
    return {
        "farm_id": task // 1000,
        "farm_type": kinds[task % 2],
        "seed": task % 1000,
        "layout": random.random((rows, 50, 2)) * 5000,
        "aep": random.random(rows) * 1e9,
    }


def _write_chunked(path: Path, values: dict[str, np.ndarray], rows: int, **filters: object) -> None:
    with h5py.File(path, "w") as file:
        for name, column in values.items():
            limits, chunks = (None, *column.shape[1:]), (rows, *column.shape[1:])
            file.create_dataset(name, data=column, maxshape=limits, chunks=chunks, **filters)


# Who merges --------------------------------------------------------------------------------------


def merge_with_h5sweep(paths: list[Path], output: Path) -> None:
    """`h5sweep merge`, in this process: looked at, written, synced, verified, renamed, audited."""
    merge_files(paths[0].parent, output)


def merge_into_rows(key: str) -> Callable[[list[Path], Path], None]:
    """The same with a key: every task becomes a record and then a row."""

    def merge(paths: list[Path], output: Path) -> None:
        merge_files(paths[0].parent, output, key=key)

    return merge


def assign_slices(paths: list[Path], output: Path) -> None:
    """out[name][a:b] = in[name][:], into datasets of the right size."""
    with h5py.File(output, "w") as out:
        counts = []
        for path in paths:
            with h5py.File(path, "r") as file:
                counts.append(len(file["aep"]))
                if path == paths[0]:
                    shapes = {name: (file[name].shape[1:], file[name].dtype) for name in file}
        for name, (inner, dtype) in shapes.items():
            out.create_dataset(name, (sum(counts), *inner), dtype)
        first = 0
        for path, count in zip(paths, counts, strict=True):
            with h5py.File(path, "r") as file:
                for name in file:
                    out[name][first : first + count] = file[name][:]
            first += count


def resize_and_assign(paths: list[Path], output: Path) -> None:
    """Datasets that grow with every file."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                for name in file:
                    new = file[name]
                    if name not in out:
                        limits = (None, *new.shape[1:])
                        filters = {"compression": new.compression, "shuffle": new.shuffle}
                        out.create_dataset(
                            name, data=new[:], maxshape=limits, chunks=True, **filters
                        )
                        continue
                    first = len(out[name])
                    out[name].resize(first + len(new), axis=0)
                    out[name][first:] = new[:]


def copy_objects(paths: list[Path], output: Path) -> None:
    """out.copy(in[key], key), into a group for each file: what is in one file stays apart."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                group = out.create_group(path.stem)
                for name in file:
                    out.copy(file[name], group, name)


def copy_groups(paths: list[Path], output: Path) -> None:
    """out.copy(in[key], key) for every group."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                for name in file:
                    out.copy(file[name], name)


def copy_nested_groups(paths: list[Path], output: Path) -> None:
    """out.copy(in[path], path) for every group three levels down."""
    with h5py.File(output, "w") as out:
        for path in paths:
            with h5py.File(path, "r") as file:
                for farm in file:
                    for kind in file[farm]:
                        above = out.require_group(f"{farm}/{kind}")
                        for seed in file[farm][kind]:
                            out.copy(file[farm][kind][seed], above, seed)


def concatenate_with_xarray(paths: list[Path], output: Path) -> None:
    """xarray.open_mfdataset, then to_netcdf."""
    import xarray

    names = {"phony_dim_0": "row"}
    with xarray.open_mfdataset(
        paths,
        engine="h5netcdf",
        phony_dims="sort",
        combine="nested",
        concat_dim="row",
        preprocess=lambda data: data.rename({k: v for k, v in names.items() if k in data.dims}),
    ) as data:
        data.to_netcdf(output, engine="h5netcdf")


def as_netcdf(paths: list[Path]) -> list[Path]:
    """The same columns in netCDF files with a record dimension, without which NCO does nothing."""
    folder = paths[0].parent.with_name(paths[0].parent.name + ".netcdf")
    if not folder.exists():
        folder.mkdir()
        # In a process of its own: contenders are forked from this one, and its memory counts.
        words = [sys.executable, "-c", "import merge, sys; merge.write_netcdf(*sys.argv[1:])"]
        words += [str(folder), *map(str, paths)]
        subprocess.run(words, check=True, cwd=Path(__file__).parent)
    return [folder / path.name for path in paths]


def write_netcdf(folder: str, *paths: str) -> None:
    """Write columns as netCDF, each file under its name."""
    import netCDF4

    for path in map(Path, paths):
        with h5py.File(path, "r") as file, netCDF4.Dataset(Path(folder, path.name), "w") as out:
            out.createDimension("row", None)
            for name, column in file.items():
                dims = ["row"]
                for size in column.shape[1:] + (
                    (column.dtype.itemsize,) * (column.dtype.kind == "S")
                ):
                    dims.append(f"of_{size}_{len(dims)}")
                    if dims[-1] not in out.dimensions:
                        out.createDimension(dims[-1], size)
                values = column[:]
                if column.dtype.kind == "S":
                    values = values.view("S1").reshape(len(values), -1)
                packed = {"zlib": True, "shuffle": True} if column.compression else {}
                out.createVariable(name, values.dtype, dims, **packed)[:] = values


def concatenate_with_ncrcat(paths: list[Path], output: Path) -> None:
    """ncrcat of NCO."""
    words = ["ncrcat", "-O", *map(str, paths), str(output)]
    if os.spawnvp(os.P_WAIT, "ncrcat", words):
        raise RuntimeError("ncrcat refused")


def merge_by_command(paths: list[Path], output: Path) -> None:
    """The whole command, with the start of Python."""
    words = [sys.executable, "-m", "h5sweep", "merge", str(paths[0].parent), "-o", str(output)]
    if os.spawnv(os.P_WAIT, sys.executable, words):
        raise RuntimeError("h5sweep merge refused")


# What is measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A way to merge; slow ones get the first `most_files` files only, and a floor of their own."""

    run: Callable[[list[Path], Path], None]
    most_files: int | None = None
    prepare: Callable[[list[Path]], list[Path]] = list  # not timed


@dataclass(frozen=True)
class Workload:
    """Files, ours in this process, other ways, and how to see that the output is right."""

    make: Callable[[Path], None]
    ours: Callable[[list[Path], Path], None]
    peers: dict[str, Contender]
    check: Callable[[list[Path], Path], None]

    @property
    def title(self) -> str:
        return (self.make.__doc__ or "").rstrip(".")


def require_equal_columns(paths: list[Path], output: Path) -> None:
    """Every column holds the rows of all files, one file after the other."""
    with h5py.File(output, "r") as out:
        first = 0
        for path in paths:
            with h5py.File(path, "r") as file:
                for name in file:
                    rows = len(file[name])
                    assert np.array_equal(out[name][first : first + rows], file[name][:]), name
                first += rows
        assert all(len(out[name]) == first for name in out)


def require_equal_groups(paths: list[Path], output: Path) -> None:
    """Every group of every file is there, with its values and attributes."""
    with h5py.File(output, "r") as out:
        for path in paths[::10]:
            with h5py.File(path, "r") as file:
                file.visititems(lambda name, one: _require_equal(out[name], one))


def require_one_group_each(paths: list[Path], output: Path) -> None:
    """Every file is a group of its name, with all that is in it."""
    with h5py.File(output, "r") as out:
        for path in paths[::10]:
            with h5py.File(path, "r") as file:
                for name, dataset in file.items():
                    _require_equal(out[path.stem][name], dataset)
        assert len(out) == len(paths)


def _require_equal(found: h5py.Group | h5py.Dataset, one: h5py.Group | h5py.Dataset) -> None:
    if isinstance(one, h5py.Dataset):
        assert found.dtype == one.dtype and np.array_equal(found[()], one[()]), one.name
    assert dict(found.attrs) == dict(one.attrs), one.name


def column_peers(*, most_slow: int, most_packed: int | None = None) -> dict[str, Contender]:
    peers = {
        "out[name][a:b] = in[name][:]": Contender(assign_slices, most_packed),
        "resize and assign": Contender(resize_and_assign, most_packed),
        "out.copy(in[key], key)": Contender(copy_objects),
    }
    if shutil.which("ncrcat") and importlib.util.find_spec("netCDF4"):
        peers["ncrcat"] = Contender(concatenate_with_ncrcat, most_slow, as_netcdf)
    if importlib.util.find_spec("xarray") and importlib.util.find_spec("dask"):
        peers["xarray.open_mfdataset"] = Contender(concatenate_with_xarray, most_slow)
    return peers


def group_peers(key: str, loop: Callable[[list[Path], Path], None]) -> dict[str, Contender]:
    return {
        "h5sweep, with a key": Contender(merge_into_rows(key)),
        "out.copy(in[key], key)": Contender(loop),
    }


WORKLOADS = {
    "W1": Workload(
        make_one_row_files,
        merge_with_h5sweep,
        column_peers(most_slow=100),
        require_equal_columns,
    ),
    "W2": Workload(
        make_worker_files,
        merge_with_h5sweep,
        column_peers(most_slow=10)
        | {"h5sweep, with a key": Contender(merge_into_rows(COLUMNS_KEY))},
        require_equal_columns,
    ),
    "W3": Workload(
        make_large_files,
        merge_with_h5sweep,
        column_peers(most_slow=2),
        require_equal_columns,
    ),
    "W3-gzip": Workload(
        make_compressed_files,
        merge_with_h5sweep,
        column_peers(most_slow=2, most_packed=2),
        require_equal_columns,
    ),
    "W4": Workload(
        make_group_files, merge_with_h5sweep, group_peers(KEY, copy_groups), require_equal_groups
    ),
    "stamps": Workload(
        make_stamped_files,
        merge_with_h5sweep,
        {"out[name][a:b] = in[name][:]": Contender(assign_slices)},
        require_equal_columns,
    ),
    "group-per-file": Workload(
        make_one_group_files,
        merge_with_h5sweep,
        group_peers(KEY, copy_groups),
        require_equal_groups,
    ),
    "task-per-file": Workload(
        make_one_task_files,
        merge_with_h5sweep,
        group_peers(KEY, copy_objects),
        require_one_group_each,
    ),
    "growable": Workload(
        make_growable_files,
        merge_with_h5sweep,
        {"resize and assign": Contender(resize_and_assign)},
        require_equal_columns,
    ),
    "text": Workload(
        make_text_files,
        merge_with_h5sweep,
        {
            "out[name][a:b] = in[name][:]": Contender(assign_slices),
            "h5sweep, with a key": Contender(merge_into_rows(COLUMNS_KEY)),
        },
        require_equal_columns,
    ),
    "gzip-uneven": Workload(
        make_uneven_files,
        merge_with_h5sweep,
        {"resize and assign": Contender(resize_and_assign)},
        require_equal_columns,
    ),
    "ragged": Workload(
        make_ragged_groups,
        merge_with_h5sweep,
        group_peers(KEY, copy_groups),
        require_equal_groups,
    ),
    "ragged-nested": Workload(
        make_nested_groups,
        merge_with_h5sweep,
        group_peers(NESTED_KEY, copy_nested_groups),
        require_equal_groups,
    ),
    "ragged-full": Workload(
        make_full_groups,
        merge_with_h5sweep,
        group_peers(KEY, copy_groups),
        require_equal_groups,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", default=list(WORKLOADS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "merge-bench")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--command", action="store_true", help="measure the whole command as well")
    parser.add_argument("--no-peers", action="store_true", help="measure h5sweep only")
    arguments = parser.parse_args()
    gc.freeze()  # or each forked process would copy all that the collector touches
    for name in arguments.workloads:
        workload = WORKLOADS[name]
        paths = prepare(workload, arguments.folder / name)
        contenders = {"h5sweep": Contender(workload.ours)}
        if arguments.command:
            contenders["h5sweep merge (command)"] = Contender(merge_by_command)
        if not arguments.no_peers:
            contenders |= workload.peers
        output = arguments.folder / f"{name}.out.h5"
        table = measure(contenders, paths, output, arguments.repetitions)
        remove(output)
        workload.ours(paths, output)
        workload.check(paths, output)
        remove(output)
        print_table(workload.title, paths, table)
        save(name, workload, paths, table)


def prepare(workload: Workload, folder: Path) -> list[Path]:
    """Make the files unless they are there; the folder appears when all of them are in it."""
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        workload.make(part)
        part.rename(folder)
    paths = sorted(folder.iterdir())
    for path in paths:  # into the page cache
        path.read_bytes()
    return paths


def measure(
    contenders: dict[str, Contender], paths: list[Path], output: Path, repetitions: int
) -> dict[str, dict[str, float]]:
    """Run all by turns, each behind its floor; those that take long only once."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    files = {name: one.prepare(paths[: one.most_files]) for name, one in contenders.items()}
    for number in range(repetitions):
        for name, contender in contenders.items():
            if number and runs[name][0]["wall_s"] > LONG_S:
                continue
            some = files[name]
            floor = timed(concatenate_bytes, some, output)
            found = timed(contender.run, some, output)
            ratios = {
                "x_floor": found["wall_s"] / floor["wall_s"],
                "x_floor_cpu": found["cpu_s"] / floor["cpu_s"],
                "floor_s": floor["wall_s"],
            }
            runs[name].append({**found, **ratios, "files": len(some)})
    return {
        name: {key: statistics.median(run[key] for run in found) for key in found[0]}
        | {"repetitions": len(found)}
        for name, found in runs.items()
    }


def concatenate_bytes(paths: list[Path], output: Path) -> None:
    """The floor: cat FILES > out."""
    with output.open("wb") as file:
        subprocess.run(["cat", *paths], stdout=file, check=True)


def timed(
    run: Callable[[list[Path], Path], None], paths: list[Path], output: Path
) -> dict[str, float]:
    """Merge in a process of its own, forked from this one, and sync; wall, CPU time and memory."""
    remove(output)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            begun, cpu = time.perf_counter(), cpu_s()
            run(paths, output)
            sync(output)
            found = {"wall_s": time.perf_counter() - begun, "cpu_s": cpu_s() - cpu}
            os.write(writing, json.dumps(found).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, _, usage = os.wait4(child, 0)
    if not answer:
        raise SystemExit(f"{run.__name__} failed")
    return json.loads(answer) | {"peak_mb": usage.ru_maxrss / 1024}


def remove(output: Path) -> None:
    """Remove an output and what lies beside it."""
    for path in output.parent.glob(f"{output.name}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)


def cpu_s() -> float:
    """User and system time of this process and of the children that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def print_table(title: str, paths: list[Path], table: dict[str, dict[str, float]]) -> None:
    size = sum(path.stat().st_size for path in paths)
    print(f"{title}; {len(paths):,} files, {size / 1e6:,.0f} MB")
    heads = ("wall s", "CPU s", "x cat", "x cat CPU", "peak MB", "files", "runs")
    print(f"{'':30}" + "".join(f"{head:>10}" for head in heads))
    for name, row in table.items():
        print(
            f"{name:30}{row['wall_s']:10.3f}{row['cpu_s']:10.3f}{row['x_floor']:10.2f}"
            f"{row['x_floor_cpu']:10.2f}{row['peak_mb']:10.0f}{row['files']:10.0f}"
            f"{row['repetitions']:10.0f}"
        )


def save(
    name: str, workload: Workload, paths: list[Path], table: dict[str, dict[str, float]]
) -> None:
    """Put these results beside those of contenders that were not measured now."""
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    load = round(os.getloadavg()[0], 1)  # others may have used the cores meanwhile
    rows = {
        contender: {key: round(value, 4) for key, value in row.items()} | {"load": load}
        for contender, row in table.items()
    }
    known[name] = {
        "what": workload.title,
        "files": len(paths),
        "bytes": sum(path.stat().st_size for path in paths),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "results": known.get(name, {}).get("results", {}) | rows,
    }
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
