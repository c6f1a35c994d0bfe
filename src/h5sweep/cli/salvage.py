"""h5sweep salvage: recover results from damaged files."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import click

from .options import expecting, keep_process_small, limiting_library, load_expected, skipping
from .terminal import print_text, print_texts, showing_progress


@click.command("salvage")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write recovered results into the run folder of this output.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    help="Write recovered results into this folder instead.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="Where each task's key is found: farm{farm_id:d}_s{seed:d}, or farm_id,seed.",
)
@expecting
@skipping
@click.option(
    "--accept",
    type=click.Choice(["verified", "consistent", "unverified"]),
    default="consistent",
    show_default=True,
    help="The weakest label to accept.",
)
@click.option(
    "--nameless",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write arrays that lost their names into this folder, as npy files.",
)
@limiting_library(memory_help="Memory limit for one result.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def salvage_command(
    paths: tuple[str, ...],
    output: Path | None,
    to: Path | None,
    key: str | None,
    expect: Path | None,
    name: str | None,
    accept: str,
    nameless: Path | None,
    skip: str | None,
    timeout: float,
    memory: int,
    as_json: bool,
) -> int:
    """Recover results from damaged HDF5 files without changing the files.

    PATH is a file, a folder or a glob. With -o, recovered results go into the run folder of that
    output as if they had just been computed: merge, missing and run see them. Without -o or --to,
    nothing is written. Exit code: 0 if every task detected was recovered, 3 if not.

    \b
    h5sweep salvage layouts.h5_temp -o layouts.h5 --expect study.py
    """
    if expect is None:
        keep_process_small()
    from ..salvage.report import report_json, report_text
    from ..salvage.salvage import salvage_files
    from ..worker_files.skipped_names import parse_names

    expected = load_expected(expect, name)
    with showing_progress() as display:
        report = salvage_files(
            paths,
            output=output,
            to=to,
            key=key,
            expected=expected,
            accept=accept,
            nameless=nameless,
            timeout_s=timeout,
            memory_bytes=memory,
            skip=parse_names(skip),
            progress=display.salvaging,
            notice=display.say,
        )
    if expect is not None:
        sweep = "" if name is None else f" --sweep {shlex.quote(name)}"
        report = replace(report, expect=f"--expect {shlex.quote(str(expect))}{sweep}")
    if as_json:
        print_texts([report_json(report)])
    else:
        print_text(report_text(report))
    return report.exit_code
