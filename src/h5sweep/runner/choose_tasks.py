"""Which of the missing tasks a run takes on: all, or those that its user means."""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from ..base.plan import Plan
from ..base.selection import Only, Selection, read_selection, select_tasks, values_text
from ..base.units import count_text
from ..errors import UsageError
from ..state.state import FolderState


@dataclass(frozen=True)
class TaskChoice:
    """What a user has said about that; `plan` is what the study declares."""

    selection: Selection
    keeps_failed: bool

    @classmethod
    def of(cls, plan: Plan, only: Only, failed: str = "retry") -> TaskChoice:
        """UsageError if there are no such tasks."""
        if failed not in ("retry", "keep"):
            raise UsageError(f"failed is {failed!r}: give 'retry' or 'keep'")
        choice = cls(read_selection(only, plan), failed == "keep")
        if not choice.tasks(plan):
            raise UsageError(f"no task has all of these values; there are {values_text(plan)}")
        return choice

    @property
    def fingerprint(self) -> str:
        """A word that is another one for another choice."""
        selected = sorted((name, sorted(map(repr, of))) for name, of in self.selection.items())
        return f"{zlib.crc32(repr((selected, self.keeps_failed)).encode()):08x}"

    def tasks(self, plan: Plan) -> Sequence[int]:
        """All that are selected, in order, whether they are missing or not."""
        return list(select_tasks(self.selection, plan)) if self.selection else range(len(plan))

    def choose(self, state: FolderState) -> ChosenTasks:
        """Divide what is missing now."""
        selected = self._selected(state.plan)
        missing = [task for task in state.missing_tasks() if task in selected]
        left_alone = state.failures.keys() if self.keeps_failed else ()
        return ChosenTasks(
            tasks=[task for task in missing if task not in left_alone],
            failed_kept=sum(task in left_alone for task in missing),
            not_selected=self.count_not_selected(state),
        )

    def count_not_selected(self, state: FolderState) -> int:
        """How many are missing of those that were not selected."""
        selected = self._selected(state.plan)
        return sum(task not in selected for task in state.missing_tasks())

    def _selected(self, plan: Plan) -> Container[int]:
        return set(self.tasks(plan)) if self.selection else range(len(plan))


@dataclass(frozen=True)
class ChosenTasks:
    """What a run takes on, and how many of those that are missing it does not."""

    tasks: list[int]
    failed_kept: int
    not_selected: int

    def texts(self, state: FolderState) -> Iterator[str]:
        """What to say of it before they are run."""
        again = sum(map(state.is_done, self.tasks))
        of_them = f", {again:,} of them again" if again else ""
        yield f"{state.tasks_done:,} kept, {len(self.tasks):,} to do{of_them}"
        if self.failed_kept:
            yield f"{count_text(self.failed_kept, 'task')} that failed before left alone"
        if self.not_selected:
            yield f"{count_text(self.not_selected, 'other task')} to do, not selected: left alone"
