"""Find the run folder of an output that the user named, or say what to do without one."""

from __future__ import annotations

from ..base.units import command_text
from ..disk.find_files import PathLike
from ..errors import UsageError
from ..runfolder.layout import RunFolder


def existing_folder(output: PathLike) -> RunFolder:
    """The run folder of `output`; UsageError with the next step if there is none."""
    folder = RunFolder.of(output)
    if folder.exists():
        return folder
    if folder.output.exists():
        raise UsageError(_without_folder(folder))
    raise UsageError(
        f"there is no run folder {folder.path}: name the output given to a run with -o"
    )


def _without_folder(folder: RunFolder) -> str:
    """What to do with a file that has no run folder: it depends on what the file is."""
    from ..worker_files.layouts import Style
    from ..worker_files.survey import Survey

    output = folder.output
    found = Survey().look_at(output)
    if found.style is Style.OUTPUT and found.is_readable:
        return (
            f"{output} exists but its run folder {folder.path} does not: "
            f"{command_text('run', 'STUDY', '-o', output)} continues from the output"
        )
    if output.suffix == ".py":
        return f"{output} is a study: name its output, such as {output.stem}.h5"
    if found.is_readable and found.style is not Style.NOTHING:
        return (
            f"{output} is not the output of a run, so it does not say which tasks it should have: "
            f"{command_text('merge', output, '-o', 'OTHER.h5', '--key', 'KEY')} writes one row "
            f"per task, and {command_text('missing', 'OTHER.h5', '--expect', 'TASKS')} compares "
            "these tasks with a study or CSV"
        )
    return f"{output} is not the output of a run: {command_text('check', output)} says what it is"
