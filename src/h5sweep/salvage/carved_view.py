"""A carved file as groups with attributes and variables, and what of these is lost."""

from __future__ import annotations

from ..hdf5.damage.carve import Carved, Carving
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.tree import NO_ATTRIBUTES, data_extents
from ..worker_files.file_view import Group
from ..worker_files.skipped_names import is_mere_dimension
from .carved_datasets import CarvedVariable
from .data_gaps import MOST_ADDRESS, DataPlaces, FileMemory
from .zero_rows import PAGE_BYTES


def view_carved(carving: Carving, shared: FileMemory) -> list[Group]:
    """The groups of a file; of those that nothing leads to, none if nothing is wrong with it."""
    variables = {
        address: CarvedVariable(carved, shared)
        for address, carved in carving.objects.items()
        if carved.object.dataset is not None
    }
    _note_suspects(carving, variables, shared)
    has_soft_links = any(carved.elsewhere for carved in carving.objects.values())
    groups = {}
    for carved in carving.objects.values():
        if carved.is_group and (carved.is_linked or not carving.is_sound):
            groups[carved.address] = _group_of(carving, carved, variables, shared)
            if not has_soft_links:  # these alone are followed from group to group
                carved.links = ()
    for address, group in groups.items():
        parents = carving.objects[address].parents
        group.parent = groups.get(parents[0][0]) if parents and parents[0][0] is not None else None
    return list(groups.values())


def _group_of(
    carving: Carving,
    carved: Carved,
    variables: dict[int, CarvedVariable],
    shared: FileMemory,
) -> Group:
    group = Group(carved.path, is_linked=carved.is_linked)
    group.address = carving.file.superblock.start + carved.address
    group.doubt = "its header is torn" if carved.is_torn else ""
    # Links are checksummed where headers are, and only there.
    group.has_checked_name = carved.is_checked and carved.is_linked
    group.unread = "" if carved.cost is None else f"part of it cannot be read: {carved.cost}"
    group.is_unsupported = isinstance(carved.cost, Unsupported)
    for name, attribute in carved.object.attributes.items():
        try:
            if (cell := shared.attribute_cell(attribute, carved.is_checked)) is not None:
                group.attributes[name] = cell
        except (Damaged, Unsupported, ValueError) as error:
            group.lost_attributes[name] = str(error)
    carved.object.attributes = NO_ATTRIBUTES
    _take_links(carving, carved, variables, group)
    _take_soft_links(carving, carved, variables, group)
    return group


def _take_links(
    carving: Carving, carved: Carved, variables: dict[int, CarvedVariable], group: Group
) -> None:
    for name, child in carved.links:
        found = carving.objects.get(child)
        if found is None:
            group.lost[name] = "its header is missing"
        elif child in variables and not _belongs_elsewhere(carving, carved, found, group):
            _add_variable(group, name, variables[child])
            # One name in several groups is no mistake; another name may be an old link,
            # which nobody has counted.
            if len(found.names) > 1 and found.names[name] < 2 and not found.has_many_names:
                group.doubt = group.doubt or f"its {name} has another name elsewhere"


def _take_soft_links(
    carving: Carving, carved: Carved, variables: dict[int, CarvedVariable], group: Group
) -> None:
    for name, target in carved.elsewhere.items():
        if target is None:
            group.doubt = group.doubt or f"its {name} is in another file"
        elif (found := carving.find(carved.address, target)) in variables:
            _add_variable(group, name, variables[found])
        else:
            group.doubt = group.doubt or f"its {name} points to {target}, where there is no dataset"


def _add_variable(group: Group, name: str, variable: CarvedVariable) -> None:
    """Add what may be a value: not a dataset that can have none."""
    if variable.shape is not None and not is_mere_dimension(variable.attributes):
        group.variables[name] = variable


def _belongs_elsewhere(carving: Carving, carved: Carved, child: Carved, group: Group) -> bool:
    """Whether a group that nothing leads to claims what another group has: a remnant."""
    if carved.is_linked:
        return False
    others = {parent for parent, _ in child.parents if parent not in (None, carved.address)}
    if not others:
        return False
    if any(carving.objects[at].is_linked for at in others if at in carving.objects):
        group.lost[child.path] = "it belongs to another group"
        return True
    group.doubt = "another group claims its data"
    return False


def _note_suspects(
    carving: Carving, variables: dict[int, CarvedVariable], shared: FileMemory
) -> None:
    """Find data that two datasets claim: the index of one of them is stale."""
    claims = DataPlaces(
        (at, min(at + size, MOST_ADDRESS), address)
        for address, variable in variables.items()
        for at, size in data_extents(variable.dataset)
        if size and not variable.dataset.is_external
    )
    shared.claims = DataPlaces(e for variable in variables.values() for e in variable.extents())
    shared.zeros_from = _lost_end(carving, shared.claims)
    reach, holder = 0, (0, 0, -1)
    for claim in claims:
        if claim[0] < reach and claim[2] in variables and holder[2] in variables:
            _doubt(carving, variables, holder, claim)
        if claim[1] > reach:
            reach, holder = claim[1], claim


def _lost_end(carving: Carving, claims: DataPlaces) -> int:
    """From where on a file is zeros to its end, if these are not all in the place of values."""
    source, start = carving.file.source, carving.file.superblock.start
    found = source.size
    while found:
        step = min(found, PAGE_BYTES)
        data = source.read(found - step, step).rstrip(b"\0")
        found -= step - len(data)
        if data:
            break
    covered = found - start
    for at, end, _ in claims:
        if at <= covered:
            covered = max(covered, end)
    return found if start + covered < source.size else source.size


def _doubt(
    carving: Carving,
    variables: dict[int, CarvedVariable],
    first: tuple[int, int, int],
    second: tuple[int, int, int],
) -> None:
    """Doubt both claims, or only that of a remnant, which nothing leads to."""
    is_linked = {claim: carving.objects[claim[2]].is_linked for claim in (first, second)}
    for claim, other in ((first, second), (second, first)):
        if not is_linked[claim] or is_linked[other]:
            rival = (variables[other[2]], other[0])
            variables[claim[2]].rivals.setdefault(claim[0], []).append(rival)
