"""h5sweep audit: what was done to an output, from the audit trail beside it."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from . import options
from .terminal import print_json, print_text, tell

MOST_FILES = 20


@click.command("audit")
@options.output
@options.show_all
@options.as_json
def audit_command(output: Path, show_all: bool, as_json: bool) -> int:
    """Show what OUTPUT was made from, and what was done to it.

    Reads the audit trail, OUTPUT.audit.jsonl: each merge, with what it took from which file, what
    it left out and why; each file that was moved or removed; each request to run tasks again and
    each relabel; the oldest first, and who did it by which command. Nothing is written.

    Exit code: 3 if a line of the trail is damaged, which leaves the others as they are.

    \b
    h5sweep audit layouts.h5
    """
    from ..runfolder.audit import audit_path, read_audit, trail_json, trail_text
    from ..runfolder.layout import RunFolder

    output = RunFolder.of(output).output
    if not audit_path(output).exists():
        raise UsageError(
            f"there is no audit trail {audit_path(output)}: name an output that a merge has written"
        )
    trail = read_audit(output)
    if as_json:
        print_json(trail_json(output, trail))
    else:
        print_text(trail_text(trail, most_files=None if show_all else MOST_FILES))
    damaged = [line for line in trail.unread if not line.is_torn]
    for line in damaged:
        tell(f"line {line.line} of {audit_path(output)} is {line.why}; no result is affected")
    return 3 if damaged else 0
