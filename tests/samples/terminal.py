"""The command line as users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from ready_python import ReadyPythons

H5SWEEP = [sys.executable, "-m", "h5sweep"]
LONG_S = 120
READY = ReadyPythons()


def run_command(
    words: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run h5sweep with these words to its end."""
    if READY.can_run(environment):
        return READY.run(words, folder, environment, LONG_S)
    return subprocess.run(
        [*H5SWEEP, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        stdin=subprocess.DEVNULL,
    )


class Terminal:
    """Runs h5sweep in a folder of its own, as a user does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def write_study(self, body: str, name: str = "study.py") -> Path:
        """Imports are put above it."""
        head = "import os, signal, sys, time\nimport numpy as np\nimport h5sweep\n\n"
        return self.write(name, head + textwrap.dedent(body))

    def run(
        self, *words: object, check: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check its exit code (None: any)."""
        done = run_command([str(word) for word in words], self.folder, {**os.environ, **env})
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        """Start a command and go on."""
        return subprocess.Popen(
            [*H5SWEEP, *map(str, words)],
            cwd=self.folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def json(self, *words: object, check: int | None = None) -> Any:
        return json.loads(self.run(*words, "--json", check=check).stdout)


def make_read_only(folder: Path, how: str = "ro") -> None:
    """Let nobody write there, not even root; or again, with "rw"."""
    subprocess.run(["mount", "-o", f"remount,bind,{how}", folder], check=True)


# Root without the right to read and write what belongs to others.
AS_ANYBODY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
SOMEBODY = 65534


def run_as_anybody(terminal: Terminal, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AS_ANYBODY, *H5SWEEP, *words], cwd=terminal.folder, capture_output=True, text=True
    )
