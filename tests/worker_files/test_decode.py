"""Elements of HDF5 as arrays: what h5py wrote comes back, and what cannot be says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep.base.values import Array
from h5sweep.hdf5.datatypes import Class, Datatype
from h5sweep.hdf5.errors import Damaged, Unsupported
from h5sweep.hdf5.file import open_file
from h5sweep.hdf5.messages import Attribute
from h5sweep.hdf5.source import Source
from h5sweep.hdf5.tree import read_whole_tree
from h5sweep.worker_files.decode_elements import DoubtfulElements, Elements

Write = Callable[..., tuple[Elements, Attribute]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """An attribute as h5py writes it, and what decodes the elements of its file."""

    def write_attribute(value: Any, dtype: Any = None) -> tuple[Elements, Attribute]:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.attrs.create("a", value, dtype=dtype)
        found = open_file(Source((tmp_path / "a.h5").read_bytes()))
        root = read_whole_tree(found).root
        assert root is not None
        return Elements(found), root.attributes["a"]

    return write_attribute


def decode(elements: Elements, attribute: Attribute) -> dict[str, Array]:
    return elements.decode(attribute.type, attribute.value, attribute.space.dims or ())


def test_members_of_every_kind_come_by_their_names(write: Write) -> None:
    """Texts of both kinds, truth values and compounds within compounds and arrays."""
    inner = np.dtype([("x", ">f4"), ("on", bool)])
    text = h5py.string_dtype()
    dtype = [("text", text), ("fixed", "S4"), ("wave", ">c8"), ("inner", inner, (2,))]
    row = ("größer", b"ab", 1 + 2j, [(1.5, True), (2.5, False)])
    found = decode(*write(np.array([row, row], dtype)))
    assert found["text"].tolist() == ["größer"] * 2 and found["fixed"].tolist() == ["ab"] * 2
    assert found["wave"].tolist() == [1 + 2j] * 2 and found["inner_x"].dtype == np.float32
    assert found["inner_x"].tolist() == [[1.5, 2.5]] * 2
    assert found["inner_on"].tolist() == [[True, False]] * 2
    assert set(found) == {"text", "fixed", "wave", "inner_x", "inner_on"}


def test_a_list_of_any_length_is_an_array(write: Write) -> None:
    """One list is an array; several have no shape together."""
    lists = np.empty(1, object)
    lists[0] = np.array([1, 2, 3], np.int16)
    elements, attribute = write(lists, h5py.vlen_dtype(np.int16))
    found = elements.decode(attribute.type, attribute.value, ())[""]
    assert found.tolist() == [1, 2, 3] and found.dtype == np.int16
    with pytest.raises(Unsupported, match="lists of any length"):
        decode(elements, attribute)


@pytest.mark.parametrize(
    ("padding", "data", "text"),
    [(0, b"a\0b\0", "a"), (1, b"a\0b\0", "a\0b"), (2, b"a b ", "a b")],
)
def test_texts_end_as_their_padding_says(
    write: Write, padding: int, data: bytes, text: str
) -> None:
    """At the first NUL, before the last NULs, or before the last blanks."""
    elements, _ = write(0)
    found = elements.decode(Datatype(Class.STRING, 4, padding), data, ())
    assert str(found[""]) == text


def test_two_members_of_one_name_are_refused(write: Write) -> None:
    """No member takes the place of another."""
    dtype = [("a", [("b", "i4")]), ("a_b", "i4")]
    with pytest.raises(Unsupported, match="a_b"):
        decode(*write(np.zeros((), dtype)))


def test_a_truth_value_is_true_or_false(write: Write) -> None:
    """Any other number in its place is damage."""
    elements, attribute = write(True)
    for wrong in (b"\2", b"\xff"):
        with pytest.raises(Damaged, match="neither true nor false"):
            elements.decode(attribute.type, wrong, ())


@pytest.mark.parametrize("size", [3, 16])
def test_numbers_without_a_dtype_are_unsupported(write: Write, size: int) -> None:
    """An integer of an odd size is no damage, and never a crash."""
    elements, _ = write(0)
    with pytest.raises(Unsupported, match=f"integer of {size} bytes"):
        elements.decode(Datatype(Class.INTEGER, size), bytes(size), ())


def test_bytes_that_are_too_few_are_damage(write: Write) -> None:
    """Whatever the type, the bytes must be as many as the elements need."""
    elements, attribute = write([1, 2])
    with pytest.raises(Damaged):
        elements.decode(attribute.type, attribute.value[:-1], (2,))


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a\1b"])
def test_a_text_of_other_characters_is_doubtful(tmp_path: Path, write: Write, data: bytes) -> None:
    """In a damaged file it is damage; in a sound one it is what somebody wrote."""
    elements, attribute = write(np.bytes_(data))
    file = open_file(Source((tmp_path / "a.h5").read_bytes()))
    with pytest.raises(Damaged, match="other characters"):
        DoubtfulElements(file).decode(attribute.type, attribute.value, ())
    if data.isascii():
        assert str(decode(elements, attribute)[""]) == data.decode()
    else:
        with pytest.raises(Unsupported, match="not UTF-8"):
            decode(elements, attribute)
