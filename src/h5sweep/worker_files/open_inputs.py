"""Open inputs again, and notice if one has changed since it was looked at."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from xxhash import xxh3_64_intdigest

from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.read_uniform import AlikeReader, quick_source
from ..hdf5.source import FileSource, Source
from ..hdf5.superblock import Superblock
from ..hdf5.tree import Tree
from ..hdf5.uniform_groups import AlikeFile, AlikeFiles
from .first_bytes import Triage
from .inputs import Input, changed, require_unchanged
from .layouts import FileLayout
from .read_at_once import read_files
from .read_file import (
    DamagedFileError,
    damaged_file,
    own_tree,
    source_of,
    unread_file,
)
from .skipped_names import Names

_UNREADABLE = (Damaged, Unsupported, ArithmeticError, LookupError, TypeError, ValueError)


class InputOpener:
    """Opens inputs again that were looked at; ChangedError if one is no longer what it was."""

    def __init__(self, skip: Names, key: Collection[str]) -> None:
        """`skip`: the names of what is to be left out of every file; `key`: those of its key."""
        self.skip, self._key = skip, key
        self.triage = Triage()
        self.alike_reader = AlikeReader()

    @contextmanager
    def opened_alike(self, one: Input) -> Iterator[AlikeFile | None]:
        """The groups that are alike, of a file that `is_alike`; ChangedError if it has changed."""
        descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(one, descriptor)
            if one.alike is not None:
                source = quick_source(FileSource(descriptor, one.size_bytes))
                if source.content and not one.xxh3:
                    one.xxh3 = xxh3_64_intdigest(source.content)
                yield one.alike.over(source)
            else:
                source = source_of(descriptor, one.size_bytes)
                superblock = self.triage.judge(source, str(one.path)).superblock
                if superblock is None:
                    raise changed(one)
                yield read_alike(self.alike_reader, Hdf5File(source, superblock))
            require_unchanged(one, descriptor)
        except Damaged as error:
            raise _damaged(one, descriptor, error) from error
        finally:
            os.close(descriptor)

    def read_together(self, inputs: Sequence[Input]) -> AlikeFiles | None:
        """Small files, all of groups that are alike or all of one task each, read at once.

        None if one of them is not what was looked at, or is like no other: then each is to be
        opened by itself.
        """
        contents = []
        for one, file in zip(inputs, read_files([one.name for one in inputs]), strict=True):
            if file is None or (len(file.content), file.modified_ns) != (
                one.size_bytes,
                one.modified_ns,
            ):
                return None
            checksum = xxh3_64_intdigest(file.content)
            if checksum != (one.xxh3 or checksum):
                return None
            one.xxh3 = checksum
            contents.append(file.content)
        families = [one.family for one in inputs if one.family is not None]
        if not families:
            found = read_small(self.alike_reader, contents)
        else:
            paths = [f"/{one.path.stem}" for one in inputs]
            blocks = [family.tree.file.superblock for family in families]
            found = _read_tasks(self.alike_reader, contents, paths, blocks)
        return found if found and None not in found.trees else None

    @contextmanager
    def opened(self, one: Input) -> Iterator[FileLayout]:
        """The objects of a file and its bytes; ChangedError if it is not what was looked at."""
        descriptor = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(one, descriptor)
            source = source_of(descriptor, one.size_bytes)
            yield self.layout_of(self._tree_of(one, source))
            require_unchanged(one, descriptor)
        except Unsupported as error:
            raise unread_file(one.name, error) from error
        except Damaged as error:
            raise _damaged(one, descriptor, error) from error
        finally:
            os.close(descriptor)

    def layout_of(self, tree: Tree) -> FileLayout:
        """The objects of a file without those that are to be left out."""
        return FileLayout(tree, skip=self.skip, key=self._key)

    def _tree_of(self, one: Input, source: Source) -> Tree:
        if one.family is not None:
            return one.family.tree_of(source)
        if one.tree is not None:
            return replace(one.tree, file=Hdf5File(source, one.tree.file.superblock))
        superblock = self.triage.judge(source, one.name).superblock
        if superblock is None:
            raise changed(one)
        return own_tree(Hdf5File(source, superblock))


def read_alike(reader: AlikeReader, file: Hdf5File) -> AlikeFile | None:
    """As `read_file.own_tree`: a bug in our reader costs speed, and never the merge."""
    try:
        return reader.read(file)
    except _UNREADABLE:
        return None


def read_small(reader: AlikeReader, contents: Sequence[bytes]) -> AlikeFiles | None:
    """The same of many small files at once."""
    try:
        return reader.read_small(contents)
    except _UNREADABLE:
        return None


def _read_tasks(
    reader: AlikeReader,
    contents: Sequence[bytes],
    paths: Sequence[str],
    blocks: Sequence[Superblock],
) -> AlikeFiles | None:
    try:
        return reader.read_tasks(contents, paths, blocks)
    except _UNREADABLE:
        return None


def _damaged(one: Input, descriptor: int, error: Damaged) -> DamagedFileError:
    require_unchanged(one, descriptor)  # which says why, if somebody cut it
    return damaged_file(one.name, error)
