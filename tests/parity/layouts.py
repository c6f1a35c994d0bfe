"""Folders of worker files in every layout that people write, and what is true of each.

`LAYOUTS` is the table. A row writes a few files and says which tasks they hold, with their keys and
values, and what else is true. `fails` names the questions that are answered wrongly today, and why.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5netcdf
import h5py
import netCDF4
import numpy as np
import pandas as pd
import tables
import xarray

FARM = 3
PATTERN = "farm{farm_id:d}_s{seed:d}"
NESTED = "farm{farm_id:d}/seed{seed:d}"
NAMES = "farm_id,seed"
SEEDS = (tuple(range(1, 13)), (13, 14))  # of two worker files; those of one are read at once
DIMENSIONS = ".*/(task|turbine|xy)"  # a dataset for each, without values, as netCDF has it

Key = tuple[int, int]
Values = dict[str, Any]


@dataclass
class Truth:
    """What holds for a folder."""

    tasks: dict[
        Key, Values
    ]  # those that can be had, by key; values as a row of the output has them
    attributes: dict[str, Values] = field(default_factory=dict)  # of columns
    damaged: tuple[str, ...] = ()  # files that nobody may take for sound
    lost: int = 0  # tasks that are there and can't be had
    unread: int = 0  # of these, those that nothing is wrong with as long as they aren't read
    twice: int = 0  # tasks that a second file has as well, equal
    conflict: bool = False  # two files have different values for one task
    beside: tuple[str, ...] = ()  # files with data that belongs to no task, and so is in no row
    nothing: str = r"(?!)"  # the paths of what is no result, as a regular expression
    refused: str = ""  # what a merge that keeps the shape says, if it can't take this
    refused_key: str = ""  # what a merge with the key says
    is_open: bool = False  # rows have more values than are listed here, of the library's own


@dataclass(frozen=True)
class Layout:
    """A row of the table."""

    name: str
    write: Callable[[Path], Truth]
    key: str
    fails: Mapping[str, str]  # question → what it waits for


LAYOUTS: list[Layout] = []


def layout(key: str = PATTERN, **fails: str) -> Callable[[Callable[[Path], Truth]], Any]:
    """Put a folder into the table, under the name of its function."""

    def add(write: Callable[[Path], Truth]) -> Callable[[Path], Truth]:
        LAYOUTS.append(Layout(write.__name__, write, key, fails))
        return write

    return add


def aep(seed: int) -> float:
    return FARM * 100 + seed / 8


def places(seed: int, turbines: int = 4) -> Any:
    return np.arange(2.0 * turbines).reshape(turbines, 2) + seed


def result(seed: int) -> Values:
    return {"aep": aep(seed), "layout": places(seed)}


def truth(make: Callable[[int], Values] = result, **more: Any) -> Truth:
    return Truth({(FARM, seed): make(seed) for seeds in SEEDS for seed in seeds}, **more)


def files(folder: Path) -> Iterable[tuple[Path, tuple[int, ...]]]:
    """The worker files and the seeds of each."""
    return [(folder / f"worker_{number}.h5", seeds) for number, seeds in enumerate(SEEDS)]


def one_each(folder: Path) -> Iterable[tuple[Path, int]]:
    """A file for each task."""
    return [(folder / f"farm{FARM}_s{seed}.h5", seed) for seeds in SEEDS for seed in seeds]


def put(group: Any, values: Mapping[str, Any], **settings: Any) -> None:
    for name, value in values.items():
        group.create_dataset(name, data=value, **(settings if np.ndim(value) else {}))


def write_groups(
    folder: Path,
    make: Callable[[int], Values] = result,
    *,
    name: str = "farm{farm}_s{seed}",
    **settings: Any,
) -> None:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for seed in seeds:
                put(file.create_group(name.format(farm=FARM, seed=seed)), make(seed), **settings)


def columns_of(seeds: Iterable[int], make: Callable[[int], Values] = result) -> Values:
    rows = [{"farm_id": FARM, "seed": seed, **make(seed)} for seed in seeds]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def put_columns(group: Any, columns: Values, **settings: Any) -> None:
    for name, values in columns.items():
        shape = (None, *values.shape[1:])
        group.create_dataset(name, data=values, maxshape=shape, chunks=True, **settings)


def write_columns(folder: Path, group: str = "/", **settings: Any) -> None:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            put_columns(file.require_group(group), columns_of(seeds), **settings)


# Groups


@layout()
def groups_flat(folder: Path) -> Truth:
    """`/farm3_s1/{aep,layout}` with attributes of the group and of a dataset."""
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for seed in seeds:
                group = file.create_group(f"farm{FARM}_s{seed}")
                put(group, result(seed))
                group.attrs["solver"] = "slsqp"
                group["layout"].attrs["units"] = "m"
    return truth(
        lambda seed: {**result(seed), "solver": "slsqp"}, attributes={"layout": {"units": "m"}}
    )


@layout(NAMES)
def groups_with_keys_in_attributes(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for number, seed in enumerate(seeds):
                group = file.create_group(f"{path.stem}_{number}")
                group.attrs.update(farm_id=FARM, seed=seed)
                put(group, result(seed))
    return truth()


@layout()
def groups_many(folder: Path) -> Truth:
    """As many groups that are alike as are read at once."""
    write_groups(folder)
    found = truth()
    for start in (100, 200):
        with h5py.File(folder / f"many_{start}.h5", "w") as file:
            for seed in range(start, start + 40):
                put(file.create_group(f"farm{FARM}_s{seed}"), result(seed))
                found.tasks[FARM, seed] = result(seed)
    return found


@layout(NESTED)
def groups_nested(folder: Path) -> Truth:
    write_groups(folder, name="farm{farm}/seed{seed}")
    return truth()


@layout(NESTED)
def groups_nested_in_many(folder: Path) -> Truth:
    """Twelve farms, of which each worker has other seeds."""
    found = Truth({})
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for farm in range(12):
                for seed in seeds[:2]:
                    put(file.create_group(f"farm{farm}/seed{seed}"), result(seed))
                    found.tasks[farm, seed] = result(seed)
    return found


@layout()
def groups_within_a_task(folder: Path) -> Truth:
    """`/farm3_s1/{aep}` and `/farm3_s1/wake/{layout}`."""
    write_groups(folder, lambda seed: {"aep": aep(seed), "wake/layout": places(seed)})
    return truth(lambda seed: {"aep": aep(seed), "wake_layout": places(seed)})


@layout()
def groups_and_a_dataset_of_the_file(folder: Path) -> Truth:
    """A dataset at the root that belongs to no task."""
    write_groups(folder)
    for path, _ in files(folder):
        with h5py.File(path, "a") as file:
            file["history"] = np.arange(3) / 4
    return truth(refused_key="--skip history")


@layout()
def groups_with_attributes_only(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for seed in seeds:
                file.create_group(f"farm{FARM}_s{seed}").attrs.update(aep=aep(seed), turbines=4)
    return truth(lambda seed: {"aep": aep(seed), "turbines": 4})


@layout()
def groups_with_attributes_and_an_empty_group(folder: Path) -> Truth:
    """What a task gave is in its attributes; the group in it has nothing."""
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for seed in seeds:
                group = file.create_group(f"farm{FARM}_s{seed}")
                group.attrs["aep"] = aep(seed)
                group.create_group("log")
    return truth(lambda seed: {"aep": aep(seed)})


@layout()
def groups_begun(folder: Path) -> Truth:
    """Groups beside those with results: one with nothing in it, one with an attribute alone."""
    write_groups(folder)
    for path, seeds in files(folder):
        with h5py.File(path, "a") as file:
            file.create_group(f"farm{FARM}_s{seeds[0] + 100}")
            file.create_group(f"farm{FARM}_s{seeds[0] + 200}").attrs["solver"] = "slsqp"
    kept = tuple(path.name for path, _ in files(folder))
    return truth(lost=4, nothing=r"/farm3_s[12]0\d", beside=kept)


@layout()
def groups_ragged(folder: Path) -> Truth:
    """Layouts of different lengths."""

    def make(seed: int) -> Values:
        return {"aep": aep(seed), "layout": places(seed, 3 + seed % 3)}

    write_groups(folder, make)
    return truth(make)


@layout()
def groups_with_texts(folder: Path) -> Truth:
    """Texts of fixed length, of any length, and not of ASCII alone."""

    def make(seed: int) -> Values:
        return {"fixed": np.bytes_(f"fixed {seed}"), "any": f"any {seed}", "utf8": f"größer {seed}"}

    write_groups(folder, make)
    return truth(lambda seed: {**make(seed), "fixed": f"fixed {seed}"})


@layout()
def groups_with_odd_types(folder: Path) -> Truth:
    """Complex numbers, truth values, enums, halves, and the other order of bytes."""
    kind = h5py.enum_dtype({"onshore": 0, "offshore": 1}, "i1")

    def make(seed: int) -> Values:
        return {
            "phase": np.complex128(seed + 2j),
            "is_done": np.bool_(seed % 2),
            "kind": np.array(seed % 2, kind),
            "half": np.float16(seed / 4),
            "big": np.array([seed, 2], ">i4"),
        }

    write_groups(folder, make)
    return truth(make)


@layout()
def groups_with_names_that_collide(folder: Path) -> Truth:
    """`wake-loss` and `wake_loss` would be one column."""
    write_groups(folder, lambda seed: {"wake-loss": aep(seed), "wake_loss": -aep(seed)})
    return truth(lambda seed: {"wake_loss": -aep(seed), "wake_loss_2": aep(seed)})


@layout()
def groups_with_filters(folder: Path) -> Truth:
    """Shuffle, gzip and checksums."""
    write_groups(folder, chunks=(2, 2), compression="gzip", shuffle=True, fletcher32=True)
    return truth()


@layout()
def groups_with_links(folder: Path) -> Truth:
    """A soft and a hard link to a dataset of the same group."""
    write_groups(folder)
    for path, seeds in files(folder):
        with h5py.File(path, "a") as file:
            for seed in seeds:
                group = file[f"farm{FARM}_s{seed}"]
                group["soft"] = h5py.SoftLink("layout")
                group["hard"] = group["aep"]
    return truth(lambda seed: {**result(seed), "soft": places(seed), "hard": aep(seed)})


@layout()
def groups_with_links_to_another_file(folder: Path) -> Truth:
    link = "links to other files"
    write_groups(folder)
    with h5py.File(folder / "worker_0.h5", "a") as file:
        file[f"farm{FARM}_s4/elsewhere"] = h5py.ExternalLink("worker_1.h5", f"/farm{FARM}_s13/aep")
    found = truth(refused=link, refused_key=link, lost=1, unread=1)
    del found.tasks[FARM, 4]
    return found


# One task a file


@layout()
def files_of_one_task(folder: Path) -> Truth:
    for path, seed in one_each(folder):
        with h5py.File(path, "w") as file:
            put(file, result(seed))
            file["aep"].attrs["units"] = "GW h"
            file.attrs["solver"] = "slsqp"
    return truth(
        lambda seed: {**result(seed), "solver": "slsqp"}, attributes={"aep": {"units": "GW h"}}
    )


@layout()
def files_of_one_task_with_a_group(folder: Path) -> Truth:
    """`/aep` and `/wake/layout` are one result."""
    for path, seed in one_each(folder):
        with h5py.File(path, "w") as file:
            put(file, {"aep": aep(seed), "wake/layout": places(seed)})
    return truth(lambda seed: {"aep": aep(seed), "wake_layout": places(seed)})


@layout(NAMES)
def files_of_one_task_with_keys_inside(folder: Path) -> Truth:
    for path, seed in one_each(folder):
        with h5py.File(path.with_stem(f"run_{seed}"), "w") as file:
            file.attrs["farm_id"] = FARM
            put(file, {"seed": seed, **result(seed)})
    return truth()


@layout()
def files_of_equal_lengths(folder: Path) -> Truth:
    """One task a file, of datasets that look like columns: the name of the file says it."""

    def make(seed: int) -> Values:
        return {"layout": places(seed), "power": np.arange(4.0) * seed}

    for path, seed in one_each(folder):
        with h5py.File(path, "w") as file:
            put(file, make(seed))
    return truth(make)


# Columns and rows


@layout(NAMES)
def columns(folder: Path) -> Truth:
    write_columns(folder)
    return truth()


@layout(NAMES)
def columns_of_fixed_length(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            put(file, columns_of(seeds))
            file["aep"].attrs["units"] = "GW h"
    return truth(attributes={"aep": {"units": "GW h"}})


@layout(NAMES)
def columns_in_a_group(folder: Path) -> Truth:
    write_columns(folder, "/results")
    return truth()


@layout(NAMES)
def columns_with_lzf(folder: Path) -> Truth:
    write_columns(folder, compression="lzf", fletcher32=True)
    return truth()


@layout(NAMES)
def columns_with_texts(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            put_columns(file, columns_of(seeds))
            for name, kind in (("any", h5py.string_dtype()), ("fixed", "S9")):
                texts = np.array([f"farm {seed}".encode() for seed in seeds])
                file.create_dataset(name, data=texts, dtype=kind, maxshape=(None,), chunks=True)
    return truth(lambda s: {**result(s), "any": f"farm {s}", "fixed": f"farm {s}"})


@layout(NAMES)
def columns_beside_a_group_that_grows(folder: Path) -> Truth:
    """Columns at the root, and a group of a log that grows as well."""
    write_columns(folder)
    for path, seeds in files(folder):
        with h5py.File(path, "a") as file:
            put_columns(file.create_group("log"), {"step": np.arange(7 * len(seeds))})
    return truth(refused_key="--skip step")


@layout(NAMES)
def columns_in_a_group_beside_a_dataset(folder: Path) -> Truth:
    """What a worker says once, beside the group with its columns."""
    write_columns(folder, "/results")
    for path, _ in files(folder):
        with h5py.File(path, "a") as file:
            file["version"] = 3
    return truth(refused_key="--skip version")


@layout(NAMES)
def columns_beside_a_group_with_attributes(folder: Path) -> Truth:
    """Settings in a group, with attributes of its own, beside columns at the root."""
    write_columns(folder)
    for path, _ in files(folder):
        with h5py.File(path, "a") as file:
            file["settings/tolerance"] = 1e-6
            file["settings"].attrs["solver"] = "slsqp"
    return truth(refused_key="--skip tolerance")


def compounds_of(seeds: Iterable[int]) -> Any:
    kind = [("farm_id", "i8"), ("seed", "i8"), ("aep", "f8"), ("layout", "f8", (4, 2))]
    return np.array([(FARM, seed, aep(seed), places(seed)) for seed in seeds], kind)


@layout(NAMES)
def rows_of_compounds(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            file.create_dataset("run/results", data=compounds_of(seeds), maxshape=(None,))
    return truth()


@layout(NAMES)
def rows_of_two_compounds(folder: Path) -> Truth:
    """One dataset of compounds has the key, the other is something else."""
    kind = np.dtype([("step", "i8"), ("cost", "f8")])
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            file.create_dataset("results", data=compounds_of(seeds), maxshape=(None,))
            steps = np.array([(step, step / 2) for step in range(len(seeds))], kind)
            file.create_dataset("trace", data=steps, maxshape=(None,))
    return truth(refused_key="--skip trace")


@layout()
def datasets_as_tasks(folder: Path) -> Truth:
    """A dataset a task: `/farm3_s1` is its layout."""
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            put(file, {f"farm{FARM}_s{seed}": places(seed) for seed in seeds})
    return truth(lambda seed: {"value": places(seed)})


# What other libraries write


@layout(NAMES)
def pytables_table(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with tables.open_file(str(path), "w") as file:
            file.create_table("/", "results", obj=compounds_of(seeds))
    return truth()


@layout()
def pytables_groups(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with tables.open_file(str(path), "w") as file:
            for seed in seeds:
                group = file.create_group("/", f"farm{FARM}_s{seed}")
                file.create_array(group, "aep", aep(seed))
                file.create_array(group, "layout", places(seed))
    return truth(is_open=True)


@layout(NAMES)
def pytables_columns_of_unequal_length(folder: Path) -> Truth:
    """Arrays that grow: the last append reached the key alone. Without a key they are series."""
    for path, seeds in files(folder):
        with tables.open_file(str(path), "w") as file:
            for name, values in columns_of(seeds).items():
                file.create_earray("/", name, obj=values)
            file.root.farm_id.append([FARM])
            file.root.seed.append([seeds[0] + 100])
    return truth(refused_key="columns of unequal length")


@layout(NAMES)
def pandas_table(folder: Path) -> Truth:
    for path, seeds in files(folder):
        frame = pd.DataFrame({"farm_id": FARM, "seed": seeds, "aep": [aep(s) for s in seeds]})
        frame.to_hdf(path, key="results", format="table", data_columns=True)
    return truth(lambda seed: {"aep": aep(seed)}, nothing="/results/_i_table.*", is_open=True)


@layout()
def pandas_fixed(folder: Path) -> Truth:
    """A frame a task."""
    for path, seeds in files(folder):
        for seed in seeds:
            frame = pd.DataFrame(places(seed), columns=["x", "y"])
            frame.to_hdf(path, key=f"farm{FARM}_s{seed}", format="fixed")
    return truth(lambda seed: {"block0_values": places(seed)}, is_open=True)


@layout(NAMES)
def netcdf4_columns(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with netCDF4.Dataset(path, "w") as file:
            put_netcdf4(file, columns_of(seeds), len(seeds))
    return truth(nothing=DIMENSIONS, refused="--skip task")


@layout(NAMES)
def netcdf4_unlimited(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with netCDF4.Dataset(path, "w") as file:
            put_netcdf4(file, columns_of(seeds), None)
    return truth(nothing=DIMENSIONS)


def put_netcdf4(file: Any, columns: Values, length: int | None) -> None:
    for name, size in (("task", length), ("turbine", 4), ("xy", 2)):
        file.createDimension(name, size)
    for name, values in columns.items():
        dims = ("task", "turbine", "xy")[: values.ndim]
        file.createVariable(name, values.dtype, dims)[:] = values


@layout()
def netcdf4_groups(folder: Path) -> Truth:
    """xarray's `to_netcdf(group=…, mode="a")`."""
    for path, seeds in files(folder):
        for seed in seeds:
            data = {"aep": ((), aep(seed)), "layout": (("turbine", "xy"), places(seed))}
            group, mode = f"farm{FARM}_s{seed}", "a" if path.exists() else "w"
            xarray.Dataset(data).to_netcdf(path, group=group, mode=mode, engine="netcdf4")
    return truth(nothing=DIMENSIONS, refused="--key")


