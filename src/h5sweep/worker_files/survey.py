"""What a merge is given: every file looked at by our own reader, before anything is written.

What our reader understands wholly it also reads, and what it does not is refused with the reason;
what the HDF5 library says comes later (`damage`). A file is looked at again whenever it is opened,
so that one which changed meanwhile is noticed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice, repeat
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_intdigest

from ..disk.find_files import FoundFile, find_places
from ..disk.open_files import Identity, files_being_written, identity_of
from ..errors import ChangedError, naming
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.source import FileSource, Source
from ..hdf5.tree import Tree, data_extents
from ..hdf5.uniform_groups import AlikeFile, AlikeReader, quick_source
from . import findings
from .findings import Finding, State, against_merging, by_weight, state_of
from .known_structures import KeptData, KnownStructure
from .layouts import Contents, FileLayout, Style, judge_contents, natural_order
from .read_file import (
    SMALL_BYTES,
    DamagedFileError,
    damaged_file,
    own_tree,
    source_of,
    structure_findings,
    unread_file,
)
from .same_structure import Families, Family
from .skipping import Names, is_named
from .triage import Triage, is_record_file

READ_AT_ONCE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
READ_BYTES = 1 << 20
MOST_KEPT_BYTES = 256 << 20
MOST_KEPT_CHUNKS = 1_000_000  # about 200 bytes each
MOST_AT_ONCE = 64
SETTLED_NS = 2_000_000_000  # longer than clocks of one machine and its disks differ, or tick
_DIGITS_ALIKE = str.maketrans("123456789", "000000000")
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
    kept: KeptData | None = None  # where what it does not share is kept, if that is little,
    kept_as: int = 0  # and its number there
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


class Survey:
    """Looks at files one after the other and remembers what they have in common.

    What is kept of them is bounded: the data of small files that share a structure, so that these
    are read once, and structures.
    """

    def __init__(self, skip: Names = frozenset()) -> None:
        """`skip`: the names of what is to be left out of every file."""
        self.skip = skip
        self.linked_folders: list[str] = []  # links in folders that were not followed
        self._triage = Triage()
        self._siblings = Families()
        self._sound: dict[int, list[KnownStructure]] = {}  # by the size of their files
        self._latest: KnownStructure | None = None  # what the last small file is like
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
        met = _Met(files_being_written())
        for device, inode in filter(None, map(_identity, leave_out)):
            met.add(device, {inode})
        places = iter(find_places(paths, on_link=self.linked_folders.append))
        found, count = list[Input](), 1
        while some := list(islice(places, count)):
            alike = self._look_at_once(some, met) if count > 1 else []
            found += alike or self._look_at_each(some, met)
            # As long as files are alike, ever more of them are read at once.
            are_alike = bool(alike) or (count == 1 and self._latest is not None)
            count = min(2 * count, MOST_AT_ONCE) if are_alike else 1
        return in_natural_order(found)

    def look_at(self, path: Path, written: dict[Identity, str] | None = None) -> Input:
        """Judge one file by its bytes; nothing is raised for what it holds."""
        one = self._look(os.fspath(path), _Met(written or {}))
        assert one is not None  # nothing was seen before
        return one

    def _look_at_once(self, places: Sequence[FoundFile], met: _Met) -> list[Input]:
        """Look at files that are all like the one before; nothing if one of them is not."""
        known, paths = self._latest, [place.path for place in places]
        if known is None or (read := _read_files(paths, known.size_bytes)) is None:
            return []
        if len(read.inodes) < len(paths) or met.has_any(read.device, read.inodes):
            return []
        data = [known.data_in(content) for content in read.contents]
        if None in data or len(paths) * known.kept.file_bytes > self._bytes_left:
            return []
        met.add(read.device, read.inodes)
        number = self._keep(known, b"".join(filter(None, data)))
        size, inside, family, kept = known.size_bytes, known.contents, known.family, known.kept
        checksums = map(xxh3_64_intdigest, read.contents)
        facts = zip(paths, read.modified_ns, checksums, strict=True)
        return [
            Input(path, size, modified_ns, (), inside, family, kept, number, checksum)
            for number, (path, modified_ns, checksum) in enumerate(facts, number)
        ]

    def _keep(self, known: KnownStructure, data: bytes) -> int:
        """Keep the data of files that are like `known`; return the number of the first."""
        self._bytes_left -= len(data)
        return known.kept.add(data)

    def _look_at_each(self, places: Sequence[FoundFile], met: _Met) -> Iterator[Input]:
        for place in places:
            one = self._look(place.path, met)
            if one is not None and (one.state is not State.NOT_HDF5 or place.claims_hdf5):
                yield one

    def _look(self, path: str, met: _Met) -> Input | None:
        """Judge one file; None if it was met before, under another name."""
        try:
            descriptor = os.open(path, READ_AT_ONCE)
        except OSError as error:
            why = error.strerror or error
            return Input(path, 0, 0, (findings.UNREADABLE.finding(why=why),))
        try:
            status = os.fstat(descriptor)
            if not met.is_first(*identity_of(status)):
                return None
            one = Input(path, status.st_size, status.st_mtime_ns)
            if not stat.S_ISREG(status.st_mode):
                one.findings = (findings.NOT_HDF5.finding(what="no regular file"),)
            elif (who := met.written.get(identity_of(status))) is not None:
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
        data, known, self._latest = None, None, None
        for known in self._sound.get(size, ()):
            data = known.data_in(content) if content else None
            if data is not None or (not content and known.is_like(descriptor)):
                one.contents, one.family = known.contents, known.family
                break
        else:
            source = Source(content) if content else FileSource(descriptor, size)
            known = self._judge_anew(one, source)
            if known is not None and content:
                data = known.data_in(content)
        if known is not None and data and len(data) <= self._bytes_left:
            require_unchanged(one, descriptor)
            one.kept, one.kept_as = known.kept, self._keep(known, data)
            one.xxh3, self._latest = xxh3_64_intdigest(content), known

    def _judge_anew(self, one: Input, source: Source) -> KnownStructure | None:
        """Judge a file unlike all before; if it is sound, return by what others are like it."""
        if is_record_file(one.name, source):
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
            layout = self.layout_of(family.tree_of(source))
            found += family.structure_findings
            found += judge_contents(layout)
            one.contents = layout.contents(with_keys=False)
            if family.fixed:
                one.family = family
                same_size = self._sound.setdefault(one.size_bytes, [])
                if not found and all(family is not other.family for other in same_size):
                    known = KnownStructure(family, one.contents, layout, one.size_bytes)
                    same_size.append(known)
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
        layout = self.layout_of(alike.tree)
        if layout.style in (Style.ROWS, Style.OUTPUT) or _has_named(alike, self.skip):
            return False
        if not all(any(o.dataset for o in groups.example.objects) for groups in alike.sets):
            return False  # groups of attributes alone
        one.is_alike = True
        if alike.kept_bytes <= self._alike_bytes_left:
            self._alike_bytes_left -= alike.kept_bytes
            one.alike = alike.over(Source(b""))
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
                yield one.alike.over(quick_source(FileSource(descriptor, one.size_bytes)))
            else:
                source = source_of(descriptor, one.size_bytes)
                superblock = self._triage.judge(source, str(one.path)).superblock
                if superblock is None:
                    raise changed(one)
                yield read_alike(self._alike, Hdf5File(source, superblock))
            require_unchanged(one, descriptor)
        except Damaged as error:
            raise _damaged(one, descriptor, error) from error
        finally:
            os.close(descriptor)

    @contextmanager
    def opened(self, one: Input) -> Iterator[FileLayout]:
        """The objects of a file and its bytes; ChangedError if it is not what was looked at."""
        descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(one, descriptor)
            source = source_of(descriptor, one.size_bytes)
            yield self.layout_of(self._tree_of(one, source))
            require_unchanged(one, descriptor)
        except Unsupported as error:
            raise unread_file(one.name, error) from error
        except Damaged as error:
            raise _damaged(one, descriptor, error) from error
        finally:
            os.close(descriptor)

    def layout_of(self, tree: Tree) -> FileLayout:
        """The objects of a file without those that are to be left out."""
        return FileLayout(tree, skip=self.skip)

    def _tree_of(self, one: Input, source: Source) -> Tree:
        if one.family is not None:
            return one.family.tree_of(source)
        if one.tree is not None:
            return replace(one.tree, file=Hdf5File(source, one.tree.file.superblock))
        superblock = self._triage.judge(source, one.name).superblock
        if superblock is None:
            raise changed(one)
        return own_tree(Hdf5File(source, superblock))


class _Met:
    """Which files a survey has met, whatever their names, and which are being written."""

    def __init__(self, written: dict[Identity, str]) -> None:
        self.written = written
        self._before: dict[int, set[int]] = defaultdict(set)  # inodes, by their devices
        self._written: dict[int, set[int]] = defaultdict(set)
        for device, inode in written:
            self._written[device].add(inode)

    def is_first(self, device: int, inode: int) -> bool:
        """Whether a file is met for the first time; from now on it is not."""
        is_first = inode not in self._before[device]
        self._before[device].add(inode)
        return is_first

    def has_any(self, device: int, inodes: set[int]) -> bool:
        """Whether any of these was met, or is being written."""
        known = self._before[device], self._written[device]
        return not all(map(inodes.isdisjoint, known))

    def add(self, device: int, inodes: set[int]) -> None:
        self._before[device] |= inodes


class _ReadFiles(NamedTuple):
    """Files that were read at once."""

    device: int
    inodes: set[int]
    modified_ns: list[int]
    contents: list[bytes]


def _read_files(paths: Sequence[str], size_bytes: int) -> _ReadFiles | None:
    """Read files of one size; None if one cannot be, is of another, or may have changed meanwhile.

    To ask each for its state before it is read and again after would take longer than to read it.
    One that had not been changed for a while when it was read is what was read.
    """
    begun_ns, descriptors = time.time_ns(), list[int]()
    try:
        for path in paths:
            descriptors.append(os.open(path, READ_AT_ONCE))
        contents = list(map(os.pread, descriptors, repeat(size_bytes), repeat(0)))
        found = list(map(os.fstat, descriptors))
    except OSError:
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if any(size != size_bytes or not stat.S_ISREG(mode) for size, mode in set(map(_kind, found))):
        return None
    device, *others = set(map(_device, found))
    read = _ReadFiles(device, set(map(_inode, found)), list(map(_modified_ns, found)), contents)
    is_settled = max(*read.modified_ns, *map(_changed_ns, found)) < begun_ns - SETTLED_NS
    are_whole = set(map(len, contents)) == {size_bytes}
    return read if is_settled and are_whole and not others else None


_kind = attrgetter("st_size", "st_mode")
_device, _inode = attrgetter("st_dev"), attrgetter("st_ino")
_modified_ns = attrgetter("st_mtime_ns")
_changed_ns = attrgetter("st_ctime_ns")  # which nobody can set back


def in_natural_order(inputs: list[Input]) -> list[Input]:
    """By their paths, `worker_9.h5` before `worker_10.h5`."""
    paths = [one.name for one in inputs]
    # Where all names have their digits in the same places, the order of letters is the natural one.
    shapes = "\n".join(paths).translate(_DIGITS_ALIKE)
    first = paths[0].translate(_DIGITS_ALIKE) if paths else ""
    if shapes.isascii() and shapes == "\n".join([first] * len(paths)):
        return sorted(inputs, key=attrgetter("name"))
    return sorted(inputs, key=lambda one: natural_order(one.name))


def read_alike(reader: AlikeReader, file: Hdf5File) -> AlikeFile | None:
    """As `reading.own_tree`: a bug in our reader costs speed, and never the merge."""
    try:
        return reader.read(file)
    except (Damaged, Unsupported, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _has_named(alike: AlikeFile, names: Names) -> bool:
    """Whether something in groups that are alike is to be left out: then each is read by itself."""
    if not names:
        return False
    paths = [path for groups in alike.sets for path in groups.paths]
    paths += [found.path for groups in alike.sets for found in groups.example.objects]
    return any(is_named(path, names) for path in paths)


def contents_of_alike(layout: FileLayout, alike: AlikeFile) -> Contents:
    """Count the tasks of a file, those in groups that are alike and the others."""
    rest = layout.contents()
    # What stands at the root beside groups is no task.
    tasks, datasets, data_bytes = len(layout.task_groups()), rest.datasets, rest.data_bytes
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


def _damaged(one: Input, descriptor: int, error: Damaged) -> DamagedFileError:
    require_unchanged(one, descriptor)  # which says why, if somebody cut it
    return damaged_file(one.name, error)


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
        f"{one.path} changed while it was read: somebody is writing it; "
        "give the same command again when that has ended"
    )


def _identity(path: Path) -> Identity | None:
    try:
        return identity_of(path.stat())
    except OSError:
        return None
