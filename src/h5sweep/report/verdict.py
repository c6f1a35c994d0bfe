"""How far it is, and what to do next: the sentences and commands are those of `status`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base.process_id import host_name
from ..base.static_html import bar_html
from ..base.units import command_text, cut_middle
from ..runfolder.layout import RunFolder
from ..runner.status import Status, status_parts
from ..state.run_command import run_again_text
from .html import Section, code, esc
from .outcomes import Outcome

_DONE = (Outcome.DONE, Outcome.SALVAGED, Outcome.AGAIN)
MOST_LETTERS = 300  # of a line below the verdict


def verdict_section(status: Status, counts: Mapping[Outcome, int]) -> Section:
    head, amiss, _ = status_parts(status)
    verdict = head.removeprefix(f"{status.output}: ")
    lacking = {o: n for o, n in counts.items() if n and o not in _DONE}
    if lacking:
        words = ", ".join(f"{count:,} {outcome.words}" for outcome, count in lacking.items())
        amiss = [f"{sum(lacking.values()):,} not done: {words}", *amiss]
    lines = "".join(f"<li>{esc(cut_middle(line, MOST_LETTERS))}</li>" for line in amiss)
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
    shares = [(word, count, f"var(--{css})") for css, (word, count) in counts.items()]
    keys = "".join(
        f'<li><button type="button" data-outcome="{css}" aria-pressed="false">'
        f'<span class="swatch b-{css}"></span>{esc(word)} <b>{count:,}</b></button></li>'
        for css, (word, count) in counts.items()
    )
    return (
        f'<div class="bar" role="img" aria-label="{esc(f"{total:,} {what}: {words}")}">'
        f"{bar_html(shares, width='100%')}</div>"
        f'<ul class="legend">{keys}</ul>'
    )


def next_section(folder: RunFolder, status: Status) -> Section:
    """What `status` says comes next, with the whole command to run the sweep again."""
    *_, closing = status_parts(status)
    again = run_again_text(folder.load_sweep(), Path(status.output))
    items = "".join(f"<li>{_next_item(line, again, status)}</li>" for line in closing)
    return Section("next", "What to do next", f'<ul class="next">{items}</ul>', typed_note())


def typed_note() -> str:
    """Where the commands of the page are to be typed."""
    return f"Commands are as typed in {Path.cwd()} on {host_name()}."


def _next_item(line: str, again: str, status: Status) -> str:
    """A sentence of `status`; commands in it can be copied."""
    output = status.output
    if line == "complete":
        return f"complete: nothing is left to do, and the results are in {code(output)}"
    if line.endswith(_RUN_AGAIN) and again:
        keep = "--failed keep" if again.startswith("h5sweep") else 'failed="keep"'
        failed = "Failed tasks run again too: fix their cause first, or leave them alone with "
        about = esc(f". {failed}{keep}") if status.failed else ""
        before = esc(line.removesuffix(_RUN_AGAIN))
        return f"{before}{code(again)} runs what is missing, and nothing else{about}"
    commands = (
        command_text("missing", output),
        command_text("merge", output),
        command_text("run", "STUDY", "-o", output),
    )
    for command in commands:
        before, found, after = line.removeprefix("next: ").partition(command)
        if found:
            return f"{esc(before)}{code(found)}{esc(after)}"
    return esc(line)


_RUN_AGAIN = "start the run again"
