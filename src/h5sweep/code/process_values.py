"""Values that are others in each process only because they say which process it is.

Numbers of the process and its threads, the time, and texts, which name its files and devices. Any
other value that is not the same in two processes may change what they compute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any


def _clocks() -> tuple[float, ...]:
    return time.time(), time.monotonic()


@dataclass(frozen=True)
class ImportHere:
    """An import that began in this process when this was made; variables that say where it is."""

    variables: Collection[str]
    begun: tuple[float, ...] = field(default_factory=_clocks)

    def explains(self, was: Any, now: Any) -> bool:
        """Whether a value, as `describe_value` gives it, is another one only because of that."""
        if was == now:
            return True
        if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
            is_content = "sha256" in now and was["sha256"] != now["sha256"]
            return not is_content and all(self.explains(was[n], now[n]) for n in was)
        if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            return all(map(self.explains, was, now))
        if isinstance(now, str | int | float):
            return isinstance(now, bool) or self._explains_text(str(now))
        return now is None

    def _explains_text(self, text: str) -> bool:
        try:
            number = float(text)
        except ValueError:
            return True
        own = [os.getpid(), os.getppid(), *(os.environ.get(name, "") for name in self.variables)]
        return text in map(str, own) or any(
            begun - 1 <= found <= now  # a whole second may be left out
            for begun, now in zip(self.begun, _clocks(), strict=True)
            for found in (number, number / 1e3, number / 1e9)
        )
