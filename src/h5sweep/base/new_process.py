"""How a new interpreter runs a program of this package, and how a process has ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def python_command(program: str, *words: str) -> list[str]:
    """The command that runs `main` of a module of ours, with these words as its `sys.argv[1:]`.

    Not -m: it would put the current folder first, and a signal.py of the user's before Python's
    own. The package is found where we found it, also if that is through our sys.path alone. Under
    -O it is -O too: code has no assert statements then, and would be called another one.
    """
    package_parent = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.append(sys.argv.pop(1)); from {program} import main; main()"
    options = ["-P", *["-O"] * sys.flags.optimize]
    return [sys.executable, *options, "-c", code, package_parent, *words]


def signal_name(number: int) -> str:
    """`SIGSEGV`; real-time signals have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
