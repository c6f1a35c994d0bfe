"""h5sweep export: the results as CSV, Parquet, or as a grid in netCDF or Zarr."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.units import size_text
from ..errors import UsageError
from . import options
from .terminal import tell


@click.command("export")
@options.output
@click.option("--csv", type=options.PATH, metavar="FILE", help="A row for each task, as CSV.")
@click.option(
    "--parquet", type=options.PATH, metavar="FILE", help="The same as Parquet; arrays are lists."
)
@click.option(
    "--netcdf-grid",
    type=options.PATH,
    metavar="FILE",
    help="Arrays with one axis for each parameter, as netCDF-4.",
)
@click.option("--zarr", type=options.PATH, metavar="FOLDER", help="The same as a Zarr store.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def export_command(
    output: Path,
    csv: Path | None,
    parquet: Path | None,
    netcdf_grid: Path | None,
    zarr: Path | None,
    force: bool,
) -> int:
    """Write the results of OUTPUT to files that other programs read.

    During a run, these are the results that are finished by now. In CSV, arrays are JSON, and a
    cell is empty where there is no value. In the grid it is NaN, and shorter arrays are padded to
    the longest. A file is there whole or not at all.

    \b
    h5sweep export layouts.h5 --csv layouts.csv
    """
    from ..merge.export import export_results

    wanted = {"csv": csv, "parquet": parquet, "netcdf_grid": netcdf_grid, "zarr": zarr}
    given = {kind: target for kind, target in wanted.items() if target is not None}
    if not given:
        raise UsageError("say what to write: --csv, --parquet, --netcdf-grid or --zarr")
    for kind, target in given.items():
        path = export_results(output, kind, target, force=force)
        size = f" ({size_text(path.stat().st_size)})" if path.is_file() else ""
        tell(f"wrote {path}{size}")
    return 0
