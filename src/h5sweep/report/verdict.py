"""How far it is, and what to do next: the sentences and commands are those of `status`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base.process_id import host_name
from ..base.units import command_text
from ..runfolder.layout import RunFolder
from ..runner.status import Status, status_parts
from ..state.run_command import run_again_text
from .html import Section, code, esc, number
from .outcomes import Outcome

_BAR_WIDTH = 1000


def verdict_section(status: Status, counts: Mapping[Outcome, int]) -> Section:
    head, amiss, _ = status_parts(status)
    verdict = head.removeprefix(f"{status.output}: ")
    lines = "".join(f"<li>{esc(line)}</li>" for line in amiss)
    more = f'<ul class="amiss">{lines}</ul>' if lines else ""
    named = {outcome.css: (outcome.words, count) for outcome, count in counts.items()}
    body = f'<p class="verdict">{esc(verdict)}</p>{more}{stacked_bar(named, "tasks")}'
    return Section("verdict", "Verdict", body)


def stacked_bar(counts: Mapping[str, tuple[str, int]], what: str) -> str:
    """One bar of all, and its legend: CSS class → word and count."""
    total = sum(count for _, count in counts.values())
    if not total:
        return ""
    words = ", ".join(f"{count:,} {word}" for word, count in counts.values())
    parts, start = [], 0.0
    for css, (word, count) in counts.items():
        width = max(_BAR_WIDTH * count / total, 2)  # a single task of a million is seen too
        parts.append(
            f'<rect class="f-{css}" x="{number(min(start, _BAR_WIDTH - 2))}" y="0" '
            f'width="{number(width)}" height="22"><title>{count:,} {esc(word)}</title></rect>'
        )
        start += width
    keys = "".join(
        f'<li><button type="button" data-outcome="{css}" aria-pressed="false">'
        f'<span class="swatch b-{css}"></span>{esc(word)} <b>{count:,}</b></button></li>'
        for css, (word, count) in counts.items()
    )
    return (
        f'<svg class="bar" viewBox="0 0 {_BAR_WIDTH} 22" preserveAspectRatio="none" role="img" '
        f'aria-label="{esc(f"{total:,} {what}: {words}")}">{"".join(parts)}</svg>'
        f'<ul class="legend">{keys}</ul>'
    )


def next_section(folder: RunFolder, status: Status) -> Section:
    """What `status` says comes next, with the whole command to run the sweep again."""
    *_, closing = status_parts(status)
    again = run_again_text(folder.load_sweep(), Path(status.output))
    items = [_next_item(line, again, status.output) for line in closing]
    return Section(
        "next", "What to do next", f'<ul class="next">{"".join(items)}</ul>', typed_note()
    )


def typed_note() -> str:
    """Where the commands of the page are to be typed."""
    return f"Commands are as typed in {Path.cwd()} on {host_name()}."


def _next_item(line: str, again: str, output: str) -> str:
    """A sentence of `status`; commands in it can be copied."""
    if line.endswith(_RUN_AGAIN) and again:
        before = line.removesuffix(_RUN_AGAIN)
        return f"<li>{esc(before)}{code(again)} runs what is missing, and nothing else</li>"
    for command in (command_text("missing", output), command_text("merge", output)):
        before, found, after = line.removeprefix("next: ").partition(command)
        if found:
            return f"<li>{esc(before)}{code(command)}{esc(after)}</li>"
    return f"<li>{esc(line)}</li>"


_RUN_AGAIN = "start the run again"
