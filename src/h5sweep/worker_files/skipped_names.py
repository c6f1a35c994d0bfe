"""What is left out of a file: the mark of a worker's start, and what --skip names.

No other module decides this. A mark holds nothing that a task could have produced, and its value
goes to the audit trail; what the user names stays in its file, which is never removed then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..hdf5.datatypes import Class
from ..hdf5.tree import Object, Tree

MARK = "init"  # the dataset that a worker writes first, to show that it could
_MERE_DIMENSION = "This is a netCDF dimension but not a netCDF variable"
_PLAIN = (Class.INTEGER, Class.FLOAT, Class.ENUM)

MOST_NAMED = 5

Names = frozenset[str]


@dataclass(frozen=True)
class Skipped:
    """What a file has besides its results, by path; of a group, only the group itself."""

    marks: dict[str, Object] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [*self.marks, *self.named]


def parse_names(text: str | None) -> Names:
    """The names in `init,meta`."""
    return frozenset(name.strip() for name in (text or "").split(",") if name.strip())


def is_named(path: str, names: Names) -> bool:
    """Whether an object, or a group that it lies in, has one of the names."""
    return not names.isdisjoint(path.split("/")) or any(
        f"{path}/".startswith(f"/{name.strip('/')}/") for name in names if "/" in name
    )


def stray_text(paths: Sequence[str], taken: Iterable[str], outcome: str = "") -> str:
    """What to say of datasets that belong to no task: which they are, and how to leave them out.

    A name is left out wherever it occurs. Where one of the `taken` paths has it, a path is named.
    """
    named = ", ".join(paths[:MOST_NAMED]) + (", …" if len(paths) > MOST_NAMED else "")
    inside = {name for path in taken for name in path.split("/")}
    names = ",".join(
        dict.fromkeys(
            path if (name := path.rpartition("/")[2]) in inside else name for path in paths
        )
    )
    return (
        f"{named} {'is' if len(paths) == 1 else 'are'} in no task{outcome}. Leave out what is not "
        f"a result with --skip {names}, or correct --key"
    )


class Beside(NamedTuple):
    """A dataset at the root beside a mark."""

    rows: int | None
    may_grow: bool


def is_mark(shape: Sequence[int] | None, beside: Sequence[Beside], *, has_groups: bool) -> bool:
    """Whether an `init` at the root that cannot grow is a mark, by its shape and what is beside it.

    It has one element at most, and the tasks are elsewhere: in groups, in columns that grow, or
    there are none yet. Beside values of one task, or the only row of a table, it is one of them.
    """
    if math.prod(shape or ()) > 1:
        return False
    if has_groups or not beside or any(other.may_grow for other in beside):
        return True
    lengths = {other.rows for other in beside}
    return len(beside) > 1 and len(lengths) == 1 and lengths.isdisjoint((None, 1))


def is_mere_dimension(attributes: Mapping[str, object]) -> bool:
    """Whether a dataset stands for an axis and never gets values, as netCDF has them."""
    return str(attributes.get("NAME", "")).startswith(_MERE_DIMENSION)


def is_mere_axis(one: Object) -> bool:
    """The same for an object of our own reader."""
    name = one.attributes.get("NAME") if one.dataset is not None else None
    return name is not None and is_mere_dimension({"NAME": name.value.decode("latin-1")})


def without_skipped(tree: Tree, names: Names = frozenset()) -> tuple[Tree, Skipped]:
    """The objects of a file that count, and the others."""
    marks = {o.path: o for o in tree.objects if o.path == f"/{MARK}" and _is_mark(o, tree)}
    if not marks and not names:
        return tree, Skipped()
    objects = [o for o in tree.objects if o.path not in marks and not is_named(o.path, names)]
    paths = [o.path for o in tree.objects if o.path not in marks]
    paths += [*(path for path, _ in tree.second_names), *tree.soft_links, *tree.external_links]
    named = [path for path in paths if is_named(path, names)]
    inside = [path for path in named if is_named(path.rpartition("/")[0], names)]
    return _tree_of(tree, objects, names), Skipped(marks, [p for p in named if p not in inside])


def _is_mark(one: Object, tree: Tree) -> bool:
    dataset = one.dataset
    if dataset is None or dataset.may_grow:
        return False
    if not (dataset.type.is_text or dataset.type.type in _PLAIN):
        return False
    at_root = [d for path, d in tree.datasets if path.count("/") == 1 and d is not dataset]
    beside = [Beside(other.rows, other.may_grow) for other in at_root]
    has_groups = len(at_root) + 1 < len(tree.datasets)
    return is_mark(dataset.space.dims, beside, has_groups=has_groups)


def _tree_of(tree: Tree, kept: list[Object], names: Names) -> Tree:
    """A tree of these objects; one of which only the second name counts is known by that."""
    there = {one.address for one in kept}
    by_address = {one.address: one for one in tree.objects}
    second_names = []
    for path, address in tree.second_names:
        if is_named(path, names):
            continue
        if address in there:
            second_names.append((path, address))
        else:
            there.add(address)
            kept.append(replace(by_address[address], path=path))
    return replace(
        tree,
        objects=kept,
        soft_links={p: to for p, to in tree.soft_links.items() if not is_named(p, names)},
        external_links=[p for p in tree.external_links if not is_named(p, names)],
        second_names=second_names,
    )
