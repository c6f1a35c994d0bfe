"""h5sweep redo: have finished tasks run again by the next run; and --cancel."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from . import options
from .terminal import tell


@click.command("redo")
@options.output
@click.argument("words", nargs=-1, metavar="[NAME=VALUES]...")
@click.option("--failed", is_flag=True, help="Of these, only tasks that have failed.")
@click.option(
    "--csv",
    "listed",
    type=options.PATH,
    metavar="FILE",
    help="Only tasks in this CSV, such as `missing --csv` prints.",
)
@click.option(
    "--code",
    type=click.IntRange(0),
    metavar="N",
    help="Of these, only rows that version N of the code has made.",
)
@click.option("--cancel", is_flag=True, help="Withdraw what was asked for and has not run yet.")
def redo_command(
    output: Path,
    words: tuple[str, ...],
    failed: bool,
    listed: Path | None,
    code: int | None,
    cancel: bool,
) -> int:
    """Have finished tasks of OUTPUT run again by the next run.

    Name parameters with one value, several (farm_id=3,4) or a range with both ends (seed=0..9); a
    task must match all that is named. Results stay, in OUTPUT too, until the new ones are there. A
    task that fails when it is run again keeps its old result. The command prints the next step.

    \b
    h5sweep redo layouts.h5 farm_id=3 farm_type=15MW
    """
    from ..state.redo_tasks import cancel_redo, redo_tasks

    if cancel and (words or failed or listed or code is not None):
        raise UsageError("--cancel withdraws everything that has not run yet: give it alone")
    if cancel:
        tell(str(cancel_redo(output, tell=tell)))
    else:
        report = redo_tasks(output, words, failed=failed, tasks=listed, code=code, tell=tell)
        tell(str(report))
    return 0
