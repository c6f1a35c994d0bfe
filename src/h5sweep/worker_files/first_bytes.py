"""Judge a file by its first bytes and its superblock: in microseconds, without the HDF5 library.

The rules are those by which the HDF5 library opens or refuses a file, so that their verdict can be
had without it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..disk.find_files import RECORDS_SUFFIX
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.headers import CACHE_IMAGE, read_header
from ..hdf5.source import Source
from ..hdf5.superblock import SIGNATURE, Superblock, find_superblock, read_superblock
from . import findings
from .findings import Finding

RECORDS_MAGIC = b"\xabh5r"
HEAD_BYTES = 4096
_REMEMBERED_BYTES = 128
_MOST_REMEMBERED = 4096
_SCAN_BYTES = 1 << 20
_MOST_SCANNED_BYTES = 64 << 20  # a file of terabytes must not keep the others waiting
_LONGEST_NEWBORN = 2048
_STRUCTURES = re.compile(rb"OHDR\x02|TREE[\0\1]|SNOD\x01\0|HEAP\0\0\0\0|FRHP\0|BTHD\0|GCOL\x01")
_SIGNATURES = re.compile(
    rb"OHDR|OCHK|TREE|SNOD|HEAP|GCOL|FRHP|FHDB|FHIB|BTHD|BTIN|BTLF|FSHD|FSSE|[EF]A[HIDS][DB]"
)
_LONGEST_JUNK = 512  # bytes that something else than a writer of HDF5 puts behind a file
_FAMILY = re.compile(r"[-_](\d{4,}|[srbglo])\.\w+$")

# Longer ones first where one begins another.
_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"CDF\x01", "netCDF-3 (classic)"),
    (b"CDF\x02", "netCDF-3 (64-bit offset)"),
    (b"CDF\x05", "netCDF-3 (64-bit data, CDF-5)"),
    (b"\x0e\x03\x13\x01", "HDF4"),
    (b"H\x89FD\n\r\n\x1a", "HDF5 with every two bytes swapped: dd conv=swab swaps them back"),
    (b"GRIB", "GRIB"),
    (b"SIMPLE  =", "FITS"),
    (b"\x1f\x8b", "a gzip file: gunzip it"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x04\x22\x4d\x18", "an lz4 file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"PK\x03\x04", "a zip file, or NumPy's npz"),
    (b"PK\x05\x06", "an empty zip file"),
    (b"\x93NUMPY", "a NumPy array (npy)"),
    (b"version https://git-lfs", "a git-lfs pointer: git lfs pull fetches the file"),
    (b"../.git/annex", "a git-annex pointer"),
    (b"/annex/objects", "a git-annex pointer"),
    (b"GIF8", "a GIF image"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"%PDF", "a PDF"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
    (b"MATLAB 5.0", "a MATLAB file before version 7.3"),
    *((bytes((0x80, protocol)), "a Python pickle") for protocol in (2, 3, 4, 5)),
)
# What the signature becomes in a file that is handled as text: it was chosen to show that.
_RETYPED: tuple[tuple[bytes, str], ...] = (
    (b"\x89HDF\r\r\n\x1a\r\n", "every LF became CR LF"),
    (b"\x89HDF\r\n\x1a\r\n", "every LF became CR LF"),
    (b"\x89HDF\n\x1a\n", "every CR LF became LF"),
    (b"\xc2\x89HDF", "bytes above 127 were read as Latin-1 and written as UTF-8"),
    (b"\xef\xbf\xbdHDF", "bytes that are not UTF-8 were replaced"),
    (b"\xff\xfe\x89\0H\0D\0F\0", "it was written as UTF-16"),
)
_TAR_MAGIC_AT, _TAR_BYTES = 257, 512  # in and of the header before each file of an archive
_LEAST_OLD, _LEAST_NEW = 96, 48  # bytes of a superblock, by its version


class Verdict(NamedTuple):
    """What the first bytes say; `superblock` is None if the rest cannot be read from here."""

    findings: list[Finding]
    superblock: Superblock | None = None


def is_record_file(path: str, source: Source) -> bool:
    """Whether these are our records, by the first bytes or, if those are damaged, by the name."""
    head = source.read(0, min(source.size, len(SIGNATURE)))
    is_named = path.endswith(RECORDS_SUFFIX) and head not in (b"", SIGNATURE)
    return is_named or head.startswith(RECORDS_MAGIC)


class Triage:
    """Judges files, and remembers superblocks in which nothing was wrong.

    The files of one program often have equal superblocks and sizes; then only the bytes at the
    root group are left to be looked at.
    """

    def __init__(self) -> None:
        self._sound: dict[tuple[int, bytes], Superblock] = {}

    def judge(self, source: Source, name: str) -> Verdict:
        head = source.read(0, _REMEMBERED_BYTES) if source.size > _REMEMBERED_BYTES else b""
        known = self._sound.get((source.size, head))
        if known is not None and any(source.read(known.root, 16)):
            return Verdict([], known)
        verdict = judge_bytes(source, name)
        block = verdict.superblock
        if block is not None and not verdict.findings and _is_all_in(block, source.size):
            if len(self._sound) >= _MOST_REMEMBERED:
                self._sound.clear()
            self._sound[source.size, head] = block
        return verdict


def _is_all_in(block: Superblock, size: int) -> bool:
    """Whether nothing beyond the superblock's first bytes and the root had a say in the verdict."""
    is_short = block.start == 0 and block.size <= _REMEMBERED_BYTES
    return is_short and block.end == size and block.root + 16 <= size


