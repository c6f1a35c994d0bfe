"""The parts of a sweep that are at work in one folder, and which tasks each has claimed.

    parts/3of40_node7_4711_1f9c2e.json   a part: who, with which code; it has a heartbeat
    claims/17.2                          that slice 17 was claimed for the second time: by whom, of
                                         how many tasks, and which of these it was told to run

There is no lock, no server, and no file that two processes write. A *slice* is the tasks whose
numbers leave the same remainder: neighbours often take equally long, and are spread so. Whoever
creates a claim file has the slice: exactly one can, on every file system. The file of a part goes
when it ends. A claim by a part that has ended or died is void: the slice is free, and its next
claim has the next number. So nothing has ever to be unlocked, and a part that is thought dead and
is not costs only that what it has in hand is run twice: its next heartbeat makes its file again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..base.process_id import ProcessId, host_name
from ..base.units import command_text
from ..disk import durable
from ..disk.inside_folder import parse_json, read_file, retrying_stale
from ..errors import LockedError, UsageError
from .heartbeat import (
    BEAT_BYTES,
    HEARTBEAT_S,
    WATCH_S,
    BeatWatch,
    beating,
    owner_in,
    read_beat,
    since_in,
    write_padded,
)
from .layout import RunFolder
from .orders import withdraw_orders

SLICES = 1024
_SUFFIX = ".json"
# Parts of a run that has died see that after a while, end within its grace, and then record that.
ENDING_MORE_S = 40.0
_NAME = re.compile(r"(\d+)of(\d+)_([^/\0]{1,200})_(\d+)_[0-9a-f]+")


@dataclass(frozen=True)
class PartNumber:
    """Which part of how many: 3 of 40."""

    number: int
    of: int
    is_rank: bool = False  # of a launcher, which may end all ranks if one fails

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(
                f"there is no part {self.number} of {self.of}: parts are numbered from 1 to N"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def slices(self) -> range:
        """The slices that are its own as long as no other part takes them over."""
        return range(self.number - 1, SLICES, self.of)


@dataclass(frozen=True)
class Part:
    """A part that is at work, or was when it died."""

    name: str
    number: str  # such as 3/40
    process: ProcessId | None  # None if the file says nothing yet
    code: str
    since: float
    order: str = ""  # of the run that sent it to an engine
    ending_s: float = 0.0  # how long it may take to end if that run has died

    @property
    def is_alive(self) -> bool | None:
        """Whether its process runs; None if nobody here can say."""
        return None if self.process is None else self.process.is_alive()

    def __str__(self) -> str:
        return f"part {self.number} ({self.process or 'just begun'})"


@contextmanager
def registered(
    folder: RunFolder, part: PartNumber, code: str, order: str = "", grace_s: float = 0.0
) -> Iterator[str]:
    """Be known as a part at work, with a heartbeat; yield the name that claims are made under.

    With an order it ends within the grace after the run that sent it.
    """
    folder.create()
    durable.make_folder(folder.parts_path)
    durable.make_folder(folder.claims_path)
    name = f"{part.number}of{part.of}_{host_name()}_{os.getpid()}_{os.urandom(3).hex()}"
    path = folder.parts_path / (name + _SUFFIX)
    try:
        about: dict[str, Any] = {"part": str(part), "code": code, "order": order}
        about |= {"ending_s": grace_s + ENDING_MORE_S} if order else {}
        with beating(partial(_write_beat, path), path, about):
            yield name
    finally:
        with suppress(OSError):  # that it is dead is then found out by its silence
            path.unlink()  # from here on its claims are void


def _write_beat(path: Path, content: bytes) -> None:
    """Write the file of a part, and make it again if somebody thought that the part was dead."""
    if not os.path.lexists(path):
        # With its content at once: one killed before it said who it is would be known for ever.
        return durable.replace_text(path, content.ljust(BEAT_BYTES).decode())
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o666)
    try:
        write_padded(descriptor, content)
    finally:
        os.close(descriptor)


def read_parts(folder: RunFolder) -> list[Part]:
    """Every part that has not ended by itself, in order."""
    return [_part(path.stem, content) for path, content in _part_files(folder)]


def _part_files(folder: RunFolder) -> Iterator[tuple[Path, bytes]]:
    for path in _listed(folder.parts_path):
        content = read_beat(path) if path.suffix == _SUFFIX else b""
        # One that says nothing yet is there; one that went between the two looks is not.
        if content or (path.suffix == _SUFFIX and _is_file(path)):
            yield path, content


def _is_file(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def _part(name: str, content: bytes) -> Part:
    about: dict[str, Any] = {}
    with suppress(ValueError):
        loaded = parse_json(content)
        about = loaded if isinstance(loaded, dict) else {}
    number, ending = about.get("part"), about.get("ending_s")
    return Part(
        name,
        number if isinstance(number, str) else "/".join(_words(name)[:2]),
        owner_in(content),
        str(about.get("code")),
        since_in(content) or 0.0,
        str(about.get("order") or ""),
        ending if isinstance(ending, int | float) else 0.0,
    )


def part_beats(folder: RunFolder) -> dict[str, float]:
    """When the file of each part was last written."""
    found = {}
    for path in _listed(folder.parts_path):
        with suppress(OSError):
            found[path.stem] = path.lstat().st_mtime
    return found


@dataclass
class PartWatch:
    """Which parts are alive."""

    folder: RunFolder
    _beats: BeatWatch = field(default_factory=BeatWatch)

    def look(self) -> dict[str, bool | None]:
        """Each part, and whether it is alive; None if more looks are needed to tell.

        The file of a dead one is removed: whoever looks next need not find that out again.
        """
        found = {}
        refresh_listing(self.folder.parts_path)
        for path, content in _part_files(self.folder):
            alive = found[path.stem] = self._beats.is_alive(path.stem, content)
            if alive is False:
                with suppress(OSError):
                    path.unlink()
        return found


def require_no_parts(folder: RunFolder, tell: Callable[[str], None]) -> None:
    """Raise LockedError if a part is at work; watch for a while those that nobody here can see.

    The caller holds the lock. So the run is dead that sent parts to an engine, and these end.
    """
    withdraw_orders(folder)
    if name := live_part(folder, tell):
        raise LockedError(
            f"{_part_text(name)} is at work on {folder.output.name}; watch it with: "
            f"{command_text('status', folder.output)}"
        )


def live_part(folder: RunFolder, tell: Callable[[str], None], code: str | None = None) -> str:
    """A part that is at work, with that code if one is named; empty if none is.

    Those that nobody here can see are watched for a while, and so are those that a dead run has
    sent to an engine: these end.
    """
    watch, has_told, begun = PartWatch(folder), False, time.monotonic()
    while True:
        looked = watch.look()  # first: it has the parts listed anew
        parts = [part for part in read_parts(folder) if code in (None, part.code)]
        waited_s = time.monotonic() - begun
        ending = {part.name: part.ending_s for part in parts if waited_s < part.ending_s}
        left = {part.name: looked.get(part.name) for part in parts}
        for name, alive in left.items():
            if alive and name not in ending:
                return name
        name, alive = next(((n, a) for n, a in left.items() if a is not False), ("", False))
        if not name:
            return ""
        if not has_told:
            what = "of a run that has died is ending" if alive else "may still be at work"
            for_s = ending[name] if alive else WATCH_S
            tell(f"{_part_text(name)} {what}; watching it for {for_s:g} s")
        has_told = True
        time.sleep(HEARTBEAT_S / 5)  # not synchronisation: there is nothing to wait on


def _words(name: str) -> tuple[str, str, str, str]:
    """Which part, of how many, on which host, with which pid: from the name of its file."""
    match = _NAME.fullmatch(name)
    return (match[1], match[2], match[3], match[4]) if match else ("?", "?", "?", "?")


def _part_text(name: str) -> str:
    number, of, host, pid = _words(name)
    return f"part {number}/{of} (pid {pid} on {host})"


@dataclass(frozen=True)
class Claim:
    """A claim: whose, and which tasks of its slice that part runs. A later plan may have more."""

    holder: str
    tasks: int = 0  # of the plan, as that part knows it
    choice: str = ""  # a name for which of them it was told to run

    @classmethod
    def parse(cls, text: str) -> Claim | None:
        """None if it says nothing, or not all of it yet."""
        match = re.fullmatch(r"([^\n]+)\n(\d{1,12}) ([^\n]*)\n", text)
        return cls(match[1], int(match[2]), match[3]) if match else None

    def __str__(self) -> str:
        return f"{self.holder}\n{self.tasks} {self.choice}\n"


@dataclass
class Claims:
    """The claims of a folder, as one part sees and makes them."""

    folder: RunFolder
    name: str
    choice: str = ""
    _known: dict[tuple[int, int], Claim] = field(default_factory=dict)

    def counts(self) -> dict[int, int]:
        """How often each slice was claimed."""
        found: dict[int, int] = {}
        for path in _listed(self.folder.claims_path):
            number, _, count = path.name.partition(".")
            if number.isdecimal() and count.isdecimal():
                found[int(number)] = max(int(count), found.get(int(number), 0))
        return found

    def find(self, number: int, count: int) -> Claim | None:
        """What a claim says; None if that cannot be read, perhaps not yet."""
        if not count:
            return None  # and ask for no file that is not there: on a network that takes long
        known = self._known.get((number, count))
        if known is None:
            content = b""
            with suppress(ValueError):  # it is no file: nobody's, then
                content = read_file(self._path(number, count)) or b""
            known = Claim.parse(content.decode(errors="replace"))
            if known is not None:
                self._known[number, count] = known
        return known

    def claim(self, number: int, count: int, tasks: int) -> bool:
        """Claim a slice that was claimed `count` times before, of a plan of so many tasks.

        False if another part was faster.
        """
        path = self._path(number, count + 1)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if durable.is_there_already(path, error):
                return False
            raise durable.storage_error(path, error) from error
        try:
            try:
                os.write(descriptor, str(Claim(self.name, tasks, self.choice)).encode())
            finally:
                os.close(descriptor)  # NFS may refuse what was written only now
        except OSError as error:
            raise durable.storage_error(path, error) from error
        return True

    def _path(self, number: int, count: int) -> Path:
        return self.folder.claims_path / f"{number}.{count}"


def refresh_listing(folder: Path) -> None:
    """Have what is listed next be new: sshfs and NFS keep listings and sizes until we change it."""
    path = folder / f".look_{os.getpid()}_{os.urandom(3).hex()}"
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        path.unlink()
        for left in folder.glob(".look_*"):  # by who was killed in between
            left.unlink(missing_ok=True)


def _listed(path: Path) -> list[Path]:
    """What a folder holds: a listing, because network file systems cache "no such file"."""
    try:
        names = retrying_stale(lambda: os.listdir(path))  # noqa: PTH208  # names suffice
    except FileNotFoundError:
        return []
    return sorted(path / name for name in names)
