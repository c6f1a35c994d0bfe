"""Look at every input of a merge with our own reader, before anything is written.

What our reader understands wholly it also reads, and what it does not is refused with the reason;
what the HDF5 library says comes later (`merge.damaged_inputs`). A file is looked at again whenever
it is opened, so that one which changed meanwhile is noticed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from xxhash import xxh3_64_intdigest

from ..disk.find_files import FoundFile, find_places
from ..disk.open_files import Identity, files_being_written, identity_of
from ..hdf5.file import Hdf5File
from ..hdf5.source import FileSource, Source
from ..hdf5.tree import Tree
from ..hdf5.uniform_groups import LEAST_GROUPS, AlikeFile
from . import findings
from .findings import Finding, State, by_weight
from .first_bytes import is_record_file
from .inputs import Input, changed, in_natural_order, require_unchanged
from .judge_data import judge_contents
from .layouts import Contents, FileLayout, Style
from .open_inputs import InputOpener, read_alike
from .read_at_once import READ_AT_ONCE, MetFiles, read_files
from .read_file import (
    SMALL_BYTES,
    own_tree,
    structure_findings,
)
from .same_structure import Families, Family
from .skipped_names import Names, is_named

MOST_KEPT_BYTES = 256 << 20
MOST_KEPT_CHUNKS = 1_000_000  # about 200 bytes each
MOST_AT_ONCE = 64
MOST_ALIKE_BYTES = 64 << 20


class Survey(InputOpener):
    """Looks at files one after the other and remembers what they have in common.

    What is kept of them is bounded: what small files that share a structure have each for itself,
    so that these are read once, and structures.
    """

    def __init__(self, skip: Names = frozenset()) -> None:
        """`skip`: the names of what is to be left out of every file."""
        super().__init__(skip)
        self.linked_folders: list[str] = []  # links in folders that were not followed
        self._siblings = Families()
        self._latest: Family | None = None  # of the last small file
        self._bytes_left = MOST_KEPT_BYTES
        self._chunks_left = MOST_KEPT_CHUNKS
        self._alike_bytes_left = MOST_ALIKE_BYTES

    def look_at_all(
        self, paths: Iterable[str | os.PathLike[str]], *, leave_out: Iterable[Path] = ()
    ) -> list[Input]:
        """Every file below `paths` that is HDF5, claims to be, or is ours; each once.

        They are in the natural order of their paths.
        """
        met = MetFiles(files_being_written())
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
        one = self._look(os.fspath(path), MetFiles(written or {}))
        assert one is not None  # nothing was seen before
        return one

    def _look_at_once(self, places: Sequence[FoundFile], met: MetFiles) -> list[Input]:
        """Look at files that are all like the one before; nothing if one of them is not."""
        family, paths = self._latest, [place.path for place in places]
        if family is None or (read := read_files(paths, family.size_bytes)) is None:
            return []
        if len(read.inodes) < len(paths) or met.has_any(read.device, read.inodes):
            return []
        if len(paths) * family.hole_bytes > self._bytes_left:
            return []
        sources = list(map(Source, read.contents))
        holes = family.read_holes(sources)
        if holes is None or not family.are_sound(sources):
            return []
        met.add(read.device, read.inodes)
        number = self._keep(family, b"".join(holes))
        size, inside = family.size_bytes, family.contents
        checksums = map(xxh3_64_intdigest, read.contents)
        facts = zip(paths, read.modified_ns, checksums, strict=True)
        return [
            Input(path, size, modified_ns, (), inside, family, number, checksum)
            for number, (path, modified_ns, checksum) in enumerate(facts, number)
        ]

    def _keep(self, family: Family, holes: bytes) -> int:
        """Keep what some siblings have for themselves; return the number of the first."""
        self._bytes_left -= len(holes)
        return family.keep(holes)

    def _look_at_each(self, places: Sequence[FoundFile], met: MetFiles) -> Iterator[Input]:
        for place in places:
            one = self._look(place.path, met)
            if one is not None and (one.state is not State.NOT_HDF5 or place.claims_hdf5):
                yield one

    def _look(self, path: str, met: MetFiles) -> Input | None:
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
                one.findings = (findings.NOT_HDF5.finding(what="not a regular file"),)
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
        self._latest = None
        source = Source(content) if content else FileSource(descriptor, size)
        family = self._siblings.find(source)
        if family is not None and family.are_sound([source]):
            one.contents, one.family = family.contents, family
        else:
            self._judge_closer(one, source, family)
        if content and not one.findings and one.family is not None and one.family.is_plain:
            self._keep_holes(one, one.family, source, descriptor)

    def _keep_holes(self, one: Input, family: Family, source: Source, descriptor: int) -> None:
        """Keep what a small file has for itself, if there is room, so that it is read once."""
        (holes,) = family.read_holes([source]) or (b"",)
        if holes and len(holes) <= self._bytes_left:
            require_unchanged(one, descriptor)
            one.kept_as, one.xxh3 = self._keep(family, holes), xxh3_64_intdigest(source.content)
            self._latest = family if family.are_sound([source]) else None

    def _judge_closer(self, one: Input, source: Source, family: Family | None) -> None:
        """Judge a file that is not known to be sound."""
        if is_record_file(one.name, source):
            one.contents = Contents(Style.RECORDS, None)
            return
        verdict = self.triage.judge(source, one.name)
        found = list(verdict.findings)
        if verdict.superblock is not None:
            file = Hdf5File(source, verdict.superblock)
            if family is None and self._judge_alike(one, file, found):
                return
            if family is None:
                tree = own_tree(file)
                family = self._siblings.add(tree, structure_findings(tree))
            else:
                tree = family.tree_of(source)
            layout = self.layout_of(tree)
            found += family.structure_findings
            found += judge_contents(layout)
            one.contents = layout.contents(with_keys=False)
            if family.fixed:
                one.family = family
                if not found and family.contents is None:
                    family.note_sound(layout, one.contents)
            else:
                self._keep_tree(one, family.tree)
        one.findings = tuple(by_weight(dict.fromkeys(found)))

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
        if (alike := read_alike(self.alike_reader, file)) is None:
            return False
        tree = alike.tree
        if len(alike) < LEAST_GROUPS and (tree.datasets or tree.soft_links or tree.second_names):
            return False  # a few groups beside data may be parts of one task
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
    have_data = any(o.dataset for groups in alike.sets for o in groups.example.objects)
    # What stands at the root beside groups is no task.
    tasks = len(layout.task_groups(others_have_data=have_data))
    datasets, data_bytes = rest.datasets, rest.data_bytes
    for groups in alike.sets:
        inside = [o.dataset for o in groups.example.objects if o.dataset is not None]
        tasks += len(groups)
        datasets += len(groups) * len(inside)
        data_bytes += groups.data_bytes
    names = [path.strip("/") for groups in alike.sets for path in groups.paths]
    return Contents(Style.GROUPS, tasks, datasets, data_bytes, min(names), max(names))


def _identity(path: Path) -> Identity | None:
    try:
        return identity_of(path.stat())
    except OSError:
        return None
