"""Whether the code is that of the results there, what to say of it, and whether to go on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..base.units import command_text, count_text, near_path
from ..code.changes import change_texts, fact_texts
from ..code.store import load_versions, numbers_by_id, parse_version
from ..code.version import CodeVersion
from ..errors import ChangedStudyError, UsageError
from ..runfolder.layout import RunFolder
from .state import FolderState
from .study import Declaration

_MOST_CHANGES = 8


class OnChange(StrEnum):
    """What a run does if the code, constants or inputs are not those of the results there."""

    STOP = "stop"
    KEEP = "keep"
    REDO = "redo"

    @classmethod
    def parse(cls, text: str) -> OnChange:
        """UsageError if it is none of the three."""
        try:
            return cls(text)
        except ValueError:
            choices = ", ".join(cls)
            raise UsageError(f"changed is {text!r}: choose one of {choices}") from None


@dataclass(frozen=True)
class CodeChange:
    """What differs from the version that the last run had, and which results are not of this one.

    Nothing differs if there was none, or if there is no result that it could have made.
    """

    folder: RunFolder
    declaration: Declaration
    version: CodeVersion
    before: CodeVersion | None
    number: int  # of the version before
    others: int  # results that are not known to be of this version

    @classmethod
    def find(
        cls,
        folder: RunFolder,
        declaration: Declaration,
        version: CodeVersion,
        state: FolderState,
    ) -> CodeChange:
        adopted = {n: parse_version(text) for n, text in state.held.code_texts.items()}
        known = {**adopted, **load_versions(folder)}
        numbers = numbers_by_id(known)
        last = numbers.get(str(folder.load_sweep().get("code_id")), max(known, default=0))
        others = state.results - state.results_of_code(version.id)
        return cls(folder, declaration, version, known.get(last), last, others)

    @property
    def _is_change(self) -> bool:
        is_other = self.before is not None and self.before.id != self.version.id
        return is_other and self.others > 0

    def require_choice(self, on_change: OnChange | None) -> None:
        """Raise ChangedStudyError if the caller wants that, or has to say what to do."""
        if not self._is_change or on_change in (OnChange.KEEP, OnChange.REDO):
            return
        assert self.before is not None  # there is no change without
        constants = list(fact_texts("constants", self.before, self.version))
        if on_change is OnChange.STOP or constants:
            what = self._changes_text() if on_change is OnChange.STOP else "; ".join(constants)
            raise ChangedStudyError(
                f"{what}, since {self._results_text()} of {self.folder.output} were made. "
                f"To keep them and run the rest: {self._command('keep')}. "
                f"To run them again: {self._command('redo')}"
            )

    def text(self, on_change: OnChange | None) -> str:
        """What a run says of the change before it starts; empty if there is none."""
        if not self._is_change:
            return ""
        if on_change is OnChange.REDO:
            return f"{self._changes_text()}; {self._results_text()} are run again"
        return (
            f"{self._changes_text()}; {self._results_text()} of before are kept, and told apart "
            f"by the column code. To run them again: {self._command('redo')}"
        )

    def _results_text(self) -> str:
        return count_text(self.others, "result")

    def _changes_text(self) -> str:
        assert self.before is not None
        found = change_texts(self.before, self.version) or ["units or dims have changed"]
        more = f"; and {len(found) - _MOST_CHANGES:,} more" if len(found) > _MOST_CHANGES else ""
        return "; ".join(found[:_MOST_CHANGES]) + more

    def _command(self, choice: str) -> str:
        path = self.declaration.path
        if not self.declaration.is_imported or path is None:
            return f"{self.declaration.name}.run({str(self.folder.output)!r}, changed={choice!r})"
        return command_text("run", near_path(path), "-o", self.folder.output, "--changed", choice)
