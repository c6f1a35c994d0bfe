"""What a merge is given: every file looked at by our own reader, before anything is written.

The HDF5 library is not asked: what our reader understands wholly it also reads, and what it does
not is refused with the reason. A file is looked at again whenever it is opened, so that one which
changed meanwhile is noticed.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from struct import Struct
from typing import Any

from xxhash import xxh3_64, xxh3_64_intdigest

from . import findings
from .contents import Contents, Layout, Style, judge_contents, natural_order
from .errors import ChangedError
from .findings import Finding, State, by_weight, state_of
from .hdf5.alike import AlikeFile, AlikeReader
from .hdf5.data import fill_bytes
from .hdf5.errors import Damaged, Unsupported
from .hdf5.file import Hdf5File
from .hdf5.messages import Storage
from .hdf5.source import FileSource, Source
from .hdf5.tree import Dataset, Tree, data_extents
from .live import Identity, files_being_written, identity_of
from .places import find_places
from .reading import SMALL_BYTES, own_tree, source_of, structure_findings
from .siblings import Family, Siblings
from .triage import RECORDS_MAGIC, Triage

# What these say is in the superblock alone; whether anything was lost, the rest of the file shows.
COSTLESS = frozenset(
    rule.code for rule in (findings.NOT_CLOSED, findings.NOT_CLOSED_SWMR, findings.TRAILING)
)
# No damage, but a merge would leave something out.
UNREAD = frozenset(rule.code for rule in (findings.FEATURE, findings.LINKS_OUT))
READ_BYTES = 1 << 20
MOST_KEPT_BYTES = 256 << 20
MOST_KEPT_CHUNKS = 1_000_000  # about 200 bytes each
MOST_ROW_BYTES = 64 << 10
_DIGITS_ALIKE = str.maketrans("123456789", "000000000")
MOST_NAMED = 3
MOST_ALIKE_BYTES = 64 << 20
LEAST_ALIKE_BYTES = 8 << 10  # a smaller file has no eight groups


@dataclass(eq=False, slots=True)
class Input:
    """One file that somebody wants merged, as it was when it was looked at."""

    name: str  # of which `path` is made when it is wanted: that takes longer than to read a file
    size_bytes: int
    modified_ns: int
    findings: tuple[Finding, ...] = ()
    contents: Contents | None = None
    family: Family | None = None  # the structure that it shares with others, if it does
    is_alike: bool = False  # most of it are groups that are alike
    alike: AlikeFile | None = None  # these groups, without the file's content, if there was room
    tree: Tree | None = None  # its structure, if none shares it and it is small enough to keep
    data: bytes | None = None  # what it does not share with its family, if that is little
    xxh3: int = 0  # of the whole file, if `data` is kept

    @property
    def path(self) -> Path:
        return Path(self.name)

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
        return [
            f
            for f in self.findings
            if f.code in UNREAD or (f.state is not State.SOUND and f.code not in COSTLESS)
        ]

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
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)  # table → first row, count
    skipped: tuple[str, ...] = ()  # datasets that are no results, such as /init
    left_out: dict[str, str] = field(default_factory=dict)  # attributes that the output lacks


class OnConflict(StrEnum):
    """What to do about two different results for one task."""

    STOP = "stop"
    FIRST = "first"  # the first in the order of the inputs
    LAST = "last"
    NEWEST = "newest"  # by the time of last change of their files


class Survey:
    """Looks at files one after the other and remembers what they have in common.

    What is kept of them is bounded: the data of small files that share a structure, so that these
    are read once, and structures.
    """

    def __init__(self) -> None:
        self._triage = Triage()
        self._siblings = Siblings()
        self._sound: dict[int, list[_Known]] = {}  # by the size of their files
        self._bytes_left = MOST_KEPT_BYTES
        self._chunks_left = MOST_KEPT_CHUNKS
        self._alike = AlikeReader()
        self._alike_bytes_left = MOST_ALIKE_BYTES

    def look_at_all(
        self, paths: Iterable[str | os.PathLike[str]], *, leave_out: Iterable[Path] = ()
    ) -> list[Input]:
        """Every file below `paths` that is HDF5, claims to be, or is ours; each once.

        They are in the natural order of their paths.
        """
        written = files_being_written()
        seen = {identity for path in leave_out if (identity := _identity(path)) is not None}
        found = []
        for place in find_places(paths):
            one = self._look(place.path, written, seen)
            if one is not None and (one.state is not State.NOT_HDF5 or place.claims_hdf5):
                found.append(one)
        return in_natural_order(found)

    def look_at(self, path: Path, written: dict[Identity, str] | None = None) -> Input:
        """Judge one file by its bytes; nothing is raised for what it holds."""
        one = self._look(os.fspath(path), written or {}, set())
        assert one is not None  # nothing was seen before
        return one

    def _look(self, path: str, written: dict[Identity, str], seen: set[Identity]) -> Input | None:
        """Judge one file; None if it is one of those `seen`, under another name."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            why = error.strerror or error
            return Input(path, 0, 0, (findings.UNREADABLE.finding(why=why),))
        try:
            status = os.fstat(descriptor)
            identity = status.st_dev, status.st_ino
            if identity in seen:
                return None
            seen.add(identity)
            one = Input(path, status.st_size, status.st_mtime_ns)
            if not stat.S_ISREG(status.st_mode):
                one.findings = (findings.NOT_HDF5.finding(what="no regular file"),)
            elif (who := written.get(identity)) is not None:
                one.findings = (findings.LIVE.finding(who=who),)
            else:
                self._judge(one, descriptor)
        except OSError as error:
            one = Input(path, 0, 0, (findings.UNREADABLE.finding(why=error.strerror),))
        finally:
            os.close(descriptor)
        return one

    def _judge(self, one: Input, descriptor: int) -> None:
        size = one.size_bytes
        content = os.pread(descriptor, size, 0) if size <= SMALL_BYTES else b""
        if content and len(content) < size:
            raise changed(one)
        data = None
        for known in self._sound.get(size, ()):
            data = known.data_in(content) if content else None
            if data is not None or (not content and known.is_like(descriptor)):
                one.contents, one.family = known.contents, known.family
                break
        else:
            source = Source(content) if content else FileSource(descriptor, size)
            known_now = self._judge_anew(one, source)
            if known_now is not None and content:
                data = known_now.data_in(content)
        if data and len(data) <= self._bytes_left:
            require_unchanged(one, descriptor)
            self._bytes_left -= len(data)
            one.data, one.xxh3 = data, xxh3_64_intdigest(content)

    def _judge_anew(self, one: Input, source: Source) -> _Known | None:
        """Judge a file unlike all before; if it is sound, return by what others are like it."""
        magic = source.read(0, len(RECORDS_MAGIC)) if source.size >= len(RECORDS_MAGIC) else b""
        if magic == RECORDS_MAGIC:
            one.contents = Contents(Style.RECORDS, None)
            return None
        verdict = self._triage.judge(source, one.name)
        found, known = list(verdict.findings), None
        if verdict.superblock is not None:
            file = Hdf5File(source, verdict.superblock)
            family = self._siblings.find(source)
            if family is None and self._judge_alike(one, file, found):
                return None
            if family is None:
                tree = own_tree(file)
                family = self._siblings.add(tree, structure_findings(tree))
            layout = Layout(family.tree_of(source))
            found += family.structure_findings
            found += judge_contents(layout)
            found += _data_elsewhere(layout)
            one.contents = layout.contents(with_keys=False)
            if family.fixed:
                one.family = family
                if not found:
                    known = _Known(family, one.contents, _last_rows(layout), one.size_bytes)
                    self._sound.setdefault(one.size_bytes, []).append(known)
            else:
                self._keep_tree(one, family.tree)
        one.findings = tuple(by_weight(dict.fromkeys(found)))
        return known

    def _keep_tree(self, one: Input, tree: Tree) -> None:
        size = sum(1 + len(o.attributes) for o in tree.objects)
        size += sum(len(dataset.chunks) for _, dataset in tree.datasets)
        if size <= self._chunks_left:
            one.tree = tree
            self._chunks_left -= size

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
        if alike.kept_bytes <= self._alike_bytes_left:
            self._alike_bytes_left -= alike.kept_bytes
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
            yield Layout(self._tree_of(one, source))
            require_unchanged(one, descriptor)
        finally:
            os.close(descriptor)

    def _tree_of(self, one: Input, source: Source) -> Tree:
        if one.family is not None:
            return one.family.tree_of(source)
        if one.tree is not None:
            return replace(one.tree, file=Hdf5File(source, one.tree.file.superblock))
        superblock = self._triage.judge(source, one.name).superblock
        if superblock is None:
            raise changed(one)
        return own_tree(Hdf5File(source, superblock))


