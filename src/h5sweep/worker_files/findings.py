"""Everything a check can say about a file: one code, one sentence and one next step each.

`docs/findings.md` is made from this table by `python docs/make_findings.py`. A code is never given
to another finding, and a finding never gets another code: scripts depend on them.

    D1xx  the file as a whole      D4xx  what a worker left in it
    D2xx  its structure            D5xx  h5sweep's own files
    D3xx  its data                 N6xx  worth knowing, no damage
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The states of a file, the worst first."""

    DAMAGED = "damaged"
    EMPTY = "empty"
    NOT_HDF5 = "not-hdf5"
    LIVE = "live"
    SOUND = "sound"


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a check can find: its code and name never change."""

    code: str
    name: str
    state: State  # what a file with this finding is at least; SOUND for a mere note
    sentence: str
    next: str
    example: str

    def finding(self, **facts: object) -> Finding:
        """This finding of one file; `facts` fill the sentence."""
        message = self.sentence.format(**facts)
        return Finding(self.code, self.name, self.state, message, self.next)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in one file."""

    code: str
    name: str
    state: State
    message: str
    next: str


KEEP = "keep the file: `h5sweep salvage` recovers what is intact in it"
RERUN = "it holds nothing to recover: run its tasks again"
READ = "h5sweep merge and h5sweep salvage read it as it is"

_ALL: dict[str, Rule] = {}


def _rule(
    title: str, sentence: str, example: str, next_: str = "", state: State | None = None
) -> Rule:
    """A finding of this code and name: damage to be kept for salvage, or a note, unless said."""
    code, _, name = title.partition(" ")
    assert code not in _ALL  # a code belongs to one finding for ever
    is_note = code.startswith("N")
    usual, usually_next = (State.SOUND, "nothing") if is_note else (State.DAMAGED, KEEP)
    _ALL[code] = rule = Rule(code, name, state or usual, sentence, next_ or usually_next, example)
    return rule


EMPTY = _rule(
    "D101 empty",
    "0 bytes; its process died before its first write",
    "touch worker_1.h5",
    RERUN,
    state=State.EMPTY,
)
NOT_HDF5 = _rule(
    "D102 not-hdf5",
    "this is {what}",
    "a git-lfs pointer, or a web page, saved as worker_1.h5",
    "find the HDF5 file that should be here; nothing was read from this one",
    state=State.NOT_HDF5,
)
SIGNATURE = _rule(
    "D103 signature-damaged",
    "wrong bytes in the signature: {wrong} of 8; the superblock after them is plausible",
    "the first byte of a file was changed",
    "on a copy, write 89 48 44 46 0d 0a 1a 0a over its first 8 bytes; keep the original",
)
SUPERBLOCK_LOST = _rule(
    "D104 superblock-lost",
    "no superblock, but HDF5 structures ({signature} at {offset:,})",
    "the first 512 bytes of a file were zeroed",
)
NEWBORN = _rule(
    "D105 newborn",
    "only a superblock: eof = {size}, stored_eof = {end}; its process died before its first flush",
    "a writer was killed right after it had created the file",
    RERUN,
)
NEVER_FLUSHED = _rule(
    "D106 never-flushed",
    "zeros where the root group should be, at {root:,}: the file was never flushed",
    "a writer that never called flush() was killed",
    "run its tasks again; the file may hold raw values, but no names",
)
NOT_CLOSED = _rule(
    "D107 not-closed",
    "its writer did not close it",
    "a writer with libver='latest' was killed",
    READ,
)
NOT_CLOSED_SWMR = _rule(
    "D108 not-closed-swmr",
    "its SWMR writer did not close it",
    "a writer in SWMR mode was killed",
    READ,
)
TRUNCATED = _rule(
    "D109 truncated",
    "it has {size:,} of {end:,} bytes: {missing:,} missing{why}",
    "half a file was copied",
    "if it was copied here, copy it again; otherwise " + KEEP,
)
STALE_END = _rule(
    "D110 stale-end",
    "{extra:,} bytes lie after the end of file that the superblock gives, at {end:,}",
    "a writer was killed while the file grew",
)
SUPERBLOCK_CHECKSUM = _rule(
    "D111 superblock-checksum",
    "the superblock has a wrong checksum",
    "a bit of the superblock was flipped",
)
SUPERBLOCK = _rule(
    "D112 superblock-damaged",
    "the superblock is damaged: {why}",
    "the version number of the superblock was changed",
)
UNREADABLE = _rule(
    "D113 unreadable",
    "it cannot be read: {why}",
    "chmod 000 worker_1.h5",
    "check its permissions and the disk; its content is unknown",
)
RETYPED = _rule(
    "D114 copied-as-text",
    "it was copied as text, which changed its bytes: {how}",
    "FTP in text mode turned every LF into CR LF",
    "copy it again as binary; this copy cannot be repaired",
)
SHIFTED = _rule(
    "D115 shifted",
    "{offset:,} bytes were put before its signature, where no HDF5 reader looks for it",
    "a download was saved with the lines that its server sent first",
    "on a copy, delete the bytes before the signature; keep the original",
)
JOINED = _rule(
    "D116 joined",
    "another HDF5 file begins where this one ends, at {end:,}; HDF5 readers do not see it",
    "cat worker_1.h5 worker_2.h5 > all.h5",
    "cut a copy in two there; keep the original",
)

