"""h5sweep check: what is wrong with files, and what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from . import options
from .terminal import print_text, print_texts, showing_progress, terminal_size


@click.command("check")
@options.paths
@click.option(
    "--quick", is_flag=True, help="Look at first bytes and headers only, without the HDF5 library."
)
@click.option("--deep", is_flag=True, help="Read every byte, even beyond the first 4 GB of files.")
@click.option(
    "--require", metavar="NAMES", help="Datasets that must exist, with equal lengths: a,b,c."
)
@options.expect
@options.sweep
@options.key
@options.skip
@click.option(
    "-j",
    "--processes",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Number of processes that open files with the HDF5 library.",
)
@options.library_time_limit
@options.memory_limit(default="1GiB", help="Memory limit for the HDF5 library.")
@options.show_all
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line per file.")
def check_command(
    paths: tuple[str, ...],
    quick: bool,
    deep: bool,
    require: str | None,
    expect: Path | None,
    name: str | None,
    skip: str | None,
    show_all: bool,
    as_json: bool,
    as_csv: bool,
    **as_given: Any,
) -> int:
    """Say what is wrong with HDF5 files, and what to do next.

    PATH is a file, a folder or a glob: worker files of any program, record files, outputs. Check
    writes nothing and does not touch a file that another process is writing. Exit code: 0 if every
    file is sound or being written, 3 if not.

    \b
    h5sweep check layouts.h5_temp
    """
    if (quick and deep) or (as_json and as_csv):
        raise UsageError("use only one of --quick and --deep, and only one of --json and --csv")
    if expect is None:
        options.keep_process_small()
    from ..check.check import check_files
    from ..check.report import report_csv, report_json, report_text
    from ..worker_files.skipped_names import parse_names

    expected = options.load_expected(expect, name)
    with showing_progress() as display:
        report = check_files(
            paths,
            depth="quick" if quick else "deep" if deep else "usual",
            require=tuple(filter(None, (require or "").split(","))),
            expected=expected,
            skip=parse_names(skip),
            progress=display.checking,
            **as_given,
        )
    if as_json:
        print_texts([report_json(report)])
    elif as_csv:
        print_texts(report_csv(report))
    else:
        size = terminal_size()
        print_text(report_text(report, width=size and size.columns, show_all=show_all))
    return report.exit_code
