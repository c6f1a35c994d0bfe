"""The run folder of the output that a command was given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..folder import RunFolder

if TYPE_CHECKING:
    from ..state import FolderState


def existing_folder(output: Path) -> RunFolder:
    folder = RunFolder.of(output)
    if not folder.exists() and folder.output.exists():
        raise UsageError(
            f"{folder.output} is there but its run folder {folder.path} is not: "
            f"h5sweep run STUDY -o {folder.output} goes on from the output"
        )
    if not folder.exists():
        raise UsageError(
            f"there is no run folder {folder.path}: name the output that a run was given with -o"
        )
    return folder


def load_state(output: Path) -> tuple[RunFolder, FolderState]:
    from ..plan import Plan
    from ..state import read_state

    folder = existing_folder(output)
    return folder, read_state(folder, folder.load_plan() or Plan(()))
