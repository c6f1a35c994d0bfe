"""How long work says how far it is: with how much is done, and of how much."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
