"""What to do about files that cannot be merged as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress

from ..errors import DamagedError, UsageError
from ..worker_files.findings import NOT_CLOSED_CODES, State, unmergeable_text
from ..worker_files.inputs import Input, OnConflict
from ..worker_files.skipped_names import Names
from .report import RefusedFile

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
            raise UsageError(
                f"{text!r} is not a limit: write a number of files, or a share such as 5%"
            )
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
    skip: Names = frozenset()  # what to leave out of every file

    def __post_init__(self) -> None:
        if self.max_damaged is not None and self.on_damaged is OnDamaged.STOP:
            raise UsageError(
                "--max-damaged limits how many files may be left out or salvaged: add "
                "--on-damaged skip or --on-damaged salvage"
            )

    def as_json(self) -> dict[str, str | None]:
        limit = None if self.max_damaged is None else str(self.max_damaged)
        return {
            "on_damaged": self.on_damaged.value,
            "max_damaged": limit,
            "on_conflict": self.on_conflict.value,
            "skip": ",".join(sorted(self.skip)) or None,
        }


def separate(inputs: Sequence[Input], policy: Policy) -> tuple[list[Input], list[Input]]:
    """Those that can be merged, and those that cannot; DamagedError if that is too many."""
    good: list[Input] = []
    bad: list[Input] = []
    for one in inputs:
        (good if one.is_readable else bad).append(one)
    if bad and policy.on_damaged is OnDamaged.STOP:
        raise _refusal(bad, len(inputs), _advice(bad, bool(good)))
    if policy.max_damaged is not None and not policy.max_damaged.allows(len(bad), len(inputs)):
        limit = f"this is more than --max-damaged {policy.max_damaged}"
        raise _refusal(bad, len(inputs), f"{limit}: raise it to merge the others")
    return good, bad


def will_stop(inputs: Sequence[Input], policy: Policy) -> bool:
    """Whether what is known of the inputs is enough to stop the merge."""
    return policy.on_damaged is OnDamaged.STOP and not all(one.is_readable for one in inputs)


def notes_on(inputs: Sequence[Input]) -> list[str]:
    """What is worth knowing about files that are merged all the same."""
    told = [one for one in inputs if one.findings]
    is_open = [not NOT_CLOSED_CODES.isdisjoint(f.code for f in one.findings) for one in told]
    unclosed = list(compress(told, is_open))
    notes = [f"{one.path}: {one.findings[0].message}" for one in told if one not in unclosed]
    if len(unclosed) == 1:
        notes.append(f"{unclosed[0].path} was not closed by its writer, but can be read")
    elif unclosed:
        notes.append(f"{len(unclosed):,} files were not closed by their writers, but can be read")
    return notes


def _refusal(bad: Sequence[Input], total: int, advice: str) -> DamagedError:
    lines = [f"  {RefusedFile.of(one)}" for one in bad]
    head = f"{unmergeable_text(len(bad), total)}; nothing was written"
    return DamagedError("\n".join([head, *lines, f"next: {advice}"]))


def _advice(bad: Sequence[Input], has_good: bool) -> str:
    """What to do about files that stop a merge; nothing is in a file that is empty or no HDF5."""
    skip = "add --on-damaged skip to merge the others" if has_good else ""
    states = {one.state for one in bad}
    if State.LIVE in states and State.DAMAGED not in states:
        wait = "run the same command again when nothing is writing these files any more"
        return f"{wait},\n      or {skip}" if skip else wait
    if State.DAMAGED not in states:
        return skip or "nothing can be recovered from these: run their tasks again"
    if skip:
        return (
            f"{skip},\n      or --on-damaged salvage and --key to merge what is intact in these too"
        )
    return "add --on-damaged salvage and --key to merge what is intact in these"
