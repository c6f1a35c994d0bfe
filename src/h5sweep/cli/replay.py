"""h5sweep replay: one task again, with the code that made its row."""

from __future__ import annotations

from pathlib import Path

import click

from . import options
from .terminal import print_text, print_texts, tell


@click.command("replay")
@options.output
@click.argument("key", nargs=-1, required=True, metavar="NAME=VALUE...")
@options.time_limit(help="Time limit for the task, e.g. 20min.")
@options.as_json
def replay_command(
    output: Path, key: tuple[str, ...], timeout_s: float | None, as_json: bool
) -> int:
    """Run one task of OUTPUT again with its own code, and compare.

    The code is the one recorded with the row, whatever has become of the files since. Shows for
    each result whether it is equal bit by bit, and what has changed since then: packages, inputs,
    environment, host. A task that failed is run with the code it failed with, and its traceback is
    shown. Nothing is written. The code comes from OUTPUT, so replay only files that you trust.

    Exit code: 0 if all results are equal within 1e-9, or a task that failed ends well now; 1 if
    not; 2 if the task cannot be replayed.

    \b
    h5sweep replay layouts.h5 farm_id=3 seed=7
    """
    from ..runner.replay import replay_task
    from ..runner.replay_report import ReplayResult, replay_json, replay_text

    found = replay_task(output, key, timeout_s=timeout_s)
    if as_json:
        print_texts([replay_json(found)])
    else:
        print_text(replay_text(found) + "\n")
    if found.result is ReplayResult.ENDED:
        tell("it has no result to compare with; next: the command of the run runs it again")
    return 0 if found.is_equal or found.result is ReplayResult.ENDED else 1
