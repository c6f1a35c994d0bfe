"""How long a merge takes beside `cat` of the same bytes, and beside the loops that people write.

    python benchmarks/merge.py [W1 W2 ...] [--folder /tmp/merge-bench] [--repetitions 5]
                               [--in-process] [--no-peers]

Workloads are made once into the folder and kept there; results are in
benchmarks/results/merge.json. Every contender takes turns with all others, each right after a run
of the floor, `cat FILES > out` and fsync, in a process of its own; its ratio is the median of its
ratios to those floors. Files are in the page cache. Imports do not count, except where a whole
command is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "merge.json"
COLUMNS = {"farm_id": "<i8", "farm_type": "S16", "seed": "<i8", "layout": "<f8", "aep": "<f8"}
CHUNK_ROWS = 1280


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
    """Look at all, write, sync, read back and compare; everything but the renaming."""
    from h5sweep import durable
    from h5sweep.inputs import Survey
    from h5sweep.join_columns import JoinedColumns
    from h5sweep.merge import _meanwhile

    survey = Survey()
    joined = JoinedColumns(survey, survey.look_at_all([paths[0].parent]))
    joined.write(output, _no_progress)
    with _meanwhile(lambda: durable.sync_file(output)):
        joined.verify(output, _no_progress)


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


def _no_progress(done: int, total: int) -> None:
    """Nobody looks."""
