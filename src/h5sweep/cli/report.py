"""h5sweep report: one HTML file about a sweep or about files of other programs."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.units import size_text
from . import options
from .terminal import print_json, tell


@click.command("report")
@options.paths
@click.option(
    "-o",
    "--output",
    "target",
    type=options.PATH,
    help="The HTML file to write; default: report.html in the run folder, or here for files.",
)
@click.option(
    "--best",
    metavar="NAME",
    help="The result by which tasks are compared; default: the first number that differs.",
)
@click.option(
    "--lowest", "is_lowest", is_flag=True, help="The best has the lowest, not the highest."
)
@options.as_json
def report_command(
    paths: tuple[str, ...], target: Path | None, best: str | None, is_lowest: bool, as_json: bool
) -> int:
    """Write an HTML page about a sweep, or about files.

    PATH is the output of a run, finished or not; or files and folders of other programs. The page
    says what is missing, why, and what to type. It is one file that needs no network: mail it.

    \b
    h5sweep report layouts.h5 -o layouts.html
    h5sweep report layouts.h5_temp
    """
    options.keep_process_small()
    from ..report.write_report import write_report

    written = write_report(paths, target, best=best, is_lowest=is_lowest)
    size_bytes = written.stat().st_size
    if as_json:
        print_json({"schema": "h5sweep.report/1", "report": str(written), "bytes": size_bytes})
    tell(f"wrote {written} ({size_text(size_bytes)}): open it in a browser")
    return 0
