"""Where things are."""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parent
TESTS = SAMPLES.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
