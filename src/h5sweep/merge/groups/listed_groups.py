"""Which groups of a file are tasks, and what each of them has."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace
from itertools import chain

import numpy as np

from ...errors import UnmergeableError
from ...hdf5.gather import Addresses
from ...hdf5.tree import Object, ObjectKind, Tree
from ...hdf5.uniform_groups import AlikeFile, AlikeGroups
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import FileLayout
from ...worker_files.read_values import Values


class ListedGroups:
    """All task groups of one file, and datasets beside them, by the paths they have in an output.

    Datasets `in_columns` are not looked at: they are merged elsewhere. If `is_one`, the file is a
    task as a whole, and `stem` its name.
    """

    def __init__(
        self,
        name: str,
        layout: FileLayout,
        *,
        stem: str = "",
        is_one: bool = False,
        alike: AlikeFile | None = None,
        in_columns: Collection[str] = (),
    ) -> None:
        self.name = name
        tree = _without(layout.tree, in_columns)
        self._tree, self.values = tree, Values(tree.file)
        self._open = {"/", *(above for path in in_columns for above in _above(path))}
        self._by_path = {o.path: o for o in tree.objects}
        self._by_address = {o.address: o for o in tree.objects}
        self._inside: dict[str, list[str]] = {}  # members that are part of a task group
        self.sets = alike.sets if alike is not None else []
        # There may be a million: numbers through all sets, and not an object each.
        self._firsts = np.cumsum([0, *(len(groups) for groups in self.sets)])
        self._numbers = {p: n for n, p in enumerate(chain(*(g.paths for g in self.sets)))}
        self.skipped = layout.skipped.paths
        self.marks = self.values.texts_of(layout.skipped.marks.values())
        self._beside: set[str] = set()  # those of the roots that are no tasks
        self._holders = layout.holders
        self.roots = {f"/{stem}": "/"}
        if not is_one:
            tasks = self._find_tasks(layout, with_tables=not in_columns)
            self.roots = self._find_roots(tasks)
            self._beside |= self.roots.keys() - tasks - self._numbers.keys()
        # One dictionary serves as both, unless a file is a task as a whole.
        is_renamed = any(path != source for path, source in self.roots.items())
        self.sources = {s: path for path, s in self.roots.items()} if is_renamed else self.roots
        self._objects = self._objects_by_group()
        self._refuse_links()

    def _find_tasks(self, layout: FileLayout, *, with_tables: bool) -> set[str]:
        """The groups that are tasks, as `check` counts, but for those that are alike."""
        have_data = any(o.dataset for groups in self.sets for o in groups.example.objects)
        tasks = layout.task_groups(others_have_data=have_data, with_tables=with_tables)
        return {o.path for o in tasks}

    def _find_roots(self, tasks: Set[str]) -> dict[str, str]:
        """The topmost groups that are tasks, hold datasets or nothing; datasets beside them."""
        parents = {posixpath.dirname(o.path) for o in self._tree.objects if o.path != "/"}
        parents |= {path.rpartition("/")[0] or "/" for path in self._numbers}
        parents -= tasks | self._holders
        found: dict[str, str] = {}
        for group in self._tree.objects:
            if group.kind is not ObjectKind.GROUP:
                if posixpath.dirname(group.path) in self._open:
                    self._keep_beside(group, group.path, found)
                continue
            is_root = group.path not in self._open and group.path not in parents
            if is_root and nearest(group.path, found) is None:
                found[group.path] = group.path
        for path, address in self._tree.second_names:
            if nearest(path, found) is None:
                self._keep_beside(self._by_address.get(address), path, found)
        self.skipped += [path for path in self._tree.soft_links if nearest(path, found) is None]
        others = found.copy()  # no group of a set lies in another one
        for path in self._numbers:
            if others and (holder := nearest(path, others)) is not None:
                self._inside.setdefault(holder, []).append(path)
            else:
                found[path] = path
        return found

    def _keep_beside(self, one: Object | None, path: str, found: dict[str, str]) -> None:
        """Keep a dataset that is in no task group; say so of what is neither."""
        if one is not None and one.kind is ObjectKind.DATASET:
            found[path] = path
            self._beside.add(path)
        else:
            self.skipped.append(path)

    def count_tasks(self, paths: Collection[str]) -> int:
        """How many of these are tasks, and neither groups without data nor datasets beside."""
        return len(paths) - len(self._beside.intersection(paths))

    def _objects_by_group(self) -> dict[str, list[tuple[str, Object]]]:
        """The objects of each task group that the plain reader has listed, with their paths."""
        found: dict[str, list[tuple[str, Object]]] = {}
        for one in self._tree.objects:
            if (group := nearest(one.path, self.sources, itself=True)) is not None:
                found.setdefault(group, []).append((one.path, one))
        for path, address in self._tree.second_names:
            if (group := nearest(path, self.sources, itself=True)) is not None:
                other = self._by_address.get(address)
                if other is None or other.dataset is None:
                    raise UnmergeableError(f"{self.name}: {path} is a second name of a group")
                found.setdefault(group, []).append((path, other))
        return found

    def _refuse_links(self) -> None:
        for path in self._tree.external_links:
            raise UnmergeableError(
                f"{self.name}: {path} points to another file, which is not followed: put the data "
                "in its place, or leave the file out"
            )

    @property
    def listed(self) -> list[tuple[str, Object]]:
        """The objects that the plain reader has listed, with their paths."""
        return [(found.path, found) for found in self._tree.objects]

    def above(self) -> dict[str, Object]:
        """The groups above task groups, and the root; with their attributes."""
        if self.sources.get("/") is not None:
            return {}
        found = {}
        for group in self._tree.objects:
            if (
                group.kind is ObjectKind.GROUP
                and nearest(group.path, self.sources, itself=True) is None
            ):
                found[group.path] = group
        return found

    def names(self, sets: Sequence[AlikeGroups]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of datasets in task groups, and of their own attributes, each once.

        Of groups that are alike, those in `sets`.
        """
        datasets: dict[str, None] = {}
        attributes: dict[str, None] = {}
        for source, objects in self._objects.items():
            for path, found in objects:
                if found.dataset is not None:
                    datasets.setdefault(path[len(source.rstrip("/")) + 1 :] or path)
                elif path == source:
                    attributes.update(dict.fromkeys(found.attributes))
        for groups in sets:
            attributes.update(dict.fromkeys(groups.example.group.attributes))
            datasets.update(dict.fromkeys(path[1:] for path in groups.example.datasets))
        return tuple(datasets), tuple(attributes)

    def members(self, paths: Sequence[str]) -> tuple[Addresses, Addresses]:
        """For each task group, the number of the set that it is in, or -1, and its place there."""
        numbers = np.array([self._numbers.get(path, -1) for path in paths], np.int64)
        sets = np.searchsorted(self._firsts, numbers, "right") - 1
        return sets, numbers - self._firsts[sets]


def _without(tree: Tree, paths: Collection[str]) -> Tree:
    return replace(tree, objects=[o for o in tree.objects if o.path not in paths])


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path
