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


def _rule(code: str, name: str, state: State, sentence: str, next_: str, example: str) -> Rule:
    assert code not in _ALL  # a code belongs to one finding for ever
    _ALL[code] = rule = Rule(code, name, state, sentence, next_, example)
    return rule


_D, _E, _X, _L, _S = State.DAMAGED, State.EMPTY, State.NOT_HDF5, State.LIVE, State.SOUND

EMPTY = _rule(
    "D101",
    "empty",
    _E,
    "0 bytes; its process died before its first write",
    RERUN,
    "touch worker_1.h5",
)
NOT_HDF5 = _rule(
    "D102",
    "not-hdf5",
    _X,
    "this is {what}",
    "find the HDF5 file that should be here; nothing was read from this one",
    "a git-lfs pointer, or a web page, saved as worker_1.h5",
)
SIGNATURE = _rule(
    "D103",
    "signature-damaged",
    _D,
    "wrong bytes in the signature: {wrong} of 8; the superblock after them is plausible",
    "on a copy, write 89 48 44 46 0d 0a 1a 0a over its first 8 bytes; keep the original",
    "the first byte of a file was changed",
)
SUPERBLOCK_LOST = _rule(
    "D104",
    "superblock-lost",
    _D,
    "no superblock, but HDF5 structures ({signature} at {offset:,})",
    KEEP,
    "the first 512 bytes of a file were zeroed",
)
NEWBORN = _rule(
    "D105",
    "newborn",
    _D,
    "only a superblock: eof = {size}, stored_eof = {end}; its process died before its first flush",
    RERUN,
    "a writer was killed right after it had created the file",
)
NEVER_FLUSHED = _rule(
    "D106",
    "never-flushed",
    _D,
    "zeros where the root group should be, at {root:,}: the file was never flushed",
    "run its tasks again; the file may hold raw values, but no names",
    "a writer that never called flush() was killed",
)
NOT_CLOSED = _rule(
    "D107",
    "not-closed",
    _D,
    "its writer did not close it",
    READ,
    "a writer with libver='latest' was killed",
)
NOT_CLOSED_SWMR = _rule(
    "D108",
    "not-closed-swmr",
    _D,
    "its SWMR writer did not close it",
    READ,
    "a writer in SWMR mode was killed",
)
TRUNCATED = _rule(
    "D109",
    "truncated",
    _D,
    "it has {size:,} of {end:,} bytes: {missing:,} missing{why}",
    "if it was copied here, copy it again; otherwise " + KEEP,
    "half a file was copied",
)
STALE_END = _rule(
    "D110",
    "stale-end",
    _D,
    "{extra:,} bytes lie after the end of file that the superblock gives, at {end:,}",
    KEEP,
    "a writer was killed while the file grew",
)
SUPERBLOCK_CHECKSUM = _rule(
    "D111",
    "superblock-checksum",
    _D,
    "the superblock has a wrong checksum",
    KEEP,
    "a bit of the superblock was flipped",
)
SUPERBLOCK = _rule(
    "D112",
    "superblock-damaged",
    _D,
    "the superblock is damaged: {why}",
    KEEP,
    "the version number of the superblock was changed",
)
UNREADABLE = _rule(
    "D113",
    "unreadable",
    _D,
    "it cannot be read: {why}",
    "check its permissions and the disk; its content is unknown",
    "chmod 000 worker_1.h5",
)
RETYPED = _rule(
    "D114",
    "copied-as-text",
    _D,
    "it was copied as text, which changed its bytes: {how}",
    "copy it again as binary; this copy cannot be repaired",
    "FTP in text mode turned every LF into CR LF",
)
SHIFTED = _rule(
    "D115",
    "shifted",
    _D,
    "{offset:,} bytes were put before its signature, where no HDF5 reader looks for it",
    "on a copy, delete the bytes before the signature; keep the original",
    "a download was saved with the lines that its server sent first",
)
JOINED = _rule(
    "D116",
    "joined",
    _D,
    "another HDF5 file begins where this one ends, at {end:,}; HDF5 readers do not see it",
    "cut a copy in two there; keep the original",
    "cat worker_1.h5 worker_2.h5 > all.h5",
)

ROOT = _rule(
    "D201",
    "root-unlistable",
    _D,
    "the root group cannot be listed: {why}",
    KEEP,
    "a writer was killed while it flushed a new group",
)
METADATA_CHECKSUM = _rule(
    "D202",
    "metadata-checksum",
    _D,
    "{where}: {why}",
    KEEP,
    "a bit of an object header was flipped, in a file with checksums",
)
METADATA = _rule(
    "D203",
    "metadata-damaged",
    _D,
    "{where}: {why}",
    KEEP,
    "a heap was overwritten, in a file without checksums",
)
LIBRARY_REFUSES = _rule(
    "D204",
    "library-refuses",
    _D,
    "{where}: the HDF5 library says: {why}",
    KEEP,
    "an impossible datatype",
)
LIBRARY_KILLED = _rule(
    "D205",
    "kills-library",
    _D,
    "it kills the HDF5 library ({why})",
    "do not open it in your own programs; " + KEEP,
    "a file made to crash its reader",
)
LIBRARY_HANGS = _rule(
    "D206",
    "hangs-library",
    _D,
    "it hangs the HDF5 library: no answer within {limit_s:g} s",
    "do not open it in your own programs; " + KEEP,
    "a heap whose free blocks form a loop",
)
LIBRARY_MEMORY = _rule(
    "D207",
    "exhausts-memory",
    _D,
    "the HDF5 library asks for more than {limit} of memory to read it",
    "do not open it in your own programs; " + KEEP,
    "an overwritten count of elements",
)

