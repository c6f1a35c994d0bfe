"""h5sweep verify: a sample of rows again, with the code that made them."""

from __future__ import annotations

from pathlib import Path

import click

from . import options
from .terminal import print_text, print_texts, showing_progress, tell


@click.command("verify")
@options.output
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="How many rows to run again.",
)
@click.option("--seed", type=int, help="Take the same sample as before; default: a new one.")
@click.option(
    "-j", "--workers", type=click.IntRange(1), help="Number of workers; default: one per core."
)
@options.time_limit(help="Time limit per task, e.g. 20min.")
@options.as_json
def verify_command(
    output: Path,
    sample: int,
    seed: int | None,
    workers: int | None,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Run a sample of the rows of OUTPUT again, and compare.

    It is a random sample, and each row is run with the code that made it. Counts those that are
    equal bit by bit, equal within 1e-9, different, failed, and those that cannot be replayed, and
    says of the first of these what has changed since. Nothing is written. The code comes from
    OUTPUT, so verify only files that you trust.

    Exit code: 0 if all rows of the sample are equal within 1e-9, 1 if not.

    \b
    h5sweep verify layouts.h5 --sample 20
    """
    from ..api import default_workers
    from ..runner.replay import verify_output
    from ..runner.replay_report import next_text, verification_json, verification_text

    with showing_progress() as display:
        found = verify_output(
            output,
            sample=sample,
            seed=seed,
            workers=workers or default_workers(),
            timeout_s=timeout_s,
            progress=display.replaying,
        )
    if as_json:
        print_texts([verification_json(found)])
    else:
        print_text(verification_text(found) + "\n")
    if text := next_text(found):
        tell(text)
    return 0 if found.is_equal else 1
