"""How a sweep is run again: the command, or the call of a script or notebook."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..base.units import command_text, near_path

SUBMITTED = "submitted"  # instead of a part: all of them, by a command that its user knows
# Without these a task may hang that had a time limit, or run here that an engine ran; or it is not
# clear which sweep of a study is meant.
_OPTIONS = (
    "--sweep",
    *("--timeout", "--memory", "--retries", "--backoff", "--tasks-per-worker", "--grace"),
    *("-j", "--workers", "--env", "--engine", "--address", "--scheduler-file", "--parts"),
)


def run_again_text(
    sweep: Mapping[str, Any], output: Path, changed: str = "", part: str = ""
) -> str:
    """By what sweep.json says of it, with limits as they were; `changed` is what to do with results
    of other code.
    """
    if part == SUBMITTED:
        return f"add --changed {changed}"
    if not sweep.get("name"):
        return f"run the study that made them with --changed {changed}" if changed else ""
    study = sweep.get("study") if sweep.get("imported", True) else None
    if isinstance(study, str):
        words = ["--part", part] if part else []
        words += ["--changed", changed] if changed else []
        words += _options_in(str(sweep.get("command", "")))
        return command_text("run", near_path(Path(study)), "-o", output, *words)
    words = [repr(str(output)), *([repr(part)] if part else [])]
    words += [f"changed={changed!r}"] if changed else []
    return f"{sweep.get('name')}.{'run_part' if part else 'run'}({', '.join(words)})"


def _options_in(command: str) -> Iterator[str]:
    """Those of an `h5sweep run` that say how tasks are run, and of which sweep; not which."""
    try:
        words = shlex.split(command)
    except ValueError:  # somebody has edited it
        return
    if words[1:2] != ["run"]:
        return
    for word, following in pairwise([*words, ""]):
        name, sign, _ = word.partition("=")
        if name in _OPTIONS:
            yield from [word] if sign else [word, following]
        elif word.startswith("-j"):
            yield word
