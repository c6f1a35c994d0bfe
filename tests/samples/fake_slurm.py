"""Programs with the names of Slurm's, which do as a test says."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

ACCEPTS = 'case "$*" in *afterany*) echo 18;; *) echo 17;; esac'
REFUSES_MERGE = 'case "$*" in *afterany*) echo "sbatch: error: no more jobs" >&2; exit 1;; esac'


def listing(*parts: str, script: str = "/elsewhere/1.sh") -> str:
    """What makes a squeue list parts: `17_1 RUNNING`, `17_2 PENDING Priority`."""
    lines = []
    for part in parts:
        name, state, reason = (*part.split(), "None")[:3]
        lines.append("\t".join([name, name.partition("_")[0], state, reason, "/elsewhere", script]))
    return f"printf '%s\\n' {shlex.join(lines)}"


def fake_slurm(folder: Path, sbatch: str = ACCEPTS, squeue: str = "") -> str:
    """Make them in a folder; return the PATH on which they are found first."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("sbatch", sbatch), ("squeue", squeue)):
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
