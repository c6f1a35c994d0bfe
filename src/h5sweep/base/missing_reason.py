"""Why a task is missing, in the words that `missing` prints and a CSV of tasks may bring back."""

from __future__ import annotations

from enum import StrEnum


class MissingReason(StrEnum):
    """Why a task is missing."""

    NEVER_STARTED = "never started"
    RUNNING = "running"
    FAILED = "failed"
    LOST = "lost with a damaged record"
    INTERRUPTED = "interrupted"
    CHANGED = "changed in the output"
    AGAIN = "to be run again"


REPORT_COLUMNS = ("reason", "detail")  # what `missing --csv` adds behind the key columns
