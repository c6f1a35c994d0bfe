"""h5sweep check: what is wrong with files, and what to do next."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from .options import expecting, keep_process_small, limiting_library, load_expected, skipping
from .terminal import print_text, print_texts, showing_progress, terminal_size


@click.command("check")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--quick", is_flag=True, help="Look at first bytes and headers only, without the HDF5 library."
)
@click.option("--deep", is_flag=True, help="Read every byte, even beyond the first 4 GB of files.")
@click.option(
    "--require", metavar="NAMES", help="Datasets that must exist, with equal lengths: a,b,c."
)
@expecting
@click.option(
    "--key",
    metavar="KEY",
    help="Where each task's key is found: farm{farm_id:d}_s{seed:d}, or farm_id,seed.",
)
@skipping
@click.option(
    "-j",
    "--processes",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Number of processes that open files with the HDF5 library.",
)
@limiting_library(memory_help="Memory limit for the HDF5 library.")
@click.option("--all", "show_all", is_flag=True, help="List every file, however many there are.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line per file.")
def check_command(
    paths: tuple[str, ...],
    quick: bool,
    deep: bool,
    require: str | None,
    expect: Path | None,
    name: str | None,
    key: str | None,
    processes: int,
    skip: str | None,
    timeout: float,
    memory: int,
    show_all: bool,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Report what is wrong with each HDF5 file, what is in it, and what to do next.

    PATH is a file, a folder or a glob: worker files of any program, record files, outputs. Check
    writes nothing and does not touch a file that another process is writing. Exit code: 0 if every
    file is sound or being written, 3 if not.

    \b
    h5sweep check layouts.h5_temp
    """
    if (quick and deep) or (as_json and as_csv):
        raise UsageError("use only one of --quick and --deep, and only one of --json and --csv")
    if expect is None:
        keep_process_small()
    from ..check.check import check_files
    from ..check.report import report_csv, report_json, report_text
    from ..worker_files.skipped_names import parse_names

    expected = load_expected(expect, name)
    with showing_progress() as display:
        report = check_files(
            paths,
            depth="quick" if quick else "deep" if deep else "usual",
            require=tuple(filter(None, (require or "").split(","))),
            expected=expected,
            key=key,
            processes=processes,
            timeout_s=timeout,
            memory_bytes=memory,
            skip=parse_names(skip),
            progress=display.checking,
        )
    if as_json:
        print_texts([report_json(report)])
    elif as_csv:
        print_texts(report_csv(report))
    else:
        size = terminal_size()
        print_text(report_text(report, width=size and size.columns, show_all=show_all))
    return report.exit_code
