"""h5sweep merge: make one file from worker files or from a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.units import command_text, count_text, size_text
from ..disk.find_files import RUN_SUFFIX
from ..errors import UsageError
from . import options
from .terminal import print_json, print_text, print_texts, showing_progress, tell

if TYPE_CHECKING:
    from ..merge.from_records.output_plan import MergeReport


@click.command("merge")
@options.paths
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    help="The merged file to write; without it, PATH is the output of a run.",
)
@click.option(
    "--key",
    metavar="PATTERN|NAMES",
    help="Where each task's key is found; the output then has one row per task. A pattern such as "
    "farm{farm_id:d}_s{seed:d} for names of groups or files; names such as farm_id,seed for "
    "attributes or columns.",
)
@click.option(
    "--on-damaged",
    type=click.Choice(["stop", "skip", "salvage"]),
    default="stop",
    show_default=True,
    help="What to do with files that cannot be merged as they are.",
)
@click.option(
    "--max-damaged",
    metavar="N|N%",
    help="With skip or salvage: stop if more than this many files are damaged.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["stop", "first", "last", "newest"]),
    default="stop",
    show_default=True,
    help="Which result to take if a task has two different ones.",
)
@options.skip
@click.option(
    "--force", is_flag=True, help="Replace an output that h5sweep did not write; keep a backup."
)
@click.option(
    "--compress", is_flag=True, help="Compress the output with gzip (with --key, or for a run)."
)
@click.option(
    "--declared-only",
    is_flag=True,
    help="For a run: leave out tasks that the study no longer has; their results stay in the "
    "run folder, or in the old output, which is kept.",
)
@click.option(
    "--snapshot",
    type=options.PATH,
    metavar="FILE",
    help="For a run: write what is finished by now to FILE, also while the run goes on; the output "
    "stays as it is.",
)
@click.option(
    "--remove-merged",
    is_flag=True,
    help="Remove each file whose results were all read back from the output.",
)
@click.option("--audit-text", is_flag=True, help="Print what was taken from which file.")
@options.as_json
def merge_command(paths: tuple[str, ...], output: Path | None, **choices: Any) -> int:
    """Merge worker files, or a run folder, into one HDF5 file.

    With -o, PATH is a file, a folder or a glob: worker files of any program, run folders, record
    files, earlier outputs. Groups stay groups and columns stay columns. With --key, the output has
    one row per task instead, and `h5sweep run STUDY -o OUTPUT` computes the missing tasks. Without
    -o, PATH is the output of a run. An old output is replaced only after the new file is written,
    read back and compared.

    \b
    h5sweep merge layouts.h5
    h5sweep merge layouts.h5 --snapshot peek.h5
    h5sweep merge layouts.h5_temp -o layouts.h5
    h5sweep merge layouts.h5_temp -o layouts.h5 --key farm_id,farm_type,seed
    """
    options.keep_process_small()
    if output is not None:
        for name in ("declared_only", "snapshot"):
            if choices.pop(name):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is for the output of a run: leave out -o")
        return _merge_files(paths, output, **choices)
    names = ("compress", "as_json", "declared_only", "snapshot")
    ours = {name: choices.pop(name) for name in names}
    wrong = [name for name, value in choices.items() if value not in (False, None, "stop")]
    if len(paths) > 1 or wrong:
        raise UsageError("name the file to write, for example -o layouts.h5")
    return _merge_run(Path(paths[0]), **ours)


def _merge_run(
    output: Path, *, compress: bool, as_json: bool, declared_only: bool, snapshot: Path | None
) -> int:
    from ..merge.from_records.build import merge_run
    from ..merge.from_records.snapshot import save_snapshot
    from ..runfolder.lock import holding
    from ..state.expected_tasks import existing_folder, require_declaration

    if output.is_dir() and not output.name.endswith(RUN_SUFFIX):
        raise UsageError(f"{output} is a folder: name the file to write, for example -o layouts.h5")
    folder = existing_folder(output)
    if declared_only:
        require_declaration(folder)
    with showing_progress() as display:
        merging = display.merging
        if snapshot is not None:
            report = save_snapshot(
                folder, snapshot, compress=compress, progress=merging, declared_only=declared_only
            )
        else:
            with holding(folder.lock_path, tell=display.say):
                report = merge_run(
                    folder, compress=compress, progress=merging, declared_only=declared_only
                )
    if as_json:
        print_json(_run_json(report, "sweep" if snapshot is None else "snapshot"))
    say_notes(report)
    say_wrote(report)
    return 1 if report.tasks_left_out else 0


def _run_json(report: MergeReport, way: str) -> dict[str, Any]:
    return {
        "schema": "h5sweep.merge/1",
        "output": str(report.output),
        "way": way,
        "tasks": report.tasks_merged,
        "tasks_in_output": report.tasks_merged,
        "tasks_planned": report.tasks_planned,
        "tasks_left_out": report.tasks_left_out,
        "failures": report.failures,
        "bytes": report.size_bytes,
        "notes": list(report.notes),
    }


def _merge_files(
    paths: tuple[str, ...],
    output: Path,
    *,
    key: str | None,
    on_damaged: str,
    max_damaged: str | None,
    on_conflict: str,
    skip: str | None,
    force: bool,
    compress: bool,
    remove_merged: bool,
    audit_text: bool,
    as_json: bool,
) -> int:
    from ..merge.merge_files import merge_files
    from ..merge.policy import OnDamaged, Policy, Threshold
    from ..merge.report import closing_lines, report_json
    from ..worker_files.inputs import OnConflict
    from ..worker_files.skipped_names import parse_names

    limit = None if max_damaged is None else Threshold.parse(max_damaged)
    with showing_progress() as display:
        report = merge_files(
            paths,
            output,
            key=key,
            policy=Policy(OnDamaged(on_damaged), limit, OnConflict(on_conflict), parse_names(skip)),
            force=force,
            compress=compress,
            progress=display.copying,
            tell=display.say,
        )
    if as_json:
        print_texts([report_json(report)])
    if audit_text:
        from ..runfolder import audit

        print_text(audit.audit_text(audit.read_entries(report.output)[-1]))
    for line in closing_lines(report, will_remove=remove_merged):
        tell(line)
    return _remove_merged(report.output) if remove_merged else 0


def _remove_merged(output: Path) -> int:
    from ..clean.clean_files import remove_merged
    from ..clean.report import held_texts

    with showing_progress() as display:
        purged, report = remove_merged(output, progress=display.checking, tell=display.say)
    size = size_text(purged.freed_bytes)
    tell(f"removed {count_text(purged.files, 'file')} ({size}); {output.name} holds their results")
    if kept := len(report.kept) + len(report.refused):
        words = count_text(kept, "file")
        tell(f"{words} kept; next: {command_text('clean', output)} says why")
    for line in held_texts(item.path for item in purged.left):
        tell(line)
    return 1 if purged.left else 0


def say_notes(report: MergeReport | None) -> None:
    for note in report.notes if report is not None else ():
        tell(f"note: {note}")


def say_wrote(report: MergeReport) -> None:
    size = size_text(report.output.stat().st_size)
    tell(f"wrote {report.output} ({count_text(report.tasks_merged, 'task')}, {size})")
