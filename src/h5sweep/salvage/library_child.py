"""The child process: shows a file as the HDF5 library reads it, one task per message.

    asked    path, how to open it, which key, which groups to ask for by name
    says     one task, or rows of one table, with the data; last {"end": …, "errors": […]}

It is confined as the children of a check are: it cannot write, and dies with its parent. A file
that needs another superblock is read through one that is laid over it, never changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.key_pattern import KeyPattern
from ..base.key_rule import KeyRule
from ..base.plan import Key
from ..base.values import Array, ResultEncoder
from ..disk.h5py_loader import h5py, is_elsewhere
from ..errors import UnsupportedValueError
from ..hdf5.errors import Unsupported
from ..hdf5.tree import least_unbelievable, most_made_up
from ..library.child_program import opened_as_closed, questions, say
from ..library.limit_child import sealed
from ..worker_files.file_view import (
    CLAIMS_MORE,
    Failures,
    FoundRows,
    FoundTask,
    FoundValue,
    FoundValues,
    Group,
    rows_that_fit,
)
from ..worker_files.read_tasks import leave_out, locate_in_view, read_tasks
from ..worker_files.skipped_names import is_mere_dimension

MOST_OBJECTS = 200_000
DATASETS_OPEN = 64
MOST_CACHE_BYTES = 2 << 20
MOST_ATTRIBUTE_BYTES = 1 << 20


def main() -> None:
    """Answer until there are no more questions."""
    for request in questions():
        try:
            errors = _answer(request)
        except MemoryError:
            errors = ["it needs more memory than --memory allows"]
        except Exception as error:  # whatever the library makes of it is the answer
            errors = [str(error)]
        say({"end": True, "errors": errors[:20]})


def _answer(request: dict[str, Any]) -> list[str]:
    """Send every task of the file; return what could not be listed."""
    pattern = KeyPattern.parse(request["pattern"]) if request["pattern"] else None
    rule = KeyRule(tuple(request["names"]), pattern)
    with _opened(request["path"], request["how"]) as file, sealed():
        _limit_cache(file)
        listing = _GroupListing(file)
        listing.walk()
        listing.ask(request["wanted"])
        listing.limit_claims(request["size_bytes"])
        groups = leave_out(listing.groups, frozenset(request["skip"]))
        where = locate_in_view(groups, rule, request["path"])
        for found in read_tasks(groups, where, rule):
            if isinstance(found, FoundRows):
                _send_rows(found)
            else:
                _send_found(found)
    return listing.errors


def _opened(path: str, how: str) -> Any:
    if how == "overlaid":
        return opened_as_closed(path)
    settings = {"swmr": True} if how == "swmr" else {"locking": False}
    return h5py.File(path, "r", **settings)


def _limit_cache(file: Any) -> None:
    """Keep 2 MB of headers: the 32 MB that are usual take ten times as much in memory."""
    config = file.id.get_mdc_config()
    config.max_size = config.initial_size = MOST_CACHE_BYTES
    file.id.set_mdc_config(config)


def _send_rows(found: FoundRows) -> None:
    cells = dict(sorted(found.cells.items()))
    try:
        (schema, *_), every = ResultEncoder().encode_rows({n: c.values for n, c in cells.items()})
    except UnsupportedValueError:
        for one in found.singly():
            _send_found(one)
        return
    tasks = [
        (found.place(number), key, every[number])
        for number, key in enumerate(found.keys)
        if key is not None
    ]
    _send(tasks, schema, found.doubt, is_row=True)


def _send_found(found: FoundTask) -> None:
    """Send a task that is whole."""
    if found.key is None or found.lost or not found.cells:
        return
    cells = dict(sorted(found.cells.items()))
    with suppress(UnsupportedValueError):
        schema, data = ResultEncoder().encode({n: cell.value for n, cell in cells.items()})
        _send([(found.place, found.key, data)], schema, found.doubt, is_row=found.is_row)


def _send(tasks: list[tuple[str, Key, bytes]], schema: bytes, doubt: str, *, is_row: bool) -> None:
    header = {
        "places": [place for place, _, _ in tasks],
        "keys": [key for _, key, _ in tasks],
        "sizes": [len(data) for _, _, data in tasks],
        "schema": schema.decode(),
        "doubt": doubt,
        "is_row": is_row,
    }
    say(header, b"".join(data for _, _, data in tasks))


class _GroupListing:
    """The groups of a file as far as the library lists them, or gives them by name."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.groups: list[Group] = []
        self.errors: list[str] = []
        self.seen: set[str] = set()
        self.count = 0
        self.opened = lru_cache(DATASETS_OPEN)(file.__getitem__)

    def walk(self) -> None:
        waiting: list[tuple[str, Group | None]] = [("/", None)]
        while waiting and self.count < MOST_OBJECTS:
            path, parent = waiting.pop()
            try:
                group = self.file if parent is None else self.file[path]
            except Failures as error:
                self.errors.append(f"{path}: {error}")
                continue
            view, inner = self.look(path, group, parent)
            waiting += [(inner_path, view) for inner_path in reversed(inner)]

    def ask(self, wanted: list[str]) -> None:
        """Ask for groups by name: a listing that fails need not hide them."""
        for path in wanted:
            if path not in self.seen:
                try:
                    group = self.file[path]
                except Failures:
                    continue
                if isinstance(group, h5py.Group):
                    self.look(path, group, None)

    def limit_claims(self, file_bytes: int) -> None:
        """Read no dataset that claims more than the file can hold, as our own reader does."""
        found = [v for group in self.groups for v in group.variables.values()]
        variables = [v for v in found if isinstance(v, _LibraryVariable)]
        limit = least_unbelievable((v.claimed_bytes for v in variables), file_bytes)
        for variable in variables:
            variable.is_too_large = variable.claimed_bytes >= limit

    def look(self, path: str, group: Any, parent: Group | None) -> tuple[Group, list[str]]:
        """What a group holds, and the paths of the groups in it, of which none stays open."""
        view = Group(path, parent=parent, address=_address(group))
        self.groups.append(view)
        self.seen.add(path)
        self.count += 1
        inner = []
        try:
            names = list(group)
        except Failures as error:
            self.errors.append(f"{path}: {error}")
            view.unread = f"part of it cannot be read: {error}"
            names = []
        for name in names:
            try:
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    view.doubt = f"its {name} is in another file"
                    continue
                found = group[name]
            except Failures as error:
                view.lost[name] = str(error)
                continue
            if isinstance(found, h5py.Dataset):
                self.count += 1
                if is_elsewhere(found):
                    view.lost[name] = "its data are in another file, which was not read"
                elif found.shape is not None and not is_mere_dimension(_text_attributes(found)):
                    inner_path = f"{path.rstrip('/')}/{name}"
                    view.variables[name] = _LibraryVariable(found, inner_path, self.opened)
            elif isinstance(found, h5py.Group) and isinstance(link, h5py.HardLink):
                if _is_above(view, _address(found)):
                    continue  # a circle: what is in it was listed
                inner.append(f"{path.rstrip('/')}/{name}")
        _take_attributes(view, group)
        return view, inner


