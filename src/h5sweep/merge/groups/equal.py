"""The groups of a file that a merge keeps whole, and whether two of them hold the same.

A task group is one that holds datasets, with all that is below it, or an empty group; a file
that is one task is one as a whole. Datasets beside task groups are kept as they are.
"""

from __future__ import annotations

import hashlib
import posixpath
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate, chain

import numpy as np

from ...base.values import Array
from ...errors import UnmergeableError
from ...hdf5.cursor import Widths
from ...hdf5.datatypes import Class, Datatype
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.example_group import Example
from ...hdf5.messages import Storage
from ...hdf5.tree import Dataset, Object, ObjectKind, Tree, TreeWalk
from ...hdf5.uniform_groups import AlikeFile, AlikeGroups
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import FileLayout, Style
from ...worker_files.read_file import damaged_file
from ...worker_files.read_values import Values
from ..marker import OWN_ATTRIBUTES
from .write import GroupWriter, can_be_moved

_ROWS_AT_ONCE_BYTES = 8 << 20
_MEMBERS_AT_ONCE = 4096


@dataclass(frozen=True)
class _AlikeMember:
    """A task group that is in a set of groups that are alike."""

    groups: AlikeGroups
    number: int


class TaskGroups:
    """All task groups of one file, and datasets beside them, by the paths they have in an output.

    `joined` are datasets that are not looked at: they are columns, which others join. If `is_one`,
    the file is a task as a whole, and `stem` its name.
    """

    def __init__(
        self,
        name: str,
        layout: FileLayout,
        *,
        stem: str = "",
        is_one: bool = False,
        alike: AlikeFile | None = None,
        joined: Collection[str] = (),
    ) -> None:
        self.name = name
        tree = _without(layout.tree, joined)
        self._tree, self._values = tree, Values(tree.file)
        self._open = {"/", *(above for path in joined for above in _above(path))}
        self._by_path = {o.path: o for o in tree.objects}
        self._by_address = {o.address: o for o in tree.objects}
        self._inside: dict[str, list[str]] = {}  # members that are part of a task group
        self.sets = alike.sets if alike is not None else []
        self.content = alike.content if alike is not None else None  # of the whole file
        # There may be a million: numbers through all sets, and not an object each.
        self._firsts = [0, *accumulate(len(groups.paths) for groups in self.sets)]
        self._numbers = {p: n for n, p in enumerate(chain(*(g.paths for g in self.sets)))}
        self.skipped = layout.skipped.paths
        self.marks = self._values.texts_of(layout.skipped.marks.values())
        self._beside: set[str] = set()  # those of the roots that are no tasks
        self.roots = {f"/{stem}": "/"} if is_one else self._find_roots()
        # One dictionary serves as both, unless a file is a task as a whole.
        is_renamed = any(path != source for path, source in self.roots.items())
        self.sources = {s: path for path, s in self.roots.items()} if is_renamed else self.roots
        self._objects = self._objects_by_group()
        self._refuse_links()

    def _find_roots(self) -> dict[str, str]:
        """The topmost groups that hold datasets, those that hold nothing, datasets beside them."""
        parents = {posixpath.dirname(o.path) for o in self._tree.objects if o.path != "/"}
        parents |= {posixpath.dirname(path) for path in self._numbers}
        linked = {posixpath.dirname(path) for path, _ in self._tree.second_names}
        linked |= {posixpath.dirname(path) for path in self._tree.soft_links}
        holders = {posixpath.dirname(o.path) for o in self._tree.objects if o.dataset is not None}
        holders |= linked - {"/"}
        found: dict[str, str] = {}
        for group in self._tree.objects:
            if group.kind is not ObjectKind.GROUP:
                if posixpath.dirname(group.path) in self._open:
                    self._keep_beside(group, group.path, found)
                continue
            is_task = group.path in holders or group.path not in parents
            if group.path not in self._open and is_task and nearest(group.path, found) is None:
                found[group.path] = group.path
        for path, address in self._tree.second_names:
            if nearest(path, found) is None:
                self._keep_beside(self._by_address.get(address), path, found)
        self.skipped += [path for path in self._tree.soft_links if nearest(path, found) is None]
        for path in self._numbers:
            if (holder := nearest(path, found)) is None:
                found[path] = path
            else:
                self._inside.setdefault(holder, []).append(path)
        self._beside |= self._without_data(found.keys() - self._beside, holders)
        return found

    def _without_data(self, groups: Set[str], holders: Set[str]) -> Set[str]:
        """Groups that are no tasks, as `check` counts: those without data, if others have data."""
        bare = groups - holders - self._numbers.keys()
        if len(bare) < len(groups):
            return bare
        return {path for path in bare if not self._by_path[path].attributes}

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
                f"{self.name}: {path} leads to another file, which is not followed: put the data "
                "in its place, or leave the file out"
            )

    def move(self, writer: GroupWriter, groups: Sequence[str]) -> list[str]:
        """Write those of the groups that can be moved as bytes; return the others."""
        left, chosen = [], dict[int, list[int]]()
        sets = {id(alike): alike for alike in self.sets}
        movable = {
            key for key, alike in sets.items() if can_be_moved(alike, self._tree.file.superblock)
        }
        for path in groups:
            member = self.member(path)
            if member is None or id(member.groups) not in movable:
                left.append(path)
            else:
                chosen.setdefault(id(member.groups), []).append(member.number)
        for key, numbers in chosen.items():
            writer.add(sets[key], np.array(numbers, np.int64), self._values)
        return left

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

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of datasets in task groups, and of their own attributes, each once."""
        datasets: dict[str, None] = {}
        attributes: dict[str, None] = {}
        for source, objects in self._objects.items():
            for path, found in objects:
                if found.dataset is not None:
                    datasets.setdefault(path[len(source.rstrip("/")) + 1 :] or path)
                elif path == source:
                    attributes.update(dict.fromkeys(found.attributes))
        for groups in self.sets:
            attributes.update(dict.fromkeys(groups.example.group.attributes))
            inside = (o.path[1:] for o in groups.example.objects if o.dataset is not None)
            datasets.update(dict.fromkeys(inside))
        return tuple(datasets), tuple(attributes)

    def attribute_digests(self, group: Object) -> dict[str, bytes]:
        """What stands for each attribute of one object, but those that a merge gives the root."""
        found = {}
        for name in group.attributes.keys() - (OWN_ATTRIBUTES if group.path == "/" else ()):
            digest = hashlib.blake2b(digest_size=16)
            self._add_attribute(digest, group, name)
            found[name] = digest.digest()
        return found

    def attribute_text(self, group: Object, name: str) -> str:
        """The value of an attribute for people."""
        attribute = group.attributes[name]
        try:
            return self._values.text_of(attribute)
        except Unsupported:
            return attribute.value.hex()

    def member(self, path: str) -> _AlikeMember | None:
        """The set that a task group is in, by its path in an output, and its place there."""
        return self._member_at(path) if self.roots.get(path) == path else None

    def _member_at(self, source: str) -> _AlikeMember | None:
        """The same by its path in the file."""
        number = self._numbers.get(source)
        if number is None:
            return None
        place = bisect_right(self._firsts, number) - 1
        return _AlikeMember(self.sets[place], number - self._firsts[place])

    def digest(self, path: str) -> bytes:
        """What stands for all that is in a task group: names, types, shapes, values, links."""
        source = self.roots[path]
        objects = self._objects_in(source)
        digest = hashlib.blake2b(digest_size=16)
        start = len(source.rstrip("/"))
        for name, found in sorted(objects, key=lambda it: it[0]):
            _add(digest, name[start:] if name != source else "", found.kind)
            try:
                self._add_attributes(digest, found)
                if found.dataset is not None:
                    self._add_dataset(digest, found.dataset)
            except Damaged as error:
                raise damaged_file(self.name, f"{name}: {error}") from error
            except Unsupported as error:
                raise UnmergeableError(f"{self.name}: {name}: {error}") from error
        for name, target in sorted(self._tree.soft_links.items()):
            if nearest(name, (source,)) is not None or source == "/":
                _add(digest, name[start:], "soft link", target)
        return digest.digest()

    def _objects_in(self, source: str) -> list[tuple[str, Object]]:
        """All objects of a task group, also those that are in sets."""
        if (member := self._member_at(source)) is not None:
            return self._walked(source, member)
        found = list(self._objects.get(source, ()))
        for path in self._inside.get(source, ()):
            if (member := self._member_at(path)) is not None:
                found += self._walked(path, member)
        return found

    def _walked(self, source: str, member: _AlikeMember) -> list[tuple[str, Object]]:
        """The objects of a group in a set, read by the plain reader."""
        walk = TreeWalk(Tree(self._tree.file))
        walk.waiting = [(source, int(member.groups.places[0][member.number]))]
        walk.visit_all()
        return [(found.path, found) for found in walk.tree.objects]

    def _add_attributes(self, digest: hashlib.blake2b, found: Object) -> None:
        for name in sorted(found.attributes):
            self._add_attribute(digest, found, name)

    def _add_attribute(self, digest: hashlib.blake2b, found: Object, name: str) -> None:
        attribute = found.attributes[name]
        _add(digest, name, _type_words(attribute.type), attribute.space.dims)
        digest.update(self.plain(attribute.type, attribute.value))

    def _add_dataset(self, digest: hashlib.blake2b, dataset: Dataset) -> None:
        _add(digest, _type_words(dataset.type), dataset.space.dims, dataset.space.limits)
        if dataset.space.dims is None:
            return
        rows = dataset.space.dims[0] if dataset.space.dims else 1
        row_bytes = max(dataset.size_bytes // max(rows, 1), 1)
        step = max(_ROWS_AT_ONCE_BYTES // row_bytes, 1)
        if dataset.layout.chunk:
            step = -(-step // dataset.layout.chunk[0]) * dataset.layout.chunk[0]
        for first in range(0, rows, step):
            data = self._values.raw_rows(dataset, first, min(first + step, rows))
            digest.update(self.plain(dataset.type, data))

    def plain(self, datatype: Datatype, data: bytes) -> bytes:
        """Values as bytes that mean the same in every file."""
        return self._values.resolved(data, datatype)


def _add(digest: hashlib.blake2b, *words: object) -> None:
    digest.update(repr(words).encode())


def _type_words(datatype: Datatype) -> str:
    """A datatype as a text; the version with which it was written does not matter."""
    parts = [datatype.type.name, datatype.size, datatype.bits, datatype.dims, datatype.is_usual]
    parts += [(m.name, m.offset, _type_words(m.type)) for m in datatype.members]
    return repr((parts, _type_words(datatype.base) if datatype.base else ""))


def unequal_groups(first: TaskGroups, second: TaskGroups, paths: Sequence[str]) -> Iterator[str]:
    """Those of the task groups at `paths`, which both files have, that do not hold the same."""
    left = []
    pairs: dict[tuple[int, int], list[tuple[str, int, int]]] = {}
    sets: dict[int, AlikeGroups] = {}
    for path in paths:
        one, other = first.member(path), second.member(path)
        if one is None or other is None:
            left.append(path)
            continue
        sets[id(one.groups)], sets[id(other.groups)] = one.groups, other.groups
        pair = pairs.setdefault((id(one.groups), id(other.groups)), [])
        pair.append((path, one.number, other.number))
    for (one_id, other_id), members in pairs.items():
        one_set, other_set = sets[one_id], sets[other_id]
        if not _are_alike(one_set.example, other_set.example):
            left += [path for path, _, _ in members]
            continue
        fitting = _ROWS_AT_ONCE_BYTES // max(one_set.example.data_bytes, 1)
        step = min(max(fitting, 1), _MEMBERS_AT_ONCE)
        for start in range(0, len(members), step):
            some = members[start : start + step]
            equal = _equal_members(first, one_set, second, other_set, some)
            left += [some[place][0] for place in np.flatnonzero(~equal).tolist()]
    for path in left:
        if first.digest(path) != second.digest(path):
            yield path


def _are_alike(one: Example, other: Example) -> bool:
    """Whether two examples have the same objects, and nothing that only a heap can tell."""
    return one is other or _example_words(one) == _example_words(other)


def _example_words(example: Example) -> list[object]:
    words: list[object] = []
    for found in sorted(example.objects, key=lambda o: o.path):
        words.append((found.path, found.kind))
        if (dataset := found.dataset) is not None:
            words.append((_type_words(dataset.type), dataset.space.dims, dataset.space.limits))
        for name in sorted(found.attributes):
            attribute = found.attributes[name]
            words.append((name, _type_words(attribute.type), attribute.space.dims))
    return words


def _equal_members(
    first: TaskGroups,
    one: AlikeGroups,
    second: TaskGroups,
    other: AlikeGroups,
    members: list[tuple[str, int, int]],
) -> Array:
    """Which members of two sets have equal data and values."""
    mine = np.array([number for _, number, _ in members])
    theirs = np.array([number for _, _, number in members])
    equal = np.ones(len(members), bool)

    def compare(datatype: Datatype, rows: Array, other_rows: Array) -> None:
        if datatype.points_elsewhere:
            for place, pair in enumerate(zip(rows, other_rows, strict=True)):
                a, b = (row.tobytes() for row in pair)
                equal[place] &= first.plain(datatype, a) == second.plain(datatype, b)
        else:
            equal[:] &= (rows == other_rows).all(axis=1)

    for path in one.example.data:
        datatype = one.example.dataset(path).type
        compare(datatype, one.data_rows(path, mine), other.data_rows(path, theirs))
    owners = {found.path: found for found in one.example.objects}
    for place in one.example.values:
        datatype = owners[place[0]].attributes[place[1]].type
        compare(datatype, one.value_rows(place, mine), other.value_rows(place, theirs))
    return equal


def task_groups_of(
    name: str,
    layout: FileLayout,
    stem: str,
    alike: AlikeFile | None = None,
    joined: Collection[str] = (),
) -> TaskGroups:
    """The task groups of an open file; without a stem it is an output, and no single task."""
    if layout.tree.is_cut:
        raise UnmergeableError(f"{name} has too many objects to list them all")
    is_flat = layout.by_group.keys() == {"/"}
    is_one = (is_flat or layout.style is Style.ONE) and alike is None and not joined and stem != ""
    return TaskGroups(name, layout, stem=stem, is_one=is_one, alike=alike, joined=joined)


def _without(tree: Tree, paths: Collection[str]) -> Tree:
    return replace(tree, objects=[o for o in tree.objects if o.path not in paths])


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def refuse_narrow(tasks: TaskGroups, widths: Widths) -> None:
    """Raise UnmergeableError if addresses or lengths are not of the usual size.

    The HDF5 library cannot copy objects from such a file to another: it dies, or what it writes
    cannot be read.
    """
    if tasks.roots and widths != Widths():
        raise UnmergeableError(
            f"{tasks.name} has addresses of {widths.offset} bytes and lengths of {widths.length}, "
            "and the HDF5 library copies groups only between files where both have 8: merge with "
            "--key instead"
        )


def refuse_references(tasks: TaskGroups, alike: AlikeFile | None) -> None:
    """Raise UnmergeableError if something refers to objects: a copy would lead nowhere."""
    objects = tasks.listed
    for groups in alike.sets if alike else ():
        objects += [(groups.paths[0] + o.path, o) for o in groups.example.objects]
    for path, found in objects:
        types = {f"{path}, attribute {a.name}": a.type for a in found.attributes.values()}
        if found.dataset is not None:
            types[path] = found.dataset.type
        for where, datatype in types.items():
            if _refers(datatype):
                raise UnmergeableError(
                    f"{tasks.name}: {where} refers to other objects, as dimensions of netCDF do, "
                    "and a copy of it would lead nowhere: merge with --key instead"
                )
        dataset = found.dataset
        if dataset and (dataset.is_external or dataset.layout.storage is Storage.VIRTUAL):
            raise UnmergeableError(
                f"{tasks.name}: {path} has its data in another file, which is not followed: put "
                "the data in its place, or leave the file out"
            )


def _refers(datatype: Datatype) -> bool:
    inner = [m.type for m in datatype.members] + ([datatype.base] if datatype.base else [])
    return datatype.type is Class.REFERENCE or any(map(_refers, inner))
