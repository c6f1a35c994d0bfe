"""Damage that our own reader does not see in the structure of a file: the HDF5 library does, or
whoever reads the data.

A merge does not read its inputs twice to be sure of them. It unpacks every chunk when it copies it,
and asks the library in a child meanwhile. What it meets is remembered, all inputs are read, and the
merge begins again, with the policy that was given for damaged files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import SweepError
from ..hdf5.tree import Tree
from ..library.child_answers import findings_of
from ..library.child_host import Library, Request
from ..worker_files import findings
from ..worker_files.findings import Finding, against_merging, by_weight
from ..worker_files.inputs import Input
from ..worker_files.layouts import Style
from ..worker_files.read_file import DamagedFileError, can_be_proven, data_findings
from ..worker_files.survey import Survey


class MetDamage:
    """What the tries of one merge have met."""

    def __init__(self) -> None:
        self._known: dict[Path, list[Finding]] = {}
        self._library = Library(processes=1)

    def __enter__(self) -> MetDamage:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.__exit__()

    def take(self, error: DamagedFileError) -> bool:
        """Remember damage; False if it was known, so that another try would end like this one."""
        known = self._known.setdefault(Path(error.name), [])
        if error.finding in known:
            return False
        known.append(error.finding)
        return True

    def judge(self, survey: Survey, inputs: Sequence[Input], *, is_last: bool = False) -> None:
        """Add to the findings of inputs what was met, and begin to ask the library about the rest.

        Once any damage was met, or the merge stops here (`is_last`), data are read and the answers
        waited for, so that all damaged inputs are named at once.
        """
        reads = is_last or bool(self._known)
        self._ask(inputs)
        if reads:
            self._take_answers()
        for one in inputs if reads else ():
            found: list[Finding] = []
            if one.is_readable and one.contents and one.contents.has_packed:
                with survey.opened(one) as layout:
                    found = list(data_findings(layout.tree))
            _add(one, found or self._known.get(one.path, []))
        for one in inputs:
            if one.is_readable and one.is_suspect and one.contents and one.contents.has_unproven:
                with survey.opened(one) as layout:
                    _add(one, list(_read_unclosed(layout.tree)))

    def _ask(self, inputs: Sequence[Input]) -> None:
        """Ask about every structure once; about data only if our own reader cannot unpack them."""
        alike: dict[Hashable, list[Input]] = {}
        for one in inputs:
            if one.is_readable and not one.is_suspect and one.style is not Style.RECORDS:
                alike.setdefault(_structure_of(one), []).append(one)
        for some in alike.values():
            first = some[0]
            what = "deep" if first.contents and first.contents.has_unproven else "structure"
            objects, only = _count_objects(first), _one_of_each(first)
            self._library.ask(Request(some, first.name, what, first.size_bytes, objects, only))

    def require_none_by_library(self) -> None:
        """Wait for the library; DamagedFileError if it refuses an input, or dies of one."""
        if refused := self._take_answers():
            name, found = refused[0]
            self._known[name].remove(found)  # whoever catches this takes it
            raise DamagedFileError(str(name), found)

    @contextmanager
    def blamed_first(self) -> Iterator[Callable[[], None]]:
        """Yield `require_none_by_library`; what the library refuses is said before other errors."""
        try:
            yield self.require_none_by_library
        except SweepError:
            self.require_none_by_library()
            raise

    def _take_answers(self) -> list[tuple[Path, Finding]]:
        """Wait for all answers, and remember what the library refuses."""
        refused = []
        while self._library.open_requests:
            for request, answer in self._library.answers(wait=True):
                if reasons := against_merging(findings_of(answer)):
                    refused += [(one.path, reasons[0]) for one in request.tag]
        for name, found in refused:
            self._known.setdefault(name, []).append(found)
        return refused


def _structure_of(one: Input) -> Hashable:
    """What inputs have in common of which the library would say the same."""
    if one.contents and one.contents.has_unproven:
        return one.name
    if one.alike is not None:
        return frozenset(id(groups.example) for groups in one.alike.sets)
    return one.name if one.family is None else id(one.family)


def _count_objects(one: Input) -> int:
    """About how many objects an input has; the library takes its time for each."""
    contents = one.contents
    if contents is None:
        return 0
    return contents.datasets + ((contents.tasks or 0) if contents.style is Style.GROUPS else 0)


def _one_of_each(one: Input) -> dict[str, list[str]]:
    """Of groups that hold some that are alike, what the library has to look at: one of each kind.

    Our own reader has compared the others with that, and many thousands would take it minutes.
    """
    if one.alike is None:
        return {}
    sets, rest = one.alike.sets, one.alike.tree.objects
    only: dict[str, list[str]] = {_above(path): [] for some in sets for path in some.paths}
    for path in (*(found.path for found in rest), *(some.paths[0] for some in sets)):
        if _above(path) in only:
            only[_above(path)].append(path.rpartition("/")[2])
    return only


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "/"


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
