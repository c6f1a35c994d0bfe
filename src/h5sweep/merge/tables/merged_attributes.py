"""The attributes of the output: each as in the first input that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...base.attribute_json import is_decoding
from ...worker_files.inputs import Input
from ..messages import differing_text
from .input_structure import InputStructure, ObjectAttributes


class MergedAttributes:
    """The attributes of every object of the output, `of` its path, and from which input they are.

    `notes` say which attributes are left out; a structure notes its own in `left_out`.
    """

    def __init__(
        self,
        structures: Sequence[InputStructure],
        paths: Sequence[str],
        inputs_of: Callable[[Sequence[int]], list[Input]],
    ) -> None:
        """`inputs_of`: the inputs that have structures of these numbers."""
        self.structures, self._inputs_of = structures, inputs_of
        self.notes: list[str] = []
        self._owners: dict[tuple[str, str], InputStructure] = {}  # by object and name
        self.of = self._merge(paths)

    def _merge(self, paths: Sequence[str]) -> ObjectAttributes:
        """The attributes of every object of the output: those of the first file that has them."""
        merged: ObjectAttributes = {path: {} for path in paths}
        owners = self._owners
        differing: dict[tuple[str, str], list[int]] = {}
        for number, structure in enumerate(self.structures):
            for path in merged:
                for name, value in structure.attributes.get(path, {}).items():
                    known = merged[path].setdefault(name, value)
                    owners.setdefault((path, name), structure)
                    if known is not value and not known.equals(value):
                        differing.setdefault((path, name), []).append(number)
                        structure.left_out[f"{path}@{name}"] = str(value)
        for path, name in list(self._partly_decoded(merged)):
            self._leave_out(merged, path, name)
            differing.pop((path, name), None)
        for (path, name), numbers in differing.items():
            first = owners[path, name].example
            self.notes.append(differing_text(name, path, first, self._inputs_of(numbers)))
        lost = dict.fromkeys(text for s in self.structures for text in s.lost_attributes)
        self.notes += [f"{text} is not kept: it refers to places in its file" for text in lost]
        return merged

    def _partly_decoded(self, merged: ObjectAttributes) -> Iterator[tuple[str, str]]:
        """Scale factors and the like of columns that not all files have, with the same value."""
        for path, about in merged.items():
            for name, value in about.items():
                if is_decoding(name, str(value)):
                    having = [
                        s.attributes.get(path, {}) for s in self.structures if path in s.columns
                    ]
                    if not all(name in own and own[name].equals(value) for own in having):
                        yield path, name

    def _leave_out(self, merged: ObjectAttributes, path: str, name: str) -> None:
        """Keep an attribute of a column in the audit trail alone."""
        del merged[path][name]
        first = self._owners.pop((path, name)).example
        for structure in self.structures:
            if (value := structure.attributes.get(path, {}).get(name)) is not None:
                structure.left_out[f"{path}@{name}"] = str(value)
        self.notes.append(
            f"the attribute {name} of {path} in {first.name} is only in the audit trail: other "
            "files lack it or have another value, and readers would apply it to their values too"
        )

    def owners(self) -> dict[tuple[str, str], tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return {
            (path, name): (structure.example, str(self.of[path][name]))
            for (path, name), structure in self._owners.items()
        }
