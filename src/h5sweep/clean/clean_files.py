"""Quarantine, restore or delete what is safe to remove, each under the output's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

from ..base.progress_callback import Progress
from ..disk.find_files import PathLike
from .removable_files import find_removable, locked, move_to_quarantine, purge, restore
from .report import CleanReport, Purged
from .restore import Restored

Tell = Callable[[str], None]


def quarantine_files(
    output: PathLike,
    *,
    also: Iterable[PathLike] = (),
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> CleanReport:
    """Move what is safe to remove now that `output` is made, and what `also` names, aside.

    They are in a quarantine beside the output then, which the report names as `moved`. Killed at
    any moment, each file is at its place or in the quarantine, whole, and the same call goes on.
    """
    with locked(Path(output), tell=tell):
        report = find_removable(output, progress=progress)
        names = [os.fspath(name) for name in also]
        return replace(report, moved=move_to_quarantine(report, also=names))


def restore_quarantine(
    output: PathLike,
    name: str | None = None,
    *,
    to: Iterable[PathLike] = (),
    tell: Tell = lambda text: None,
) -> Restored:
    """Put the files of one quarantine back where they were, or of all; none over another file.

    Files that were outside the folder of the output go back only if the folder is in `to`.
    """
    with locked(Path(output), tell=tell):
        found = restore(Path(output), name, to=[Path(folder) for folder in to])
    ways = [field.name for field in fields(Restored)]
    return Restored(*(tuple(chain(*(getattr(one, way) for one in found))) for way in ways))


def purge_quarantine(
    output: PathLike,
    name: str,
    *,
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> Purged:
    """Delete one quarantine for good, when every result in it was read back from the output again.

    DamagedError, and nothing is deleted, if the output is gone or does not have all of it. Files
    that were moved because somebody named them stay, unless they are empty.
    """
    with locked(Path(output), tell=tell):
        return purge(Path(output), name, progress=progress)