def _data_elsewhere(layout: Layout) -> Iterator[Finding]:
    """Datasets whose values are in other files, which are never followed."""
    for path, dataset in layout.tree.datasets:
        if dataset.is_external or dataset.layout.storage is Storage.VIRTUAL:
            yield findings.FEATURE.finding(where=path, why="its data are in another file")


class _Known:
    """A structure in which nothing was wrong, and where to look for rows that were never written.

    Whatever equals it outside its data is as sound, unless the last row of a table is unwritten:
    `last_rows` has, for each table, the place of one piece of it and what would stand there then.
    """

    def __init__(
        self,
        family: Family,
        contents: Contents,
        last_rows: tuple[tuple[int, bytes], ...],
        size_bytes: int,
    ) -> None:
        self.family, self.contents = family, contents
        self._last_rows = last_rows
        self._fixed = tuple(family.fixed)
        # In turn what all have and what each has for itself: a file begins with its superblock.
        places = sorted([*family.spans, *family.gaps(size_bytes)])
        self._parts = Struct("".join(f"{end - start}s" for start, end in places))

    def data_in(self, content: bytes) -> bytes | None:
        """What a file of the same size has for itself; None if it must be looked at closer."""
        parts = self._parts.unpack(content)
        if parts[::2] != self._fixed:
            return None
        for start, fill in self._last_rows:
            if content[start : start + len(fill)] == fill:
                return None
        return b"".join(parts[1::2])

    def is_like(self, descriptor: int) -> bool:
        """Whether a file of the same size need not be looked at closer."""
        for (start, end), data in zip(self.family.spans, self._fixed, strict=True):
            if os.pread(descriptor, end - start, start) != data:
                return False
        return all(os.pread(descriptor, len(fill), at) != fill for at, fill in self._last_rows)


