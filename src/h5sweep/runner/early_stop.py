"""Whether a run is hopeless: its first tasks have all failed of the same cause.

A mistake that meets every task costs hours if a run goes through all of them. Tasks that are tried
again count when they have failed for the last time.
"""

from __future__ import annotations

from collections.abc import Callable

from .events import Ended, Event, Failed
from .failures import Cause, cause_of

FIRST_TASKS = 20


class EarlyStop:
    """Watches the tasks of a run until one has succeeded."""

    def __init__(self, tasks: int) -> None:
        """A run of no more tasks than these is over before there is anything to save."""
        self._is_over = tasks <= FIRST_TASKS
        self._causes: set[Cause] = set()
        self.failed: list[int] = []
        self.is_hopeless = False

    def take(self, event: Event, has_results: Callable[[], bool]) -> bool:
        """Take note of an event; return whether there is no use in going on.

        `has_results` looks for results that workers have recorded and not told yet.
        """
        if self._is_over or self.is_hopeless:
            return self.is_hopeless
        if isinstance(event, Ended) and event.tasks_done:
            self._is_over = True
        elif isinstance(event, Failed) and not event.will_retry:
            error = event.error
            self.failed.append(event.task)
            self._causes.add(cause_of(event.kind, error["type"], error["where"], error["message"]))
            self._is_over = len(self._causes) > 1
        if not self._is_over and len(self.failed) == FIRST_TASKS:
            self._is_over = has_results()
            self.is_hopeless = not self._is_over
        return self.is_hopeless