CHUNK_STALE = _rule(
    "D301",
    "chunk-stale-size",
    _D,
    "{where}: the chunk of {size:,} bytes at {address:,} continues beyond that size",
    KEEP,
    "a compressed chunk grew, and its writer was killed before its index was written",
)
CHUNK_MOVED = _rule(
    "D302",
    "chunk-moved",
    _D,
    "{where}: no compressed data at {address:,}, where a chunk should be",
    KEEP,
    "a compressed chunk was moved, and its writer was killed before its index was written",
)
CHUNK_FILTER = _rule(
    "D303",
    "chunk-damaged",
    _D,
    "{where}: a chunk at {address:,} cannot be read: {why}",
    KEEP,
    "a byte of a compressed chunk was changed",
)
CHUNK_BEYOND = _rule(
    "D304",
    "chunk-beyond-end",
    _D,
    "{where}: chunks beyond the end of the file: {count:,}, the first at {address:,}",
    KEEP,
    "a file with chunks was cut short",
)
DATA_SHORT = _rule(
    "D305",
    "data-short",
    _D,
    "{where}: rows {first:,} to {last:,} are in no chunk and read as fill values",
    KEEP,
    "a row was appended to every column, but the index of one was not written",
)
DATA_BEYOND = _rule(
    "D306",
    "data-beyond-end",
    _D,
    "{where}: its last {missing:,} bytes are beyond the end of the file",
    KEEP,
    "a file with contiguous data was cut short",
)

INIT_ONLY = _rule(
    "D401",
    "init-only",
    _E,
    "it has only a dataset `init`: its worker died before its first task",
    RERUN,
    "a worker that writes `init` first was killed in its first task",
)
REQUIRED = _rule(
    "D402",
    "required-missing",
    _D,
    "it has no dataset {names}",
    KEEP,
    "h5sweep check --require aep on a file without it",
)
UNEQUAL = _rule(
    "D403",
    "unequal-lengths",
    _D,
    "columns of unequal length, {lengths}: a row was being appended",
    "take only the rows that all columns have",
    "a writer was killed between two columns",
)
BOGUS_TAIL = _rule(
    "D404",
    "bogus-tail",
    _D,
    "rows {first:,} to {last:,} are fill values in every column: allocated, but never written",
    "leave these rows out",
    "a writer was killed after it had made room for a row",
)

RECORDS_DAMAGED = _rule(
    "D501",
    "records-damaged",
    _D,
    "damaged records: {count:,}, the first at {offset:,}",
    "start the run again: it repeats their tasks",
    "a byte of a record was changed",
)
OUTPUT_ROWS = _rule(
    "D502",
    "row-checksum",
    _D,
    "rows that differ from what was written: {count:,}, the first of task {task}",
    "h5sweep merge OUTPUT rebuilds it from its run folder; run computes what that folder lacks",
    "a value in an output was changed",
)
PLAN = _rule(
    "D503",
    "plan-damaged",
    _D,
    "{why}",
    "move the plan away and start the run again: the records hold the keys too",
    "a byte of plan.jsonl was changed",
)
OUTPUT_BEHIND = _rule(
    "D504",
    "output-incomplete",
    _S,
    "results in its run folder that it lacks: {count:,}",
    "h5sweep merge OUTPUT rebuilds it",
    "a run was killed before its merge",
)

LIVE = _rule(
    "N601",
    "live",
    _L,
    "being written by {who}; not opened",
    "wait until its writer has ended",
    "a writer has the file open",
)
FILTER = _rule(
    "N602",
    "unsupported-filter",
    _S,
    "{where}: needs filter {number}{named}",
    "this is not damage: open it where that filter is installed",
    "a dataset compressed with zstd",
)
FEATURE = _rule(
    "N603",
    "unsupported-feature",
    _S,
    "{where}: {why}",
    "this is not damage: only part of the file was checked",
    "a file with a metadata cache image",
)
OLD_FLAGS = _rule(
    "N604",
    "old-flags",
    _S,
    "flags of version 3 in a superblock of version {version}, where they mean nothing",
    "nothing",
    "an old file that was written to and not closed",
)
HUGE = _rule(
    "N605",
    "huge-shape",
    _S,
    "{where}: its shape is {shape} with {stored} stored, more than a file of this size can hold",
    "this is not damage, but nothing so large is merged: leave it out with --skip and its name",
    "a sparse dataset of 2**61 elements",
)
TRAILING = _rule(
    "N606",
    "trailing-bytes",
    _S,
    "{extra:,} bytes after the end of the file belong to nothing",
    "nothing",
    "a file that was padded, or to which a newline was added",
)
LENGTHS = _rule(
    "N607",
    "lengths-differ",
    _S,
    "datasets of different lengths, {lengths}",
    "if they are columns of one table, --require checks that their lengths are equal",
    "two independent series in one file",
)
LINKS_OUT = _rule(
    "N608",
    "links-out",
    _S,
    "links to other files: {count:,}",
    "the links were not followed: check those files too",
    "a file of external links",
)
NOT_READ = _rule(
    "N609", "not-read", _S, "{where}: {why}", "nothing", "a chunk of several gigabytes"
)
TORN_TAIL = _rule(
    "N610",
    "torn-tail",
    _S,
    "{size:,} bytes of a record that was being written",
    "nothing: its task counts as not done",
    "a worker was killed while it wrote a record",
)
LIBRARY_ABSENT = _rule(
    "N611",
    "library-absent",
    _S,
    "the HDF5 library did not look at it: its process did not start ({why})",
    "nothing: this says nothing about the file, which h5sweep's own reader has read",
    "a container that allows no child processes",
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
