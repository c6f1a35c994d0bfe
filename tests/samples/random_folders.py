"""Folders of sound HDF5 files with values of every kind, by a seed, and what h5py reads of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

Chance = random.Random
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), 1e-300, 3.25]
TEXTS = ["", "a", "onshore", "Ærø", "two words", "line\nbreak", "trailing "]


def write_folder(folder: Path, seed: int, kinds: Sequence[str] = ()) -> Path:
    """Some files of one program: a task in each, or groups of tasks.

    Values are of any kind of `kinds`, or else of NUMBERS and OTHERS.
    """
    chance = Chance(seed)
    folder.mkdir(parents=True, exist_ok=True)
    makers = [_maker(chance, kinds or [*NUMBERS, *OTHERS]) for _ in range(chance.randint(1, 4))]
    attributes = [
        _attribute(chance, kinds or [*NUMBERS, *OTHERS]) for _ in range(chance.randint(0, 3))
    ]
    libver = chance.choice([None, "latest", "v108"])
    shape = chance.choice(["one task", "groups", "many groups"])
    task = 0
    for number in range(chance.choice([1, 2, 3, 12])):
        count = {"one task": 1, "groups": chance.randint(1, 4), "many groups": 12}[shape]
        with h5py.File(folder / f"task_{number}.h5", "w", libver=libver) as file:
            for _ in range(count):
                group = file if shape == "one task" else file.create_group(f"s{task}")
                _fill(group, chance, makers, attributes)
                task += 1
    return folder


def content_of(path: Path) -> dict[str, Any]:
    """Every object, and every attribute, by its path: type, shape and value."""
    with h5py.File(path, "r") as file:
        found: dict[str, Any] = dict(_attributes(file))
        file.visititems(lambda name, one: found.update(_of_object(one)))
        return found


def _of_object(one: Any) -> dict[str, Any]:
    what = "group" if isinstance(one, h5py.Group) else _plain(one.id.get_type(), one.id, one)
    return {one.name: what, **dict(_attributes(one))}


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    for name in one.attrs:
        attribute = h5py.h5a.open(one.id, name.encode())
        yield f"{one.name}@{name}", _plain(attribute.get_type(), attribute, None)


def _plain(kind: Any, found: Any, dataset: Any) -> Any:
    """The value as bytes or texts, so that NaN and -0.0 compare as they are."""
    words = str(kind.dtype), str(h5py.check_string_dtype(kind.dtype)), kind.get_class()
    if found.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        return (*words, None)
    values = np.empty(found.shape, kind.dtype)
    if dataset is None:
        found.read(values)
    else:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    value: Any = values.tobytes() if not values.dtype.hasobject else _listed(values)
    return (*words, found.shape, value)


def _listed(values: Any) -> Any:
    flat = [one.tolist() if isinstance(one, np.ndarray) else one for one in values.reshape(-1)]
    return repr(flat)


def _fill(
    group: Any,
    chance: Chance,
    makers: list[tuple[str, Callable[[Chance], Any], dict[str, Any]]],
    attributes: list[tuple[str, Callable[[Chance], Any]]],
) -> None:
    for place, (_, make, options) in enumerate(makers):
        name = f"v{place}" if place < 3 or chance.random() < 0.5 else f"in/v{place}"
        value = make(chance)
        if isinstance(value, h5py.Empty):
            dataset = group.create_dataset(name, data=value)
        elif np.ndim(value) and np.size(value):
            dataset = group.create_dataset(name, data=value, **options)
        else:
            dataset = group.create_dataset(name, data=value, dtype=options.get("dtype"))
        for attribute, make_attribute in attributes[:1]:
            dataset.attrs[attribute] = make_attribute(chance)
    for attribute, make_attribute in attributes:
        group.attrs[f"of_{attribute}"] = make_attribute(chance)


def _maker(
    chance: Chance, kinds: Sequence[str]
) -> tuple[str, Callable[[Chance], Any], dict[str, Any]]:
    kind = chance.choice(kinds)
    shapes = [chance.choice(SHAPES) for _ in range(chance.choice([1, 1, 3]))]
    options: dict[str, Any] = {}
    if kind in ("text", "list"):
        options["dtype"] = h5py.string_dtype() if kind == "text" else h5py.vlen_dtype("<i4")
    if chance.random() < 0.4 and kind != "list":
        options["chunks"] = True
        if chance.random() < 0.7:
            options["compression"] = "gzip"
            options["shuffle"] = chance.random() < 0.5
        options["fletcher32"] = chance.random() < 0.5 and kind != "text"
    return kind, lambda c: _value(c, kind, c.choice(shapes)), options


def _attribute(chance: Chance, kinds: Sequence[str]) -> tuple[str, Callable[[Chance], Any]]:
    kind = chance.choice(kinds)
    shape = chance.choice([(), (), (1,), (3,), (2, 2)])
    varies = chance.random() < 0.6
    fixed = Chance(chance.random())

    def make(c: Chance) -> Any:
        own = c if varies else Chance(fixed.random() * 0)
        if kind == "text":
            texts = [own.choice(TEXTS) for _ in range(int(np.prod(shape)))]
            return texts[0] if not shape else np.array(texts, object).reshape(shape)
        if kind == "list":
            return _value(own, "<f8", shape)
        return _value(own, kind, shape)

    return f"a{kind.strip('<>|')}", make


def _value(chance: Chance, kind: str, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    if kind == "empty":
        return h5py.Empty("f8")
    if kind == "text":
        texts = [chance.choice(TEXTS) for _ in range(count)]
        return np.array(texts, object).reshape(shape) if shape else texts[0]
    if kind == "list":
        found = np.empty(count, object)
        for place in range(count):
            found[place] = np.arange(chance.randint(0, 3), dtype="<i4")
        return found.reshape(shape) if shape else found[0]
    values = np.zeros(count, DTYPES.get(kind, kind))
    for place in range(count):
        values[place] = _element(chance, values.dtype)
    return values.reshape(shape)[()] if not shape else values.reshape(shape)


def _element(chance: Chance, dtype: Any) -> Any:
    if dtype.names:
        return tuple(_element(chance, dtype[name]) for name in dtype.names)
    if dtype.subdtype:
        base, shape = dtype.subdtype
        return _value(chance, base.str, shape)
    if dtype.kind == "O":
        is_text = h5py.check_string_dtype(dtype) is not None
        return chance.choice(TEXTS) if is_text else np.arange(chance.randint(0, 3), dtype="<i4")
    if dtype.kind == "f":
        value = chance.choice(FLOATS)
        return np.float64(value).astype(dtype) if dtype.itemsize > 2 or abs(value) > 1e-8 else 0.0
    if dtype.kind == "c":
        return complex(chance.choice(FLOATS), chance.choice(FLOATS))
    if dtype.kind == "b":
        return chance.random() < 0.5
    if dtype.kind == "S":
        return chance.choice(TEXTS).encode()[: dtype.itemsize]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return chance.choice([0, 1, low, high, chance.randint(int(low), int(high))])


SHAPES = [(), (1,), (3,), (2, 3), (0,), (0, 2), (4, 1, 2)]
NUMBERS = ["<f8", ">f8", "<f4", "<f2", "<i8", ">i4", "<u2", "|i1", "|u1", "<u8"]
OTHERS = ["|b1", "<c16", "<c8", "|S6", "text", "enum", "compound", "padded", "nested", "empty"]
OTHERS += ["list", "array"]
POINTING = ["texts within", "lists within", "padded"]
DTYPES = {
    "enum": h5py.enum_dtype({"LOW": 0, "HIGH": 1}, basetype="i1"),
    "compound": np.dtype([("x", "<f8"), ("n", "<i4"), ("s", "S4")]),
    "padded": np.dtype([("n", "|i1"), ("x", "<f8")], align=True),
    "nested": np.dtype([("p", [("x", "<f4"), ("y", "<f4")]), ("m", "<f8", (2,))]),
    "texts within": np.dtype([("n", "|i1"), ("s", h5py.string_dtype()), ("x", "<f8")], align=True),
    "lists within": np.dtype([("p", [("l", h5py.vlen_dtype("<i4"))]), ("x", "<f4")]),
    "array": np.dtype([("v", "<f4", (3,))]),
}
