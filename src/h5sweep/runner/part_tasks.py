"""Which tasks a part takes on: those of its own slices, then what no other part has in hand.

A part claims slices as it needs tasks, not all of its own at once: what it has not begun when
others have nothing left, they take over. Each look at the folder lists claims and parts first and
reads the records then. A claim that succeeds with the number of that look was not made by anybody
since, so the records of its tasks are what they were.

A slice is claimed whole. Tasks of it that its part does not run are free when that part ends. If
they are new in a plan that has grown, a part that knows of them waits for that; none waits for a
part that knows more, so no two wait for each other. If that part was told to run others, none does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..base.plan import Plan
from ..base.units import count_text
from ..runfolder.heartbeat import WATCH_S
from ..runfolder.layout import RunFolder
from ..runfolder.parts import SLICES, Claim, Claims, PartNumber, PartWatch, refresh_listing
from ..runfolder.uniform_records import scan_stretches
from ..state.state import FolderState, read_state
from .choose_tasks import TaskChoice

LOOK_EVERY_S = 5.0
LOOK_SHARE = 0.1  # of its time, at most, that a part spends in looks


@dataclass
class _Look:
    """Who had claimed what, before the records were read."""

    counts: dict[int, int]  # how often each slice was claimed
    alive: dict[str, bool | None]  # each part
    free: dict[int, list[int]] = field(default_factory=dict)  # the tasks to run, by slice
    has_others: bool = False  # whether tasks are in the hands of other parts
    has_doubtful: bool = False  # of which one may be dead
    held_up: int = 0  # tasks that are newer than the claims of live parts on their slices
    has_left_out: bool = False  # slices claimed by live parts that were told to run others


class PartTasks:
    """Gives a part its tasks, as a pool asks for them."""

    def __init__(
        self,
        folder: RunFolder,
        part: PartNumber,
        name: str,
        choice: TaskChoice,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder = folder
        self._own = part.slices()
        self._choice = choice
        self._claims = Claims(folder, name, choice.fingerprint)
        self._tell, self._has_told = tell, False
        self._watch = PartWatch(folder)
        self._name = name
        self._look = self._look_at_claims()
        self._next_look, self._was_idle = 0.0, False
        self._doubtful: dict[tuple[int, int], float] = {}  # claims, and since when
        self._plan = Plan(())
        self.taken_over = 0
        self.wanted = 0  # by whichever part, when this one began

    def begin(self, state: FolderState) -> int:
        """Take note of what is missing, as read after this was made; return how many are its own.

        Other parts may take some of these, and leave it some of theirs.
        """
        self._plan = state.plan
        self._divide(state, is_first=True)
        return sum(len(self._look.free.get(number, ())) for number in self._own)

    @property
    def has_left_out(self) -> bool:
        """Whether tasks are left that others have claimed who were told to run others."""
        return self._look.has_left_out

    def __call__(self, wanted: int, is_idle: bool) -> list[int] | None:
        """At least so many tasks if there are as many; see `MoreTasks`."""
        own = [number for number in self._own if number in self._look.free]
        # Never more than half of what is left: if it takes longer than it seems, others take that.
        half = -(-sum(len(self._look.free[number]) for number in own) // 2)
        if found := self._claim(min(wanted, half), own):
            return found
        if time.monotonic() >= self._next_look or (is_idle and not self._was_idle):
            self._look_again()
        self._was_idle = is_idle
        return self._take_over(wanted, is_idle)

    def _look_again(self) -> None:
        begun, before = time.monotonic(), self._look
        look = self._look_at_claims()
        # Tasks become free by what happens to parts and claims; to read all records takes longer.
        if before.has_doubtful or (look.counts, look.alive) != (before.counts, before.alive):
            self._look = look
            self._divide(read_state(self._folder, self._plan, scan=scan_stretches), is_first=False)
        took_s = time.monotonic() - begun
        self._next_look = time.monotonic() + max(LOOK_EVERY_S, took_s / LOOK_SHARE)

    def _take_over(self, wanted: int, is_idle: bool) -> list[int] | None:
        """Claim of what nobody is at work on a share that leaves some to other parts."""
        look = self._look
        at_work = max(sum(alive is not False for alive in look.alive.values()), 1)
        share = -(-sum(map(len, look.free.values())) // at_work)
        if found := self._claim(min(wanted, share), list(look.free)):
            self.taken_over += len(found)
            return found
        if is_idle and look.held_up and not self._has_told:
            self._has_told = True
            self._tell(
                f"waiting for another part to end: it began before the sweep had grown, and "
                f"{count_text(look.held_up, 'new task')} cannot be taken on before that"
            )
        is_over = not look.has_doubtful and not look.held_up and (is_idle or not look.has_others)
        return [] if is_over else None

    def _claim(self, wanted: int, numbers: list[int]) -> list[int]:
        found: list[int] = []
        for number in numbers:
            if len(found) >= wanted:
                break
            tasks = self._look.free.pop(number)
            if self._claims.claim(number, self._look.counts.get(number, 0), len(self._plan)):
                found += tasks
        return found

    def _look_at_claims(self) -> _Look:
        look = _Look(self._claims.counts(), self._watch.look())
        refresh_listing(self._folder.records_path)
        return look

    def _divide(self, state: FolderState, *, is_first: bool) -> None:
        """Sort what is to be run by slices, and tell which of these no part is at work on."""
        look, by_slice = self._look, dict[int, list[int]]()
        chosen = self._choice.choose(state).tasks
        self.wanted = self.wanted or len(chosen)
        for task in chosen:
            by_slice.setdefault(task % SLICES, []).append(task)
        for number, tasks in by_slice.items():
            claim = self._claims.find(number, look.counts.get(number, 0))
            if (alive := self._is_in_hand(number, claim, tasks, state)) is False:
                # What has failed in the hands of another part is not tried again behind its back.
                is_new = (is_first and number in self._own) or not look.counts.get(number)
                left = tasks if is_new else [task for task in tasks if task not in state.failures]
                if left:
                    look.free[number] = left
            else:
                look.has_doubtful |= alive is None
                if alive and claim and claim.holder != self._name:
                    look.has_others = True
                    look.held_up += sum(task >= claim.tasks for task in tasks)
                    look.has_left_out |= claim.choice != self._claims.choice

    def _is_in_hand(
        self, number: int, claim: Claim | None, tasks: list[int], state: FolderState
    ) -> bool | None:
        """Whether the part that claimed a slice last is at work; None if that is not known yet."""
        count = self._look.counts.get(number, 0)
        if not count:
            return False
        if claim:
            alive = claim.holder == self._name or self._look.alive.get(claim.holder, False)
            # Workers of a part that was killed end with it, but not in the same instant.
            if alive is not False or not any(task in state.running for task in tasks):
                return alive
        # It has died as it claimed, or leaves workers behind: for a while, they may come to an end.
        since = self._doubtful.setdefault((number, count), time.monotonic())
        return False if time.monotonic() - since > WATCH_S else None
