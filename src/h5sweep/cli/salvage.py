"""h5sweep salvage: recover results from damaged files."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from . import options
from .terminal import print_text, print_texts, showing_progress


@click.command("salvage")
@options.paths
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    help="Write recovered results into the run folder of this output.",
)
@click.option("--to", type=options.PATH, help="Write recovered results into this folder instead.")
@options.key
@options.expect
@options.sweep
@options.skip
@click.option(
    "--accept",
    type=click.Choice(["verified", "consistent", "unverified"]),
    default="consistent",
    show_default=True,
    help="The weakest label to accept.",
)
@click.option(
    "--nameless",
    type=options.PATH,
    metavar="DIR",
    help="Write arrays that lost their names into this folder, as npy files.",
)
@options.library_time_limit
@options.memory_limit(default="1GiB", help="Memory limit for one result.")
@options.as_json
def salvage_command(
    paths: tuple[str, ...],
    expect: Path | None,
    name: str | None,
    skip: str | None,
    as_json: bool,
    **as_given: Any,
) -> int:
    """Recover results from damaged HDF5 files without changing the files.

    PATH is a file, a folder or a glob. With -o, recovered results go into the run folder of that
    output as if they had just been computed: merge, missing and run see them. Without -o or --to,
    nothing is written. Exit code: 0 if every task detected was recovered, 3 if not.

    \b
    h5sweep salvage layouts.h5_temp -o layouts.h5 --expect study.py
    """
    if expect is None:
        options.keep_process_small()
    from ..salvage.report import report_json, report_text
    from ..salvage.salvage import salvage_files
    from ..worker_files.skipped_names import parse_names

    expected = options.load_expected(expect, name)
    with showing_progress() as display:
        report = salvage_files(
            paths,
            expected=expected,
            skip=parse_names(skip),
            progress=display.salvaging,
            notice=display.say,
            **as_given,
        )
    if expect is not None:
        sweep = "" if name is None else f" --sweep {shlex.quote(name)}"
        report = replace(report, expect=f"--expect {shlex.quote(str(expect))}{sweep}")
    if as_json:
        print_texts([report_json(report)])
    else:
        print_text(report_text(report))
    return report.exit_code
