"""What a test needs that not every machine has."""

from __future__ import annotations

import os
import shutil

import pytest

needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
