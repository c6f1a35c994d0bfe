"""The values of a single row of an output, in the types that they are stored in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..base.relabels import Relabels
from ..base.units import command_text
from ..base.values import STR, Array
from ..errors import DamagedError, SweepError
from .reader import OutputReader, OutputSource
from .verify import stored_checksums


@contextmanager
def reading_output(path: Path, relabels: Relabels) -> Iterator[OutputReader]:
    """Open an output for as long as it is read; DamagedError if somebody has edited it."""
    try:
        with OutputReader(path, relabels) as reader:
            yield reader
    except SweepError:
        raise
    except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
        # What h5py and NumPy may raise for such a file.
        check = command_text("check", path)
        raise DamagedError(f"{path} cannot be read as an output ({error}): {check}") from error


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
    if not values.size:
        return True
    return values.dtype.kind in "fcmM" and bool(np.isnan(values).all())
