"""Read-only: the state of each file, why, what is inside, and what to do next.

Nothing that is imported here can write: neither `durable` nor h5py. The HDF5 library is asked in
child processes (`library`), which the kernel refuses any write.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..base.key_pattern import Comparison, KeyTally
from ..base.key_rule import KeyRule
from ..base.plan import Plan, Value, key_text
from ..disk.find_files import PLAN_NAME, RUN_SUFFIX, FoundFile, find_places
from ..disk.open_files import files_being_written, identity_of, is_locked
from ..hdf5.errors import Damaged
from ..hdf5.file import Hdf5File, open_file
from ..hdf5.source import FileSource, OpenSource, Source
from ..hdf5.tree import Tree, data_extents
from ..library.child_answers import findings_of, new_among
from ..library.child_host import Library, Limits, Request
from ..worker_files import findings
from ..worker_files.findings import Finding, State, by_weight, state_of
from ..worker_files.first_bytes import Triage, is_record_file
from ..worker_files.judge_data import judge_contents
from ..worker_files.keyed_tasks import KeyedFile
from ..worker_files.layouts import Contents, FileLayout, Style, tasks_that_grow
from ..worker_files.read_file import (
    data_findings,
    is_of_chunk,
    own_tree,
    source_of,
    structure_findings,
)
from ..worker_files.same_structure import Families, Family
from ..worker_files.skipped_names import Names
from .report import CheckReport, Depth, FileReport

MOST_FINDINGS = 20
READ_BYTES = 1 << 20
MOST_WAITING = 64
FILES_PER_PROGRESS = 16
PROCESSES = 2
MOST_READ_BYTES = 4 << 30  # of files whose data are read unless --deep asks for all: seconds


@dataclass(frozen=True)
class Settings:
    """How a check is done."""

    depth: Depth = Depth.USUAL
    require: tuple[str, ...] = ()
    expected: Plan | None = None
    rule: KeyRule = field(default_factory=KeyRule)
    processes: int = PROCESSES
    limits: Limits = field(default_factory=Limits)
    skip: Names = frozenset()


def check_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    depth: str = Depth.USUAL,
    require: Sequence[str] = (),
    expected: Plan | None = None,
    key: str | None = None,
    processes: int = PROCESSES,
    timeout_s: float = 20.0,
    memory_bytes: int = 1 << 30,
    skip: Names = frozenset(),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CheckReport:
    """Say of every file below `paths` what state it is in. Nothing on disk changes.

    `depth` is "quick", "structure", "deep", or "usual": deep for the first 4 GB of files.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    settings = Settings(
        Depth(depth),
        tuple(require),
        expected,
        KeyRule.parse(key, expected),
        processes,
        Limits(timeout_s, memory_bytes),
        skip,
    )
    places = list(find_places(paths))
    with Library(processes, settings.limits) as library:
        return _Check(settings, library, progress, len(places)).run(places)


@dataclass(slots=True, eq=False)
class _Looked:
    """A file that was looked at, before all answers have come."""

    place: FoundFile
    status: os.stat_result
    findings: list[Finding] = field(default_factory=list)
    contents: Contents | None = None
    fault_places: frozenset[str] = frozenset()
    objects: int = 0
    depth: Depth = Depth.STRUCTURE
    keys: Sequence[Mapping[str, Value] | None] = ()


