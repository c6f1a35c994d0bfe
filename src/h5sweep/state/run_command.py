"""How a sweep is run again: the command, or the call of a script or notebook."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from typing import Any

from ..base.provenance import command_line
from ..base.units import command_text, near_path

SUBMITTED = "submitted"  # instead of a part: all of them, by a command that its user knows
# Without these a task may hang that had a time limit, or run here that an engine ran.
_OPTIONS = (
    *("--timeout", "--memory", "--retries", "--backoff", "--tasks-per-worker", "--grace"),
    *("-j", "--workers", "--env", "--engine", "--address", "--scheduler-file", "--parts"),
)


def run_changed_text(sweep: Mapping[str, Any], output: Path, changed: str, part: str = "") -> str:
    """How the sweep that is being run now is run with that choice, with limits as they are."""
    return run_again_text({**sweep, "command": command_line()}, output, changed, part)


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
        words += _options_in(str(sweep.get("command", "")), str(sweep["name"]))
        return command_text("run", near_path(Path(study)), "-o", output, *words)
    words = [repr(str(output)), *([repr(part)] if part else [])]
    words += [f"changed={changed!r}"] if changed else []
    call = f"{'run_part' if part else 'run'}({', '.join(words)})"
    name = str(sweep["name"])
    return f"{call} of the sweep" if iskeyword(name) else f"{name}.{call}"  # such as a lambda


def run_imported_text(study: Path, sweep: str, output: Path, part: str = "") -> str:
    """The command that has each worker import the study, instead of what is sent to it."""
    words = ["--part", part] if part else []
    return command_text("run", near_path(study), "-o", output, "--sweep", sweep, *words)


def _options_in(command: str, sweep: str) -> Iterator[str]:
    """Those of the last `h5sweep run` that say how tasks are run, not which, and of which sweep."""
    try:
        words = shlex.split(command)
    except ValueError:  # somebody has edited it
        return
    if words[1:2] != ["run"]:
        return
    for word, following in pairwise([*words, ""]):
        name, sign, _ = word.partition("=")
        if name == "--sweep":
            yield from ["--sweep", sweep]  # which may have been relabelled since
        elif name in _OPTIONS:
            yield from [word] if sign else [word, following]
        elif word.startswith("-j"):
            yield word