@layout(NAMES)
def h5netcdf_columns(folder: Path) -> Truth:
    for path, seeds in files(folder):
        with h5netcdf.File(path, "w") as file:
            file.dimensions = {"task": len(seeds), "turbine": 4, "xy": 2}
            for name, values in columns_of(seeds).items():
                file.create_variable(name, ("task", "turbine", "xy")[: values.ndim], data=values)
    return truth(nothing=DIMENSIONS, refused="--skip task")


# Bookkeeping, and names that look like it


@layout()
def init_of_nothing(folder: Path) -> Truth:
    """A worker writes an empty `init` to show that it can; it holds nothing."""
    write_groups(folder)
    for path, _ in files(folder):
        with h5py.File(path, "a") as file:
            file.create_dataset("init", data=h5py.Empty("f8"))
    return truth(nothing="/init")


@layout(NAMES)
def init_of_one_number(folder: Path) -> Truth:
    """The same beside columns, with one number."""
    write_columns(folder)
    for path, _ in files(folder):
        with h5py.File(path, "a") as file:
            file["init"] = 1
    return truth(nothing="/init")


@layout()
def init_that_is_a_result(folder: Path) -> Truth:
    """`init` is where an optimiser began, and as good as any other result."""

    def make(seed: int) -> Values:
        return {"init": places(seed, 9), "layout": places(seed)}

    for path, seed in one_each(folder):
        with h5py.File(path, "w") as file:
            put(file, make(seed))
    return truth(make)


