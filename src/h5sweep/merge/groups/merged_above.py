"""The groups above task groups, with the attributes that all inputs give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...errors import DamagedError
from ...hdf5.tree import Object
from ...worker_files.inputs import Input
from ..messages import differing_text
from .same_content import FilePart, TaskGroups, attribute_digests, attribute_text


class MergedAbove:
    """Groups above others, each with the attributes of all inputs; of those that differ the first.

    `beside`: attributes that the output has already, by group and name: whose, and as a text.
    """

    def __init__(
        self, inputs: Sequence[Input], beside: Mapping[tuple[str, str], tuple[Input, str]]
    ) -> None:
        self._inputs, self._beside = inputs, beside
        self.groups: dict[str, int] = {}  # path → the first input that has it
        # From which input each attribute is, what stands for it, and in which it differs.
        self._attributes: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._differing: dict[tuple[str, str], dict[Input, None]] = {}
        self.left_out: list[dict[str, str]] = [{} for _ in inputs]
        # Of each input: the groups whose attributes it gives.
        self.described: list[dict[str, None]] = [{} for _ in inputs]

    def take(self, numbers: Sequence[int], tasks: TaskGroups) -> None:
        """Take over groups above others with all attributes; of those that differ the first."""
        for number, part in zip(numbers, tasks.parts(), strict=True):
            for path, group in part.above.items():
                self.groups.setdefault(path, number)
                for name, digest in attribute_digests(part.values, group).items():
                    self._take_attribute(number, part, group, name, digest)

    def _take_attribute(
        self, number: int, part: FilePart, group: Object, name: str, digest: bytes
    ) -> None:
        """Take an attribute over, or note that the output has it with another value."""
        owner = self._beside.get((group.path, name))
        if owner is None:
            first, known = self._attributes.setdefault((group.path, name), (number, digest))
            if first == number:
                self.described[number].setdefault(group.path)
            is_same = known == digest
        else:
            is_same = owner[1] == attribute_text(part.values, group.attributes[name])
        if not is_same:
            text = attribute_text(part.values, group.attributes[name])
            self.left_out[number][f"{group.path}@{name}"] = text
            others = self._differing.setdefault((group.path, name), {})
            others.setdefault(self._inputs[number])

    def notes(self) -> Iterator[str]:
        """What people should know of attributes that differ."""
        for (path, name), others in self._differing.items():
            owner = self._beside.get((path, name))
            first = owner[0] if owner else self._inputs[self._attributes[path, name][0]]
            yield differing_text(name, path, first, [*others])

    def verify(self, output: TaskGroups, part: FilePart, number: int) -> None:
        """Raise DamagedError if what one input gave does not read back as it is there."""
        theirs = output.above()
        for path, group in part.above.items():
            if self.groups.get(path) == number and path not in theirs:
                raise DamagedError(f"{path} is not in the file that was written")
            if path not in self.described[number]:
                continue
            found = attribute_digests(output.values, theirs[path])
            for name, digest in attribute_digests(part.values, group).items():
                is_taken = self._attributes.get((path, name)) == (number, digest)
                if is_taken and found.get(name) != digest:
                    raise DamagedError(
                        f"the attribute {name} of {path}, from {self._inputs[number].path}, does "
                        "not read back as it was written: nothing was replaced; leave it out of "
                        "the file, or the file out of the merge"
                    )
