"""A file to be merged, and what became of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

from xxhash import xxh3_64

from ..errors import ChangedError, naming
from ..hdf5.tree import Tree
from ..hdf5.uniform_groups import AlikeFile
from .findings import Finding, State, against_merging, state_of
from .layouts import Contents, Style, natural_order
from .same_structure import Family

READ_BYTES = 1 << 20
_DIGITS_ALIKE = str.maketrans("123456789", "000000000")


@dataclass(eq=False, slots=True)
class Input:
    """One file that somebody wants merged, as it was when it was looked at."""

    name: str  # of which `path` is made when it is wanted: that takes longer than to read a file
    size_bytes: int
    modified_ns: int
    findings: tuple[Finding, ...] = ()
    contents: Contents | None = None
    family: Family | None = None  # the structure that it shares with others, if it does
    kept_as: int = -1  # its number among those of which the family keeps what they do not share
    xxh3: int = 0  # of the whole file, if it was read
    is_alike: bool = False  # most of it are groups that are alike
    alike: AlikeFile | None = None  # these groups, without the file's content, if there was room
    tree: Tree | None = None  # its structure, if none shares it and it is small enough to keep

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def file_name(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def is_kept(self) -> bool:
        """Whether all that is in it is in memory."""
        return self.kept_as >= 0

    @property
    def state(self) -> State:
        return state_of(self.findings) if self.findings else State.SOUND

    @property
    def style(self) -> Style:
        return Style.NOTHING if self.contents is None else self.contents.style

    @property
    def is_readable(self) -> bool:
        """Whether all that is in it can be read, though it may not have been closed."""
        return self.contents is not None and not (self.findings and self.reasons)

    @property
    def reasons(self) -> list[Finding]:
        """Why it cannot be merged as it is."""
        return against_merging(self.findings)

    @property
    def is_suspect(self) -> bool:
        """Whether its writer did not finish: then also what looks well is read with care."""
        return any(finding.state is not State.SOUND for finding in self.findings)


@dataclass(slots=True)
class Taken:
    """What of one input went where in the output, for the audit trail and for `clean`."""

    source: Input
    xxh3: int = 0  # checksum of the whole file, as it was when it was copied
    tasks: int = 0
    duplicates: int = 0  # those of them that another input has as well, with equal content
    datasets: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    rows: dict[str, Sequence[int]] = field(default_factory=dict)  # as in `AuditInput`
    skipped: tuple[str, ...] = ()  # what is not in the output, such as /init
    left_out: dict[str, str] = field(default_factory=dict)  # values that only the trail has


class OnConflict(StrEnum):
    """What to do about two different results for one task."""

    STOP = "stop"
    FIRST = "first"  # the first in the order of the inputs
    LAST = "last"
    NEWEST = "newest"  # by the time of last change of their files

    def order(self, inputs: Sequence[Input]) -> list[int]:
        """Places of the inputs such that of two results for one task the first is to be taken."""
        places = range(len(inputs))
        if self is OnConflict.LAST:
            return list(reversed(places))
        if self is OnConflict.NEWEST:
            return sorted(places, key=lambda place: -inputs[place].modified_ns)
        return list(places)


def in_natural_order(inputs: list[Input]) -> list[Input]:
    """By their paths, `worker_9.h5` before `worker_10.h5`."""
    paths = [one.name for one in inputs]
    # Where all names have their digits in the same places, the order of letters is the natural one.
    shapes = "\n".join(paths).translate(_DIGITS_ALIKE)
    first = paths[0].translate(_DIGITS_ALIKE) if paths else ""
    if shapes.isascii() and shapes == "\n".join([first] * len(paths)):
        return sorted(inputs, key=attrgetter("name"))
    return sorted(inputs, key=lambda one: natural_order(one.name))


def require_unchanged(one: Input, descriptor: int) -> None:
    """Raise ChangedError if the file's size or time is no longer what it was."""
    status = os.fstat(descriptor)
    if (status.st_size, status.st_mtime_ns) != (one.size_bytes, one.modified_ns):
        raise changed(one)


def xxh3_of(one: Input) -> int:
    """The checksum of a whole input; ChangedError if it changed meanwhile."""
    if one.xxh3:
        return one.xxh3
    descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        checksum = xxh3_64()
        with naming(one.path):
            while data := os.read(descriptor, READ_BYTES):
                checksum.update(data)
        require_unchanged(one, descriptor)
        one.xxh3 = checksum.intdigest()
        return one.xxh3
    finally:
        os.close(descriptor)


def changed(one: Input) -> ChangedError:
    return ChangedError(
        f"{one.path} changed while it was read: a process is writing it; "
        "run the same command again when that process has ended"
    )