def judge_bytes(source: Source, name: str = "") -> Verdict:
    """Say what can be said without listing anything."""
    if not source.size:
        return Verdict([findings.EMPTY.finding()])
    start = find_superblock(source)
    if start is None or (start == _TAR_BYTES and _is_tar(source.read(0, start))):
        return Verdict([_judge_without_signature(source)])
    try:
        block = read_superblock(source, start)
    except Damaged as error:
        cut = _judge_cut(source, start)
        return Verdict([cut or findings.SUPERBLOCK.finding(why=error)])
    return Verdict(_judge_superblock(source, block, name), block)


def _judge_cut(source: Source, start: int) -> Finding | None:
    """What to say of a file that ends within its superblock."""
    size = source.size - start
    version = source.read(start + 8, 1)[0] if size > 8 else 0
    least = _LEAST_NEW if version in (2, 3) else _LEAST_OLD
    if size >= least:
        return None
    why = f"; its superblock alone takes {least:,}"
    return findings.TRUNCATED.finding(missing=least - size, size=size, end=least, why=why)


def _judge_superblock(source: Source, block: Superblock, name: str) -> list[Finding]:
    found = _judge_end(source, block, name)
    if not block.checksum_is_right:
        found.append(findings.SUPERBLOCK_CHECKSUM.finding())
    if block.is_being_written_swmr:
        found.append(findings.NOT_CLOSED_SWMR.finding())
    elif block.is_being_written:
        found.append(findings.NOT_CLOSED.finding())
    elif block.version == 2 and block.flags:
        found.append(findings.OLD_FLAGS.finding(version=block.version))
    return found


def _judge_end(source: Source, block: Superblock, name: str) -> list[Finding]:
    size, end = source.size, block.end
    root = block.start + block.root
    if end > size and size <= block.start + block.size and end <= block.start + _LONGEST_NEWBORN:
        return [findings.NEWBORN.finding(size=size, end=end)]
    found = []
    if end > size:
        why = "; it may be one part of several" if _is_part(name, block) else ""
        found.append(findings.TRUNCATED.finding(missing=end - size, size=size, end=end, why=why))
    if root + 16 <= size and not any(source.read(root, 16)) and not _has_image(source, block):
        found.append(findings.NEVER_FLUSHED.finding(root=root))
    elif end + len(SIGNATURE) <= size and source.read(end, len(SIGNATURE)) == SIGNATURE:
        found.append(findings.JOINED.finding(end=end))
    elif end < size:
        rule = findings.STALE_END if _is_written(source, end) else findings.TRAILING
        found.append(rule.finding(extra=size - end, end=end))
    return found


def _is_written(source: Source, end: int) -> bool:
    """Whether what lies behind the noted end looks like HDF5, and not like padding or a newline."""
    if _is_zero(source, end):
        return False
    size = source.size - end
    is_long = size >= _LONGEST_JUNK
    return is_long or _SIGNATURES.search(source.read(end, size)) is not None