@layout(NAMES)
def init_that_is_a_column(folder: Path) -> Truth:
    write_columns(folder)
    for path, seeds in files(folder):
        with h5py.File(path, "a") as file:
            put_columns(file, {"init": np.array(seeds) * 2.0, "meta": np.array(seeds) * 3})
    return truth(lambda seed: {**result(seed), "init": 2.0 * seed, "meta": 3 * seed})


# Files that are empty, damaged, unfinished, or say the same


@layout()
def a_file_of_no_bytes(folder: Path) -> Truth:
    write_groups(folder)
    (folder / "worker_2.h5").touch()
    return truth(damaged=("worker_2.h5",))


@layout()
def a_file_with_nothing_in_it(folder: Path) -> Truth:
    """Closed, and without an object."""
    write_groups(folder)
    h5py.File(folder / "worker_2.h5", "w").close()
    return truth()


@layout()
def groups_not_closed(folder: Path) -> Truth:
    """A copy that was taken while the writer had the file open; all is in it."""
    write_groups(folder)
    copy_while_open(folder / "worker_1.h5")
    return truth()


@layout(NAMES)
def columns_not_closed(folder: Path) -> Truth:
    """Columns with room for more rows, packed with lzf: a chunk of some bytes proves nothing."""
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for name, values in columns_of(seeds).items():
                inner = values.shape[1:]
                file.create_dataset(
                    *(name, values.shape, values.dtype),
                    maxshape=(None, *inner),
                    chunks=(64, *inner),
                    compression="lzf",
                )[...] = values
    copy_while_open(folder / "worker_1.h5")
    return truth()


