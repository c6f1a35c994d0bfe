"""One file of another program: its datasets under all their names, and their values as results."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ...base.attribute_json import attribute_json, names_axes, raw_json
from ...base.key_rule import KeyRule
from ...base.values import Array, RaggedRows, ResultEncoder, free_name, naming_order
from ...errors import UnmergeableError, UnsupportedValueError
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.messages import Attribute
from ...hdf5.tree import Object, ObjectKind
from ...worker_files.inputs import Input
from ...worker_files.keyed_tasks import KeyedFile
from ...worker_files.layouts import FileLayout, Style
from ...worker_files.read_file import damaged_file
from ...worker_files.read_values import MOST_VALUE_BYTES
from ...worker_files.skipped_names import MOST_NAMED
from .column_attributes import Described
from .tasks_of_file import About


class ForeignFile(KeyedFile):
    """One file: its objects by path, and where their values are."""

    def __init__(self, layout: FileLayout, one: Input, rule: KeyRule) -> None:
        super().__init__(layout, rule, one.name)
        self.one = one
        self.finished_at = one.modified_ns / 1e9
        self.encoder = ResultEncoder(rule.names)
        self.about = About(skipped=layout.skipped.paths)
        self.about.left_out.update(self.values.texts_of(layout.skipped.marks.values()))
        self.axes = dict.fromkeys(sorted(layout.axes), "an axis, no values")
        self.about.skipped += self.axes
        self.about.left_out.update(self.axes)
        self._names: dict[str, str] = {}
        if self.tree.is_cut:
            raise UnmergeableError(f"{one.path} has too many objects to list them all")

    def has_results(self) -> bool:
        """Whether there is anything but what a worker's file has before its first result."""
        return self.layout.style is not Style.NOTHING or bool(self.links_to_nothing())

    def name(self, path: str, taken: Container[str] = ()) -> str:
        """The name of a result value: an identifier that no column of every output has."""
        name = free_name(path, taken, self.rule.names)
        if name != path and self._names.get(path) != name:
            self._names[path] = name
            self.about.note(f"{path} is named {name} in the output")
        return name

    def failure(self, path: str, error: Exception) -> Exception:
        """The same error with file and place in it."""
        if isinstance(error, Damaged):
            return damaged_file(self.one.name, f"{path}: {error}")
        return UnmergeableError(
            f"{self.one.path}: {path}: {error}; leave it out with --skip {posixpath.basename(path)}"
        )

    def no_values(self, path: str) -> Exception:
        return UnmergeableError(
            f"{self.one.path}: {path} has a key but no values: remove it, or leave the file out"
        )

    def result(self, number: int, datasets: dict[str, Object], group: Object) -> dict[str, Array]:
        """The values of one task, by their names in the output."""
        found: dict[str, Array] = {}
        left = MOST_VALUE_BYTES
        for relative, holder in sorted(datasets.items(), key=lambda it: naming_order(it[0])):
            assert holder.dataset is not None
            left -= holder.dataset.size_bytes
            try:
                if left < 0:
                    raise Unsupported(f"a task of more than {MOST_VALUE_BYTES:,} bytes")
                values = self.values.of_dataset(holder.dataset)
            except (Damaged, Unsupported) as error:
                raise self.failure(holder.path, error) from error
            columns = self.take(found, relative, values, holder.path)
            self.describe(columns, relative, holder, number)
        leave_out = partial(self.leave_out_attribute, group.path)
        if group.kind is ObjectKind.GROUP:  # those of a dataset describe its column
            self.take_attributes(found, group, self.values.of_attribute, leave_out)
        return found

    def take(
        self, found: dict[str, Any], relative: str, values: Mapping[str, Any], path: str
    ) -> list[str]:
        """Add the values of a dataset, those of a compound's members under `relative_member`.

        Returns the columns that these are of.
        """
        if not values:
            self.about.note(f"{relative} is empty at {path} and is left out")
        columns = self.columns(relative, values, found)
        for name, part in zip(columns, values.values(), strict=True):
            if name in self.rule.names:
                continue
            self.about.datasets.setdefault(name)
            found[name] = part
        return columns

    def columns(
        self, relative: str, members: Iterable[str], taken: Container[str] = ()
    ) -> list[str]:
        """The columns of a dataset: one for each member of a compound, or one under its name."""
        names = ["_".join(filter(None, (relative, member))) for member in members]
        return [name if name in self.rule.names else self.name(name, taken) for name in names]

    def take_attributes(
        self,
        found: dict[str, Any],
        group: Object,
        read: Callable[[Attribute], dict[str, Array]],
        leave_out: Callable[[Attribute], None],
    ) -> None:
        """Add the attributes of a task's group to its values, as far as these can be results."""
        for name, attribute in group.attributes.items():
            if name in self.rule.names:
                continue
            values, why = None, "it is neither a number nor text"
            try:
                if self.name(name) in found:
                    why = "it has the name of a dataset"
                else:
                    values = read(attribute).get("")
            except Unsupported as error:
                why = str(error)
            except Damaged as error:
                raise self.failure(f"{group.path}, attribute {name}", error) from error
            if values is None:
                self.about.note(f"the attribute {name} is only in the audit trail: {why}")
                leave_out(attribute)
                continue
            self.about.attributes.setdefault(name)
            found[self.name(name)] = values

    def leave_out_attribute(self, path: str, attribute: Attribute) -> None:
        """Have the value of an attribute in the audit trail."""
        try:
            text = self.values.text_of(attribute)
        except (Damaged, Unsupported):
            text = self.values.portable(attribute.value, attribute.type).hex()
        self.about.left_out[f"{path}@{attribute.name}"] = text

    def describe(self, columns: list[str], dataset: str, holder: Object, task: int) -> None:
        """Note the attributes of a dataset: they are those of its columns if all tasks agree."""
        self.about.described.tasks.update(columns or [dataset])
        for name, attribute in self.attributes_of(dataset, holder):
            value = self.json_of(attribute)
            for column in columns or [dataset]:
                self.about.described.add(Described(column, dataset, name), value, [task])

    def json_of(self, attribute: Attribute) -> Any:
        """The value of an attribute in JSON; its bytes if it is neither a number nor text."""
        with suppress(Damaged, Unsupported):
            values = self.values.of_attribute(attribute).get("")
            if values is not None:
                return attribute_json(values)
        return raw_json(self.values.portable(attribute.value, attribute.type))

    def attributes_of(self, dataset: str, holder: Object) -> Iterator[tuple[str, Attribute]]:
        """The attributes of a dataset, but those that name its axes."""
        for name, attribute in holder.attributes.items():
            if names_axes(name, holder.attributes):
                self.about.note(f"the axes of {dataset.strip('/')} are not kept")
            else:
                yield name, attribute

    def leave_out_attributes(self, group: Object, where: str) -> None:
        """Have the attributes of what is no task in the audit trail, and say so."""
        for attribute in group.attributes.values():
            self.leave_out_attribute(group.path, attribute)
        if names := [name for name in group.attributes if not name.startswith("h5sweep_")]:
            more = len(names) - MOST_NAMED
            text = ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
            noun, are = ("attribute", "is") if len(names) == 1 else ("attributes", "are")
            self.about.note(f"the {noun} {text} of {where} {are} only in the audit trail")

    def encoded_rows(
        self, columns: Mapping[str, Array | RaggedRows]
    ) -> tuple[list[bytes], list[bytes]]:
        """Schemas and data of many records; the error names the file."""
        try:
            return self.encoder.encode_rows(columns)
        except UnsupportedValueError as error:
            raise UnmergeableError(f"{self.one.path}: {error}") from error

    def encoded(self, result: dict[str, Array], place: str) -> tuple[bytes, bytes]:
        """Schema and data of a record; the error names the file and the task."""
        try:
            return self.encoder.encode(result)
        except UnsupportedValueError as error:
            raise UnmergeableError(f"{self.one.path}: {place}: {error}") from error