def _has_image(source: Source, block: Superblock) -> bool:
    """Whether the root group may be in an image of the library's cache instead."""
    if block.extension is None:
        return False
    try:
        extension = read_header(Hdf5File(source, block), block.extension)
    except (Damaged, Unsupported):
        return False
    return extension.first(CACHE_IMAGE) is not None


def _is_part(name: str, block: Superblock) -> bool:
    return block.driver is not None or bool(_FAMILY.search(name))


def _is_zero(source: Source, start: int) -> bool:
    """Whether only zeros follow; of a long tail, its beginning and its end are looked at."""
    size = source.size - start
    if size <= _SCAN_BYTES:
        return not any(source.read(start, size))
    ends = (start, source.size - _SCAN_BYTES // 2)
    return not any(any(source.read(at, _SCAN_BYTES // 2)) for at in ends)


def _judge_without_signature(source: Source) -> Finding:
    head = source.read(0, min(source.size, HEAD_BYTES))
    if SIGNATURE.startswith(head) and (cut := _judge_cut(source, 0)) is not None:
        return cut
    if (how := _retyped_how(head)) is not None:
        return findings.RETYPED.finding(how=how)
    matching = sum(a == b for a, b in zip(head, SIGNATURE, strict=False))
    if matching >= 6 and _is_plausible(source, 0):
        return findings.SIGNATURE.finding(wrong=8 - matching)
    known = _name_magic(head)
    offset = head.find(SIGNATURE)
    if known is None and offset > 0 and _is_plausible(source, offset):
        return findings.SHIFTED.finding(offset=offset)
    if known is None and (lost := _find_structure(source)) is not None:
        return findings.SUPERBLOCK_LOST.finding(signature=lost[0], offset=lost[1])
    return findings.NOT_HDF5.finding(what=known or _describe(source, head))


def _retyped_how(head: bytes) -> str | None:
    """How the bytes were changed by something that took them for text."""
    for start, how in _RETYPED:
        if head.startswith(start):
            return how
    if head[1:8] == SIGNATURE[1:] and head.isascii():
        return "bytes above 127 lost their eighth bit, or were replaced"
    return None


def _is_plausible(source: Source, start: int) -> bool:
    try:
        read_superblock(source, start)
    except Damaged:
        return False
    return True


def _name_magic(head: bytes) -> str | None:
    for magic, what in _MAGICS:
        if head.startswith(magic):
            return what
    if _is_tar(head):
        return "a tar archive: tar -xf extracts its files"
    start = head[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page (HTML): a download that failed"
    return "XML" if start.startswith(b"<?xml") else None


def _is_tar(head: bytes) -> bool:
    return head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar"


def _find_structure(source: Source) -> tuple[str, int] | None:
    """The first structure of HDF5 near the file's start, by its signature and what is behind it."""
    overlap = 16
    for start in range(0, min(source.size, _MOST_SCANNED_BYTES), _SCAN_BYTES):
        data = source.read(start, min(_SCAN_BYTES + overlap, source.size - start))
        for match in _STRUCTURES.finditer(data):
            if _is_structure(data, match.start()):
                return match[0][:4].decode(), start + match.start()
    return None


def _is_structure(data: bytes, place: int) -> bool:
    """Whether more than four letters speak for it: such letters occur in any text."""
    after = data[place + 4 : place + 16]
    if len(after) < 12:
        return False
    signature = data[place : place + 4]
    if signature == b"TREE":
        return after[0] <= 1 and after[1] < 8
    if signature == b"SNOD":
        return after[:2] == b"\1\0"
    if signature == b"OHDR":
        return after[0] == 2 and not after[1] & 0xC0
    return True


def _describe(source: Source, head: bytes) -> str:
    if not any(head):
        return "nothing but zeros" if _is_zero(source, 0) else "not HDF5: it begins with zeros"
    sample = head[:512]
    try:
        text = sample.decode("utf-8", "strict" if len(head) <= 512 else "ignore")
    except UnicodeDecodeError:
        return "not HDF5, nor any other format known here"
    is_text = all(letter.isprintable() or letter in "\r\n\t\f" for letter in text)
    if not is_text or len(text) < 0.9 * len(sample):
        return "not HDF5, nor any other format known here"
    return "JSON" if text.lstrip()[:1] in ("{", "[") else "text"