def copy_while_open(path: Path) -> None:
    """Leave `path` as a writer does that is killed when it has flushed all."""
    copy = path.with_suffix(".copy")
    with h5py.File(path) as old, h5py.File(copy, "w", libver=("v110", "v110")) as new:
        for name in old:
            old.copy(name, new)
        new.flush()
        shutil.copy(copy, killed := path.with_suffix(".killed"))
    copy.unlink()
    killed.rename(path)


@layout(NAMES)
def columns_with_a_bad_chunk(folder: Path) -> Truth:
    """One chunk of a gzip column can't be unpacked: a row is lost, and the file isn't sound."""
    for path, seeds in files(folder):
        with h5py.File(path, "w") as file:
            for name, values in columns_of(seeds).items():
                settings = {"compression": "gzip"} if name == "layout" else {}
                size = (1, *values.shape[1:])
                shape = (None, *values.shape[1:])
                file.create_dataset(name, data=values, maxshape=shape, chunks=size, **settings)
    spoil(folder / "worker_0.h5", "layout", places(1))
    found = truth(damaged=("worker_0.h5",), lost=1)
    del found.tasks[FARM, 1]
    return found


@layout()
def groups_with_a_bad_chunk(folder: Path) -> Truth:
    write_groups(folder, chunks=(4, 2), compression="gzip")
    spoil(folder / "worker_0.h5", f"farm{FARM}_s4/layout", places(4))
    found = truth(damaged=("worker_0.h5",), lost=1)
    del found.tasks[FARM, 4]
    return found


def spoil(path: Path, name: str, values: Any) -> None:
    """Invert a byte of the first chunk's gzip stream, so that its checksum is wrong."""
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    stored = bytes(content[chunk.byte_offset : chunk.byte_offset + chunk.size])
    assert zlib.decompress(stored) == values.tobytes()
    content[chunk.byte_offset + chunk.size - 1] ^= 0xFF
    path.write_bytes(content)


@layout()
def the_same_task_twice(folder: Path) -> Truth:
    """A task in two files, equal."""
    write_groups(folder)
    with h5py.File(folder / "worker_2.h5", "w") as file:
        put(file.create_group(f"farm{FARM}_s1"), result(1))
    return truth(twice=1)


@layout(NAMES)
def the_same_row_twice(folder: Path) -> Truth:
    write_columns(folder)
    with h5py.File(folder / "worker_2.h5", "w") as file:
        put_columns(file, columns_of([1, 2]))
    return truth(twice=2)


@layout()
def a_task_with_two_values(folder: Path) -> Truth:
    """A task in two files, different: nobody can say which is right."""
    write_groups(folder)
    with h5py.File(folder / "worker_2.h5", "w") as file:
        put(file.create_group(f"farm{FARM}_s1"), result(9))
    return truth(conflict=True)
