"""h5sweep missing: which tasks have no result and why, without NumPy and HDF5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import expecting, reading_options
from .run_folder import existing_folder
from .terminal import print_texts, tell

if TYPE_CHECKING:
    from ..state.state import Missing


@click.command("missing")
@reading_options
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: key columns, reason, detail.")
@expecting
def missing_command(
    output: Path, as_json: bool, as_csv: bool, expect: Path | None, name: str | None
) -> int:
    """List every task of OUTPUT that has no result, and why.

    The reasons: never started, running, failed (and how), lost with a damaged record, interrupted,
    changed in the output. Exit code: 0 if nothing is missing, 1 if something is. If no run has
    declared the tasks (only a Recorder has written, or other programs' files were merged), name
    them with --expect; without it the exit code is 2.

    \b
    h5sweep missing layouts.h5 --csv > todo.csv
    """
    from ..base.safe_text import csv_lines
    from ..runner.status import missing_json, missing_lines
    from ..state.expected_tasks import load_expected, read_expected_state, require_declared
    from ..state.state import left_out_text, refusal_texts

    expected = load_expected(expect, name) if expect else None
    folder = existing_folder(output)
    state = read_expected_state(folder, expected)
    require_declared(state, folder)
    tasks = list(state.missing_tasks())
    if as_json:
        print_texts([missing_json(state.missing_of(tasks), str(folder.output))])
    elif as_csv:
        print_texts(csv_lines(_rows(state.plan.names, state.missing_of(tasks))))
    else:
        print_texts(missing_lines(state.missing_of(tasks)))
    total = state.tasks_total if expected is None else len(expected)
    for text in refusal_texts(state):
        tell(text)
    if state.left_out:
        tell(left_out_text(state))
    tell(f"{len(tasks):,} of {total:,} missing" if tasks else "nothing is missing")
    return 1 if tasks or state.left_out else 0


def _rows(names: Iterable[str], missing: Iterable[Missing]) -> Iterator[list[object]]:
    yield [*names, "reason", "detail"]
    for task in missing:
        yield [*task.key.values(), task.reason.value, task.detail]
