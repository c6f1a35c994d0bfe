"""What came of tasks that were run again: as data, in words, and as JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..base.compare import Agreement
from ..base.plan import Key, key_json, key_text
from ..base.safe_text import json_text
from ..base.selection import key_words
from ..base.static_html import ShownAsText
from ..base.units import command_text, count_text

_MOST_SHOWN = 5
_LONGEST_PRINTED = 20_000


class ReplayResult(StrEnum):
    """What came of one task that was run again."""

    EQUAL = "equal"
    CLOSE = "equal within 1e-9"
    DIFFERENT = "different"
    FAILED = "failed"
    IMPOSSIBLE = "cannot be replayed"
    ENDED = "ended well"  # but there is no result to compare with


@dataclass(frozen=True)
class ColumnAgreement:
    """How one result agrees with its column; `difference` is relative, `detail` says more."""

    name: str
    agreement: Agreement
    difference: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        if self.agreement is Agreement.EQUAL:
            return "equal"
        if self.detail or math.isinf(self.difference):
            return f"{self.agreement}{self.detail and f' ({self.detail})'}"
        return f"{self.agreement} (largest difference {self.difference:.2g})"


@dataclass(frozen=True)
class Replay(ShownAsText):
    """One task that was run again with the code that made its row.

    `changes` are sentences about what is not as it was then.
    """

    key: Key
    code: int
    result: ReplayResult
    columns: tuple[ColumnAgreement, ...] = ()
    duration_then_s: float | None = None
    duration_s: float | None = None
    changes: tuple[str, ...] = ()
    reason: str = ""  # why it failed, or cannot be replayed
    traceback: str = ""
    printed: str = field(default="", repr=False)

    @property
    def is_equal(self) -> bool:
        """Whether it gave what it gave then, within 1e-9."""
        return self.result in (ReplayResult.EQUAL, ReplayResult.CLOSE)

    def __str__(self) -> str:
        return replay_text(self)

    def as_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return {
            "key": json.loads(key_json(self.key)),
            "code": self.code,
            "result": self.result,
            "columns": {
                column.name: {
                    "agreement": column.agreement,
                    "difference": _finite(column.difference),
                    "detail": column.detail,
                }
                for column in self.columns
            },
            "duration_then_s": self.duration_then_s,
            "duration_s": self.duration_s,
            "changes": list(self.changes),
            "reason": self.reason,
            "traceback": self.traceback,
            "printed": self.printed,
        }


@dataclass(frozen=True)
class Verification(ShownAsText):
    """Rows of an output that were computed again; `seed` draws the same sample once more."""

    output: Path
    rows: int
    seed: int
    replays: tuple[Replay, ...]

    @property
    def is_equal(self) -> bool:
        """Whether every row of the sample was repeated, within 1e-9."""
        return all(replay.is_equal for replay in self.replays)

    @property
    def counts(self) -> dict[ReplayResult, int]:
        found = Counter(replay.result for replay in self.replays)
        return {result: found[result] for result in ReplayResult if result != ReplayResult.ENDED}

    def __str__(self) -> str:
        return verification_text(self)


def replay_text(replay: Replay) -> str:
    """A replay as people read it: each column, how long it took, what has changed."""
    return "\n".join(_replay_lines(replay))


def _replay_lines(replay: Replay) -> Iterator[str]:
    yield f"{key_text(replay.key)}: {replay.result}{replay.reason and f': {replay.reason}'}"
    width = max((len(column.name) for column in replay.columns), default=0)
    for column in replay.columns:
        yield f"  {column.name:<{width}}  {column}"
    if replay.traceback:
        yield replay.traceback.rstrip()
    if replay.printed:
        yield f"what it printed:\n{replay.printed[-_LONGEST_PRINTED:].rstrip()}"
    yield f"code {replay.code}; {_durations_text(replay)}"
    if replay.changes:
        yield f"since then: {'; '.join(replay.changes)}"
    elif not replay.is_equal and replay.columns:
        yield "nothing that was recorded has changed since then: the task may be random"


def _durations_text(replay: Replay) -> str:
    found = [
        f"{seconds:.3g} s {when}"
        for seconds, when in ((replay.duration_then_s, "then"), (replay.duration_s, "now"))
        if seconds is not None
    ]
    return f"took {', '.join(found)}" if found else "it did not end"


def verification_text(found: Verification) -> str:
    """A table of what came of the sample, and the first rows that were not repeated."""
    return "\n".join(_verification_lines(found))


def _verification_lines(found: Verification) -> Iterator[str]:
    sample = count_text(len(found.replays), "row")
    yield f"{sample} of {found.rows:,} run again (--seed {found.seed} takes the same)"
    for result, count in found.counts.items():
        yield f"  {result:<{len(ReplayResult.IMPOSSIBLE)}}  {count:>6,}"
    others = [replay for replay in found.replays if not replay.is_equal]
    for replay in others[:_MOST_SHOWN]:
        yield f"{key_text(replay.key)}: {_why_text(replay)}"
    if len(others) > _MOST_SHOWN:
        yield f"and {len(others) - _MOST_SHOWN:,} more"


def _why_text(replay: Replay) -> str:
    differing = [c for c in replay.columns if c.agreement is Agreement.DIFFERENT]
    columns = ", ".join(f"{column.name} {column}" for column in differing[:_MOST_SHOWN])
    what = columns or f"{replay.result}: {replay.reason.splitlines()[0]}"
    return f"{what}; since then: {'; '.join(replay.changes)}" if replay.changes else what


def next_text(found: Verification) -> str:
    """How to look closer at the first row that was not repeated; empty if all that can be were."""
    unlike = (ReplayResult.EQUAL, ReplayResult.CLOSE, ReplayResult.IMPOSSIBLE)
    other = next((replay for replay in found.replays if replay.result not in unlike), None)
    if other is None:
        return ""
    return f"next: {command_text('replay', found.output, *key_words(other.key))}"


def replay_json(replay: Replay) -> str:
    return json_text({"schema": "h5sweep.replay/1", **replay.as_json()}, indent=1)


def verification_json(found: Verification) -> str:
    facts = {
        "schema": "h5sweep.verify/1",
        "output": str(found.output),
        "rows": found.rows,
        "seed": found.seed,
        "is_equal": found.is_equal,
        "counts": {str(result): count for result, count in found.counts.items()},
        "replays": [replay.as_json() for replay in found.replays],
    }
    return json_text(facts, indent=1)


def _finite(difference: float) -> float | None:
    return difference if math.isfinite(difference) else None
