"""Damage that shows only when data are read: by a merge while it copies, or by asking for it.

A merge does not read its inputs twice to be sure of them: it unpacks every chunk when it copies it.
What it meets there is remembered, all inputs are read, and the merge begins again, with the policy
that was given for damaged files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from . import findings
from .answers import ask_about
from .findings import Finding, by_weight
from .hdf5.tree import Tree
from .inputs import Input, Survey
from .reading import DamagedFileError, can_be_proven, data_findings


class MetDamage:
    """What earlier tries of one merge have met."""

    def __init__(self) -> None:
        self._known: dict[Path, list[Finding]] = {}

    def take(self, error: DamagedFileError) -> bool:
        """Remember damage; False if it is known, or in none of the inputs that were looked at."""
        known = self._known.setdefault(Path(error.name), [])
        if error.finding in known:
            return False
        known.append(error.finding)
        return True

    def judge(self, survey: Survey, inputs: Sequence[Input]) -> None:
        """Add to the findings of inputs what only their data show, as far as it must be known now.

        Data that our own reader cannot unpack are read by the HDF5 library. The rest is read once
        any damage was met, so that all damaged inputs are named at once.
        """
        for one in inputs if self._known else ():
            found: list[Finding] = []
            if one.is_readable and one.contents and one.contents.has_packed:
                with survey.opened(one) as layout:
                    found = list(data_findings(layout.tree))
            _add(one, found or self._known.get(one.path, []))
        unproven = [o for o in inputs if o.is_readable and o.contents and o.contents.has_unproven]
        for one in (one for one in unproven if one.is_suspect):
            with survey.opened(one) as layout:
                _add(one, list(_read_unclosed(layout.tree)))
        closed = [one for one in unproven if not one.is_suspect]
        answers = ask_about([(one.name, one.size_bytes) for one in closed])
        for one, found in zip(closed, answers, strict=True):
            _add(one, found)


def _read_unclosed(tree: Tree) -> Iterator[Finding]:
    """What is wrong with data of a file that the HDF5 library does not open."""
    why = "its filters cannot be undone here, and the file was not closed"
    for path, dataset in tree.datasets:
        if not can_be_proven(dataset, slowly=True):
            yield findings.FEATURE.finding(where=path, why=why)
    yield from data_findings(tree, slowly=True)


def _add(one: Input, found: Sequence[Finding]) -> None:
    if found:
        one.findings = by_weight(dict.fromkeys((*one.findings, *found)))
