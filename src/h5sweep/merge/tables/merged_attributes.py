"""The attributes of the output: each as in the first input that has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...base.attribute_json import is_decoding
from ...worker_files.inputs import Input
from ..messages import differing_text
from .input_structure import AttributeValue, InputStructure, Variants, Where


class MergedAttributes:
    """The attributes of every object of the output, `of` its path, and from which input they are.

    `notes` say which attributes are left out, and `left_out` has their values, by the places of
    the inputs that have them.
    """

    def __init__(
        self, inputs: Sequence[Input], structures: Sequence[InputStructure], datasets: Sequence[str]
    ) -> None:
        """`datasets`: those of the output; groups are there if they have attributes."""
        self._structures = structures
        groups = [path for s in structures for path in s.attributes if s.brings_group(path)]
        self.of: dict[str, dict[str, AttributeValue]] = {p: {} for p in (*groups, *datasets)}
        self.notes: list[str] = []
        self.left_out: dict[int, dict[str, str]] = {}
        self._owners: dict[Where, Input] = {}
        self._differing: dict[Where, list[int]] = {}
        for structure in structures:
            self._take(structure)
        for where in list(self._partly_decoded()):
            self._leave_out(where)
        for path, name in [(path, name) for path, about in self.of.items() for name in about]:
            if others := [inputs[n] for n in sorted(self._differing.get((path, name), ()))]:
                self.notes.append(differing_text(name, path, self._owners[path, name], others))
        lost = dict.fromkeys(text for s in structures for text in s.lost_attributes)
        self.notes += [f"{text} is not kept: it refers to places in its file" for text in lost]

    @property
    def owners(self) -> dict[Where, tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return {(p, n): (one, str(self.of[p][n])) for (p, n), one in self._owners.items()}

    def _take(self, structure: InputStructure) -> None:
        """Take the attributes that no structure before has; note values that differ."""
        for path, merged in self.of.items():
            for name, variants in structure.attributes.get(path, {}).items():
                self._owners.setdefault((path, name), structure.example)
                first = merged.setdefault(name, variants[0][0])
                others = [(value, places) for value, places in variants if not first.equals(value)]
                self._leave_values((path, name), others)
                if others:
                    differing = self._differing.setdefault((path, name), [])
                    differing += [place for _, places in others for place in places]

    def _leave_values(self, where: Where, variants: Variants) -> None:
        """Keep values in the audit trail alone."""
        for value, places in variants:
            text = str(value)
            for place in places:
                self.left_out.setdefault(place, {})["@".join(where)] = text

    def _partly_decoded(self) -> Iterator[Where]:
        """Scale factors and the like of columns that not all files have, with the same value."""
        for path, about in self.of.items():
            having = [s.attributes.get(path, {}) for s in self._structures if path in s.columns]
            for name, value in about.items():
                if is_decoding(name, str(value)) and not all(
                    name in one and all(value.equals(other) for other, _ in one[name])
                    for one in having
                ):
                    yield path, name

    def _leave_out(self, where: Where) -> None:
        """Keep an attribute of a column in the audit trail alone."""
        path, name = where
        del self.of[path][name]
        for structure in self._structures:
            self._leave_values(where, structure.attributes.get(path, {}).get(name, []))
        first = self._owners.pop(where)
        self.notes.append(
            f"the attribute {name} of {path} in {first.name} is only in the audit trail: other "
            "files lack it or have another value, and readers would apply it to their values too"
        )
