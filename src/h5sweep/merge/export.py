"""The results in files of other kinds, with all that is finished by now.

Each is written under a temporary name first: killed at any moment, it is there whole or as it was.
A Zarr store is a folder, and folders are not replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.safe_text import csv_lines
from ..base.units import count_text
from ..base.values import plain_array
from ..disk import durable
from ..disk.find_files import PathLike
from ..errors import DamagedError, UsageError, WrongFolderError
from ..output.csv_rows import csv_rows
from ..output.grid import open_output_file, to_dataframe, to_grid
from ..output.one_row import reading_output
from ..output.verify import damaged_rows
from ..runfolder.layout import RunFolder
from ..state.expected_tasks import existing_folder
from .from_records.snapshot import finished_output

if TYPE_CHECKING:
    import xarray

KINDS = ("csv", "parquet", "netcdf_grid", "zarr")


def export_results(output: PathLike, kind: str, target: Path, *, force: bool = False) -> Path:
    """Write the results of an output to a file of one of KINDS; returns its path.

    UsageError if the file is there, unless `force` replaces it; an output is never replaced.
    """
    if str(target) == "-":
        raise UsageError("export writes files, not to standard output: name one, such as out.csv")
    if target.is_dir():
        raise UsageError(f"{target} is a folder, which is never replaced: give another name")
    folder, place = RunFolder.of(output), RunFolder.of(target)
    folder.require_place()
    if not folder.output.exists():
        existing_folder(output)
    _require_free(folder, place, force, to_folder=kind == "zarr")
    write: Callable[[Path, Path], None] = {
        "csv": _write_csv,
        "parquet": _write_parquet,
        "netcdf_grid": _write_netcdf,
        "zarr": _write_zarr,
    }[kind]
    making = durable.making_folder if kind == "zarr" else durable.replacing
    with _finished(folder) as found, making(place.output) as temporary:
        write(found, temporary)
    return place.output


def _require_free(folder: RunFolder, place: RunFolder, force: bool, *, to_folder: bool) -> None:
    target = place.output
    place.require_place()
    is_output = target.exists() and folder.output.exists() and target.samefile(folder.output)
    if is_output or target == folder.output or place.exists():
        raise UsageError(f"{target} is the output of a run: name another file")
    if target.exists() and (to_folder or not force):
        instead = "" if to_folder else ", or replace it with --force"
        raise UsageError(f"{target} exists: give another name{instead}")


@contextmanager
def _finished(folder: RunFolder) -> Iterator[Path]:
    """The output or a snapshot; DamagedError if rows are not what was written."""
    try:
        with finished_output(folder.output) as found:
            with reading_output(found, folder.load_relabels()) as reader:
                damaged = damaged_rows(reader)
            if len(damaged):
                raise DamagedError(
                    f"{folder.output} has changed since it was merged, in "
                    f"{count_text(len(damaged), 'row')}: merge it again, which takes the records, "
                    "or what is sound"
                )
            yield found
    except WrongFolderError as error:
        raise UsageError(f"{folder.output} is not the output of a run: name one") from error


def _write_csv(found: Path, temporary: Path) -> None:
    with (
        reading_output(found, RunFolder(found).load_relabels()) as reader,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        file.writelines(csv_lines(csv_rows(reader)))


def _write_parquet(found: Path, temporary: Path) -> None:
    _require("pyarrow", "parquet")
    with _opened(found) as data:
        table = to_dataframe(data)
    for name in table.columns:
        values = table[name].to_numpy()
        if values.dtype.kind == "c":
            table[name] = plain_array(values)
        elif values.dtype == object:
            table[name] = [plain_array(v) if isinstance(v, np.ndarray) else v for v in values]
    table.to_parquet(temporary, engine="pyarrow")


def _write_netcdf(found: Path, temporary: Path) -> None:
    with _opened(found) as data:
        grid = to_grid(data)
    has_complex = any(variable.dtype.kind == "c" for variable in grid.variables.values())
    grid.to_netcdf(temporary, engine="h5netcdf", invalid_netcdf=has_complex)
    with _opened(temporary) as back:
        _require_equal(back, grid)


def _write_zarr(found: Path, temporary: Path) -> None:
    _require("zarr", "zarr")
    with _opened(found) as data:
        grid = to_grid(data)
    grid.to_zarr(temporary, zarr_format=2)  # format 3 has no texts and no complex numbers yet
    with _require("xarray", "zarr").open_zarr(temporary) as back:
        _require_equal(back, grid)


def _require_equal(back: xarray.Dataset, grid: xarray.Dataset) -> None:
    if not back.equals(grid):
        raise DamagedError(
            "the grid does not read back as it was written: the disk or the memory of this "
            "machine may be failing. Nothing was replaced; run the same command again"
        )


def _opened(path: Path) -> xarray.Dataset:
    for module in ("h5netcdf", "xarray"):
        _require(module, "xarray")
    return open_output_file(path)


def _require(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise UsageError(
            f"this needs {name}, which is not installed: pip install 'h5sweep[{extra}]'"
        ) from error
