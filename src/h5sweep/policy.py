"""What to do about files that cannot be merged as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .errors import DamagedError, UsageError
from .inputs import Input, OnConflict

_THRESHOLD = re.compile(r"(\d+)(%?)")


class OnDamaged(StrEnum):
    """What to do about inputs that cannot be read as they are."""

    STOP = "stop"
    SKIP = "skip"
    SALVAGE = "salvage"


@dataclass(frozen=True)
class Threshold:
    """How many inputs may be bad before a merge stops after all."""

    number: int
    is_percent: bool

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """`20` files, or `5%` of them."""
        match = _THRESHOLD.fullmatch(text.strip())
        if match is None or (match[2] and int(match[1]) > 100):
            raise UsageError(f"{text!r} is no threshold: write a number of files, or 5%")
        return cls(int(match[1]), bool(match[2]))

    def allows(self, bad: int, total: int) -> bool:
        return 100 * bad <= self.number * total if self.is_percent else bad <= self.number

    def __str__(self) -> str:
        return f"{self.number}{'%' if self.is_percent else ''}"


@dataclass(frozen=True)
class Policy:
    """What somebody wants done about bad files and about conflicts."""

    on_damaged: OnDamaged = OnDamaged.STOP
    max_damaged: Threshold | None = None
    on_conflict: OnConflict = OnConflict.STOP

    def __post_init__(self) -> None:
        if self.max_damaged is not None and self.on_damaged is OnDamaged.STOP:
            raise UsageError(
                "--max-damaged limits how many files may be left out or salvaged: give "
                "--on-damaged skip or salvage with it"
            )

    def as_json(self) -> dict[str, str | None]:
        limit = None if self.max_damaged is None else str(self.max_damaged)
        return {
            "on_damaged": self.on_damaged.value,
            "max_damaged": limit,
            "on_conflict": self.on_conflict.value,
        }


def separate(inputs: Sequence[Input], policy: Policy) -> tuple[list[Input], list[Input]]:
    """Those that can be merged, and those that cannot; DamagedError if that is too many."""
    good: list[Input] = []
    bad: list[Input] = []
    for one in inputs:
        (good if one.is_readable else bad).append(one)
    if bad and policy.on_damaged is OnDamaged.STOP:
        advice = "--on-damaged skip merges the others; salvage, also what is intact in these"
        raise _refusal(bad, len(inputs), advice)
    if policy.max_damaged is not None and not policy.max_damaged.allows(len(bad), len(inputs)):
        limit = f"that is more than --max-damaged {policy.max_damaged}"
        raise _refusal(bad, len(inputs), f"{limit}: raise it to merge the others all the same")
    return good, bad


def _refusal(bad: Sequence[Input], total: int, advice: str) -> DamagedError:
    lines = [f"  {line_about(one)}" for one in bad]
    head = f"{len(bad):,} of {total:,} files cannot be merged as they are; nothing was written"
    return DamagedError("\n".join([head, *lines, f"next: `h5sweep check` says more; {advice}"]))


def line_about(one: Input) -> str:
    """`empty  worker_61817.h5  D101 0 bytes; its process died before its first write`."""
    why = one.reasons[0] if one.reasons else one.findings[0]
    return f"{one.state}  {one.path}  {why.code} {why.message}"
