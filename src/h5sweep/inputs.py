"""What a merge is given: every file looked at by our own reader, before anything is written.

The HDF5 library is not asked: what our reader understands wholly it also reads, and what it does
not is refused with the reason. A file is looked at again whenever it is opened, so that one which
changed meanwhile is noticed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from . import findings
from .check import own_tree, source_of, structure_findings
from .contents import Contents, Layout, Style, judge_contents
from .errors import ChangedError
from .findings import Finding, State, by_weight, state_of
from .hdf5.alike import AlikeFile, AlikeReader
from .hdf5.errors import Damaged, Unsupported
from .hdf5.file import Hdf5File
from .hdf5.tree import data_extents
from .live import Identity, files_being_written, identity_of
from .places import find_places
from .siblings import Family, Siblings
from .triage import RECORDS_MAGIC, Triage

# What these say is in the superblock alone; whether anything was lost, the rest of the file shows.
COSTLESS = frozenset(
    rule.code for rule in (findings.NOT_CLOSED, findings.NOT_CLOSED_SWMR, findings.TRAILING)
)
MOST_KEPT_BYTES = 64 << 20
LEAST_ALIKE_BYTES = 8 << 10  # a smaller file has no eight groups


@dataclass(eq=False, slots=True)
class Input:
    """One file that somebody wants merged, as it was when it was looked at."""

    path: Path
    size_bytes: int
    modified_ns: int
    findings: tuple[Finding, ...] = ()
    contents: Contents | None = None
    family: Family | None = None  # the structure that it shares with others, if it does
    is_alike: bool = False  # most of it are groups that are alike
    alike: AlikeFile | None = None  # these groups, without the file's content, if there was room

    @property
    def state(self) -> State:
        return state_of(self.findings)

    @property
    def style(self) -> Style:
        return Style.NOTHING if self.contents is None else self.contents.style

    @property
    def is_readable(self) -> bool:
        """Whether all that is in it can be read, though it may not have been closed."""
        return self.contents is not None and not self.reasons

    @property
    def reasons(self) -> list[Finding]:
        """Why it cannot be merged as it is."""
        return [
            f
            for f in self.findings
            if f.code == findings.FEATURE.code
            or (f.state is not State.SOUND and f.code not in COSTLESS)
        ]

    @property
    def is_suspect(self) -> bool:
        """Whether its writer did not finish: then also what looks well is read with care."""
        return bool(self.findings)


@dataclass
class Taken:
    """What of one input went where in the output, for the audit trail and for `clean`."""

    source: Input
    crc32: int = 0  # of the whole file, as it was when it was copied
    tasks: int = 0
    duplicates: int = 0  # tasks that another input has as well, with equal content
    datasets: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # table → first row, count
    skipped: tuple[str, ...] = ()  # datasets that are no results, such as /init


class OnConflict(StrEnum):
    """What to do about two different results for one task."""

    STOP = "stop"
    FIRST = "first"  # the first in the order of the inputs
    LAST = "last"
    NEWEST = "newest"  # by the time of last change of their files


class Survey:
    """Looks at files one after the other and remembers what they have in common."""

    def __init__(self) -> None:
        self._triage = Triage()
        self._siblings = Siblings()
        self._alike = AlikeReader()
        self._kept_bytes = 0

    def look_at_all(
        self, paths: Iterable[str | os.PathLike[str]], *, leave_out: Iterable[Path] = ()
    ) -> list[Input]:
        """Every file below `paths` that is HDF5, claims to be, or is ours; each once."""
        written = files_being_written()
        left_out = {identity for path in leave_out if (identity := _identity(path)) is not None}
        seen: set[Identity] = set(left_out)
        found = []
        for place in find_places(paths):
            identity = _identity(Path(place.path))
            if identity in seen:
                continue  # a second name of the same file
            if identity is not None:
                seen.add(identity)
            one = self.look_at(Path(place.path), written)
            if place.claims_hdf5 or one.state is not State.NOT_HDF5:
                found.append(one)
        return found

    def look_at(self, path: Path, written: dict[Identity, str] | None = None) -> Input:
        """Judge one file by its bytes; nothing is raised for what it holds."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            why = error.strerror or error
            return Input(path, 0, 0, (findings.UNREADABLE.finding(why=why),))
        try:
            status = os.fstat(descriptor)
            one = Input(path, status.st_size, status.st_mtime_ns)
            if not stat.S_ISREG(status.st_mode):
                one.findings = (findings.NOT_HDF5.finding(what="no regular file"),)
            elif written and (who := written.get(identity_of(status))) is not None:
                one.findings = (findings.LIVE.finding(who=who),)
            else:
                self._judge(one, descriptor)
        except OSError as error:
            one.findings = (findings.UNREADABLE.finding(why=error.strerror or error),)
        finally:
            os.close(descriptor)
        return one

    def _judge(self, one: Input, descriptor: int) -> None:
        source = source_of(descriptor, one.size_bytes)
        magic = source.read(0, len(RECORDS_MAGIC)) if source.size >= len(RECORDS_MAGIC) else b""
        if magic == RECORDS_MAGIC:
            one.contents = Contents(Style.RECORDS, None)
            return
        verdict = self._triage.judge(source, str(one.path))
        found = list(verdict.findings)
        if verdict.superblock is not None:
            file = Hdf5File(source, verdict.superblock)
            family = self._siblings.find(source)
            if family is None and self._judge_alike(one, file, found):
                return
            if family is None:
                tree = own_tree(file)
                family = self._siblings.add(tree, structure_findings(tree))
            one.family = family if family.fixed else None
            if family.tree.is_cut:
                found.append(findings.FEATURE.finding(where="/", why="too many objects to list"))
            layout = Layout(family.tree_of(source))
            found += family.structure_findings
            found += judge_contents(layout)
            one.contents = layout.contents()
        one.findings = tuple(by_weight(dict.fromkeys(found)))

    def _judge_alike(self, one: Input, file: Hdf5File, found: list[Finding]) -> bool:
        """Judge a file of groups that are alike, by what these have in common; False if it is not.

        Nothing can be wrong with the groups that agree with an example.
        """
        if one.size_bytes < LEAST_ALIKE_BYTES or (alike := read_alike(self._alike, file)) is None:
            return False
        layout = Layout(alike.tree)
        if layout.style in (Style.ROWS, Style.OUTPUT):
            return False
        one.is_alike = True
        self._kept_bytes += alike.kept_bytes
        if self._kept_bytes < MOST_KEPT_BYTES:
            one.alike = alike.with_content(b"")
        found += structure_findings(alike.tree)
        found += [f for f in judge_contents(layout) if f.code != findings.INIT_ONLY.code]
        one.findings = tuple(by_weight(dict.fromkeys(found)))
        one.contents = contents_of_alike(layout, alike)
        return True

    @contextmanager
    def opened_alike(self, one: Input) -> Iterator[AlikeFile | None]:
        """The groups that are alike, of a file that `is_alike`; ChangedError if it has changed."""
        descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(one, descriptor)
            if one.alike is not None:
                content = os.pread(descriptor, one.size_bytes, 0)
                if len(content) != one.size_bytes:
                    raise changed(one)
                yield one.alike.with_content(content)
            else:
                source = source_of(descriptor, one.size_bytes)
                superblock = self._triage.judge(source, str(one.path)).superblock
                if superblock is None:
                    raise changed(one)
                yield read_alike(self._alike, Hdf5File(source, superblock))
            require_unchanged(one, descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def opened(self, one: Input) -> Iterator[Layout]:
        """The objects of a file and its bytes; ChangedError if it is not what was looked at."""
        descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(one, descriptor)
            source = source_of(descriptor, one.size_bytes)
            if one.family is not None:
                tree = one.family.tree_of(source)
            else:
                superblock = self._triage.judge(source, str(one.path)).superblock
                if superblock is None:
                    raise changed(one)
                tree = own_tree(Hdf5File(source, superblock))
            yield Layout(tree)
            require_unchanged(one, descriptor)
        finally:
            os.close(descriptor)


def read_alike(reader: AlikeReader, file: Hdf5File) -> AlikeFile | None:
    """As `check.own_tree`: a bug in our reader costs speed, and never the merge."""
    try:
        return reader.read(file)
    except (Damaged, Unsupported, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def contents_of_alike(layout: Layout, alike: AlikeFile) -> Contents:
    """Count the tasks of a file, those in groups that are alike and the others."""
    rest = layout.contents()
    tasks, datasets, data_bytes = rest.tasks or 0, rest.datasets, rest.data_bytes
    if layout.style is Style.ONE:
        tasks = 0  # what stands at the root beside groups is no task
    for groups in alike.sets:
        inside = [o.dataset for o in groups.example.objects if o.dataset is not None]
        parents = {o.path.rpartition("/")[0] for o in groups.example.objects if o.dataset}
        tasks += len(groups) * len(parents)
        datasets += len(groups) * len(inside)
        data_bytes += len(groups) * sum(n for d in inside for _, n in data_extents(d))
    names = [path.strip("/") for groups in alike.sets for path in groups.paths]
    return Contents(Style.GROUPS, tasks, datasets, data_bytes, min(names), max(names))


def require_unchanged(one: Input, descriptor: int) -> None:
    """Raise ChangedError if the file's size or time is no longer what it was."""
    status = os.fstat(descriptor)
    if (status.st_size, status.st_mtime_ns) != (one.size_bytes, one.modified_ns):
        raise changed(one)


def changed(one: Input) -> ChangedError:
    return ChangedError(
        f"{one.path} changed while it was read: somebody is writing it; "
        "give the same command again when that has ended"
    )


def _identity(path: Path) -> Identity | None:
    try:
        return identity_of(path.stat())
    except OSError:
        return None
