"""Prove that nothing is lost with a file: everything in it is read back from the output, now."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_64

from ..base.plan import Plan
from ..base.units import command_text
from ..disk.durable import storage_error
from ..disk.open_files import files_being_written
from ..errors import DamagedError, SweepError, system_error
from ..merge.from_records.prove_records import RecordProof
from ..output.reader import OutputReader
from ..runfolder.layout import RunFolder
from ..runfolder.records import FAILURES, KIND, RecordFile, Scan
from ..worker_files.findings import State
from ..worker_files.inputs import Input
from ..worker_files.layouts import Style
from ..worker_files.read_file import DamagedFileError
from ..worker_files.survey import Survey
from .quarantine import Item, RemovalReason

if TYPE_CHECKING:
    from ..merge.by_key.prove_rows import OutputRows
    from ..merge.groups.same_content import TaskGroups

_PIECE_BYTES = 1 << 20


class Prover:
    """Says of files whether the output, as it is now, has everything that is in them."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._survey = Survey()
        self._open = ExitStack()  # the output, however many files are compared with it
        self._records: RecordProof | None = None
        self._rows: OutputRows | None = None
        self._groups: dict[frozenset[str], TaskGroups] = {}  # by what is not looked at
        self.written = files_being_written()

    def __enter__(self) -> Prover:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def objection(self, item: Item, path: Path) -> str:
        """Why the file at `path` cannot go; empty if nothing is lost with it."""
        try:
            if not item.is_unchanged_at(path) or file_xxh3(path) != item.xxh3:
                return "it changed"
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        if item.reason is RemovalReason.ASKED_FOR:
            return "" if not item.size_bytes else "the output does not hold everything in it"
        if item.reason is RemovalReason.RECORD_FILE:
            return self.record_objection(path)
        return self.worker_objection(item, self.look_at(path))

    def look_at(self, path: Path) -> Input:
        return self._survey.look_at(path, self.written)

    def read_all(self, path: Path) -> Input:
        """The same after reading its data too, as `check` does: its structure may be all right."""
        from ..check.check import check_files

        found = self.look_at(path)
        if found.is_readable:
            (report,) = check_files(path, depth="deep").files
            found.findings = report.findings
        return found

    def record_objection(self, path: Path) -> str:
        """The same for a record file of the run folder, whose checksum is known."""
        try:
            if self._records is None:
                folder = self._folder
                plan, relabels = folder.load_plan() or Plan(()), folder.load_relabels()
                reader = self._open.enter_context(OutputReader(folder.output, relabels))
                self._records = RecordProof(reader, plan, folder.load_redo(), relabels)
            return self._records.objection(path)
        except SweepError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError) as error:  # what h5py may raise
            if (refused := system_error(error)) is not None:
                raise storage_error(None, refused) from error
            raise DamagedError(
                f"{self._folder.output} cannot be read ({error}): nothing is safe to remove; "
                f"{command_text('check', self._folder.output)}"
            ) from error

    def worker_objection(self, item: Item, one: Input) -> str:
        """The same for a worker file, whose checksum is known, by the way it was merged."""
        try:
            return self._worker_objection(item, one)
        except DamagedFileError:
            one.findings = self.read_all(one.path).findings
            return "part of it cannot be read"
        except Exception as error:  # whatever goes wrong with a proof, there is none: it is kept
            return f"the check failed ({type(error).__name__}: {error})"

    def _worker_objection(self, item: Item, one: Input) -> str:
        if one.state is State.LIVE:
            return "it is being written"
        if not one.is_readable:
            return "it can no longer be read"
        if one.style is Style.RECORDS and _has_failures(one.path):
            return "it has failures, which the output does not take from there"
        return "" if self._is_merged(item, one) else "the output does not hold everything in it"

    def _is_merged(self, item: Item, one: Input) -> bool:
        """Whether everything in a worker file is in the output: both are read and compared."""
        # Imported here and below, because a clean of record files needs none of them.
        if item.way == "sweep":
            return self._is_in_rows(item, one)
        in_columns: set[str] = set()
        if item.rows:
            from ..merge.tables.prove_rows import datasets_in_columns

            in_columns = datasets_in_columns(self._survey, one, self._folder.output, item.rows)
        return self._is_in_groups(one, frozenset(in_columns))

    def _is_in_rows(self, item: Item, one: Input) -> bool:
        from ..merge.by_key.prove_rows import OutputRows

        if self._rows is None:
            self._rows = self._open.enter_context(OutputRows(self._folder.output))
        return self._rows.hold(self._survey, one, key=item.key)

    def _is_in_groups(self, one: Input, in_columns: frozenset[str]) -> bool:
        """The same of what is not in columns."""
        from ..merge.groups.merge_groups import is_in_groups
        from ..merge.groups.open_groups import opened_output

        if in_columns not in self._groups:
            opened = opened_output(self._folder.output, in_columns)
            self._groups[in_columns] = self._open.enter_context(opened)
        return is_in_groups(self._survey, one, self._groups[in_columns], in_columns)


def _has_failures(path: Path) -> bool:
    with RecordFile(path) as file:
        return any(frame[KIND] in FAILURES for _, frame in file.scan(Scan()))


def xxh3_or_nothing(path: Path) -> str:
    """The checksum of a file, or nothing if it cannot be read: then it is not what it was."""
    try:
        return file_xxh3(path)
    except OSError:
        return ""


def file_xxh3(path: Path) -> str:
    """The XXH3 of a whole file, as it stands in manifests and in the audit trail."""
    value = xxh3_64()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            value.update(piece)
    return value.hexdigest()