ROOT = _rule(
    "D201 root-unlistable",
    "the root group cannot be listed: {why}",
    "a writer was killed while it flushed a new group",
)
METADATA_CHECKSUM = _rule(
    "D202 metadata-checksum",
    "{where}: {why}",
    "a bit of an object header was flipped, in a file with checksums",
)
METADATA = _rule(
    "D203 metadata-damaged", "{where}: {why}", "a heap was overwritten, in a file without checksums"
)
LIBRARY_REFUSES = _rule(
    "D204 library-refuses", "{where}: the HDF5 library says: {why}", "an impossible datatype"
)
LIBRARY_KILLED = _rule(
    "D205 kills-library",
    "it kills the HDF5 library ({why})",
    "a file made to crash its reader",
    "do not open it in your own programs; " + KEEP,
)
LIBRARY_HANGS = _rule(
    "D206 hangs-library",
    "it hangs the HDF5 library: no answer within {limit_s:g} s",
    "a heap whose free blocks form a loop",
    "do not open it in your own programs; " + KEEP,
)
LIBRARY_MEMORY = _rule(
    "D207 exhausts-memory",
    "the HDF5 library asks for more than {limit} of memory to read it",
    "an overwritten count of elements",
    "do not open it in your own programs; " + KEEP,
)

CHUNK_STALE = _rule(
    "D301 chunk-stale-size",
    "{where}: the chunk of {size:,} bytes at {address:,} continues beyond that size",
    "a compressed chunk grew, and its writer was killed before its index was written",
)
CHUNK_MOVED = _rule(
    "D302 chunk-moved",
    "{where}: no compressed data at {address:,}, where a chunk should be",
    "a compressed chunk was moved, and its writer was killed before its index was written",
)
CHUNK_FILTER = _rule(
    "D303 chunk-damaged",
    "{where}: a chunk at {address:,} cannot be read: {why}",
    "a byte of a compressed chunk was changed",
)
CHUNK_BEYOND = _rule(
    "D304 chunk-beyond-end",
    "{where}: chunks beyond the end of the file: {count:,}, the first at {address:,}",
    "a file with chunks was cut short",
)
DATA_SHORT = _rule(
    "D305 data-short",
    "{where}: rows {first:,} to {last:,} are in no chunk and read as fill values",
    "a row was appended to every column, but the index of one was not written",
)
DATA_BEYOND = _rule(
    "D306 data-beyond-end",
    "{where}: its last {missing:,} bytes are beyond the end of the file",
    "a file with contiguous data was cut short",
)

INIT_ONLY = _rule(
    "D401 init-only",
    "it has only a dataset `init`: its worker died before its first task",
    "a worker that writes `init` first was killed in its first task",
    RERUN,
    state=State.EMPTY,
)
REQUIRED = _rule(
    "D402 required-missing",
    "it has no dataset {names}",
    "h5sweep check --require aep on a file without it",
)
UNEQUAL = _rule(
    "D403 unequal-lengths",
    "columns of unequal length, {lengths}: a row was being appended",
    "a writer was killed between two columns",
    "take only the rows that all columns have",
)
BOGUS_TAIL = _rule(
    "D404 bogus-tail",
    "rows {first:,} to {last:,} are fill values in every column: allocated, but never written",
    "a writer was killed after it had made room for a row",
    "leave these rows out",
)

RECORDS_DAMAGED = _rule(
    "D501 records-damaged",
    "damaged records: {count:,}, the first at {offset:,}",
    "a byte of a record was changed",
    "start the run again: it repeats their tasks",
)
OUTPUT_ROWS = _rule(
    "D502 row-checksum",
    "rows that differ from what was written: {count:,}, the first of task {task}",
    "a value in an output was changed",
    "h5sweep merge OUTPUT rebuilds it from its run folder; run computes what that folder lacks",
)
PLAN = _rule(
    "D503 plan-damaged",
    "{why}",
    "a byte of plan.jsonl was changed",
    "move the plan away and start the run again: the records hold the keys too",
)
OUTPUT_BEHIND = _rule(
    "D504 output-incomplete",
    "results in its run folder that it lacks: {count:,}",
    "a run was killed before its merge",
    "h5sweep merge OUTPUT rebuilds it",
    state=State.SOUND,
)

