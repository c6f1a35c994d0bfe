"""The units and axes that rows have by the versions of the code that made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.relabels import Relabel
from ..base.units import count_text
from ..code.changes import LABELS
from ..code.relabelled import labels_of_now, relabels_since
from ..errors import UsageError
from ..runfolder.layout import RunFolder
from ..state.run_command import run_again_text
from ..state.state import FolderState
from ..state.task_codes import known_versions, task_codes


@dataclass(frozen=True)
class RowLabels:
    """Units and dims as each version has declared them, by the names of today."""

    folder: RunFolder
    rows: Mapping[int, int]  # how many there are of each version
    labels: Mapping[int, Mapping[str, dict[str, Any]]]

    @classmethod
    def read(cls, folder: RunFolder, state: FolderState) -> RowLabels:
        rows, labels = Counter(task_codes(folder, state)), {}
        for number, version in known_versions(folder, state).items():
            if number in rows:
                since = relabels_since(version, state.relabels)
                labels[number] = {what: labels_of_now(version, what, since) for what in LABELS}
        return cls(folder, rows, labels)

    def of(self, what: str) -> dict[str, Any]:
        """The labels that rows have; of several the last."""
        return {
            name: label for about in self.labels.values() for name, label in about[what].items()
        }

    def changed_by(self, relabel: Relabel) -> Iterator[tuple[str, str]]:
        """Which labels a relabel replaces, by the names that columns have before it."""
        for what in LABELS:
            yield from ((what, relabel.name_before(name)) for name in getattr(relabel, what))

    def require_one(self, what: str, name: str) -> None:
        """Raise UsageError if some rows of a column are in other units than others."""
        known = [(n, about[what][name]) for n, about in self.labels.items() if name in about[what]]
        if len({str(label) for _, label in known}) < 2:
            return
        texts = [
            f"{label!r} in {count_text(self.rows[n], 'row')} of code {n}" for n, label in known
        ]
        sweep = self.folder.load_sweep()
        raise UsageError(
            f"{what}: {name} is {' and '.join(texts)}, so no one label is right for all of "
            f"{self.folder.output}: run those of before again first, "
            f"{run_again_text(sweep, self.folder.output, 'redo')}"
        )
