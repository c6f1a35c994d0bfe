"""The attributes of the output: each as in the first input that has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...base.attribute_json import is_decoding
from ...base.values import Array
from ...worker_files.inputs import Input
from ...worker_files.survey import Survey
from ..messages import differing_text
from .input_structure import InputStructure, ObjectAttributes, Variants, read_variants

_Where = tuple[str, str]  # the path of an object, and the name of its attribute


class MergedAttributes:
    """The attributes of every object of the output, `of` its path, and from which input they are.

    `notes` say which attributes are left out, and `left_out` has their values, by the places of
    the inputs that have them.
    """

    def __init__(
        self,
        survey: Survey,
        inputs: Sequence[Input],
        structures: Sequence[InputStructure],
        of_input: Array,
        paths: Sequence[str],
    ) -> None:
        """`of_input`: the number of each input's structure."""
        self._inputs, self._structures = inputs, structures
        self._places: list[list[int]] = [[] for _ in structures]
        for place, number in enumerate(of_input.tolist()):
            self._places[number].append(place)
        self._variants: list[dict[_Where, Variants]] = [
            read_variants(survey, structure, inputs, places)
            for structure, places in zip(structures, self._places, strict=True)
        ]
        self.notes: list[str] = []
        self.left_out: dict[int, dict[str, str]] = {}
        self._owners: dict[_Where, InputStructure] = {}
        self.of = self._merge(paths)

    def _merge(self, paths: Sequence[str]) -> ObjectAttributes:
        """The attributes of every object of the output: those of the first file that has them."""
        merged: ObjectAttributes = {path: {} for path in paths}
        differing: dict[_Where, list[int]] = {}
        for number, structure in enumerate(self._structures):
            for where in [(p, name) for p in merged for name in structure.attributes.get(p, {})]:
                path, name = where
                self._owners.setdefault(where, structure)
                for value, places in self._values(number, where):
                    if not merged[path].setdefault(name, value).equals(value):
                        differing.setdefault(where, []).extend(places)
                        self._leave_value(where, str(value), places)
        for where in list(self._partly_decoded(merged)):
            self._leave_out(merged, where)
            differing.pop(where, None)
        for path, name in [(p, name) for p, about in merged.items() for name in about]:
            if others := [self._inputs[n] for n in sorted(differing.get((path, name), ()))]:
                first = self._owners[path, name].example
                self.notes.append(differing_text(name, path, first, others))
        lost = dict.fromkeys(text for s in self._structures for text in s.lost_attributes)
        self.notes += [f"{text} is not kept: it refers to places in its file" for text in lost]
        return merged

    def _values(self, number: int, where: _Where) -> Variants:
        """The values of an attribute in the inputs of one structure, if these have it."""
        value = self._structures[number].attributes.get(where[0], {}).get(where[1])
        if value is None:
            return []
        return self._variants[number].get(where) or [(value, self._places[number])]

    def _leave_value(self, where: _Where, text: str, places: Sequence[int]) -> None:
        for place in places:
            self.left_out.setdefault(place, {})["@".join(where)] = text

    def _partly_decoded(self, merged: ObjectAttributes) -> Iterator[_Where]:
        """Scale factors and the like of columns that not all files have, with the same value."""
        for path, about in merged.items():
            numbers = [n for n, s in enumerate(self._structures) if path in s.columns]
            for name, value in about.items():
                if is_decoding(name, str(value)):
                    having = [self._values(number, (path, name)) for number in numbers]
                    if not all(v and all(one.equals(value) for one, _ in v) for v in having):
                        yield path, name

    def _leave_out(self, merged: ObjectAttributes, where: _Where) -> None:
        """Keep an attribute of a column in the audit trail alone."""
        path, name = where
        del merged[path][name]
        first = self._owners.pop(where).example
        for number in range(len(self._structures)):
            for value, places in self._values(number, where):
                self._leave_value(where, str(value), places)
        self.notes.append(
            f"the attribute {name} of {path} in {first.name} is only in the audit trail: other "
            "files lack it or have another value, and readers would apply it to their values too"
        )

    def owners(self) -> dict[_Where, tuple[Input, str]]:
        """From which input each attribute of the output is, and its value for people."""
        return {
            (path, name): (structure.example, str(self.of[path][name]))
            for (path, name), structure in self._owners.items()
        }
