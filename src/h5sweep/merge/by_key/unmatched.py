"""Refuse to lose data that no task's key covers, and say how to write the key."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from ...base.key_rule import KeyRow
from ...errors import UsageError
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import indexed_table, ways_to
from ...worker_files.skipped_names import MOST_NAMED, stray_text
from .foreign_file import ForeignFile


def require_all_matched(file: ForeignFile, groups: dict[str, KeyRow], *, skip: bool) -> None:
    """Raise UsageError, naming them, if groups with datasets belong to no task."""
    outside = (path for path, _ in file.datasets() if nearest(path, groups, itself=True) is None)
    strays = sorted({posixpath.dirname(path) for path in outside} - {"/"})
    named = ", ".join(strays[:MOST_NAMED]) + (", …" if len(strays) > MOST_NAMED else "")
    if strays and not skip:
        raise UsageError(
            f"{file.one.path}: groups with data and without a key "
            f"({_rule_text(file)}): {named}; nothing was merged. Correct --key, or leave out "
            f"what is not a result with --skip {','.join(_skip_names(file, strays, groups))}"
        )
    file.about.skipped += strays


def _skip_names(
    file: ForeignFile, strays: Sequence[str], groups: Mapping[str, KeyRow]
) -> Iterator[str]:
    """What --skip leaves these groups out by, and no task or part of one.

    A name is left out wherever it occurs, a path only there. Of a group with tasks in it, what
    lies beside these is named.
    """
    paths = (*groups, *(path for path, _ in file.datasets() if nearest(path, groups)))
    inside = {name for path in paths for name in path.split("/")}
    above = {way for group in groups for way in ways_to(group)}
    for stray in strays:
        if stray in above:
            own = (path for path, _ in file.datasets() if posixpath.dirname(path) == stray)
            yield from (path for path in own if path not in groups)
        else:
            name = posixpath.basename(stray)
            yield stray if name in inside else name


def require_none_beside(file: ForeignFile, paths: Sequence[str], *, skip: bool = False) -> None:
    """Raise UsageError, naming them, if datasets belong to no task: they would be lost."""
    beside = [path for path in paths if indexed_table(path) not in file.by_path]
    if beside and not skip:
        taken = {path for path, _ in file.datasets()} - {*paths}
        words = stray_text(beside, taken, "; nothing was merged")
        raise UsageError(f"{file.one.path}: {words} ({_rule_text(file)})")
    file.about.skipped += paths
    indexes = (path for path in paths if path not in beside)
    file.about.left_out.update(dict.fromkeys(indexes, "an index, which PyTables makes again"))


def no_key_text(file: ForeignFile) -> str:
    """What is there instead of the key that was asked for, and how to write it."""
    groups = [o.path for o in file.layout.task_groups()]
    root = file.tree.root
    there = [
        ("groups", [path.strip("/") for path in groups]),
        ("datasets", list(file.layout.by_group.get("/", {}))),
        ("attributes", list(root.attributes) if root else []),
    ]
    parts = [f"{what} such as {', '.join(names[:MOST_NAMED])}" for what, names in there if names]
    advice = 'for example --key "farm{farm_id:d}_t{farm_type:d}_s{seed:d}" for groups or '
    advice += "files of such names, or --key farm_id,farm_type,seed for attributes or columns"
    return (
        f"{file.one.path}: no task here has the key that {_rule_text(file)} names; "
        f"there are {'; '.join(parts) or 'no names at all'}. Write the key as it is in the file, "
        + advice
    )


def _rule_text(file: ForeignFile) -> str:
    text = file.rule.pattern.text if file.rule.pattern else ",".join(file.rule.names)
    return f"--key {text!r}" if "{" in text else f"--key {text}"