def _address(group: Any) -> int:
    """Where its header lies; -1 if the library cannot say."""
    try:
        return int(h5py.h5o.get_info(group.id).addr)
    except Failures:
        return -1


def _is_above(view: Group | None, address: int) -> bool:
    """Whether the group at this address is `view` or one that it lies in."""
    while view is not None and view.address != address:
        view = view.parent
    return view is not None and address >= 0


def _text_attributes(dataset: Any) -> dict[str, object]:
    """What tells a mere dimension."""
    try:
        value = dataset.attrs.get("NAME", b"") if "NAME" in dataset.attrs else b""
    except Failures:
        return {}
    return {"NAME": value.decode(errors="replace") if isinstance(value, bytes) else value}


def _take_attributes(view: Group, group: Any) -> None:
    try:
        names = list(group.attrs)
    except Failures as error:
        view.unread = f"part of it cannot be read: {error}"
        return
    for name in names:
        try:
            cell = _attribute(group, name)
        except Failures as error:
            view.lost_attributes[name] = str(error)
        else:
            view.attributes.update({} if cell is None else {name: cell})


def _attribute(group: Any, name: str) -> FoundValue | None:
    """The value of an attribute; None if it has none."""
    about = h5py.h5a.open(group.id, name.encode())
    datatype, space = about.get_type(), about.get_space()
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        return None
    if datatype.detect_class(h5py.h5t.REFERENCE):
        raise Unsupported("a reference")  # h5py may crash on those of healthy files
    if space.get_simple_extent_npoints() * datatype.get_size() > MOST_ATTRIBUTE_BYTES:
        raise Unsupported("it is too large")
    cells = dict(_arrays(np.asarray(group.attrs[name]), about.dtype))
    if "" not in cells:
        raise Unsupported("a compound")
    return FoundValue(cells[""])