def _last_rows(layout: Layout) -> tuple[tuple[int, bytes], ...]:
    """One piece of the last row of every table that can grow: the smallest that is in the file."""
    start, found = layout.tree.file.superblock.start, []
    for table in layout.tables():
        pieces = [
            (len(fill), start + at, fill)
            for dataset in table.columns.values()
            for at, fill in _last_row(dataset)
        ]
        if pieces:
            _, at, fill = min(pieces)
            found.append((at, fill))
        elif len(table.columns) > 1 and table.rows > 1:
            found.append((0, b""))  # equal to anything: each such file is looked at by itself
    return tuple(found)


def _last_row(dataset: Dataset) -> Iterator[tuple[int, bytes]]:
    row = (dataset.rows or 0) - 1
    row_bytes = math.prod(dataset.layout.chunk[1:]) * dataset.type.size
    if dataset.filters or dataset.type.points_elsewhere or row_bytes > MOST_ROW_BYTES:
        return
    for chunk in dataset.chunks:
        within = row - chunk.start[0]
        if 0 <= within < dataset.layout.chunk[0]:
            yield chunk.address + within * row_bytes, fill_bytes(dataset, row_bytes)


def in_natural_order(inputs: list[Input]) -> list[Input]:
    """By their paths, `worker_9.h5` before `worker_10.h5`."""
    paths = [one.name for one in inputs]
    # Where all names have their digits in the same places, the order of letters is the natural one.
    shapes = "\n".join(paths).translate(_DIGITS_ALIKE)
    is_plain = shapes.isascii() and len(set(shapes.split("\n"))) <= 1
    keys: list[Any] = paths if is_plain else [natural_order(path) for path in paths]
    return [inputs[place] for place in sorted(range(len(inputs)), key=keys.__getitem__)]


def read_alike(reader: AlikeReader, file: Hdf5File) -> AlikeFile | None:
    """As `reading.own_tree`: a bug in our reader costs speed, and never the merge."""
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


def xxh3_of(one: Input) -> int:
    """The checksum of a whole input; ChangedError if it changed meanwhile."""
    descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        checksum = xxh3_64()
        while data := os.read(descriptor, READ_BYTES):
            checksum.update(data)
        require_unchanged(one, descriptor)
        return checksum.intdigest()
    finally:
        os.close(descriptor)


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


def differing_text(name: str, path: str, first: Input, others: Sequence[Input]) -> str:
    """What to say of an attribute that can be in the output only once."""
    have = "has another value" if len(others) == 1 else "have other values"
    return (
        f"the attribute {name} of {path} differs between files: that of {first.path} is kept, "
        f"{some_names(others)} {have} (in the audit trail)"
    )


def some_names(inputs: Iterable[Input]) -> str:
    """The first few, and how many more."""
    names = [one.name for one in inputs]
    rest = len(names) - MOST_NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return ", ".join(names[:MOST_NAMED]) + more
