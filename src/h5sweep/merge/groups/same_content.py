"""The groups of a file that a merge keeps whole, and whether two of them hold the same.

A task group is one that holds datasets, with all that is below it, or an empty group; a file
that is one task is one as a whole. Datasets beside task groups are kept as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.values import Array
from ...errors import UnmergeableError
from ...hdf5.cursor import Widths
from ...hdf5.datatypes import Class, Datatype
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.example_group import Example
from ...hdf5.file import Hdf5File
from ...hdf5.messages import Attribute, Storage
from ...hdf5.tree import Dataset, Object, Tree, TreeWalk
from ...hdf5.uniform_groups import AlikeFile, AlikeFiles, AlikeGroups
from ...worker_files.decode_elements import points_simply
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import FileLayout, Style
from ...worker_files.read_file import damaged_file
from ...worker_files.read_values import Values
from ..merged_mark import OWN_ATTRIBUTES
from .listed_groups import ListedGroups
from .write import GroupWriter, can_be_moved

_ROWS_AT_ONCE_BYTES = 8 << 20
_MEMBERS_AT_ONCE = 4096
_Parts = tuple[bytes, Array]  # one behind the other, and how long each is


@dataclass(frozen=True, slots=True)
class FilePart:
    """What one file has: its task groups, those above them, and of which sets its groups are."""

    roots: Collection[str]
    above: Mapping[str, Object]
    values: Values
    sets: Sequence[AlikeGroups]


class TaskGroups(ListedGroups):
    """The task groups of one file, with what stands for the content of each."""

    def parts(self) -> list[FilePart]:
        """The file; or each, if there are several."""
        return [FilePart(self.roots, self.above(), self.values, self.sets)]

    def move(self, writer: GroupWriter, groups: Sequence[str]) -> list[str]:
        """Write those of the groups that can be moved as bytes; return the others."""
        left = []
        sets, numbers = self.members(groups)
        for number, some in _alike(sets):
            if number >= 0 and can_be_moved(self.sets[number]):
                writer.add(self.sets[number], numbers[some], self.values)
            else:
                left += [groups[place] for place in some.tolist()]
        return left

    def digest(self, group: str) -> bytes:
        """What stands for all that is in a task group: names, types, shapes, values, links."""
        source = self.roots[group]
        objects = self._objects_in(source)
        digest = hashlib.blake2b(digest_size=16)
        start = len(source.rstrip("/"))
        for path, found in sorted(objects, key=lambda it: it[0]):
            _add(digest, path[start:] if path != source else "", found.kind)
            try:
                for name in sorted(found.attributes):
                    _add_attribute(digest, self.values, found.attributes[name])
                if found.dataset is not None:
                    self._add_dataset(digest, found.dataset)
            except Damaged as error:
                raise damaged_file(self.name, f"{path}: {error}") from error
            except Unsupported as error:
                raise UnmergeableError(f"{self.name}: {path}: {error}") from error
        for name, target in sorted(self._tree.soft_links.items()):
            if nearest(name, (source,)) is not None or source == "/":
                _add(digest, name[start:], "soft link", target)
        return digest.digest()

    def _objects_in(self, source: str) -> list[tuple[str, Object]]:
        """All objects of a task group, also those that are in sets."""
        if source in self._numbers:
            return self._walked(source)
        found = list(self._objects.get(source, ()))
        for path in self._inside.get(source, ()):
            found += self._walked(path)
        return found

    def _walked(self, source: str) -> list[tuple[str, Object]]:
        """The objects of a group in a set, read by the plain reader."""
        (number,), (place,) = self.members([source])
        walk = TreeWalk(Tree(self._tree.file))
        walk.waiting = [(source, int(self.sets[number].found.pieces[place, 0]))]
        walk.visit_all()
        return [(found.path, found) for found in walk.tree.objects]

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
            data = self.values.raw_rows(dataset, first, min(first + step, rows))
            digest.update(self.plain(dataset.type, data))

    def is_same(self, datatype: Datatype, data: bytes, other: TaskGroups, theirs: bytes) -> bool:
        """Whether many values are equal one by one; False also where only `plain` can tell."""
        if not datatype.points_elsewhere:
            return data == theirs
        if not points_simply(datatype) or len(data) != len(theirs):
            return False
        pairs = zip(
            self.values.lists(data, datatype), other.values.lists(theirs, datatype), strict=True
        )
        return all(mine == other for mine, other in pairs)

    def plain(self, datatype: Datatype, data: bytes) -> bytes:
        """Values as bytes that mean the same in every file."""
        return self.values.resolved(data, datatype)


class JoinedTasks(TaskGroups):
    """The task groups of many small files, in which nothing else is but what is above them."""

    def __init__(self, files: AlikeFiles, layout: FileLayout) -> None:
        super().__init__("small files", layout, alike=files.joined())
        self._files = files
        self.has_each_once = len(self._numbers) == sum(map(len, self.sets))

    def parts(self) -> list[FilePart]:
        """What each file has."""
        roots: list[list[str]] = [[] for _ in self._files.trees]
        sets: list[list[AlikeGroups]] = [[] for _ in self._files.trees]
        for groups in self.sets:
            for path, owner in zip(groups.paths, groups.owners.tolist(), strict=True):
                roots[owner].append(path)
                if groups not in sets[owner]:
                    sets[owner].append(groups)
        above = [{o.path: o for o in tree.objects} for tree in self._files.trees if tree]
        values = map(self._own_values, range(len(above)), above)
        return [*map(FilePart, roots, above, values, sets)]

    def _own_values(self, number: int, above: Mapping[str, Object]) -> Values:
        """What reads the values of one file; needed only for attributes above its groups."""
        if not any(found.attributes for found in above.values()):
            return self.values
        return Values(Hdf5File(self._files.source.file(number), self._tree.file.superblock))

    def _walked(self, source: str) -> list[tuple[str, Object]]:
        raise UnmergeableError(f"{source} is to be read in its own file")


def attribute_digests(values: Values, group: Object) -> dict[str, bytes]:
    """What stands for each attribute of one object, but those that a merge gives the root."""
    found = {}
    for name in group.attributes.keys() - (OWN_ATTRIBUTES if group.path == "/" else ()):
        digest = hashlib.blake2b(digest_size=16)
        _add_attribute(digest, values, group.attributes[name])
        found[name] = digest.digest()
    return found


def attribute_text(values: Values, attribute: Attribute) -> str:
    """The value of an attribute for people."""
    try:
        return values.text_of(attribute)
    except Unsupported:
        return attribute.value.hex()


def _add_attribute(digest: hashlib.blake2b, values: Values, attribute: Attribute) -> None:
    _add(digest, attribute.name, _type_words(attribute.type), attribute.space.dims)
    digest.update(values.resolved(attribute.value, attribute.type))


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
    sets, numbers = first.members(paths)
    other_sets, other_numbers = second.members(paths)
    for (one, other), places in _alike(np.stack([sets, other_sets], axis=1)):
        pair = (first.sets[one], second.sets[other]) if min(one, other) >= 0 else None
        if pair is None or not _are_alike(pair[0].example, pair[1].example):
            left += [paths[place] for place in places.tolist()]
            continue
        for some in _steps(pair[0], places):
            mine, theirs = numbers[some], other_numbers[some]
            equal = _equal_members(first, pair[0], mine, second, pair[1], theirs)
            left += [paths[place] for place in some[~equal].tolist()]
    for path in left:
        if first.digest(path) != second.digest(path):
            yield path


def _alike(kinds: Array) -> Iterator[tuple[Any, Array]]:
    """Every kind that there is, and the places where it stands."""
    found, which = np.unique(kinds, axis=0, return_inverse=True)
    for number, kind in enumerate(found.tolist()):
        yield kind, np.flatnonzero(which.reshape(-1) == number)


def _steps(groups: AlikeGroups, places: Array) -> Iterator[Array]:
    """The places in turn, as many at once as fit into memory."""
    fitting = _ROWS_AT_ONCE_BYTES * len(groups) // max(groups.data_bytes, 1)
    step = min(max(fitting, 1), _MEMBERS_AT_ONCE)
    for start in range(0, len(places), step):
        yield places[start : start + step]


def _are_alike(one: Example, other: Example) -> bool:
    """Whether two examples have the same objects, and nothing that only a heap can tell."""
    return one is other or _example_words(one) == _example_words(other)


def _example_words(example: Example) -> list[object]:
    words: list[object] = []
    for found in sorted(example.objects, key=lambda o: o.path):
        words.append((found.path, found.kind))
        if (dataset := found.dataset) is not None:
            words.append(_type_words(dataset.type))
            space = dataset.space  # of which lengths that may differ are compared group by group
            words.append(space if found.path not in example.shapes else len(space.limits))
        for name in sorted(found.attributes):
            attribute = found.attributes[name]
            words.append((name, _type_words(attribute.type), attribute.space.dims))
    return words


def _equal_members(
    first: TaskGroups,
    one: AlikeGroups,
    mine: Array,
    second: TaskGroups,
    other: AlikeGroups,
    theirs: Array,
) -> Array:
    """Which members of two sets have equal data and values."""
    equal = np.ones(len(mine), bool)

    def compare(datatype: Datatype, data: _Parts, others: _Parts) -> None:
        # All at once; what is of another length there was told by its shape.
        if first.is_same(datatype, data[0], second, others[0]):
            return
        for place, pair in enumerate(zip(_split(data), _split(others), strict=True)):
            equal[place] &= first.plain(datatype, pair[0]) == second.plain(datatype, pair[1])

    for path in one.example.data:
        datatype = one.example.dataset(path).type
        if path in one.example.shapes:
            shapes, other_shapes = one.found.shapes[path][mine], other.found.shapes[path][theirs]
            equal &= (shapes == other_shapes).all(axis=1)
        compare(
            datatype,
            (one.data(path, mine), one.sizes(path)[mine]),
            (other.data(path, theirs), other.sizes(path)[theirs]),
        )
    owners = {found.path: found for found in one.example.objects}
    for place, spot in one.example.values.items():
        datatype, sizes = owners[place[0]].attributes[place[1]].type, np.full(len(mine), spot.size)
        rows, other_rows = one.value_rows(place, mine), other.value_rows(place, theirs)
        compare(datatype, (rows.tobytes(), sizes), (other_rows.tobytes(), sizes))
    return equal


def _split(parts: _Parts) -> list[bytes]:
    ends = np.cumsum(parts[1]).tolist()
    return [parts[0][start:end] for start, end in zip([0, *ends], ends, strict=False)]


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
    is_one = is_one_task(layout) and alike is None and not in_columns and stem != ""
    return TaskGroups(name, layout, stem=stem, is_one=is_one, alike=alike, in_columns=in_columns)


def is_one_task(layout: FileLayout) -> bool:
    """Whether a file that is not merged into columns is one task as a whole."""
    return layout.by_group.keys() == {"/"} or layout.style is Style.ONE


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
