"""Look at every input of a merge with our own reader, before anything is written.

What our reader understands wholly it also reads, and what it does not is refused with the reason;
what the HDF5 library says comes later (`merge.damaged_inputs`). A file is looked at again whenever
it is opened, so that one which changed meanwhile is noticed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from xxhash import xxh3_64_intdigest

from ..disk.find_files import FoundFile, find_places
from ..disk.open_files import Identity, files_being_written, identity_of
from ..hdf5.file import Hdf5File
from ..hdf5.read_uniform import LEAST_GROUPS
from ..hdf5.source import FileSource, Source
from ..hdf5.tree import Tree
from ..hdf5.uniform_groups import AlikeFile
from . import findings
from .findings import Finding, State, by_weight
from .first_bytes import is_record_file
from .inputs import Input, changed, in_natural_order, require_unchanged
from .judge_data import judge_contents
from .layouts import Contents, FileLayout, Style
from .open_inputs import InputOpener, read_alike, read_small
from .read_at_once import READ_AT_ONCE, MetFiles, SmallFile, read_files
from .read_file import (
    SMALL_BYTES,
    own_tree,
    structure_findings,
)
from .same_structure import Families, Family
from .skipped_names import Names, is_named

MOST_KEPT_BYTES = 256 << 20
MOST_KEPT_CHUNKS = 1_000_000  # about 200 bytes each
MOST_AT_ONCE = 512  # small files
MOST_ALIKE_BYTES = 192 << 20


@dataclass(frozen=True, slots=True)
class _Above:
    """What a file has besides groups that are alike, and what is wrong with that."""

    tree: Tree
    layout: FileLayout
    contents: Contents
    findings: list[Finding]


class Survey(InputOpener):
    """Looks at files one after the other and remembers what they have in common.

    What is kept of them is bounded: what small files that share a structure have each for itself,
    so that these are read once, and structures.
    """

    def __init__(self, skip: Names = frozenset(), key: Collection[str] = ()) -> None:
        """`skip`: the names of what is to be left out of every file; `key`: those of its key."""
        super().__init__(skip, key)
        self.linked_folders: list[str] = []  # links in folders that were not followed
        self._siblings = Families()
        self._may_have_siblings = False  # whether files like the last one can be read at once
        self._above: _Above | None = None  # of the last file of groups that are alike
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
        for identity in filter(None, map(_identity, leave_out)):
            met.is_first(identity)
        places = iter(find_places(paths, on_link=self.linked_folders.append))
        found, count = list[Input](), 1
        while some := list(islice(places, count)):
            alike = self._look_at_once(some, met) if count > 1 else {}
            for place in some:
                one = alike.get(place.path) or self._look(place.path, met)
                if one and (one.state is not State.NOT_HDF5 or place.claims_hdf5):
                    found.append(one)
            # As long as most files are like others, ever more of them are read at once.
            are_alike = 2 * len(alike) >= count if count > 1 else self._may_have_siblings
            count = min(2 * count, MOST_AT_ONCE) if are_alike else 1
        return in_natural_order(found)

    def look_at(self, path: Path, written: dict[Identity, str] | None = None) -> Input:
        """Judge one file by its bytes; nothing is raised for what it holds."""
        one = self._look(os.fspath(path), MetFiles(written or {}))
        assert one is not None  # nothing was seen before
        return one

    def _look_at_once(self, places: Sequence[FoundFile], met: MetFiles) -> dict[str, Input]:
        """Look at small files; those that are like others before, by their paths."""
        paths = [place.path for place in places]
        read = zip(paths, read_files(paths), strict=True)
        files = {path: one for path, one in read if one and one.identity not in met.written}
        found = self._siblings_among(files)
        left = [path for path in files if path not in found]
        several = read_small(self.alike_reader, [files[path].content for path in left])
        for path, alike in zip(left, several.split() if several else (), strict=False):
            one = _new_input(path, files[path])
            if alike is not None and self._take_alike(one, alike):
                found[path] = one
        return {path: one for path, one in found.items() if met.is_first(files[path].identity)}

    def _siblings_among(self, files: Mapping[str, SmallFile]) -> dict[str, Input]:
        """The files that are as sound as another of their structure, of which data are bytes."""
        found: dict[str, Input] = {}
        by_size: dict[int, list[str]] = {}
        for path, file in files.items():
            by_size.setdefault(len(file.content), []).append(path)
        for size, paths in by_size.items():
            for family in self._siblings.of_size(size):
                left = [path for path in paths if path not in found]
                if family.contents is None or not family.is_plain or not left:
                    continue
                sources = [Source(files[path].content) for path in left]
                rows = zip(left, sources, family.read_holes(sources), strict=True)
                for path, source, holes in rows:
                    if holes is not None and family.is_sound(source):
                        found[path] = one = _new_input(path, files[path])
                        one.contents, one.family = family.contents, family
                        self._keep_holes(one, family, holes)
        return found

    def _keep_holes(self, one: Input, family: Family, holes: bytes) -> bool:
        """Keep what a small table has for itself, if there is room, so that it is read once."""
        if not holes or len(holes) > self._bytes_left or one.style is not Style.ROWS:
            return False
        self._bytes_left -= len(holes)
        one.kept_as = family.keep(holes)
        return True

    def _look(self, path: str, met: MetFiles) -> Input | None:
        """Judge one file; None if it was met before, under another name."""
        try:
            descriptor = os.open(path, READ_AT_ONCE)
        except OSError as error:
            why = error.strerror or error
            return Input(path, 0, 0, (findings.UNREADABLE.finding(why=why),))
        try:
            status = os.fstat(descriptor)
            if not met.is_first(identity_of(status)):
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
        self._may_have_siblings = False
        source = Source(content) if content else FileSource(descriptor, size)
        family = self._siblings.find(source)
        if family is not None and family.is_sound(source):
            one.contents, one.family = family.contents, family
        else:
            self._judge_closer(one, source, family)
        if content and not one.findings and one.family is not None and one.family.is_plain:
            self._may_have_siblings = one.family.is_sound(source)
            (holes,) = one.family.read_holes([source])
            if self._keep_holes(one, one.family, holes or b""):
                require_unchanged(one, descriptor)
                one.xxh3 = xxh3_64_intdigest(content)

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
        alike = read_alike(self.alike_reader, file)
        if alike is None or not self._take_alike(one, alike):
            return False
        one.findings = tuple(by_weight(dict.fromkeys((*found, *one.findings))))
        if file.source.content and not one.findings:
            self._may_have_siblings = self.alike_reader.remember(file, alike)
        return True

    def _take_alike(self, one: Input, alike: AlikeFile) -> bool:
        """Note what is in a file of groups that are alike; False if these are not its tasks."""
        above = self._above_of(alike.tree)
        if not _are_tasks(above, alike) or _has_named(alike, self.skip):
            return False
        one.is_alike = True
        if alike.kept_bytes <= self._alike_bytes_left:
            self._alike_bytes_left -= alike.kept_bytes
            one.alike = alike.over(Source(b"")) if alike.tree.file.source.size else alike
        one.findings, one.contents = tuple(above.findings), _contents_of(above, alike)
        return True

    def _above_of(self, tree: Tree) -> _Above:
        """What a file has besides groups that are alike; small ones mostly share it."""
        if self._above is None or self._above.tree is not tree:
            layout = self.layout_of(tree)
            found = [f for f in judge_contents(layout) if f.code != findings.INIT_ONLY.code]
            found = structure_findings(tree) + found
            self._above = _Above(tree, layout, layout.contents(), found)
        return self._above


def _new_input(path: str, file: SmallFile) -> Input:
    size, checksum = len(file.content), xxh3_64_intdigest(file.content)
    return Input(path, size, file.modified_ns, xxh3=checksum)


def _are_tasks(above: _Above, alike: AlikeFile) -> bool:
    """Whether groups that are alike are the tasks of their file, by what is beside them."""
    tree = above.tree
    if len(alike) < LEAST_GROUPS and (tree.datasets or tree.soft_links or tree.second_names):
        return False  # a few groups beside data may be parts of one task
    if above.layout.style in (Style.ROWS, Style.OUTPUT):
        return False
    return all(groups.example.datasets for groups in alike.sets)  # and not attributes alone


def _has_named(alike: AlikeFile, names: Names) -> bool:
    """Whether something in groups that are alike is to be left out: then each is read by itself."""
    if not names:
        return False
    paths = [path for groups in alike.sets for path in groups.paths]
    paths += [found.path for groups in alike.sets for found in groups.example.objects]
    return any(is_named(path, names) for path in paths)


def _contents_of(above: _Above, alike: AlikeFile) -> Contents:
    """Count the tasks of a file, those in groups that are alike and the others."""
    # What stands at the root beside groups is no task; all groups that are alike have data.
    tasks, rest = len(above.layout.task_groups(others_have_data=True)), above.contents
    datasets, data_bytes = rest.datasets, rest.data_bytes
    for groups in alike.sets:
        tasks += len(groups)
        datasets += len(groups) * len(groups.example.datasets)
        data_bytes += groups.data_bytes
    names = [path.strip("/") for groups in alike.sets for path in groups.paths]
    return Contents(Style.GROUPS, tasks, datasets, data_bytes, min(names), max(names))


def _identity(path: Path) -> Identity | None:
    try:
        return identity_of(path.stat())
    except OSError:
        return None