class _FoundTasks:
    """The tasks of all files by their keys, if a key or a plan says what these are."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        plan = settings.expected
        self.tally = None if plan is None else KeyTally(plan)
        self.keys: set[tuple[Value, ...]] = set()

    def compare(self) -> Comparison | None:
        """The tasks found beside those expected, or beside all that their keys suggest."""
        if self.tally is not None:
            return self.tally.result()
        if not self.are_wanted:
            return None
        return KeyTally.of_seen(self.settings.rule.names, self.keys).result()

    @property
    def are_wanted(self) -> bool:
        return bool(self.settings.rule.names)

    def count_tasks(self, looked: _Looked, layout: FileLayout) -> None:
        """Let the tasks of a file be those that the key tells, if it has any such."""
        looked.contents, rule = layout.contents(), self.settings.rule
        if not self.are_wanted or _is_output(looked):  # which the library is asked for
            return
        rows = list(KeyedFile(layout, rule, looked.place.path).whole_keys())
        looked.keys = [None if row is None else rule.key(row) for row in rows]
        keys = (*looked.keys[:1], *looked.keys[-1:])
        ends = [key_text(key) for key in keys if key is not None]
        if len(ends) == len(keys):
            first, last = ends or ("", "")
            looked.contents = replace(
                looked.contents, tasks=len(rows), first_key=first, last_key=last
            )

    def count_whole_tasks(self, looked: _Looked) -> None:
        """The same for a file with chunks that can't be unpacked, without the tasks in these."""
        with suppress(OSError, Damaged), OpenSource(Path(looked.place.path)) as source:
            layout = FileLayout(own_tree(open_file(source)), skip=self.settings.skip)
            layout.find_bad_rows()
            self.count_tasks(looked, layout)

    def take_keys(self, looked: _Looked) -> None:
        names = self.settings.rule.names
        # A result of ours is in a record and in the output: that makes no two of it.
        style = None if looked.contents is None else looked.contents.style
        is_ours = style in (Style.OUTPUT, Style.RECORDS)
        for key in looked.keys:
            if self.tally is not None:
                self.tally.take(key, is_ours=is_ours)
            elif key is not None and set(names) <= set(key):
                self.keys.add(tuple(key[name] for name in names))


