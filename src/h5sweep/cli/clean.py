"""h5sweep clean: list what is safe to remove; quarantine, restore or delete it."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.units import command_text, count_text, size_text
from ..errors import UsageError
from . import options
from .terminal import print_json, print_text, print_texts, showing_progress, tell


@click.command("clean")
@options.output
@options.as_json
@click.option("--yes", is_flag=True, help="Move the files that are safe to remove to quarantine.")
@click.option(
    "--also",
    type=click.Path(),
    metavar="FILE",
    multiple=True,
    help="With --yes: move FILE too, even if it is damaged, empty or not merged.",
)
@click.option(
    "--restore",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="Put the files of quarantine NAME back where they were; without NAME, of all quarantines.",
)
@click.option(
    "--to",
    metavar="FOLDER",
    multiple=True,
    type=options.PATH,
    help="With --restore: also put files back into FOLDER, although it is outside OUTPUT's folder.",
)
@click.option(
    "--purge",
    metavar="NAME",
    help="Delete quarantine NAME for good, after comparing it with OUTPUT again.",
)
@options.show_all
def clean_command(
    output: Path,
    as_json: bool,
    yes: bool,
    also: tuple[str, ...],
    restore: str | None,
    to: tuple[Path, ...],
    purge: str | None,
    show_all: bool,
) -> int:
    """List the files that are safe to remove: OUTPUT has their results.

    A file is safe to remove if every result in it has just been read back from OUTPUT and is equal.
    All other files are kept, and the list says why. Nothing changes without --yes, which moves the
    safe files to OUTPUT.quarantine/DATE. Nothing is deleted without --purge.

    \b
    h5sweep clean layouts.h5
    """
    if sum([yes or bool(also), restore is not None, purge is not None]) > 1:
        raise UsageError("use only one of --yes (with --also), --restore and --purge")
    if to and restore is None:
        raise UsageError("--to works only with --restore: add --restore")
    options.keep_process_small()
    if restore is not None:
        return _restore(output, restore or None, to, as_json)
    if purge is not None:
        return _purge(output, purge, as_json)
    return _clean(output, as_json, also, yes, show_all)


def _clean(output: Path, as_json: bool, also: tuple[str, ...], yes: bool, show_all: bool) -> int:
    from ..clean.clean_files import quarantine_files
    from ..clean.quarantine import Moved
    from ..clean.removable_files import find_removable
    from ..clean.report import clean_text, held_texts, next_text, quarantine_text, report_json

    with showing_progress() as display:
        if yes:
            report = quarantine_files(
                output, also=also, progress=display.checking, tell=display.say
            )
        else:
            report = find_removable(output, progress=display.checking)
    moved = report.moved or Moved(None)
    if as_json:
        print_texts([report_json(report)])
    else:
        print_text(clean_text(report, show_all=show_all))
    for path in moved.changed:
        tell(f"{path} has changed in the meantime and stays where it is")
    for line in held_texts(moved.held):
        tell(line)
    if moved.quarantine is not None:
        purge = command_text("clean", output, "--purge", moved.quarantine.name)
        tell(f"{quarantine_text(moved.quarantine)}; next: {purge}")
    elif also and not yes:
        tell(f"nothing was changed; next: add --yes to move {', '.join(also)} as well")
    elif not moved.held:
        tell("nothing to move" if yes else next_text(report))
    return 1 if moved.held else 0


def _restore(output: Path, name: str | None, to: tuple[Path, ...], as_json: bool) -> int:
    from ..clean.clean_files import restore_quarantine
    from ..clean.report import held_texts, outside_texts

    found = restore_quarantine(output, name, to=to, tell=tell)
    put_back, left = [str(path) for path in found.put_back], [str(path) for path in found.left]
    if as_json:
        print_json({"schema": "h5sweep.restore/1", "put_back": put_back, "left": left})
    for path in found.in_the_way:
        tell(
            f"{path} is a different file now, and stays; next: move it away and run the same "
            "command again"
        )
    for line in held_texts(found.held, "in quarantine"):
        tell(line)
    for line in outside_texts(output, name, found.outside):
        tell(line)
    tell(f"{count_text(len(put_back), 'file')} put back")
    return 1 if left else 0


def _purge(output: Path, name: str, as_json: bool) -> int:
    from ..clean.clean_files import purge_quarantine

    with showing_progress() as display:
        purged = purge_quarantine(output, name, progress=display.checking, tell=display.say)
    left = [str(item.path) for item in purged.left]
    if as_json:
        facts = {"files": purged.files, "freed_bytes": purged.freed_bytes, "left": left}
        print_json({"schema": "h5sweep.purge/1", "name": name, **facts})
    for path in left:
        tell(f"{path} is not entirely in the output, so it stays in quarantine: delete it by hand")
    tell(f"{count_text(purged.files, 'file')} deleted, {size_text(purged.freed_bytes)} freed")
    return 0
