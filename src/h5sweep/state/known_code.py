"""The code that a run folder has kept, to be run again instead of the study as it is now."""

from __future__ import annotations

from pathlib import Path

from ..base.process_id import host_name
from ..code.store import load_versions
from ..code.version import CodeVersion
from ..errors import UsageError
from ..runfolder.layout import RunFolder


def known_code(output: Path, number: int | None) -> CodeVersion | None:
    """What a run folder has as code `number`; None if no number is said."""
    if number is None:
        return None
    folder = RunFolder.of(output)
    known = load_versions(folder)
    if not known:
        raise UsageError(
            f"there is no code in {folder.path} on {host_name()}: correct the output, see that "
            f"this machine shares its folder, or leave out --code {number}"
        )
    if number not in known:
        numbers = ", ".join(map(str, known))
        raise UsageError(f"{output} has no code {number}; its run folder has: {numbers}")
    return known[number]