LIVE = _rule(
    "N601 live",
    "being written by {who}; not opened",
    "a writer has the file open",
    "wait until its writer has ended",
    state=State.LIVE,
)
FILTER = _rule(
    "N602 unsupported-filter",
    "{where}: needs filter {number}{named}",
    "a dataset compressed with zstd",
    "this is not damage: open it where that filter is installed",
)
FEATURE = _rule(
    "N603 unsupported-feature",
    "{where}: {why}",
    "a file with a metadata cache image",
    "this is not damage: only part of the file was checked",
)
OLD_FLAGS = _rule(
    "N604 old-flags",
    "flags of version 3 in a superblock of version {version}, where they mean nothing",
    "an old file that was written to and not closed",
)
HUGE = _rule(
    "N605 huge-shape",
    "{where}: its shape is {shape} with {stored} stored, more than a file of this size can hold",
    "a sparse dataset of 2**61 elements",
    "this is not damage, but nothing so large is merged: leave it out with --skip and its name",
)
TRAILING = _rule(
    "N606 trailing-bytes",
    "{extra:,} bytes after the end of the file belong to nothing",
    "a file that was padded, or to which a newline was added",
)
LENGTHS = _rule(
    "N607 lengths-differ",
    "datasets of different lengths, {lengths}",
    "two independent series in one file",
    "if they are columns of one table, --require checks that their lengths are equal",
)
LINKS_OUT = _rule(
    "N608 links-out",
    "links to other files: {count:,}",
    "a file of external links",
    "the links were not followed: check those files too",
)
NOT_READ = _rule("N609 not-read", "{where}: {why}", "a chunk of several gigabytes")
TORN_TAIL = _rule(
    "N610 torn-tail",
    "{size:,} bytes of a record that was being written",
    "a worker was killed while it wrote a record",
    "nothing: its task counts as not done",
)
LIBRARY_ABSENT = _rule(
    "N611 library-absent",
    "the HDF5 library did not look at it: its process did not start ({why})",
    "a container that allows no child processes",
    "nothing: this says nothing about the file, which h5sweep's own reader has read",
)

RULES = tuple(_ALL.values())


def by_weight(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, and within a state what says most."""
    order = list(State)
    return tuple(sorted(found, key=lambda f: (order.index(f.state), _SAYS_LESS.get(f.code, 0))))


# What is wrong in one place says less than what is wrong with all, and a stale end least.
_SAYS_LESS = {METADATA_CHECKSUM.code: 1, METADATA.code: 1, LIBRARY_REFUSES.code: 1}
_SAYS_LESS |= {STALE_END.code: 2}


def state_of(findings: tuple[Finding, ...]) -> State:
    """The state of a file with these findings: that of the worst."""
    if not findings:
        return State.SOUND
    states = {finding.state for finding in findings}
    if State.LIVE in states:
        return State.LIVE  # what is read of a file that is being written says nothing
    return next((state for state in State if state in states), State.SOUND)


# What these say is in the superblock alone; whether anything was lost, the rest of the file shows.
NOT_CLOSED_CODES = frozenset(rule.code for rule in (NOT_CLOSED, NOT_CLOSED_SWMR))
_SAYS_LESS |= dict.fromkeys(NOT_CLOSED_CODES, 3)
# Each record stands for itself: what is damaged costs one result, and a merge takes the others.
_TAKEN = NOT_CLOSED_CODES | {RECORDS_DAMAGED.code}
# No damage, but a merge would leave something out.
_UNREAD = frozenset(rule.code for rule in (FEATURE, HUGE, LINKS_OUT))


def against_merging(findings: Iterable[Finding]) -> list[Finding]:
    """Why a file with these findings cannot be merged as it is; nothing if it can."""
    return [
        f
        for f in findings
        if f.code in _UNREAD or (f.state is not State.SOUND and f.code not in _TAKEN)
    ]


def unmergeable_text(bad: int, total: int) -> str:
    """What `check` and `merge` say of files that cannot be merged: the same count and words."""
    they = "it is" if bad == 1 == total else "they are"
    return f"{bad:,} of {total:,} {'file' if total == 1 else 'files'} cannot be merged as {they}"
