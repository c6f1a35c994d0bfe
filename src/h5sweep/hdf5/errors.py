"""The two ways in which reading HDF5 can fail.

DamagedError (exit code 3)
└── Damaged       the bytes cannot be what a sound file has there
SweepError
└── Unsupported   they may be right, but they use what is not known here
"""

from __future__ import annotations

from enum import StrEnum

from ..errors import DamagedError, SweepError


class DamageKind(StrEnum):
    """What sort of damage it is."""

    STRUCTURE = "structure"
    CHECKSUM = "checksum"
    BEYOND_END = "beyond the end"


class Damaged(DamagedError):  # noqa: N818 (as a verdict: this is damaged)
    """Bytes that no sound HDF5 file has in this place."""

    def __init__(self, message: str, kind: DamageKind = DamageKind.STRUCTURE) -> None:
        super().__init__(message)
        self.kind = kind
        self.costs_nothing = False  # all that lies there could be read


class Unsupported(SweepError):  # noqa: N818 (as a verdict: this is unsupported)
    """A feature of the format that is not known here: no damage."""

    costs_nothing = False
