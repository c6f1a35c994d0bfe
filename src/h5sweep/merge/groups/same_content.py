"""The groups of a file that a merge keeps whole, and whether two of them hold the same.

A task group is one that holds datasets, with all that is below it, or an empty group; a file
that is one task is one as a whole. Datasets beside task groups are kept as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ...base.values import Array
from ...errors import UnmergeableError
from ...hdf5.cursor import Widths
from ...hdf5.datatypes import Class, Datatype
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.example_group import Example
from ...hdf5.messages import Storage
from ...hdf5.tree import Dataset, Object, Tree, TreeWalk
from ...hdf5.uniform_groups import AlikeFile, AlikeGroups
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import FileLayout, Style
from ...worker_files.read_file import damaged_file
from ..merged_mark import OWN_ATTRIBUTES
from .listed_groups import AlikeMember, ListedGroups
from .write import GroupWriter, can_be_moved

_ROWS_AT_ONCE_BYTES = 8 << 20
_MEMBERS_AT_ONCE = 4096


class TaskGroups(ListedGroups):
    """The task groups of one file, with what stands for the content of each."""

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

    def _walked(self, source: str, member: AlikeMember) -> list[tuple[str, Object]]:
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
    in_columns: Collection[str] = (),
) -> TaskGroups:
    """The task groups of an open file; without a stem it is an output, and no single task."""
    if layout.tree.is_cut:
        raise UnmergeableError(f"{name} has too many objects to list them all")
    is_flat = layout.by_group.keys() == {"/"}
    is_one = (
        (is_flat or layout.style is Style.ONE) and alike is None and not in_columns and stem != ""
    )
    return TaskGroups(name, layout, stem=stem, is_one=is_one, alike=alike, in_columns=in_columns)


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
    """Raise UnmergeableError if something refers to objects: a copy would point nowhere."""
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
                    "and a copy of it would point nowhere: merge with --key instead"
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
