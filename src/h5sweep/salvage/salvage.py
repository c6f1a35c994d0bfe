"""Intact parts of damaged files → records. The originals are only ever read.

Several readers look at each file: our own, by its bytes (`carved`, `streams`), and the HDF5 library
in a child (`second_reader`). Their results are put together, judged (`evidence`), and written as a
record file, which is there whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..base.key_rule import KeyRule
from ..base.plan import Key, Plan, key_text
from ..disk import durable
from ..disk.find_files import RECORDS_SUFFIX, FoundFile, find_places
from ..disk.open_files import files_being_written, identity_of
from ..errors import DamagedError, StorageError, UnsupportedValueError, UsageError
from ..hdf5.damage.carve import Carving, carve
from ..hdf5.errors import Damaged
from ..hdf5.file import Hdf5File
from ..hdf5.source import OpenSource, Source
from ..library.child_host import Limits
from ..runfolder.layout import RunFolder
from ..runfolder.records import RecordFile, RecordKind, Scan, read_data
from ..state.expected_tasks import read_expected_state
from ..worker_files.read_file import data_findings, own_tree
from ..worker_files.skipping import Names, stray_text
from ..worker_files.tasks import (
    count_rows,
    drop_strays,
    find_tasks,
    guess_rule,
    leave_out,
    show_tasks,
)
from ..worker_files.triage import Verdict, is_record_file, judge_bytes
from ..worker_files.view import (
    NEVER_WRITTEN,
    NO_KEY,
    Failures,
    FoundRows,
    FoundTask,
    Group,
    Proof,
    row_place,
)
from .carved_datasets import NO_CHUNK, UNSURE_CHUNK, CarvedVariable
from .carved_output import find_rows, is_output
from .carved_view import view_carved
from .data_gaps import FileMemory
from .gzip_chunks import settle_streams
from .labels import ALONE, Candidate, Label, Way, judge_results
from .report import FileSalvage, Loss, SalvageConflict, SalvagedResult, SalvageReport
from .second_reader import SecondReader, question_of
from .spool import Spool, digest_of, form_of, schema_of
from .write_records import save_array, write_records

MOST_WANTED = 100_000
MANY_ROWS = 100_000  # of one file
RESULTS_SHOWN = 100  # after as many more, progress is shown again
MOST_SIBLINGS = 1000  # of earlier files, with which results are compared
MANY_FOR_ONE_KEY = 16  # results: then they are looked up
NEWBORN = 2048  # bytes: a file that is no longer was never written to
ORDER = list(Label)


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
        raise UsageError("results go to the run folder of an output or to a folder, not to both")
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
        raise UsageError(f"there is nothing to salvage in {', '.join(map(str, paths))}")
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
            with OpenSource(path) as source, Spool() as stage:
                one = _File(self, place.path, source, stage)
                one.read()
                if path.stat() != before and _changed(before, path.stat()):
                    return FileSalvage(place.path, "it changed while it was read", is_live=True)
                taken = one.choose()
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


class _File:
    """One file, its readers, and what they found."""

    def __init__(self, job: _Job, path: str, source: Source, stage: Spool) -> None:
        self.job = job
        self.path = path
        self.source = source
        self.stage = stage
        self.rule = job.rule
        self.candidates: dict[str, list[Candidate]] = {}
        self.losses: list[Loss] = []
        self.looked_at: dict[str, Candidate | None] = {}  # where our own reader has seen tasks
        self.crowds: dict[str, dict[bytes, Candidate]] = {}  # many results for one key, by digest
        self.unsupported: set[str] = set()  # those of tasks that it does not know to read
        self.unwritten: set[str] = set()
        self.blank: list[str] = []  # rows of fill values, behind the last that has others
        self.without_chunk: set[str] = set()  # for these the library makes up fill values
        self.refused: list[Candidate] = []
        self.conflicts: list[SalvageConflict] = []
        self.notes: list[str] = []
        self.what = ""
        self.nameless = 0
        self.is_damaged = False
        self.is_closed = False  # as its superblock says, and nothing in it says otherwise

    def read(self) -> None:
        """Let every reader look at the file."""
        if is_record_file(self.path, self.source):
            self.read_records()
            return
        verdict, name = judge_bytes(self.source, self.path), Path(self.path).name
        self.what = "; ".join(f.message for f in verdict.findings[:2])
        carving = carve(self.source)
        groups = leave_out(view_carved(carving, self.job.limits.memory_bytes), self.job.skip)
        self.rule = guess_rule(groups, self.rule)
        self.note_damage(carving, bool(verdict.findings))
        root = next((group for group in groups if is_output(group)), None)
        if root is not None:
            self.take_all(find_rows(root, self.rule))
        else:
            groups = show_tasks(groups, self.rule, name)
            if carving.is_sound and (strays := drop_strays(groups, self.rule)):
                self.notes.append(stray_text(strays))
            self.announce(count_rows(groups, self.rule))
            settle_streams(groups, self.rule, is_closed=self.is_closed)
            self.take_all(find_tasks(groups, self.rule, name))
            if self.job.library is not None and carving.has_superblock:
                self.ask_library(self.job.library, carving)
        self.export_nameless(carving, groups)
        self.hint(groups)
        every = (v for group in groups for v in group.variables.values())
        is_rescued = any(isinstance(v, CarvedVariable) and v.rescued for v in every)
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

    def hint(self, groups: Sequence[Group]) -> None:
        """Say what a user can do about tasks without a key, and about a file without names."""
        if any(NO_KEY in loss.why for loss in self.losses):
            groups = [group for group in groups if group.variables]
            fields = {n for g in groups for v in g.variables.values() for n in v.fields}
            names = sorted({n for g in groups for n in (*g.names, *g.attributes)} | fields)[:8]
            paths = ", ".join(group.path for group in groups[:2] if group.path.strip("/"))
            where = f"; groups like {paths}" if paths else ""
            self.notes.append(f"its tasks need --key: there are {', '.join(names)}{where}")
        if self.is_damaged and not (self.candidates or self.losses) and self.source.size > NEWBORN:
            extent = ((NEWBORN, self.source.size - NEWBORN),)
            why = "raw values may be in it, but nothing names them"
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
            why = damage.refusal or "its checksum does not hold"
            self.losses.append(Loss("a record", None, why, extent))
        self.what = "damaged records" if scan.damages else ""
        self.is_damaged = bool(scan.damages)

    def take_record(self, file: RecordFile, offset: int, frame: tuple[Any, ...]) -> None:
        header = file.header(offset, frame)
        data, schema = read_data(file, offset, frame), schema_of(header)
        key, place = header["key"], f"the record at {offset:,}"
        found = Candidate(key, place, Way.RECORDS, form_of(schema), b"", Proof.CHECKSUM)
        self.take(self.stage.add(found, schema, data))

    def take_all(self, tasks: Iterable[FoundTask | FoundRows]) -> None:
        for found in tasks:
            if isinstance(found, FoundRows):
                self.take_rows(found)
            else:
                self.take_found(found)

    def take_rows(self, found: FoundRows) -> None:
        try:
            candidates = self.stage.add_rows(found, Way.CARVED, self.rule)
        except UnsupportedValueError:
            self.take_all(found.singly())
            return
        for number, candidate in enumerate(candidates):
            place = found.place(number) if candidate is None else candidate.place
            self.looked_at[place] = None if candidate is None else self.take(candidate)
            self.note_blank(place, is_blank=candidate is None and bool(found.unwritten[number]))
            if found.unwritten[number]:
                self.unwritten.add(place)
            elif candidate is None:
                self.losses.append(Loss(place, None, NO_KEY))

    def take_found(self, found: FoundTask) -> None:
        candidate = self.stage.add_found(found, Way.CARVED, self.rule)
        place = found.place.lstrip("/")
        kept = None if candidate is None else self.take(candidate)
        if found.is_unsupported:
            self.unsupported.add(place)
        else:
            self.looked_at[place] = kept
        is_blank = candidate is None and found.lost.get("") == NEVER_WRITTEN
        if found.is_row:
            self.note_blank(place, is_blank=is_blank)
        if is_blank or found.doubt == NEVER_WRITTEN:
            self.unwritten.add(place)
        elif candidate is None:
            self.losses.append(_loss_of(found))
            if NO_CHUNK in found.lost.values():
                self.without_chunk.add(place)

    def note_blank(self, place: str, *, is_blank: bool) -> None:
        """Tell room for more rows from a row of fill values, behind which others were written."""
        if is_blank:
            self.blank.append(place)
            return
        table = place.partition(" of ")[2]
        lost = [blank for blank in self.blank if blank.partition(" of ")[2] == table]
        self.losses += [Loss(blank, None, NEVER_WRITTEN) for blank in lost]
        self.blank.clear()

    def take(self, new: Candidate) -> Candidate:
        """Add a result, or to one that is there already that it was found again."""
        text = key_text(new.key)
        known = self.candidates.setdefault(text, [])
        if len(known) < MANY_FOR_ONE_KEY:
            same = next((old for old in known if old.digest == new.digest), None)
        else:
            digests = self.crowds.setdefault(text, {old.digest: old for old in known})
            same = digests.setdefault(new.digest, new)
            same = None if same is new else same
        if same is None:
            known.append(new)
            self.job.note_result()
        elif new.way is not same.way:
            same.confirmed_by = (*same.confirmed_by, new.way)
        return same or new

    def ask_library(self, library: SecondReader, carving: Carving) -> None:
        """Let the HDF5 library read the file too, in its child."""
        pattern = "" if self.rule.pattern is None else self.rule.pattern.text
        question = question_of(
            self.path,
            self.source,
            carving.file.superblock,
            self.rule.names,
            pattern,
            self.wanted_paths(),
            self.job.skip,
        )
        is_sound = carving.is_sound and question.how == "plain"
        for header, data in library.ask(question):
            if "end" in header:
                says = "" if "is_dead" in header else "the HDF5 library says: "
                self.notes += [says + why for why in header["errors"][:1]]
            elif "rows" in header:
                self.take_library_rows(header, data, is_sound=is_sound)
            elif "schema" in header:
                self.take_from_library(header, data, is_sound=is_sound)

    def take_library_rows(self, header: dict[str, Any], data: bytes, *, is_sound: bool) -> None:
        """Rows that the library has read at once: mostly they are what we have read."""
        schema, at = header["schema"].encode(), 0
        for row, key, size in zip(header["rows"], header["keys"], header["sizes"], strict=True):
            place, part = row_place(header["table"], row), data[at : at + size]
            ours, at = self.looked_at.get(place), at + size
            if ours and _same_key(ours.key, key) and ours.digest == digest_of(schema, part):
                ours.confirmed_by = (*ours.confirmed_by, Way.LIBRARY)
            else:
                one = {**header, "place": place, "key": key, "is_row": True}
                self.take_from_library(one, part, is_sound=is_sound)

    def wanted_paths(self) -> list[str]:
        """The names of the groups of all expected tasks."""
        plan, pattern = self.rule.expected, self.rule.pattern
        if plan is None or pattern is None or len(plan) > MOST_WANTED:
            return []
        if not set(pattern.names) <= set(plan.names):
            return []  # a name tells more than the key
        return [f"/{pattern.name_of(key)}" for key in plan.keys()]  # noqa: SIM118 (no dict)

    def take_from_library(self, header: dict[str, Any], data: bytes, *, is_sound: bool) -> None:
        key = self.rule.checked(header["key"])
        place, schema = header["place"].lstrip("/"), header["schema"].encode()
        if key is None or place in self.unwritten or place in self.without_chunk:
            return
        is_missed = (is_sound and place not in self.looked_at) or place in self.unsupported
        found = Candidate(key, header["place"], Way.LIBRARY, form_of(schema), b"", Proof.NOTHING)
        found.is_row = header["is_row"]
        found.doubt = header["doubt"]
        if not is_missed:
            found.doubt = "only the HDF5 library reads it so"
        if found.is_row and is_missed and not self.is_closed:
            found.doubt = UNSURE_CHUNK
        found.is_expected = self.rule.is_expected(key)
        self.take(self.stage.add(found, schema, data))

    def choose(self) -> list[Candidate]:
        """Judge all results; where readers or places disagree, take none unless one is proven."""
        every = [c for known in self.candidates.values() for c in known]
        judged = [c for c in every if c.way is not Way.RECORDS]
        # Where part of the data is lost, zeros in the rest need not be values.
        is_whole = all(NO_KEY in loss.why for loss in self.losses)
        judge_results(
            judged,
            self.job.siblings,
            is_sound=is_whole and not self.is_damaged,
            is_closed=is_whole and self.is_closed,
            has_unwritten=bool(self.unwritten),
        )
        for candidate in every:
            if candidate.way is Way.RECORDS:
                candidate.label = Label.VERIFIED
        taken = []
        for known in self.candidates.values():
            one = self.settle(known)
            if one is None:
                continue
            is_sibling = one.label is not Label.UNVERIFIED or one.reason == ALONE
            if is_sibling and len(self.job.siblings) < MOST_SIBLINGS:
                self.job.siblings.append(one)
            if ORDER.index(one.label) <= ORDER.index(self.job.accept):
                taken.append(one)
            else:
                self.refused += known
        return taken

    def settle(self, known: list[Candidate]) -> Candidate | None:
        """The one result of a task, of several that differ; None if nothing decides."""
        ours = [c for c in known if c.label is not Label.UNVERIFIED] or known
        if known[0].way is Way.RECORDS:
            return known[-1]  # the same task again: the later counts
        proven = [c for c in ours if c.label is Label.VERIFIED]
        if len(proven) == 1 or len(known) == 1:
            return proven[0] if proven else known[0]
        if len(ours) == 1 and all(c.way is not Way.LIBRARY for c in known):
            return ours[0]  # the others are remnants of it, or in doubt
        names = tuple(f"{c.way}: {c.place}" + (f" ({c.reason})" if c.reason else "") for c in known)
        self.conflicts.append(SalvageConflict(known[0].key, names))
        return None

    def export_nameless(self, carving: Carving, groups: Sequence[Group]) -> None:
        """Count arrays that nothing names; write them out if that was asked for."""
        named = {id(v) for group in groups for v in group.variables.values()}
        if carving.is_sound:
            return
        index = []
        stem, shared = Path(self.path).stem, FileMemory(carving)
        for address, carved in carving.objects.items():
            if carved.object.dataset is None or carved.parents:
                continue
            variable = CarvedVariable(carving, carved, self.job.limits.memory_bytes, shared)
            self.nameless += id(variable) not in named
            if self.job.nameless is None:
                continue
            try:
                cells = variable.read(None)
            except Failures:
                continue
            offset = carving.file.superblock.start + address
            for member, cell in cells.items():
                shape = "x".join(map(str, cell.value.shape)) or "scalar"
                name = f"{stem}_{offset}_{shape}{'_' * bool(member)}{member}.npy"
                save_array(self.job.nameless / name, cell.value)
                index.append({"file": name, "source": self.path, "header_at": offset})
        if index and self.job.nameless is not None:
            text = json.dumps(index, indent=1) + "\n"
            durable.replace_text(self.job.nameless / f"{stem}_index.json", text)

    def report(self, taken: list[Candidate], record_path: Path | None) -> FileSalvage:
        refused = {key_text(c.key) for c in self.refused}
        losses = [
            loss
            for loss in self.losses
            if loss.key is None
            or (key := key_text(loss.key)) in refused
            or key not in self.candidates
        ]
        return FileSalvage(
            self.path,
            self.what,
            is_damaged=self.is_damaged,
            key=self.rule.text,
            taken=tuple(map(SalvagedResult.of, taken)),
            refused=tuple(map(SalvagedResult.of, self.refused)),
            losses=tuple(losses),
            conflicts=tuple(self.conflicts),
            notes=tuple(self.notes),
            nameless=self.nameless,
            records=None if record_path is None else str(record_path),
        )


def _same_key(key: Key, other: Key) -> bool:
    return key == other and all(type(value) is type(key[name]) for name, value in other.items())


def _loss_of(found: FoundTask) -> Loss:
    whys = [f"{name}: {why}" if name else why for name, why in found.lost.items()]
    if not whys:
        whys = ["it holds no values" if found.key is not None else NO_KEY]
    return Loss(found.place, found.key, "; ".join(whys[:3]), found.extents)