class _LibraryVariable:
    """A dataset as the library reads it, opened when it is read: one that is open takes 20 kB."""

    __slots__ = (
        *("_open", "_path", "chunks", "claimed_bytes", "dtype", "is_too_large", "may_grow"),
        "shape",
    )

    def __init__(self, dataset: Any, path: str, opened: Callable[[str], Any]) -> None:
        self._path, self._open = path, opened
        self.shape: tuple[int, ...] | None = dataset.shape
        self.may_grow = bool(dataset.maxshape) and dataset.maxshape[0] is None
        self.chunks: tuple[int, ...] | None = dataset.chunks
        self.dtype: np.dtype[Any] = dataset.dtype
        self.claimed_bytes = dataset.size * max(dataset.id.get_type().get_size(), 1)
        self.is_too_large = False

    @property
    def dataset(self) -> Any:
        return self._open(self._path)

    @property
    def fields(self) -> tuple[str, ...]:
        if not self.dtype.names or len(self.shape or ()) != 1:
            return ()
        return tuple(name for name, _ in _arrays(np.zeros((), self.dtype), self.dtype))

    @property
    def rows_there(self) -> int:
        if not self.shape or not self.chunks:
            is_there = not self.shape or self.dataset.id.get_storage_size()
            return (self.shape or (1,))[0] if is_there else 0
        ends = [0]
        side = self.chunks[0]
        self.dataset.id.chunk_iter(lambda chunk: ends.append(chunk.chunk_offset[0] + side))
        return min(max(ends), self.shape[0])

    def read(self, row: int | None) -> dict[str, FoundValue]:
        if self.shape is None or self.dataset.id.get_type().detect_class(h5py.h5t.REFERENCE):
            raise Unsupported("values that no result can hold")
        self.require_believable(self.claimed_bytes if row is None else 0)
        value = np.asarray(self.dataset[() if row is None else row])
        return {name: FoundValue(array) for name, array in _arrays(value, self.dtype)}

    def require_believable(self, at_once: int) -> None:
        stored = self.dataset.id.get_storage_size()
        if self.is_too_large or (at_once > stored and at_once > most_made_up(stored)):
            raise Unsupported(CLAIMS_MORE)

    def rows_at_once(self, row: int) -> int:
        """Those of whole chunks, or of one, and not too many."""
        row_bytes = math.prod((self.shape or (1,))[1:]) * self.dtype.itemsize
        side, most = self.chunks[0] if self.chunks else 1, rows_that_fit(row_bytes, row, None)
        if side >= most:
            return rows_that_fit(row_bytes, row, side)
        return most - (row + most) % side

    def read_rows(self, rows: range) -> dict[str, FoundValues]:
        if _has_lists(self.dtype) or self.dataset.id.get_type().detect_class(h5py.h5t.REFERENCE):
            raise Unsupported("values that differ from row to row")
        self.require_believable(0)
        value = np.asarray(self.dataset[rows.start : rows.stop])
        none = np.zeros(len(rows), bool)
        return {name: FoundValues(array, none, none) for name, array in _arrays(value, self.dtype)}

    def place(self, row: int | None) -> tuple[tuple[int, int], ...]:
        return ()


def _has_lists(dtype: np.dtype[Any]) -> bool:
    if dtype.names:
        return any(_has_lists(dtype[name]) for name in dtype.names)
    base = dtype.base
    return base.kind == "O" and not h5py.check_string_dtype(base)


def _arrays(value: Array, dtype: np.dtype[Any]) -> Iterator[tuple[str, Array]]:
    """A value as `decode_elements` gives it."""
    if dtype.names:
        for name in dtype.names:
            for inner, array in _arrays(value[name], dtype[name]):
                yield f"{name}_{inner}" if inner else name, array
    elif dtype.subdtype is not None:
        yield from _arrays(value, dtype.subdtype[0])
    elif h5py.check_string_dtype(dtype) or dtype.kind == "S":
        yield "", _texts(value)
    elif dtype.kind == "O" and value.shape == ():
        yield "", np.asarray(value.item())
    else:
        yield "", value


def _texts(value: Array) -> Array:
    texts = [t.decode() if isinstance(t, bytes) else t for t in value.ravel().tolist()]
    return np.array(texts, str).reshape(value.shape) if texts else np.empty(value.shape, str)
