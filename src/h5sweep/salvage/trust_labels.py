"""What speaks for and against a salvaged result. Pure.

verified      checksums vouch for every byte of it, its key included
consistent    nothing does, but it is like its siblings in every way that can be compared
unverified    something speaks against it; it is taken only by those who ask for it
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter

from ..base.plan import Key
from ..worker_files.file_view import FoundTask, Proof

LEAST_SIBLINGS = 3
ALONE = "no other result shows which values it should have"
PAGE_BYTES = 4096


class Label(StrEnum):
    """How far a salvaged result can be trusted, the best first."""

    VERIFIED = "verified"
    CONSISTENT = "consistent"
    UNVERIFIED = "unverified"


class Way(StrEnum):
    """Which reader a result came from."""

    CARVED = "carved"
    STREAM = "packed stream"
    LIBRARY = "HDF5 library"
    RECORDS = "record"


Form = tuple[tuple[str, str, tuple[int, ...]], ...]  # name, dtype and shape of each value


@dataclass(slots=True)
class Candidate:
    """A result that was found: all but its data, which are on disk.

    There may be a million of them, so what many have in common is one object.
    """

    key: Key
    place: str
    way: Way
    form: Form
    proof: Proof
    doubt: str = ""
    fills: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset()
    inside: tuple[tuple[str, int], ...] = ()  # values that have so many stretches of zeros in them
    odd: frozenset[str] = frozenset()  # those with zeros where values hardly have them
    places: tuple[tuple[str, int], ...] = ()  # where values lie that are in one piece
    tail: frozenset[str] = frozenset()  # fills that are so in all rows behind it, or in its page
    key_fills: frozenset[str] = frozenset()  # of its key, and then only those of the last rows
    order: int = -1  # of groups that were written one after the other
    lacking: str = ""  # a value that others have and it, the last, perhaps not yet
    is_row: bool = False
    is_expected: bool = True
    confirmed_by: tuple[Way, ...] = ()
    label: Label = Label.UNVERIFIED
    reason: str = ""
    digest: bytes = b""  # of its values: equal ones have the same
    offset: int = 0  # of its record in the stage
    end: int = 0

    @property
    def names(self) -> frozenset[str]:
        return _names_of(self.form)


# By which a result is that one and no other; `_objection` looks at none of these.
_OWN = {
    "key",
    "place",
    "way",
    "digest",
    "places",
    "confirmed_by",
    "label",
    "reason",
    "offset",
    "end",
}
_TRAITS = attrgetter(*(field.name for field in fields(Candidate) if field.name not in _OWN))
Traits = tuple[Form, frozenset[str], frozenset[str], tuple[tuple[str, int], ...], frozenset[str]]
_SHARED = attrgetter("form", "fills", "gaps", "inside", "odd")


@lru_cache(1024)
def _names_of(form: Form) -> frozenset[str]:
    return frozenset(name for name, _, _ in form)


def shared(names: Iterable[str]) -> frozenset[str]:
    """A set of names, mostly the one that others have already: an empty one takes 216 bytes."""
    return _one_of_all(frozenset(names))


@lru_cache(1024)
def _one_of_all(names: frozenset[str]) -> frozenset[str]:
    return names


def proof_of(found: FoundTask) -> Proof:
    """The least that vouches for any part of a result."""
    if found.is_proven:
        return found.key_proof
    return min((found.key_proof, *(cell.proof for cell in found.cells.values())))


@dataclass
class CommonTraits:
    """What the results of a file have in common."""

    is_sound: bool = False
    is_closed: bool = False
    has_unwritten: bool = False
    count: int = 0
    names: Counter[str] = field(default_factory=Counter)
    dtypes: dict[str, Counter[tuple[str, int]]] = field(default_factory=dict)
    shapes: dict[str, Counter[tuple[int, ...]]] = field(default_factory=dict)
    fills: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    inside: Counter[tuple[str, int]] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    constants: set[str] = field(default_factory=set)

    def add(self, traits: Traits, count: int) -> None:
        """Count results that have all this in common."""
        form, fills, gaps, inside, odd = traits
        self.count += count
        for counter, names in (
            (self.names, _names_of(form)),
            (self.fills, fills),
            (self.gaps, gaps),
            (self.odd, odd),
        ):
            counter.update(dict.fromkeys(names, count))
        self.inside.update(dict.fromkeys(inside, count))
        for name, dtype, shape in form:
            self.dtypes.setdefault(name, Counter())[dtype, len(shape)] += count
            self.shapes.setdefault(name, Counter())[shape] += count

    def is_usual(self, counts: Counter[str], name: str) -> bool:
        return counts[name] > (self.names[name] or self.count) / 2  # the key is in all of them

    def note_constants(self) -> None:
        """Note which values are fill values in all results, wherever these lie."""
        self.constants = {name for name, count in self.fills.items() if count == self.names[name]}

    def lost_parts(self, found: Candidate) -> list[str]:
        """Which of its values have zeros as a lost page leaves them, unlike those of others."""
        if not (found.gaps or found.inside or found.odd):
            return []
        # What the only group has is neither constant nor usual.
        lone = {n for n in found.gaps if self.names[n] == 1 and not found.is_row}
        rare = {n for n in found.gaps - self.constants if not self.is_usual(self.gaps, n)}
        gaps = [*(lone | rare)]
        for name, runs in found.inside:
            if self.inside[name, runs] <= self.names[name] / 2:
                gaps.append(name)
        for name in found.odd:  # others are zero elsewhere too, or it is no value
            if name not in self.constants or self.is_usual(self.odd, name):
                gaps.append(name)
        return sorted(gaps)


def judge_results(
    candidates: Sequence[Candidate],
    others: Sequence[Candidate] = (),
    *,
    is_sound: bool = False,
    is_closed: bool = False,
    has_unwritten: bool = False,
) -> None:
    """Label each result, by what vouches for it and by its siblings, those of `others` too.

    Of a file that was closed, zeros are values. Of another, the last rows may have been in the
    making, and all rows if some of the table were never written (`has_unwritten`); arrays in rows
    are not taken for zeros. Of one that is not sound, the end of a page may not have been written,
    or a page lost.
    """
    siblings = CommonTraits(is_sound, is_closed, has_unwritten)
    for traits, count in Counter(map(_SHARED, (*candidates, *others))).items():
        siblings.add(traits, count)
    siblings.note_constants()
    if not is_closed:
        _note_last(candidates, others)
    lossy = [c for c in candidates if c.is_row and (c.doubt or siblings.lost_parts(c))]
    for candidate in lossy:  # their zeros are no sign that zeros are values, in this table
        siblings.fills.subtract(candidate.fills)
        siblings.is_closed = False
    _note_tails(candidates)
    _note_page_ends(candidates)
    known: dict[object, str] = {}  # most are like another
    for candidate in candidates:
        every = _TRAITS(candidate)
        if every not in known:
            known[every] = _objection(candidate, siblings)
        candidate.reason = known[every]
        if candidate.reason:
            candidate.label = Label.UNVERIFIED
        elif candidate.proof is Proof.CHECKSUM:
            candidate.label = Label.VERIFIED
        else:
            candidate.label = Label.CONSISTENT


def _note_last(candidates: Sequence[Candidate], others: Sequence[Candidate]) -> None:
    """Note what the group that was written last lacks: its writer may have died before that."""
    last = max(candidates, key=lambda candidate: candidate.order, default=None)
    if last is None or last.order < 0:
        return
    every = [c for c in (*candidates, *others) if c.key != last.key]
    lacking = frozenset().union(*{c.names for c in every}) - last.names
    last.lacking = ", ".join(sorted(lacking)) if every else ALONE


def _note_tails(candidates: Sequence[Candidate]) -> None:
    """Note of each row what of it, and of all rows behind it, was perhaps not written."""
    tails: dict[str, frozenset[str]] = {}
    key_tails: dict[str, frozenset[str]] = {}
    for candidate in reversed(candidates):
        if candidate.is_row:
            table, keys = candidate.place.partition(" of ")[2], candidate.key_fills
            tails[table] = shared(candidate.fills & tails.get(table, candidate.fills))
            key_tails[table] = shared(keys & key_tails.get(table, keys))
            candidate.tail, candidate.key_fills = tails[table], key_tails[table]


def _note_page_ends(candidates: Sequence[Candidate]) -> None:
    """Note of each group which of its values are zeros, as are those of others behind, in a page.

    Values are written one behind the other: so it looks where the last of them were not.
    """
    places = sorted(
        (
            (offset, name, candidate)
            for candidate in candidates
            for name, offset in candidate.places
        ),
        key=lambda place: -place[0],
    )
    ended: set[tuple[str, int]] = set()  # pages in which something is behind
    for offset, name, candidate in places:
        page = (name, offset // PAGE_BYTES)
        if name not in candidate.fills:
            ended.add(page)
        elif page not in ended:
            candidate.tail = shared(candidate.tail | {name})


def _objection(found: Candidate, siblings: CommonTraits) -> str:
    """What speaks against a result, in words; empty if nothing does."""
    if found.doubt:
        return found.doubt
    if not found.is_expected:
        return "this task is not expected"
    missing = sorted(n for n, c in siblings.names.items() if c > siblings.count / 2)
    missing = [name for name in missing if name not in found.names]
    if missing:
        return f"{', '.join(missing)} is missing; other tasks have it"
    if found.lacking:
        return ALONE if found.lacking == ALONE else f"{found.lacking} may not have been written yet"
    if found.proof is Proof.CHECKSUM and not found.is_row:
        return _unlike(found, siblings)  # a link, right in itself, may lead to what is there now
    return _unlike(found, siblings) or _unwritten(found, siblings)


def _unlike(found: Candidate, siblings: CommonTraits) -> str:
    for name, dtype, shape in found.form:
        dtypes, shapes = siblings.dtypes[name], siblings.shapes[name]
        usual, count = dtypes.most_common(1)[0]
        if count >= LEAST_SIBLINGS and count > dtypes.total() / 2 and usual != (dtype, len(shape)):
            return f"{name} has another type than for other tasks"
        _, count = shapes.most_common(1)[0]
        if shapes[shape] == 1 and count > LEAST_SIBLINGS and count == shapes.total() - 1:
            return f"{name} has another shape than for all other tasks"
    return ""


def _unwritten(found: Candidate, siblings: CommonTraits) -> str:
    for name in siblings.lost_parts(found):
        return f"there are zeros where part of {name} should be, as after a lost page"
    if siblings.is_closed or (siblings.is_sound and not found.is_row):
        return ""
    if found.key_fills:
        return f"its {min(found.key_fills)} may not have been written"
    is_any = found.is_row and siblings.has_unwritten
    arrays = {name for name, _, shape in found.form if found.is_row and math.prod(shape) > 1}
    for name in sorted(found.fills if is_any else found.tail | (found.fills & arrays)):
        # The first rows of a table may all be in the making.
        is_alone = found.is_row and siblings.fills[name] < LEAST_SIBLINGS
        if is_alone or not siblings.is_usual(siblings.fills, name):
            return f"{name} is nothing but fill values"
    return ""
