"""How a sweep is run again: the command, or the call of a script or notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.units import command_text, near_path

SUBMITTED = "submitted"  # instead of a part: all of them, by a command that its user knows


def run_again_text(
    sweep: Mapping[str, Any], output: Path, changed: str = "", part: str = ""
) -> str:
    """By what sweep.json says of it; `changed` is what to do with results of other code."""
    if part == SUBMITTED:
        return f"add --changed {changed}"
    if not sweep.get("name"):
        return f"run the study that made them with --changed {changed}" if changed else ""
    study = sweep.get("study") if sweep.get("imported", True) else None
    if isinstance(study, str):
        words = ["--part", part] if part else []
        words += ["--changed", changed] if changed else []
        return command_text("run", near_path(Path(study)), "-o", output, *words)
    words = [repr(str(output)), *([repr(part)] if part else [])]
    words += [f"changed={changed!r}"] if changed else []
    return f"{sweep.get('name')}.{'run_part' if part else 'run'}({', '.join(words)})"