class _Check:
    """One check: files in, reports out, in the same order."""

    def __init__(
        self,
        settings: Settings,
        library: Library,
        progress: Callable[[int, int], None],
        total: int,
    ) -> None:
        self.settings = settings
        self.library = library
        self.progress = progress
        self.total = total
        self.triage = Triage()
        self.siblings = Families()
        self.reports: dict[str, FileReport] = {}
        self.others = 0
        self.tasks = _FoundTasks(settings)
        self.bytes_left = MOST_READ_BYTES

    def run(self, places: list[FoundFile]) -> CheckReport:
        written = files_being_written()
        for number, place in enumerate(places):
            self.take(place, written)
            if self.library.open_requests:
                self.take_answers(wait=self.library.open_requests > MOST_WAITING)
            if number % FILES_PER_PROGRESS == 0:
                self.progress(len(self.reports), self.total)
        while self.library.open_requests:
            self.take_answers(wait=True)
            self.progress(len(self.reports), self.total)
        _look_again(self.reports)
        if not self.tasks.are_wanted:
            _count_groups_that_grow(self.reports)
        files = tuple(self.reports[p.path] for p in places if p.path in self.reports)
        return CheckReport(files, self.settings.depth, self.others, self.tasks.compare())

    def take(self, place: FoundFile, written: dict[tuple[int, int], str]) -> None:
        """Look at one file as far as this process may."""
        try:
            status = os.stat(place.path)  # noqa: PTH116 (a Path for each of 100,000 files costs)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not place.claims_hdf5:
                self.others += 1
                return
            self.refuse(_Looked(place, os.stat_result((0,) * 10)), _reason(error))
            return
        looked = _Looked(place, status)
        if stat.S_ISDIR(status.st_mode):
            self.refuse(looked, "the folder cannot be listed")
        elif not stat.S_ISREG(status.st_mode):
            looked.findings.append(findings.NOT_HDF5.finding(what=_kind_text(status.st_mode)))
            self.finish(looked)
        elif written and (writer := written.get(identity_of(status))) is not None:
            looked.findings.append(findings.LIVE.finding(who=writer))
            self.finish(looked)
        else:
            self.open(looked)

    def refuse(self, looked: _Looked, why: str) -> None:
        looked.findings.append(findings.UNREADABLE.finding(why=why))
        self.finish(looked)

    def open(self, looked: _Looked) -> None:
        try:
            descriptor = os.open(looked.place.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.refuse(looked, _reason(error))
            return
        try:
            self.judge(looked, source_of(descriptor, looked.status.st_size))
        except OSError as error:  # the disk refused to read
            self.refuse(looked, _reason(error))
        finally:
            os.close(descriptor)

    def judge(self, looked: _Looked, source: Source) -> None:
        """By its bytes; then by its structure; then by what the library says."""
        verdict = self.triage.judge(source, looked.place.path)
        if verdict.superblock is None and _is_ours(looked.place.path, source):
            self.ask_about_ours(looked)
            return
        looked.findings = verdict.findings
        if verdict.superblock is None and _is_other(looked):
            self.others += 1
        elif verdict.superblock is None or self.settings.depth is Depth.QUICK:
            self.finish(looked)
        elif _has_no_root(looked.findings):
            looked.contents = Contents(Style.NOTHING, None)
            self.finish(looked)
        else:
            self.judge_structure(looked, Hdf5File(source, verdict.superblock))

    def ask_about_ours(self, looked: _Looked) -> None:
        is_plan = Path(looked.place.path).name == PLAN_NAME
        looked.contents = Contents(Style.RECORDS, None)
        if self.settings.depth is Depth.QUICK:
            self.finish(looked)
        else:
            records = "records-keys" if self.tasks.are_wanted else "records"
            self.ask(looked, "plan" if is_plan else records)

    def judge_structure(self, looked: _Looked, file: Hdf5File) -> None:
        family = self.siblings.find(file.source)
        is_new = family is None
        if family is None:
            tree = own_tree(file)
            family = self.siblings.add(tree, structure_findings(tree))
        else:
            tree = family.tree_of(file.source)
        try:
            self.judge_contents(looked, tree, family)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            looked.findings.append(_own_failure(error))
        looked.depth = self.depth_of(looked)
        is_deep = looked.depth is Depth.DEEP
        if not _library_would_open(looked.findings):
            if is_deep:
                looked.findings += data_findings(tree, slowly=True)
            self.finish(looked)
        elif _is_output(looked) or (is_deep and not family.is_plain):
            # What is asked depends on more than the structure, so no sibling shares the answer.
            self.ask(looked, looked.depth)
        elif is_new:
            self.ask(looked, looked.depth, family)
        else:
            if is_deep:
                _read_data(tree)
            self.join(looked, family)

    def depth_of(self, looked: _Looked) -> Depth:
        """Whether the data of this file are read: usually those of the first few gigabytes."""
        if self.settings.depth is not Depth.USUAL:
            return self.settings.depth
        if looked.status.st_size > self.bytes_left:
            return Depth.STRUCTURE
        self.bytes_left -= looked.status.st_size
        return Depth.DEEP

    def join(self, looked: _Looked, family: Family) -> None:
        """Take what the library says of a sibling, now or when it has answered."""
        if family.verdict is None:
            family.waiting.append(looked)
        else:
            looked.findings += self.new_for(looked, family.verdict)
            self.finish(looked)

    def judge_contents(self, looked: _Looked, tree: Tree, family: Family) -> None:
        looked.objects = len(tree.objects)
        layout = FileLayout(tree, skip=self.settings.skip, key=self.settings.rule.names)
        looked.findings += family.structure_findings
        looked.fault_places = frozenset(fault.path for fault in tree.faults)
        looked.findings += judge_contents(layout, self.settings.require)
        self.tasks.count_tasks(looked, layout)

    def ask(self, looked: _Looked, what: str, family: Family | None = None) -> None:
        path, size = looked.place.path, looked.status.st_size
        if _is_output(looked):
            what = f"output-{what}{'-keys' * self.tasks.are_wanted}"
        self.library.ask(Request((looked, family), path, what, size, looked.objects))

    def take_answers(self, *, wait: bool) -> None:
        for request, answer in self.library.answers(wait=wait):
            looked, family = request.tag
            found = findings_of(answer)
            if "tasks" in answer.said:
                looked.contents = Contents(Style.RECORDS, answer.said["tasks"])
            looked.keys = answer.said.get("keys", looked.keys)
            looked.findings += self.new_for(looked, found)
            self.finish(looked)
            if family is not None:
                family.verdict = found
                for sibling in family.waiting:
                    sibling.findings += self.new_for(sibling, found)
                    self.finish(sibling)
                family.waiting.clear()

    def new_for(self, looked: _Looked, found: list[Finding]) -> list[Finding]:
        return new_among(found, looked.findings, looked.fault_places)

    def finish(self, looked: _Looked) -> None:
        if any(map(is_of_chunk, looked.findings)):
            self.tasks.count_whole_tasks(looked)
        self.tasks.take_keys(looked)
        found = by_weight(dict.fromkeys(looked.findings))[:MOST_FINDINGS] if looked.findings else ()
        self.reports[looked.place.path] = FileReport(
            looked.place.path,
            state_of(found),
            found,
            looked.contents,
            looked.status.st_size,
            looked.status.st_mtime,
            looked.depth is Depth.DEEP,
        )


def _count_groups_that_grow(reports: dict[str, FileReport]) -> None:
    """Count as a merge does that keeps groups: what a file is may show in the others only."""
    known = [(r.path, r.contents) for r in reports.values() if r.contents and r.is_mergeable]
    for path in tasks_that_grow(known):
        contents = reports[path].contents
        assert contents is not None
        counted = replace(contents, style=Style.GROUPS, tasks=contents.groups)
        reports[path] = reports[path]._replace(contents=counted)


def _look_again(reports: dict[str, FileReport]) -> None:
    """What looks damaged may have been written meanwhile: then it is live, not damaged."""
    suspects = [r for r in reports.values() if r.state in (State.DAMAGED, State.EMPTY)]
    if not suspects:
        return
    written = files_being_written()
    for report in suspects:
        if (who := _writer_now(report, written)) is not None:
            live = (findings.LIVE.finding(who=who),)
            reports[report.path] = FileReport(
                report.path, State.LIVE, live, None, report.size_bytes, report.modified_at
            )


def _writer_now(report: FileReport, written: dict[tuple[int, int], str]) -> str | None:
    path = Path(report.path)
    try:
        status = path.stat()
    except OSError:
        return None
    if (writer := written.get(identity_of(status))) is not None:
        return writer
    if (status.st_size, status.st_mtime) != (report.size_bytes, report.modified_at):
        return "another process: it changed during the check"
    return "a process that holds its lock" if is_locked(path) else None


def _own_failure(error: Exception) -> Finding:
    return findings.FEATURE.finding(where="/", why=f"our own reader failed: {error!r}")


def _is_output(looked: _Looked) -> bool:
    return looked.contents is not None and looked.contents.style is Style.OUTPUT


def _read_data(tree: Tree) -> None:
    """Read the data of a file in which there is nothing to verify but that the disk gives it."""
    source = tree.file.source
    if not isinstance(source, FileSource):
        return  # small enough to have been read whole
    buffer = bytearray(READ_BYTES)
    for _, dataset in tree.datasets:
        for address, size in data_extents(dataset):
            start = tree.file.superblock.start + address
            for offset in range(start, start + size, READ_BYTES):
                view = memoryview(buffer)[: start + size - offset]
                os.preadv(source.descriptor, [view], offset)


def _is_ours(path: str, source: Source) -> bool:
    """Whether this is a record file, or the plan of a run folder."""
    return is_record_file(path, source) or path.endswith(f"{RUN_SUFFIX}/{PLAN_NAME}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _kind_text(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a file")


def _is_other(looked: _Looked) -> bool:
    """Whether it is neither HDF5 nor anything that somebody would take for it."""
    return looked.findings[0].state is State.NOT_HDF5 and not looked.place.claims_hdf5


def _has_no_root(found: list[Finding]) -> bool:
    """Whether there is nothing to list, as the superblock shows."""
    codes = {finding.code for finding in found}
    return bool(codes & {findings.NEWBORN.code, findings.NEVER_FLUSHED.code})


def _library_would_open(found: list[Finding]) -> bool:
    """Whether the library would look further than at the superblock."""
    refused = (
        findings.NEWBORN,
        findings.NOT_CLOSED,
        findings.NOT_CLOSED_SWMR,
        findings.TRUNCATED,
        findings.SUPERBLOCK_CHECKSUM,
    )
    return not {finding.code for finding in found} & {rule.code for rule in refused}
