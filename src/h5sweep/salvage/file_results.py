"""What readers found in one damaged file, and which of it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..base.key_rule import KeyRule
from ..base.plan import key_text
from ..base.values import ResultEncoder
from ..errors import UnsupportedValueError
from ..worker_files.file_view import (
    NEVER_WRITTEN,
    NO_KEY,
    FoundRows,
    FoundTask,
)
from .candidates import candidate_of, candidates_of
from .carved_data import NO_CHUNK
from .report import FileSalvage, Loss, SalvageConflict, SalvagedResult
from .spool import Spool, digest_of
from .trust_labels import ALONE, Candidate, Label, Way, judge_results

MOST_SIBLINGS = 1000  # of earlier files, with which results are compared
MANY_FOR_ONE_KEY = 16  # results: then they are looked up
ORDER = list(Label)


class FileResults:
    """What readers found in one file, each result once, and which of it is taken."""

    def __init__(
        self, path: str, stage: Spool, rule: KeyRule, note_result: Callable[[], None]
    ) -> None:
        """`note_result` is called for each new result."""
        self.path = path
        self.stage = stage
        self.rule = rule
        self.note_result = note_result
        self.encoder = ResultEncoder()
        self.candidates: dict[str, list[Candidate]] = {}
        self.losses: list[Loss] = []
        self.looked_at: dict[str, Candidate | None] = {}  # where our own reader has seen tasks
        self.crowds: dict[str, dict[bytes, Candidate]] = {}  # many results for one key, by digest
        self.unsupported: set[str] = set()  # those of tasks that it does not know to read
        self.unwritten: set[str] = set()
        self.blank: list[str] = []  # rows of fill values, behind the last that has others
        self.without_chunk: set[str] = set()  # for these the library makes up fill values
        self.refused: list[Candidate] = []
        self.conflicts: list[SalvageConflict] = []
        self.notes: list[str] = []
        self.what = ""
        self.nameless = 0
        self.is_damaged = False
        self.is_closed = False  # as its superblock says, and nothing in it says otherwise

    def take_all(self, tasks: Iterable[FoundTask | FoundRows]) -> None:
        for found in tasks:
            if isinstance(found, FoundRows):
                self.take_rows(found)
            else:
                self.take_found(found)

    def take_rows(self, found: FoundRows) -> None:
        try:
            for number, encoded in enumerate(candidates_of(found, self.rule, self.encoder)):
                place = found.place(number) if encoded is None else encoded[0].place
                self.looked_at[place] = None if encoded is None else self.take(*encoded)
                self.note_blank(place, is_blank=encoded is None and bool(found.unwritten[number]))
                if found.unwritten[number]:
                    self.unwritten.add(place)
                elif encoded is None:
                    self.losses.append(Loss(place, None, NO_KEY))
        except UnsupportedValueError:
            self.take_all(found.singly())

    def take_found(self, found: FoundTask) -> None:
        encoded = candidate_of(found, self.rule, self.encoder)
        place = found.place.lstrip("/")
        kept = None if encoded is None else self.take(*encoded)
        if found.is_unsupported:
            self.unsupported.add(place)
        else:
            self.looked_at[place] = kept
        is_blank = encoded is None and found.lost.get("") == NEVER_WRITTEN
        if found.is_row:
            self.note_blank(place, is_blank=is_blank)
        if is_blank or found.doubt == NEVER_WRITTEN:
            self.unwritten.add(place)
        elif encoded is None:
            self.losses.append(_loss_of(found))
            if NO_CHUNK in found.lost.values():
                self.without_chunk.add(place)

    def note_blank(self, place: str, *, is_blank: bool) -> None:
        """Tell room for more rows from a row of fill values, behind which others were written."""
        if is_blank:
            self.blank.append(place)
        elif self.blank:
            table = place.partition(" of ")[2]
            lost = [blank for blank in self.blank if blank.partition(" of ")[2] == table]
            self.losses += [Loss(blank, None, NEVER_WRITTEN) for blank in lost]
            self.blank.clear()

    def take(self, new: Candidate, schema: bytes, data: bytes) -> Candidate:
        """Add a result, or to one that is there already that it was found again."""
        text, new.digest = key_text(new.key), digest_of(schema, data)
        known = self.candidates.setdefault(text, [])
        if len(known) < MANY_FOR_ONE_KEY:
            same = next((old for old in known if old.digest == new.digest), None)
        else:
            digests = self.crowds.setdefault(text, {old.digest: old for old in known})
            same = digests.setdefault(new.digest, new)
            same = None if same is new else same
        if same is None:
            known.append(new)
            self.stage.write(new, schema, data)
            self.note_result()
        elif new.way is not same.way:
            same.confirmed_by = (*same.confirmed_by, new.way)
        return same or new

    def choose(self, siblings: list[Candidate], accept: Label) -> list[Candidate]:
        """Judge all results; where readers or places disagree, take none unless one is proven.

        `siblings` are results of earlier files, to which these are added.
        """
        every = [c for known in self.candidates.values() for c in known]
        judged = [c for c in every if c.way is not Way.RECORDS]
        # Where part of the data is lost, zeros in the rest need not be values.
        is_whole = all(NO_KEY in loss.why for loss in self.losses)
        judge_results(
            judged,
            siblings,
            is_sound=is_whole and not self.is_damaged,
            is_closed=is_whole and self.is_closed,
            has_unwritten=bool(self.unwritten),
        )
        for candidate in every:
            if candidate.way is Way.RECORDS:
                candidate.label = Label.VERIFIED
        taken = []
        for known in self.candidates.values():
            one = self.settle(known)
            if one is None:
                continue
            is_sibling = one.label is not Label.UNVERIFIED or one.reason == ALONE
            if is_sibling and len(siblings) < MOST_SIBLINGS:
                siblings.append(one)
            if ORDER.index(one.label) <= ORDER.index(accept):
                taken.append(one)
            else:
                self.refused += known
        return taken

    def settle(self, known: list[Candidate]) -> Candidate | None:
        """The one result of a task, of several that differ; None if nothing decides."""
        ours = [c for c in known if c.label is not Label.UNVERIFIED] or known
        if known[0].way is Way.RECORDS:
            return known[-1]  # the same task again: the later counts
        proven = [c for c in ours if c.label is Label.VERIFIED]
        if len(proven) == 1 or len(known) == 1:
            return proven[0] if proven else known[0]
        if len(ours) == 1 and all(c.way is not Way.LIBRARY for c in known):
            return ours[0]  # the others are remnants of it, or in doubt
        names = tuple(f"{c.way}: {c.place}" + (f" ({c.reason})" if c.reason else "") for c in known)
        self.conflicts.append(SalvageConflict(known[0].key, names))
        return None

    def report(self, taken: list[Candidate], record_path: Path | None) -> FileSalvage:
        refused = {key_text(c.key) for c in self.refused}
        losses = [
            loss
            for loss in self.losses
            if loss.key is None
            or (key := key_text(loss.key)) in refused
            or key not in self.candidates
        ]
        return FileSalvage(
            self.path,
            self.what,
            is_damaged=self.is_damaged,
            key=self.rule.text,
            taken=tuple(map(SalvagedResult.of, taken)),
            refused=tuple(map(SalvagedResult.of, self.refused)),
            losses=tuple(losses),
            conflicts=tuple(self.conflicts),
            notes=tuple(self.notes),
            nameless=self.nameless,
            records=None if record_path is None else str(record_path),
        )


def _loss_of(found: FoundTask) -> Loss:
    whys = [f"{name}: {why}" if name else why for name, why in found.lost.items()]
    if not whys:
        whys = ["it holds no values" if found.key is not None else NO_KEY]
    return Loss(found.place, found.key, "; ".join(whys[:3]), found.extents)
