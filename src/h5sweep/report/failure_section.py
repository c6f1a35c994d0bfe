"""Failures by cause, with one traceback each, and whether a cause strikes every time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from ..base.plan import Plan, PlanColumn, key_text
from ..base.units import count_text
from ..base.values import Array
from ..runner.failures import group_failures
from ..state.record_place import Failure
from ..state.state import FolderState
from .html import Section, code, esc, seconds
from .outcomes import Outcomes

MOST_GROUPS = 30  # that are shown, each with a traceback
MOST_TRACEBACK = 6_000  # characters of one
MOST_FRAMES = 6  # of the user's own files that are shown at once: a recursion has hundreds
MOST_VALUES = 4  # that are named
MOST_COLUMNS = 2  # of a key that a cause may depend on
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line \d+.*$')


def failure_section(state: FolderState, outcomes: Outcomes) -> Section | None:
    """None if nothing has failed."""
    if not state.all_failures:
        return None
    groups = group_failures(state.all_failures)
    items = "".join(_group_html(group, outcomes) for group in groups[:MOST_GROUPS])
    more = ""
    if left := groups[MOST_GROUPS:]:
        tasks = count_text(sum(map(len, left)), "task")
        more = f"<p>… and {count_text(len(left), 'more cause')}, of {tasks}.</p>"
    causes = count_text(len(groups), "cause")
    note = f"{count_text(len(state.all_failures), 'failed task')}, {causes}."
    return Section("failures", "Why tasks failed", f'<ol class="causes">{items}</ol>{more}', note)


def _group_html(group: dict[int, Failure], outcomes: Outcomes) -> str:
    task, example = next(iter(group.items()))
    where = f" at {code(example.where)}" if example.where else ""
    after = seconds(sorted(failure.duration_s for failure in group.values())[len(group) // 2])
    median = " (median)" if len(group) > 1 else ""
    return (
        f"<li><h3><b>{count_text(len(group), 'task')}</b> {esc(example.kind.words)}: "
        f"{esc(example.error)}{where}</h3>"
        f'<p class="message">{esc(_shortened(example.message, 600))}</p>'
        f'<p class="always">{esc(regularity(list(group), outcomes))}.</p>'
        f"<p>For example {code(key_text(outcomes.plan.key(task)))}; time until then: "
        f"{esc(after)}{median}.</p>{_traceback_html(example.traceback)}</li>"
    )


def _traceback_html(text: str) -> str:
    """The user's own frames, with all of it below."""
    whole = _shortened(text.rstrip(), MOST_TRACEBACK)
    if not whole:
        return ""
    own = "\n".join(own_frames(text))
    shown = f"<pre>{esc(own, breaks=_LINES)}</pre>" if own else ""
    return (
        f"{shown}<details><summary>whole traceback</summary>"
        f"<pre>{esc(whole, breaks=_LINES)}</pre></details>"
    )


_LINES = "\n\t"


def own_frames(traceback: str) -> Iterator[str]:
    """The lines of a traceback about the user's own files, the innermost frame first."""
    frames: list[list[str]] = []
    is_own = False
    for line in traceback.splitlines():
        if match := _FRAME.match(line):
            is_own = not _is_installed(match["file"])
            if is_own:
                frames.append([line])
        elif is_own and line.startswith("    "):
            frames[-1].append(line)
        else:
            is_own = False
    for frame in frames[: -MOST_FRAMES - 1 : -1]:
        yield from frame
    if len(frames) > MOST_FRAMES:
        yield f"  … and {count_text(len(frames) - MOST_FRAMES, 'more frame')} of your files"


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "/lib/python3" in file or file.startswith("<frozen")


def _shortened(text: str, most: int) -> str:
    """A text of which the middle gives way: a traceback says least there."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n  […]\n{text[-most // 2 :]}"


def regularity(tasks: list[int], outcomes: Outcomes) -> str:
    """Whether a cause strikes all tasks of some key values, as far as these can tell."""
    failed = np.array(tasks)
    shown = outcomes.shown
    columns = [c for c in outcomes.plan.columns if len(c.values) > 1]
    codes = {c.name: np.frombuffer(c.codes, np.uint32).astype(np.int64) for c in columns}
    if len(failed) == len(shown):
        return "always: every task fails"
    for size in range(1, MOST_COLUMNS + 1):
        for chosen in combinations(columns, size):
            combined = np.zeros(len(outcomes.plan), np.int64)
            for column in chosen:
                combined = combined * len(column.values) + codes[column.name]
            hit, counts = np.unique(combined[failed], return_counts=True)
            of_all = np.bincount(combined[shown], minlength=int(hit.max()) + 1)[hit]
            if (counts == of_all).all() and (counts > 1).all():
                return f"always: {_named(failed, combined, chosen, outcomes.plan)}"
    return _sometimes(failed, shown, codes, outcomes.plan)


def _named(failed: Array, combined: Array, chosen: Sequence[PlanColumn], plan: Plan) -> str:
    """The key values of which every task has failed."""
    _, firsts, counts = np.unique(combined[failed], return_index=True, return_counts=True)
    names = [column.name for column in chosen]
    texts = []
    for first, count in zip(firsts[:MOST_VALUES], counts[:MOST_VALUES], strict=True):
        key = plan.key(int(failed[first]))
        texts.append(f"all {count:,} tasks with {key_text({name: key[name] for name in names})}")
    more = [f"and {len(firsts) - MOST_VALUES:,} more"] if len(firsts) > MOST_VALUES else []
    return ", ".join([*texts, *more])


def _sometimes(failed: Array, shown: Array, codes: dict[str, Array], plan: Plan) -> str:
    """How many of the tasks that share a value with all of these."""
    shared = {name: of[failed[0]] for name, of in codes.items() if len(set(of[failed])) == 1}
    if len(shared) == len(codes):
        return "a single task"
    if not shared:
        return f"not always: {len(failed):,} of all {len(shown):,} tasks failed so"
    alike = np.ones(len(shown), bool)
    for name, value in shared.items():
        alike &= codes[name][shown] == value
    key = plan.key(int(failed[0]))
    words = key_text({name: key[name] for name in shared})
    of_them = f"{len(failed):,} of the {int(alike.sum()):,} tasks with {words}"
    return f"not always: {of_them} failed so"
