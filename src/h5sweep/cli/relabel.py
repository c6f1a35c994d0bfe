"""h5sweep relabel: other names, units and axes for the results that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ..base.listed_plan import cell_value
from ..base.plan import Value, checked_value
from ..base.units import command_text
from ..errors import UsageError
from . import options
from .merge import say_notes, say_wrote
from .terminal import print_json, print_text, showing_progress, tell

if TYPE_CHECKING:
    from ..base.relabels import Relabels
    from ..merge.relabel import RelabelReport

SCHEMA = "h5sweep.relabel/1"
T = TypeVar("T")


@click.command("relabel")
@options.output
@click.option(
    "--add",
    metavar="NAME=VALUE",
    multiple=True,
    help="A new parameter, and its value in all rows that are there; a text that looks like a "
    "number in double quotes.",
)
@click.option(
    "--rename", metavar="OLD=NEW", multiple=True, help="Another name for a parameter or a result."
)
@click.option("--sweep", metavar="NAME", help="The function has another name now.")
@click.option(
    "--units", metavar="NAME=UNIT", multiple=True, help="The unit that the values have been in."
)
@click.option(
    "--dims", metavar="NAME=AXIS,...", multiple=True, help="Other names for the axes of a result."
)
@click.option("--undo", is_flag=True, help="Take the last relabel back, and only that.")
@options.as_json
def relabel_command(
    output: Path,
    add: tuple[str, ...],
    rename: tuple[str, ...],
    sweep: str | None,
    units: tuple[str, ...],
    dims: tuple[str, ...],
    undo: bool,
    as_json: bool,
) -> int:
    """Change names, units or axes of the results in OUTPUT.

    No value changes, and nothing is run. The output has the new labels at once, and `run` goes on
    with a study that has them too. Without an option, the relabels so far are listed.

    \b
    h5sweep relabel layouts.h5 --add hub_height=110.0
    h5sweep relabel layouts.h5 --rename aep=aep_gross --units aep_gross=MWh
    h5sweep relabel layouts.h5 --undo
    """
    asked = bool(add or rename or sweep or units or dims)
    if undo and asked:
        raise UsageError("use --undo by itself: it takes back what the last relabel changed")
    options.keep_process_small()
    from ..merge.relabel import NewLabels, change_labels, relabels_of

    if not undo and not asked:
        return _list_relabels(output, relabels_of(output), as_json)
    wanted = NewLabels(
        add=_pairs("--add", add, _parse_value),
        rename=_pairs("--rename", rename, lambda _, text: text),
        sweep=sweep,
        units=_pairs("--units", units, lambda _, text: text),
        dims=_pairs("--dims", dims, lambda _, text: text.split(",")),
    )
    with showing_progress() as display:
        report = change_labels(
            output, None if undo else wanted, progress=display.merging, tell=display.say
        )
    _say_report(output, report, as_json)
    return 0


def _pairs(option: str, texts: Iterable[str], parse: Callable[[str, str], T]) -> dict[str, T]:
    """What follows an option, by name."""
    found: dict[str, T] = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not name or not (value or (is_given and option == "--add")):
            raise UsageError(f"{option} {text!r} names no column and label: write {option} a=b")
        if name in found:
            raise UsageError(f"{option} names {name} twice: leave one of them out")
        found[name] = parse(name, value)
    return found


def _parse_value(name: str, text: str) -> Value:
    value = checked_value(name, cell_value(text))
    if value in (float("inf"), float("-inf")):
        raise UsageError(f"--add {name}={text}: give a finite value")
    return value


def _list_relabels(output: Path, relabels: Relabels, as_json: bool) -> int:
    if as_json:
        print_json({"schema": SCHEMA, "output": str(output), **relabels.as_json()})
        return 0
    for entry in relabels.entries:
        undone = "taken back: " if entry.undoes else ""
        print_text(f"{entry.time}  {undone}{'; '.join(entry.texts())}\n")
    if not relabels:
        tell(f"nothing in {output} was relabelled: add --rename, --add, --units, --dims or --sweep")
    return 0


def _say_report(output: Path, report: RelabelReport, as_json: bool) -> None:
    if as_json:
        entry = report.relabel.as_json()
        print_json({"schema": SCHEMA, "output": str(output), "relabels": [entry]})
    done = "" if report.is_new else "done before: "
    tell(f"{done}{'; '.join(report.relabel.texts())}")
    if report.merge is not None:
        say_notes(report.merge)
        say_wrote(report.merge)
    if not report.relabel.undoes:
        tell(f"next: {command_text('relabel', output, '--undo')} takes it back")
