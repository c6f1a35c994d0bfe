"""Whether the code is that of the results there, what to say of it, and whether to go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..base.units import command_text, count_text
from ..code.changes import LABELS, change_texts, fact_texts, form_texts
from ..code.relabelled import by_labels_of_now, is_unchanged, relabels_since
from ..code.restore import study_source
from ..code.store import load_versions, numbers_by_id
from ..code.version import CodeVersion
from ..errors import ChangedStudyError, UsageError
from ..runfolder.layout import RunFolder
from .run_command import run_changed_text
from .state import FolderState
from .study import Declaration
from .task_codes import known_versions, task_codes

_MOST_CHANGES = 8


def way_to_same_code(before: CodeVersion, version: CodeVersion, number: int) -> str:
    """What to change in a command so that it runs the code of before, which has this number.

    Empty if the sources are the same: packages, Python or variables of the environment differ.
    """
    if before.digest == version.digest:
        return ""
    was, now = study_source(before), study_source(version)
    # Its modules are found by what they were called.
    name = f"name {was.name} as the study, and " if was and now and was.name != now.name else ""
    return f"{name}add --code {number}"


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

    Nothing differs if there was none, or if there is no result that it could have made. What is
    told is how this version differs from `made`, that of the last run that has results.
    """

    folder: RunFolder
    declaration: Declaration
    version: CodeVersion
    before: CodeVersion | None
    others: frozenset[int]  # tasks with results of other versions
    made: CodeVersion | None  # with results
    results: Mapping[int, int]  # of these others: how many, by the number of their version
    part: str = ""  # of a sweep that runs in parts
    number: int = 0  # of the version before
    renamed: Mapping[str, str] = field(default_factory=dict)  # results, and the code is as before

    @classmethod
    def find(
        cls,
        folder: RunFolder,
        declaration: Declaration,
        version: CodeVersion,
        state: FolderState,
        part: str = "",
    ) -> CodeChange:
        known, relabels = known_versions(folder, state), folder.load_relabels()
        forms, numbers = version.facts["forms"], numbers_by_id(known)
        last = numbers.get(str(folder.load_sweep().get("code_id")), max(known, default=0))
        now = {n: by_labels_of_now(one, relabels, forms) for n, one in known.items()}
        own = {number for number, one in now.items() if one.id == version.id}
        relabelled = own | {n for n, one in known.items() if is_unchanged(one, version)}
        relabelled = set() if version.id in numbers else relabelled
        codes = task_codes(folder, state) if known.keys() - own or relabelled else ()
        others = frozenset(task for task, code in enumerate(codes) if code and code not in own)
        results = Counter(codes[task] for task in others)
        made = last if last in results else max(results, default=last)
        renamed: dict[str, str] = {}
        for number in relabelled.intersection(codes):
            renamed |= relabels_since(known[number], relabels).names
        renamed = {old: new for old, new in renamed.items() if new not in state.plan.names}
        before = now.get(last)
        return cls(
            *(folder, declaration, version, before, others, now.get(made), results),
            part=part,
            number=last,
            renamed=renamed,
        )

    @property
    def _is_change(self) -> bool:
        is_other = self.before is not None and self.before.id != self.version.id
        return is_other and bool(self.others)

    def require_choice(self, on_change: OnChange | None) -> None:
        """Raise ChangedStudyError if the caller wants that, or has to say what to do."""
        if on_change in (OnChange.KEEP, OnChange.REDO):
            return
        self._require_new_names()
        if not self._is_change:
            return
        assert self.before is not None  # there is no change without
        assert self.made is not None
        # What the last run was told to keep is not asked again.
        stopping = self._stopping_texts(self.before) and self._stopping_texts(self.made)
        if on_change is OnChange.STOP or stopping:
            what = self._changes_text() if on_change is OnChange.STOP else "; ".join(stopping)
            were = "was" if len(self.others) == 1 else "were"
            raise ChangedStudyError(
                f"{what}, since {self._results_text()}of {self.folder.output} {were} made. "
                f"To keep them and run the rest: {self._command('keep')}. "
                f"To run them again: {self._command('redo')}{self._same_code_text()}"
            )

    def _stopping_texts(self, other: CodeVersion) -> list[str]:
        constants = fact_texts("constants", other, self.version)
        return [*constants, *form_texts(other, self.version)]

    def _require_new_names(self) -> None:
        """Raise ChangedStudyError if the same code would give results by names of before."""
        for old, new in self.renamed.items():
            undo = command_text("relabel", self.folder.output, "--undo")
            raise ChangedStudyError(
                f"{old} is called {new} in {self.folder.output} since it was relabelled, and "
                f"{self.declaration.name}, whose code is as before, returns {old}: there would be "
                f"two columns. Return {new}, or take the relabel back: {undo}. To have both: "
                f"{self._command('keep')}"
            )

    def text(self, on_change: OnChange | None) -> str:
        """What a run says of the change before it starts; empty if there is none."""
        if not self._is_change:
            return ""
        if on_change is OnChange.REDO:
            return self._changes_text()
        are = "is" if len(self.others) == 1 else "are"
        return (
            f"{self._changes_text()}; {self._results_text('of before ')}{are} kept, and told apart "
            f"by the column code. To run them again: {self._command('redo')}"
        )

    def _results_text(self, which: str = "") -> str:
        """How many there are; if not all are of one version, of which."""
        text = f"{count_text(len(self.others), 'result')} {which}"
        if len(self.results) == 1:
            return text
        counts = sorted(self.results.items(), reverse=True)
        return f"{text}({', '.join(f'{count:,} of code {code}' for code, count in counts)}) "

    def _changes_text(self) -> str:
        assert self.made is not None
        found = change_texts(self.made, self.version) or self._label_texts(self.made)
        more = f"; and {len(found) - _MOST_CHANGES:,} more" if len(found) > _MOST_CHANGES else ""
        return "; ".join(found[:_MOST_CHANGES]) + more

    def _label_texts(self, other: CodeVersion) -> list[str]:
        found = [text for what in LABELS for text in fact_texts(what, other, self.version)]
        was, now = other.facts["coords"], self.version.facts["coords"]
        axes = sorted(axis for axis in {*was, *now} if was.get(axis) != now.get(axis))
        return [*found, *(f"the coords of {axis} have changed" for axis in axes)]

    def _same_code_text(self) -> str:
        """How a part goes on with the code of the others, whatever the study says now."""
        if not self.part or self.before is None or self.number not in load_versions(self.folder):
            return ""
        how = way_to_same_code(self.before, self.version, self.number)
        return f". To go on with the code of then: {how}" if how else ""

    def _command(self, choice: str) -> str:
        return run_changed_text(self.declaration.about(), self.folder.output, choice, self.part)
