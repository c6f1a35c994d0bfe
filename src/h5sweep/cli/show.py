"""h5sweep show: everything that is known about one task."""

from __future__ import annotations

from pathlib import Path

import click

from . import options
from .terminal import print_text, print_texts


@click.command("show")
@options.output
@click.argument("key", nargs=-1, required=True, metavar="NAME=VALUE...")
@options.as_json
def show_command(output: Path, key: tuple[str, ...], as_json: bool) -> int:
    """Show all that is known about one task of OUTPUT.

    Its result, how long it took, when and where; how each attempt ended, with the traceback or the
    stack of where it hung; and what it printed. Works while a run is going on, and on an OUTPUT
    whose run folder is gone, which says no hosts, attempts and logs. Nothing is written.

    \b
    h5sweep show layouts.h5 farm_id=3 seed=7
    """
    from ..runner.show_task import read_task
    from ..runner.task_report import task_json, task_text

    options.keep_process_small()
    report = read_task(output, key)
    if as_json:
        print_texts([task_json(report)])
    else:
        print_text(task_text(report) + "\n")
    return 0
