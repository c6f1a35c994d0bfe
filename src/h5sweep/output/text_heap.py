"""Columns with few distinct texts, laid out in an HDF5 file without the library.

The library keeps each text of a dataset in a heap, one by one, which takes it a microsecond a text.
All copies of one text can lie in heaps of their own, which are equal and are therefore made once.
No two rows share a text: somebody who changes one changes no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..base.values import Array

LEAST_COPIES = 64  # on average; of fewer, heaps would be mostly empty
MOST_DIFFERENT = 1 << 16
LARGE_HEAP_BYTES = 32 << 10
SMALLEST_HEAP_BYTES = 4 << 10  # by the format
MOST_IN_HEAP = (1 << 16) - 1
HEAP_HEAD_BYTES = OBJECT_HEAD_BYTES = 16

# What stands in the dataset for each text.
ELEMENT_DTYPE = np.dtype([("size", "<u4"), ("heap", "<u8"), ("index", "<u4")])


@dataclass(frozen=True)
class RepeatedTexts:
    """A column of texts: `texts` are the different ones, `codes` say which of them a row has."""

    texts: list[bytes]
    codes: Array

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def is_worth_it(self) -> bool:
        return 0 < len(self.texts) <= min(MOST_DIFFERENT, len(self.codes) // LEAST_COPIES)

    def lay_out(self, address: int) -> tuple[Array, list[bytes]]:
        """The elements of the dataset, and the heaps that belong at `address` of the file.

        The heaps of one text are one object, many times in the list.
        """
        elements = np.empty(len(self), ELEMENT_DTYPE)
        heaps: list[bytes] = []
        for text, rows in self._by_text():
            shape = _HeapShape(text)
            number = np.arange(len(rows))
            heap = number // shape.most  # which NumPy computes faster than divmod
            mine = np.empty(len(rows), ELEMENT_DTYPE)
            mine["size"] = len(text)
            mine["heap"] = address + heap * shape.size_bytes(shape.most)
            mine["index"] = number - heap * shape.most + 1
            elements[rows] = mine
            full, rest = divmod(len(rows), shape.most)
            made = [shape.fill(shape.most)] * full if full else []
            made += [shape.fill(rest)] if rest else []
            heaps += made
            address += sum(map(len, made))
        return elements, heaps

    def _by_text(self) -> Iterator[tuple[bytes, Array]]:
        """Every text that occurs, and its rows in order."""
        small = np.uint8 if len(self.texts) <= 256 else np.uint16  # which NumPy sorts fastest
        order = np.argsort(self.codes.astype(small), kind="stable")
        counts = np.bincount(self.codes, minlength=len(self.texts))
        for text, rows in zip(self.texts, np.split(order, np.cumsum(counts)[:-1]), strict=True):
            if len(rows):
                yield text, rows


class _HeapShape:
    """How heaps are made up that hold one text and nothing else."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._object_bytes = OBJECT_HEAD_BYTES + len(text) + -len(text) % 8
        fitting = (LARGE_HEAP_BYTES - HEAP_HEAD_BYTES) // self._object_bytes
        self.most = min(max(fitting, 1), MOST_IN_HEAP)

    def size_bytes(self, count: int) -> int:
        return max(HEAP_HEAD_BYTES + count * self._object_bytes, SMALLEST_HEAP_BYTES)

    def fill(self, count: int) -> bytes:
        """A heap with `count` copies of the text."""
        size_bytes = self.size_bytes(count)
        padding = self._object_bytes - OBJECT_HEAD_BYTES
        fields = [("index", "<u2"), ("references", "<u2"), ("zero", "<u4"), ("size", "<u8")]
        objects = np.zeros(count, [*fields, ("text", f"S{padding}")] if padding else fields)
        objects["index"] = np.arange(1, count + 1)
        objects["size"] = len(self._text)
        if padding:
            objects["text"] = self._text
        head = b"GCOL" + b"\1\0\0\0" + size_bytes.to_bytes(8, "little")
        free = size_bytes - HEAP_HEAD_BYTES - count * self._object_bytes
        rest = bytes(8) + free.to_bytes(8, "little") if free >= OBJECT_HEAD_BYTES else b""
        return (head + objects.tobytes() + rest).ljust(size_bytes, b"\0")
