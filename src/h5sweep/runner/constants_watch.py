"""Whether tasks change the constants in place, which tasks after them are given too."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping

from xxhash import xxh3_64

LEAST_PAUSE = 100  # between two looks, times what a look takes


class ConstantsWatch:
    """Looks after the first batch of a worker, then as often as costs a hundredth of its time."""

    def __init__(self, constants: Mapping[str, object]) -> None:
        self._constants = constants
        self._known = {name: _checksum(value) for name, value in constants.items()}
        self._look_after = 0.0

    def changed(self) -> list[str]:
        """The names of those that are not what they were; nothing if it is too early to look."""
        begun = time.monotonic()
        if not self._known or begun < self._look_after:
            return []
        found = [name for name, value in self._constants.items() if self._is_other(name, value)]
        ended = time.monotonic()
        self._look_after = ended + LEAST_PAUSE * (ended - begun)
        return found

    def _is_other(self, name: str, value: object) -> bool:
        return self._known[name] != _checksum(value)


def changed_text(names: list[str]) -> str:
    """What to say of constants that tasks have changed."""
    if not names:
        return ""
    return (
        f"tasks change {', '.join(names)} in place: the tasks after them in the same worker are "
        "given the changed constant, and rows do not say so. Change a copy of it, such as "
        f"copy.deepcopy({names[0]}), and run all again"
    )


def _checksum(value: object) -> int | None:
    """The same as long as nobody changes it; None for what cannot be looked at so."""
    found = xxh3_64()
    try:
        found.update(
            pickle.dumps(value, protocol=5, buffer_callback=lambda b: found.update(b.raw()))
        )
    except Exception:  # whatever an object's own __reduce__ may raise
        return None
    return found.intdigest()
