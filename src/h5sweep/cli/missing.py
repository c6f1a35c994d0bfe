"""h5sweep missing: which tasks have no result and why, without NumPy and HDF5."""

from __future__ import annotations

from pathlib import Path

import click

from . import options
from .terminal import print_texts, tell


@click.command("missing")
@options.output
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: key columns, reason, detail.")
@options.expect
@options.sweep
def missing_command(
    output: Path, as_json: bool, as_csv: bool, expect: Path | None, name: str | None
) -> int:
    """List every task of OUTPUT that is still to be run, and why.

    The reasons: never started, running, failed (and how), lost with a damaged record, interrupted,
    changed in the output, to be run again. Exit code: 0 if nothing is listed, 1 if something is.
    What --csv prints is a list of tasks for `redo --csv`, `--expect` and a study. If no run has
    declared the tasks (only a Recorder has written, or other programs' files were merged), name
    them with --expect; without it the exit code is 2.

    \b
    h5sweep missing layouts.h5 --csv > todo.csv
    """
    from ..state import missing_report

    report = missing_report.read_missing(output, expected=options.load_expected(expect, name))
    if as_json:
        print_texts([missing_report.missing_json(report)])
    elif as_csv:
        print_texts(missing_report.missing_csv(report))
    else:
        print_texts(missing_report.missing_lines(report.tasks))
    for note in report.notes:
        tell(note)
    tell(missing_report.closing_text(report))
    return report.exit_code
