"""How long operations report progress: how much is done, out of how much."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
