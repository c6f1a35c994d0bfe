"""Makes system calls of processes fail, as a disk that is failing does (`faults.c`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def failing(folder: Path, call: str, path: str, **about: int) -> dict[str, str]:
    """The environment of a process in which `call` fails on files whose path has `path` in it.

    `path` may be a pattern. `about`: `nth`, `short`, and for reads `start`, `stop`: see `faults.c`.
    """
    library = folder / "faults.so"
    if not library.exists():
        source = Path(__file__).with_name("faults.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    names = {"start": "FAULT_FROM", "stop": "FAULT_TO", "nth": "FAULT_NTH", "short": "FAULT_SHORT"}
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAULT_CALL": call,
        "FAULT_PATH": path,
        **{names[name]: str(value) for name, value in about.items()},
    }
