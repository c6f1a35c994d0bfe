"""Write a page that says how a sweep stands, or what is wrong with files. Changes nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..base.units import command_text
from ..disk import durable
from ..disk.find_files import PathLike
from ..errors import HopelessError, InterruptedRunError, UsageError
from ..runfolder.layout import RunFolder
from ..state.expected_tasks import existing_folder
from .page import MARK

FILES_REPORT = Path("report.html")  # of files of other programs, in the current folder


def write_report(
    paths: PathLike | Iterable[PathLike],
    target: PathLike | None = None,
    *,
    best: str | None = None,
    is_lowest: bool = False,
) -> Path:
    """Write one HTML file about the sweep of an output, or about files of other programs.

    A sweep's goes into its run folder, unless `target` says where; others to report.html. Killed at
    any moment, an old report is there or the new one, whole. UsageError if `target` is a file that
    is no report. Tasks are compared by the result `best`, by default the first number that differs;
    the best has the highest, or with `is_lowest` the lowest.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise UsageError("name an output, or files or folders of other programs")
    folder = _sweep_folder(given)
    default = FILES_REPORT if folder is None else folder.report_path
    path = Path(target) if target is not None else default
    _require_report(path)
    durable.replace_text(path, report_html(given, best, is_lowest=is_lowest))
    return path


def write_after_run(output: Path) -> str:
    """Write the report of a run that has ended, or was stopped; return what to say of it.

    Whatever goes wrong here is said and nothing else: the run itself has ended as it has.
    """
    folder = RunFolder.of(output)
    try:
        write_report(output)
    except (Exception, KeyboardInterrupt) as error:  # no report is worth a result
        why = str(error) or type(error).__name__
        return f"no report was written ({why}): {command_text('report', output)} writes it"
    return f"report: {folder.report_path}"


@contextmanager
def reporting_stop(output: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Write the report also of a run that is stopped or given up in here, and say so."""
    try:
        yield
    except (InterruptedRunError, HopelessError):
        if RunFolder.of(output).exists():
            say(write_after_run(output))
        raise


def report_html(given: list[PathLike], best: str | None = None, *, is_lowest: bool = False) -> str:
    """The page as a text."""
    folder = _sweep_folder(given)
    if folder is not None:
        from .sweep_page import sweep_page

        return sweep_page(folder, best, is_lowest=is_lowest)
    from ..check.check import check_files
    from .files_page import files_page

    return files_page(given, check_files(given))


def _sweep_folder(given: list[PathLike]) -> RunFolder | None:
    """The run folder, if what is named is a sweep; UsageError if it is neither that nor there."""
    path = Path(given[0])
    if len(given) > 1 or (path.is_dir() and not path.name.endswith(".run")):
        return None
    folder = RunFolder.of(path)
    if folder.exists():
        return folder
    return None if path.exists() and path.suffix != ".py" else existing_folder(path)


def _require_report(path: Path) -> None:
    """Raise UsageError for what must not be replaced: an output named by mistake."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file, such as {path / FILES_REPORT}")
    if path.exists() and (not path.is_file() or _first_bytes(path) not in (MARK, b"")):
        raise UsageError(f"{path} is not a report of h5sweep, and stays: choose another name")


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(MARK))
