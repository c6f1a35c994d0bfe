"""Record files and what was found in them, and which are safe to remove, as `clean` says."""

from __future__ import annotations

from pathlib import Path

from ..base.units import command_text, count_text, size_text
from ..clean.removable_files import find_removable
from ..clean.report import CleanReport, next_text
from ..errors import SweepError
from ..runfolder.audit import AuditInput, Refused, read_audit
from ..runfolder.layout import RunFolder
from ..runner.status import Status
from ..state.state import FolderState
from .html import Section, code, esc, table

MOST_TASKS, MOST_BYTES = 20_000, 64_000_000  # that are compared with the output for this
MOST_ROWS = 100


def file_section(folder: RunFolder, state: FolderState, status: Status) -> Section | None:
    """None if there are no files that results came from."""
    merged = _merged_files(folder)
    found = _findings(state)
    states = dict.fromkeys(map(Path.absolute, state.paths), "sound")
    states |= {Path(one.path): _state_text(one) for one in merged} | found
    if not states:
        return None
    judged, note = _judged(folder, state, status, merged)
    there = [path for path in states if path in judged or path.exists()]
    ordered = sorted(there, key=lambda path: (states[path] == "sound", path))
    rows = [
        [code(path.name), *_size(path), esc(states[path])]
        + ([esc(judged.get(path, ""))] if judged else [])
        for path in ordered[:MOST_ROWS]
    ]
    heads = ["file", "size", "state", *(["safe to remove?"] if judged else [])]
    body = table(heads, rows, "Worker files")
    if len(ordered) > MOST_ROWS:
        body += f"<p>… and {count_text(len(ordered) - MOST_ROWS, 'more file')}.</p>"
    return Section("files", "Worker files", body, note)


def _merged_files(folder: RunFolder) -> list[AuditInput | Refused]:
    """The files of other programs that merges have met, as the last of these found them."""
    ours = f"/{folder.records_path.name}/"
    found: dict[str, AuditInput | Refused] = {}
    for entry in read_audit(folder.output).entries:
        files: list[AuditInput | Refused] = [*entry.inputs, *entry.refused]
        theirs = [one for one in files if ours not in one.path and one.path != entry.output]
        found |= {one.path: one for one in theirs}
    return list(found.values())


def _state_text(one: AuditInput | Refused) -> str:
    return ", ".join([one.state, *one.findings])


def _size(path: Path) -> list[str]:
    try:
        return [esc(size_text(path.stat().st_size))]
    except OSError:
        return [""]


def _findings(state: FolderState) -> dict[Path, str]:
    """What is wrong with each file that something is wrong with."""
    found: dict[Path, list[str]] = {}
    for path in state.unreadable:
        found.setdefault(path, []).append("unreadable beginning")
    for damage in state.damages:
        what = damage.refusal or damage.what
        found.setdefault(damage.path, []).append(
            f"{damage.size_bytes:,} bytes at {damage.offset:,} are damaged ({what})"
        )
    return {path.absolute(): "; ".join(texts[:3]) for path, texts in found.items()}


def _judged(
    folder: RunFolder, state: FolderState, status: Status, merged: list[AuditInput | Refused]
) -> tuple[dict[Path, str], str]:
    """What `clean` says of each file, and what to type; it proves that now."""
    clean = command_text("clean", folder.output)
    if status.is_active is not False:
        return {}, f"A run is or may be active: {clean} says later which are safe to remove."
    if not folder.output.exists():
        return {}, "None is safe to remove: there is no output yet."
    if state.results > MOST_TASKS or not _is_cheap(state, merged):
        return {}, f"{clean} compares them with the output and says which are safe to remove."
    try:
        report = find_removable(folder.output)
    except (SweepError, OSError) as error:
        return {}, f"{clean} says which are safe to remove ({error})."
    return _verdicts(report), _note(report)


def _is_cheap(state: FolderState, merged: list[AuditInput | Refused]) -> bool:
    """Whether `clean` would read little."""
    size_bytes = sum(path.stat().st_size for path in state.paths)
    return size_bytes + sum(one.size_bytes for one in merged) <= MOST_BYTES


def _verdicts(report: CleanReport) -> dict[Path, str]:
    verdicts = {item.path: f"yes: {item.reason}" for item in report.removable}
    verdicts |= {item.path: f"no: {item.why}" for item in report.refused}
    return verdicts | {kept.path: f"no: {kept.why}" for kept in report.kept}


_UNCHANGED = "nothing was changed; next: "


def _note(report: CleanReport) -> str:
    count = len(report.removable)
    if not count:
        return "Nothing is safe to remove."
    are = "is" if count == 1 else "are"
    files = (
        f"{count_text(count, 'file')} {are} safe to remove ({size_text(report.removable_bytes)})"
    )
    return f"{files}: {next_text(report).removeprefix(_UNCHANGED)}."
