"""Intact parts of damaged files → records. The originals are only ever read.

Several readers look at each file: our own, by its bytes (`carved_datasets`, `packed_chunks`), and
the HDF5 library in a child (`library_reader`). Their results are put together, judged
(`trust_labels`), and written as a record file, which is there whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..base.key_rule import KeyRule
from ..base.plan import Key, Plan
from ..disk import durable
from ..disk.find_files import RECORDS_SUFFIX, FoundFile, find_places
from ..disk.open_files import files_being_written, identity_of
from ..errors import DamagedError, StorageError, UsageError
from ..hdf5.damage.carve import Carving, carve
from ..hdf5.errors import Damaged
from ..hdf5.file import Hdf5File
from ..hdf5.source import OpenSource, Source
from ..library.child_host import Limits
from ..runfolder.layout import RunFolder
from ..runfolder.records import RecordFile, RecordKind, Scan, read_data
from ..state.expected_tasks import read_expected_state
from ..worker_files.file_view import (
    NO_KEY,
    Group,
    Proof,
)
from ..worker_files.find_tasks import path_in
from ..worker_files.first_bytes import Verdict, is_record_file, judge_bytes
from ..worker_files.read_file import data_findings, own_tree
from ..worker_files.read_tasks import (
    FoundPlaces,
    drop_strays,
    guess_rule,
    leave_out,
    locate_in_view,
    read_tasks,
    rows_of,
)
from ..worker_files.skipped_names import Names, stray_text
from .carved_data import UNSURE_CHUNK
from .carved_output import find_rows, is_output
from .carved_view import view_carved
from .data_gaps import FileMemory
from .file_results import FileResults
from .library_reader import Question, SecondReader, how_to_open
from .nameless_arrays import export_arrays
from .packed_chunks import settle_streams
from .report import FileSalvage, Loss, SalvageReport
from .spool import Spool, digest_of, form_of, schema_of
from .trust_labels import Candidate, Label, Way
from .write_records import write_records

MOST_WANTED = 100_000
MANY_ROWS = 100_000  # of one file
RESULTS_SHOWN = 100  # after as many more, progress is shown again
NEWBORN = 2048  # bytes: a file that is no longer was never written to


def salvage_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str] | None = None,
    to: str | os.PathLike[str] | None = None,
    key: str | None = None,
    expected: Plan | None = None,
    accept: str = Label.CONSISTENT,
    nameless: str | os.PathLike[str] | None = None,
    skip: Names = frozenset(),
    use_library: bool = True,
    timeout_s: float = 20.0,
    memory_bytes: int = 1 << 30,
    progress: Callable[[int, int, int], None] = lambda files, total, results: None,
    notice: Callable[[str], None] = lambda text: None,
) -> SalvageReport:
    """Get the results out of damaged files; the files stay as they are.

    With `output`, its run folder has a record file for each of them afterwards; with `to`, that
    folder has. Killed at any moment, each of these files is there whole or not at all, and the same
    call again gives the same. Without either, nothing is written and the report says what is there.
    """
    if output is not None and to is not None:
        raise UsageError("use only one of output (-o) and to (--to)")
    folder = None if output is None else RunFolder.of(output)
    if folder is not None:
        folder.require_place()
    if folder is not None and expected is None:
        expected = _plan_of(folder)
    target = folder.records_path if folder is not None else None if to is None else Path(to)
    rule = KeyRule.parse(key, expected)
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    places = [p for p in find_places(paths) if p.claims_hdf5 or p.path.endswith(RECORDS_SUFFIX)]
    if not places:
        raise UsageError(f"found no file to salvage in {', '.join(map(str, paths))}")
    limits = Limits(timeout_s, memory_bytes)
    with SecondReader(limits) as library:
        job = _Job(rule, Label(accept), library if use_library else None, limits, nameless, skip)
        files: list[FileSalvage] = []
        job.progress = lambda: progress(len(files), len(places), job.results)
        job.notice = notice
        written = files_being_written()
        for place in places:
            job.progress()
            files.append(job.salvage(place, written, target, folder))
        for number, file in enumerate(files):  # the files behind these tell what is in each
            if file.is_alone and len(job.siblings) > 1:
                files[number] = job.salvage(places[number], written, target, folder)
    expect = "" if folder is not None and _is_declared(folder) else None
    name = None if output is None else str(output)
    return SalvageReport(tuple(files), Label(accept), name, expect)


def _plan_of(folder: RunFolder) -> Plan | None:
    try:
        return folder.load_plan()
    except DamagedError:
        return None  # what is in the files does not depend on it


def _is_declared(folder: RunFolder) -> bool:
    try:
        return read_expected_state(folder).is_declared
    except DamagedError:
        return False


class _Job:
    """What is the same for all files of one call."""

    def __init__(
        self,
        rule: KeyRule,
        accept: Label,
        library: SecondReader | None,
        limits: Limits,
        nameless: str | os.PathLike[str] | None,
        skip: Names,
    ) -> None:
        self.rule = rule
        self.skip = skip
        self.accept = accept
        self.library = library
        self.limits = limits
        self.nameless = None if nameless is None else Path(nameless)
        self.siblings: list[Candidate] = []  # of the files before
        self.results = 0  # that were found
        self.progress: Callable[[], None] = lambda: None
        self.notice: Callable[[str], None] = lambda text: None

    def note_result(self) -> None:
        """Count it, and say so now and then: one file may have a million."""
        self.results += 1
        if self.results % RESULTS_SHOWN == 0:
            self.progress()

    def salvage(
        self,
        place: FoundFile,
        written: dict[tuple[int, int], str],
        target: Path | None,
        folder: RunFolder | None,
    ) -> FileSalvage:
        """One file: read, judge, write."""
        path = Path(place.path)
        try:
            before = path.stat()
            if (writer := written.get(identity_of(before))) is not None:
                return FileSalvage(
                    place.path, f"being written by {writer}; not opened", is_live=True
                )
            with (
                OpenSource(path) as source,
                Spool(before.st_mtime, is_wanted=target is not None) as stage,
            ):
                one = _File(self, place.path, source, stage)
                one.read()
                if path.stat() != before and _changed(before, path.stat()):
                    return FileSalvage(place.path, "it changed while it was read", is_live=True)
                taken = one.choose(self.siblings, self.accept)
                record_path = None
                if target is not None and taken:
                    if folder is not None:
                        folder.create()
                    durable.make_folder(target)
                    record_path = write_records(target, path, stage, taken, before.st_mtime)
                return one.report(taken, record_path)
        except StorageError:
            raise
        except OSError as error:
            why = f"it cannot be read: {error.strerror or error}"
            return FileSalvage(place.path, why, losses=(Loss("the file", None, why),))


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)


class _File(FileResults):
    """One file and its readers."""

    def __init__(self, job: _Job, path: str, source: Source, stage: Spool) -> None:
        super().__init__(path, stage, job.rule, job.note_result)
        self.job = job
        self.source = source

    def read(self) -> None:
        """Let every reader look at the file."""
        if is_record_file(self.path, self.source):
            self.read_records()
            return
        verdict = judge_bytes(self.source, self.path)
        self.what = "; ".join(f.message for f in verdict.findings[:2])
        carving = carve(self.source)
        memory = FileMemory(carving, self.job.limits.memory_bytes)
        groups = leave_out(view_carved(carving, memory), self.job.skip)
        self.rule = guess_rule(groups, self.rule)
        self.note_damage(carving, bool(verdict.findings))
        carving.keep_nameless()  # the groups have what they need of the rest
        root, is_rescued = next((group for group in groups if is_output(group)), None), False
        where = FoundPlaces() if root else locate_in_view(groups, self.rule, self.path)
        is_told = carving.is_sound and not self.rule.is_guess
        if is_told and (strays := drop_strays(groups, where)):
            taken = [path_in(group, name) for group in groups for name in group.variables]
            self.notes.append(stray_text(strays, taken))
        if root is None:
            self.announce(sum(rows_of(table.columns) for table in where.tables))
            is_rescued = settle_streams(groups, where.tables, self.rule, is_closed=self.is_closed)
        advice = _key_advice(groups)
        found = find_rows(root, self.rule) if root else read_tasks(groups, where, self.rule)
        self.take_all(found)
        if root is None and self.job.library is not None and carving.has_superblock:
            self.ask_library(self.job.library, carving)
        if not carving.is_sound:
            self.nameless = export_arrays(carving, memory, self.path, self.job.nameless)
        self.hint(advice)
        if (self.losses or is_rescued) and not self.what:
            self.note_chunks(verdict)

    def note_chunks(self, verdict: Verdict) -> None:
        """Name a chunk that cannot be unpacked, as `check` does, where all else is right."""
        if verdict.superblock is not None:
            tree = own_tree(Hdf5File(self.source, verdict.superblock))
            found = next(data_findings(tree, slowly=True), None)
            self.what = "" if found is None else found.message
            self.is_damaged = self.is_damaged or found is not None

    def announce(self, rows: int) -> None:
        """Say early that a file has more rows than most sweeps have tasks."""
        plan = self.rule.expected
        expected = "" if plan is None else f" ({len(plan):,} tasks are expected)"
        words = f"{self.path}: reading {rows:,} rows, each as one task{expected}"
        if rows > MANY_ROWS:
            self.job.notice(f"{words}; if they are not tasks, stop with Ctrl-C and leave it out")

    def hint(self, advice: str) -> None:
        """Say what a user can do about tasks without a key, and about a file without names."""
        if any(NO_KEY in loss.why for loss in self.losses):
            self.notes.append(advice)
        if self.is_damaged and not (self.candidates or self.losses) and self.source.size > NEWBORN:
            extent = ((NEWBORN, self.source.size - NEWBORN),)
            why = "it may hold raw values, but no names"
            self.losses.append(Loss("", None, why, extent))

    def note_damage(self, carving: Carving, has_findings: bool) -> None:
        """Say what happened to the file, where its first bytes do not."""
        self.is_damaged = has_findings or not carving.is_sound
        self.is_closed = carving.is_closed
        faults = [f for o in carving.objects.values() if o.is_linked for f in o.faults]
        damaged = [fault for fault in faults if isinstance(fault, Damaged)]
        if damaged:
            self.what = "; ".join(filter(None, (self.what, str(damaged[0]))))

    def read_records(self) -> None:
        """A record file of ours: every record that is whole has a checksum."""
        scan = Scan()
        with RecordFile(Path(self.path)) as file:
            for offset, frame in file.scan(scan):
                if frame[3] == RecordKind.DONE:
                    self.take_record(file, offset, frame)
        for damage in scan.damages:
            extent = ((damage.offset, damage.size_bytes),)
            why = damage.refusal or "its checksum is wrong"
            self.losses.append(Loss("a record", None, why, extent))
        self.what = "damaged records" if scan.damages else ""
        self.is_damaged = bool(scan.damages)

    def take_record(self, file: RecordFile, offset: int, frame: tuple[Any, ...]) -> None:
        header = file.header(offset, frame)
        data, schema = read_data(file, offset, frame), schema_of(header)
        key, place = header["key"], f"the record at {offset:,}"
        self.take(Candidate(key, place, Way.RECORDS, form_of(schema), Proof.CHECKSUM), schema, data)

    def ask_library(self, library: SecondReader, carving: Carving) -> None:
        """Let the HDF5 library read the file too, in its child."""
        pattern = "" if self.rule.pattern is None else self.rule.pattern.text
        question = Question(
            self.path,
            how_to_open(self.source, carving.file.superblock),
            tuple(self.rule.names),
            pattern,
            tuple(self.wanted_paths()),
            tuple(self.job.skip),
            self.source.size,
        )
        is_sound = carving.is_sound and question.how == "plain"
        for header, data in library.ask(question):
            if "end" in header:
                says = "" if "is_dead" in header else "the HDF5 library says: "
                self.notes += [says + why for why in header["errors"][:1]]
            else:
                self.take_from_library(header, data, is_sound=is_sound)

    def take_from_library(self, header: dict[str, Any], data: bytes, *, is_sound: bool) -> None:
        """Take tasks that the library has read at once: mostly they are what we have read."""
        schema, at = header["schema"].encode(), 0
        for place, key, size in zip(header["places"], header["keys"], header["sizes"], strict=True):
            part, at = data[at : at + size], at + size
            ours = self.looked_at.get(place)
            if ours and _same_key(ours.key, key) and ours.digest == digest_of(schema, part):
                ours.confirmed_by = (*ours.confirmed_by, Way.LIBRARY)
            elif (found := self.library_candidate(header, place, key, is_sound)) is not None:
                self.take(found, schema, part)

    def wanted_paths(self) -> list[str]:
        """The names of the groups of all expected tasks."""
        plan, pattern = self.rule.expected, self.rule.pattern
        if plan is None or pattern is None or len(plan) > MOST_WANTED:
            return []
        if not set(pattern.names) <= set(plan.names):
            return []  # a name tells more than the key
        return [f"/{pattern.name_of(key)}" for key in plan.keys()]  # noqa: SIM118 (no dict)

    def library_candidate(
        self, header: dict[str, Any], place: str, said: Key, is_sound: bool
    ) -> Candidate | None:
        """What only the library reads; None if nothing was ever written there."""
        key, own_place = self.rule.checked(said), place.lstrip("/")
        if key is None or own_place in self.unwritten or own_place in self.without_chunk:
            return None
        is_missed = (is_sound and own_place not in self.looked_at) or own_place in self.unsupported
        form = form_of(header["schema"].encode())
        found = Candidate(key, place, Way.LIBRARY, form, Proof.NOTHING, header["doubt"])
        found.is_row = header["is_row"]
        if not is_missed:
            found.doubt = "only the HDF5 library reads this value"
        elif found.is_row and not self.is_closed:
            found.doubt = UNSURE_CHUNK
        found.is_expected = self.rule.is_expected(key)
        return found


def _key_advice(groups: Sequence[Group]) -> str:
    """What may be the key of tasks that have none."""
    groups = [group for group in groups if group.variables]
    fields = {n for g in groups for v in g.variables.values() for n in v.fields}
    names = sorted({n for g in groups for n in (*g.variables, *g.attributes)} | fields)[:8]
    paths = ", ".join(group.path for group in groups[:2] if group.path.strip("/"))
    where = f"; groups like {paths}" if paths else ""
    return f"its tasks need --key: there are {', '.join(names)}{where}"


def _same_key(key: Key, other: Key) -> bool:
    return key == other and all(type(value) is type(key[name]) for name, value in other.items())
