"""Which rows of the output came from which input.

There may be many thousands of inputs, most of them alike, so that what they share is kept once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from ...runfolder.audit import compact_json
from ...worker_files.inputs import Input, Taken
from ..audit_entry import TakenListing, absolute_paths, audit_inputs, path_texts
from ..merged_mark import FileId
from ..report import TakenFile
from .input_structure import InputStructure
from .schema import MergedSchema

# All else is shared.
_OWN = frozenset(("path", "size_bytes", "modified_ns", "xxh3", "rows", "left_out"))


class TakenRows:
    """Each `Taken` is made when it is asked for."""

    def __init__(
        self,
        inputs: Sequence[Input],
        checksums: Sequence[int],
        schema: MergedSchema,
        marks: Mapping[int, dict[str, str]],
    ) -> None:
        """`marks`: what else inputs have that only the audit trail keeps, by their places."""
        self._inputs, self._checksums, self._held = inputs, checksums, schema.held
        self._left_out = dict(schema.attributes.left_out)
        for place, about in marks.items():
            self._left_out[place] = {**self._left_out.get(place, {}), **about}
        self._of_input: list[int] = schema.of_input.tolist()
        self._shared = [_shared(structure, schema) for structure in schema.structures]
        self._places = {t.name: (t.starts.tolist(), t.counts.tolist()) for t in schema.tables}

    def __iter__(self) -> Iterator[Taken]:
        return map(self._taken, range(len(self._inputs)))

    def _taken(self, place: int) -> Taken:
        shared, one = self._shared[self._of_input[place]], self._inputs[place]
        places = {name: self._places[name] for name in shared.tables}
        rows: dict[str, Sequence[int]] = {
            name: (*shared.tables[name], starts[place], counts[place])
            for name, (starts, counts) in places.items()
        }
        left_out = self._left_out.get(place, {})
        return Taken(
            one,
            self._checksums[place],
            shared.rows + shared.held_rows,
            shared.held_rows,
            shared.datasets,
            tuple(name for name in shared.attributes if name not in left_out),
            rows,
            shared.skipped,
            left_out,
        )

    def file_ids(self) -> Iterator[tuple[Input, FileId]]:
        """By what each input is known again."""
        facts = zip(self._inputs, self._checksums, strict=True)
        return ((one, FileId(one.size_bytes, xxh3, one.file_name)) for one, xxh3 in facts)

    def listing(self) -> TakenListing:
        """What `list_taken` would make of it, several times as fast."""
        texts: list[str] = []
        paths = absolute_paths(self._inputs)
        rows_of = {name: _row_texts(name, *places) for name, places in self._places.items()}
        for number, first, end in self._runs():
            if self._inputs[first] in self._held:  # alone, because its structure is its own
                texts += [compact_json(one._asdict()) for one in audit_inputs([self._taken(first)])]
                continue
            some, shared = slice(first, end), self._shared_json(first)
            columns = [rows_of[name][some] for name in self._shared[number].tables]
            rows = columns[0] if len(columns) == 1 else _joined(columns, end - first)
            values = [compact_json(self._left_out.get(n, {})) for n in range(first, end)]
            facts = (paths[some], self._inputs[some], self._checksums[some], rows, values)
            texts += [
                f'{{"path":{quoted(path)},"size_bytes":{one.size_bytes},'
                f'"modified_ns":{one.modified_ns},"xxh3":"{checksum:016x}","rows":{{{places}}},'
                f'"left_out":{left_out},{shared}'
                for path, one, checksum, places, left_out in zip(*facts, strict=True)
            ]
        held = sum(self._shared[n].held_rows for n in self._of_input)
        tasks = sum(self._shared[n].rows for n in self._of_input) + held
        return TakenListing(",".join(texts), tasks, held, tuple(self._files()))

    def _files(self) -> list[TakenFile]:
        shared = [(s.rows + s.held_rows, s.held_rows, s.datasets, s.skipped) for s in self._shared]
        facts = zip(path_texts(self._inputs), self._inputs, self._of_input, strict=True)
        files = [
            TakenFile(path, one.size_bytes, one.findings, *shared[number], {})
            for path, one, number in facts
        ]
        for place, left_out in self._left_out.items():
            files[place] = files[place]._replace(left_out=left_out)
        return files

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Inputs one after the other that differ only in what is each one's own."""
        first, known = 0, None
        for place, (one, number) in enumerate(zip(self._inputs, self._of_input, strict=True)):
            about = number, one.findings, one.contents, tuple(self._left_out.get(place, ()))
            if about != known:
                if known is not None:
                    yield known[0], first, place
                first, known = place, about
        if known is not None:
            yield known[0], first, len(self._inputs)

    def _shared_json(self, place: int) -> str:
        (one,) = audit_inputs([self._taken(place)])
        return compact_json({k: v for k, v in one._asdict().items() if k not in _OWN})[1:]


def _row_texts(table: str, starts: Sequence[int], counts: Sequence[int]) -> list[str]:
    name = quoted(table)
    return [f"{name}:[{at},{count}]" for at, count in zip(starts, counts, strict=True)]


def _joined(columns: Sequence[Sequence[str]], rows: int) -> list[str]:
    return [",".join(texts) for texts in zip(*columns, strict=True)] if columns else [""] * rows


class _SharedFacts(NamedTuple):
    """What is the same in every input of one structure."""

    tables: dict[str, Sequence[int]]  # and where the rows are that another input has
    rows: int
    held_rows: int  # that another input has
    datasets: tuple[str, ...]
    attributes: tuple[str, ...]
    skipped: tuple[str, ...]


def _shared(structure: InputStructure, schema: MergedSchema) -> _SharedFacts:
    attributes = tuple(
        f"{path}@{name}"
        for path, values in structure.attributes.items()
        if path in schema.attributes.of
        for name in values
    )
    kept = schema.kept_of(structure)
    skipped = (*structure.skipped.paths, *schema.indexes_of(structure), *structure.links)
    rows = sum(part.rows for part in structure.tables.values())
    held = sum(part.first for part in structure.tables.values())
    return _SharedFacts(
        {name: part.held for name, part in structure.tables.items()},
        rows,
        held,
        kept,
        attributes,
        skipped,
    )
