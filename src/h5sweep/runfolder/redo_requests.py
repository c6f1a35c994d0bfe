"""Which tasks somebody asked to have run again: `redo.json` of a run folder.

Requests are numbered. A record file has the number of the last request that there was when its
process began, so no clock decides which of two results is the new one. A request is open until the
new result is in the output; what a merge has closed stays, because older results may still lie in
record files. Numbers are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any

from ..base.number_ranges import Ranges, are_ranges, numbers_in, ranges_of_numbers
from ..base.plan import Plan


@dataclass(frozen=True)
class Request:
    """That tasks of a plan be run again."""

    number: int
    plan: str
    tasks: Ranges
    is_open: bool

    def numbers(self, plan: Plan) -> Iterable[int]:
        """Its tasks, as far as they have the same numbers in this plan."""
        return numbers_in(self.tasks, below=plan.tasks_shared_with(self.plan))

    def split(self, plan: Plan, tasks: Set[int]) -> tuple[Request, Request]:
        """The request for those of its tasks that are among `tasks`, and for its others."""
        numbers = list(self.numbers(plan))
        inside = ranges_of_numbers(number for number in numbers if number in tasks)
        outside = ranges_of_numbers(number for number in numbers if number not in tasks)
        return replace(self, plan=plan.id, tasks=inside), replace(self, plan=plan.id, tasks=outside)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Request:
        made = cls(value["number"], value["plan"], value["tasks"], value["is_open"])
        types = type(made.number), type(made.plan), type(made.is_open)
        if types != (int, str, bool) or not are_ranges(made.tasks):
            raise ValueError("its requests")
        return made


@dataclass(frozen=True)
class Requests:
    """All requests, and the last number that one had."""

    last: int = 0
    all: tuple[Request, ...] = ()

    def about(self) -> dict[str, int]:
        """What the first record of a new record file says of them."""
        return {"redo": self.last} if self.last else {}

    def newest_first(self) -> list[Request]:
        return sorted(self.all, key=lambda request: -request.number)

    def outdated(self, plan: Plan, number: int, *, closed_only: bool = False) -> set[int]:
        """The tasks whose results in a file with this number are older than a request for them."""
        asked = [r for r in self.all if r.number > number and not (closed_only and r.is_open)]
        return {task for request in asked for task in request.numbers(plan)}

    def open_tasks(self, plan: Plan) -> set[int]:
        """The tasks whose new results are not known to be in the output."""
        return {task for request in self.all if request.is_open for task in request.numbers(plan)}

    def with_request(self, plan: Plan, tasks: Iterable[int], at_least: int) -> Requests:
        """These and one for `tasks`, with a number above all that there were."""
        number = max(self.last, at_least) + 1
        new = Request(number, plan.id, ranges_of_numbers(sorted(tasks)), is_open=True)
        return Requests(number, (*self.all, new))

    def closed_for(self, plan: Plan, tasks: Set[int]) -> Requests:
        """These when the new results of `tasks` are in the output."""
        return self._changed(plan, tasks, keep_closed=True)

    def without_open(self, plan: Plan, tasks: Set[int]) -> Requests:
        """These without what is still open for `tasks`."""
        return self._changed(plan, tasks, keep_closed=False)

    def _changed(self, plan: Plan, tasks: Set[int], *, keep_closed: bool) -> Requests:
        found: list[Request] = []
        for request in self.all:
            if not request.is_open:
                found.append(request)
                continue
            chosen, others = request.split(plan, tasks)
            found += [replace(chosen, is_open=False), others] if keep_closed else [others]
        return Requests(self.last, tuple(request for request in found if request.tasks))

    def as_json(self) -> dict[str, Any]:
        return {"last": self.last, "requests": [vars(request) for request in self.all]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Requests:
        """Read `as_json` back; ValueError, KeyError or TypeError if it is something else."""
        if not value:
            return cls()
        if type(value["last"]) is not int:
            raise ValueError("its last number")
        return cls(value["last"], tuple(map(Request.from_json, value["requests"])))
