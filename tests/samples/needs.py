"""What a test needs that not every machine has."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

SFTP_SERVER = "/usr/lib/openssh/sftp-server"

needs_browser = pytest.mark.skipif(
    not shutil.which("chromium") or not shutil.which("chromedriver") or not find_spec("selenium"),
    reason="chromium, chromium-driver or selenium is not installed",
)
needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")
needs_fish = pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
needs_mpi = pytest.mark.skipif(not shutil.which("mpirun"), reason="mpirun is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
needs_sshfs = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("sshfs") or not Path(SFTP_SERVER).exists(),
    reason="sshfs or an SFTP server is not installed, or this is not root",
)
needs_zsh = pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
