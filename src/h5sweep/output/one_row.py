"""The values of a single row of an output, in the types that they are stored in."""

from __future__ import annotations

import numpy as np

from ..base.values import STR, Array
from .reader import OutputReader, OutputSource
from .verify import stored_checksums


class RowReader:
    """Reads rows of an output, one at a time."""

    def __init__(self, reader: OutputReader) -> None:
        self._source, self._columns = OutputSource(reader), reader.columns()
        self._checksums = reader.whole("row_crc32")

    def read(self, row: int) -> dict[str, Array]:
        """Each result of the row by its name; texts as objects.

        Where a gap cannot be told from a value, it is one: NaN, or an empty text.
        """
        found = {}
        for cells in self._source.parts(np.array([0]), np.array([row])):
            values = cells.load()
            if cells.dtype == STR:
                values = np.array([text.decode() for text in values], object)
            found[cells.name] = values.reshape(cells.axes[0])
        return found

    def is_as_written(self, row: int) -> bool:
        """Whether its checksum holds."""
        now = stored_checksums(self._columns, row, row + 1)
        return bool(now[0] == self._checksums[row])


def is_gap(values: Array) -> bool:
    """Whether this may stand for no value at all."""
    if values.dtype == object:
        return not any(values.reshape(-1))
    return values.dtype.kind in "fcmM" and bool(np.isnan(values).all())
