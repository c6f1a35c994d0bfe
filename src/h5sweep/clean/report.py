"""What is safe to remove and what was done with it, as data, text or JSON. Prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.safe_text import json_text, printable
from ..base.static_html import ShownAsText
from ..base.units import command_text, count_text, size_text
from .quarantine import Item, Moved, Quarantine, QuarantineStage

SCHEMA = "h5sweep.clean/1"
MOST_LINES = 8  # files shown of one kind, unless all are wanted


@dataclass(frozen=True)
class Kept:
    """A file that stays where it is."""

    path: Path
    why: str


@dataclass(frozen=True)
class CleanReport(ShownAsText):
    """What is safe to remove, what is not, and why."""

    output: Path
    removable: tuple[Item, ...]
    refused: tuple[Item, ...]  # not merged, or by salvage: moved if somebody names them
    kept: tuple[Kept, ...]
    gone: int  # files of the audit trail that are no longer there
    quarantines: tuple[Quarantine, ...]
    notes: tuple[str, ...]
    moved: Moved | None = None  # None if nothing was to be moved

    @property
    def removable_bytes(self) -> int:
        return sum(item.size_bytes for item in self.removable)

    @property
    def is_unfinished(self) -> bool:
        """Whether a kill has left files on their way into a quarantine."""
        return any(one.stage is QuarantineStage.MOVING for one in self.quarantines)

    def __str__(self) -> str:
        return clean_text(self).rstrip("\n")


@dataclass(frozen=True)
class Purged:
    """What was deleted for good; `left` is still there."""

    name: str
    files: int
    freed_bytes: int
    left: tuple[Item, ...] = ()


def clean_text(report: CleanReport, *, show_all: bool = False) -> str:
    """What `h5sweep clean` shows: what may go, what may go if it is named, what stays and why."""
    most = None if show_all else MOST_LINES
    lines = [f"note: {note}" for note in report.notes]
    if report.removable:
        count, size = count_text(len(report.removable), "file"), size_text(report.removable_bytes)
        are = "is" if len(report.removable) == 1 else "are"
        lines.append(
            f"{count} {are} safe to remove ({size}); every result was read back from the output"
        )
        lines += _shown([_item_text(item, item.reason) for item in report.removable], most)
    else:
        lines.append("nothing is safe to remove")
    if report.refused:
        count = count_text(len(report.refused), "file")
        lines.append(f"{count} damaged or not merged: moved only if named with --also")
        lines += _shown([_item_text(item, item.why) for item in report.refused], most)
    if report.kept:
        are = "is" if len(report.kept) == 1 else "are"
        lines.append(f"{count_text(len(report.kept), 'file')} {are} kept")
        lines += _shown([f"{_shortest(kept.path)}  {kept.why}" for kept in report.kept], most)
    if report.gone:
        exist = "exists" if report.gone == 1 else "exist"
        lines.append(f"{count_text(report.gone, 'file')} in the audit trail no longer {exist}")
    lines += [quarantine_text(one) for one in report.quarantines]
    return "\n".join(lines) + "\n"


def quarantine_text(one: Quarantine) -> str:
    """A quarantine in one line."""
    inside = one.items_inside()
    ends = {QuarantineStage.MOVING: "; not finished", QuarantineStage.PURGING: "; being deleted"}
    count, size = count_text(len(inside), "file"), size_text(one.size_bytes)
    return f"in quarantine {one.name}: {count}, {size}{ends.get(one.stage, '')}"


def next_text(report: CleanReport) -> str:
    """The command that comes next."""
    output = report.output
    if report.removable or report.is_unfinished:
        them = "it" if len(report.removable) == 1 else "them"
        move = command_text("clean", output, "--yes")
        return f"nothing was changed; next: {move} moves {them} to quarantine"
    if report.quarantines:
        name = report.quarantines[0].name
        delete = command_text("clean", output, "--purge", name)
        return f"next: {delete} deletes it for good; --restore {name} puts it back"
    if report.refused:
        move = command_text("clean", output, "--also", _shortest(report.refused[0].path), "--yes")
        return f"next: {move} moves it out of the way"
    return "nothing was changed" if report.kept else "nothing to do"


def held_texts(paths: Iterable[Path], where: str = "there") -> list[str]:
    """What to do about files in folders that may not be written, one line a folder."""
    counts = Counter(path.parent for path in paths)
    return [
        f"{_shortest(folder)} is not writable: {count_text(count, 'file')} left {where}; "
        "next: make it writable and run the same command again"
        for folder, count in counts.items()
    ]


def outside_texts(output: Path, name: str | None, paths: Iterable[Path]) -> list[str]:
    """What to do about files that go back only to a folder that somebody names, a line for each."""
    counts = Counter(path.parent for path in paths)
    names = [] if name is None else [name]
    return [
        f"{count_text(count, 'file')} left in quarantine: only you can allow writing to {folder}; "
        f"next: {command_text('clean', output, '--restore', *names, '--to', folder)}"
        for folder, count in counts.items()
    ]


def report_json(report: CleanReport) -> str:
    """One JSON object: every file in full."""
    moved = report.moved or Moved(None)
    about = {
        "schema": SCHEMA,
        "output": str(report.output),
        "removable": [_item_json(item) for item in report.removable],
        "removable_bytes": report.removable_bytes,
        "refused": [_item_json(item) for item in report.refused],
        "kept": [{"path": str(kept.path), "why": kept.why} for kept in report.kept],
        "gone": report.gone,
        "quarantines": [_quarantine_json(one) for one in report.quarantines],
        "moved_to": None if moved.quarantine is None else _quarantine_json(moved.quarantine),
        "held": [str(path) for path in moved.held],
        "notes": list(report.notes),
    }
    return json_text(about, indent=1)


def _item_json(item: Item) -> dict[str, Any]:
    return {
        "path": str(item.path),
        "kind": item.reason.value,
        "bytes": item.size_bytes,
        "xxh3": item.xxh3,
        "why": item.why,
    }


def _quarantine_json(one: Quarantine) -> dict[str, Any]:
    inside = one.items_inside()
    return {
        "name": one.name,
        "path": str(one.path),
        "stage": one.stage.value,
        "files": len(inside),
        "bytes": one.size_bytes,
    }


def _item_text(item: Item, why: str) -> str:
    return f"{_shortest(item.path)}  {size_text(item.size_bytes)}, {why}"


def _shortest(path: Path) -> Path:
    """The path as somebody here would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _shown(texts: Iterable[str], most: int | None) -> Iterator[str]:
    texts = list(texts)
    shown = texts if most is None or len(texts) <= most else texts[: most - 1]
    yield from (f"  {printable(text, breaks='')}" for text in shown)
    if len(shown) < len(texts):
        yield f"  … and {len(texts) - len(shown):,} more (--all shows them)"
