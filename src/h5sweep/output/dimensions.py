"""The dimensions of an output: their names, and the counts of ragged ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ..base.values import Array
from .columns import ColumnLayout, DataColumn, unique_name


class Dimensions:
    """The dimensions of an output; hands out names that are neither variables nor other sizes.

    `sizes` has every dimension. `counts` has those along which rows of different lengths lie one
    after the other: the name of the variable that counts each task's elements, and the counts.
    """

    def __init__(self, rows: int, variable_names: Iterable[str]) -> None:
        self.sizes: dict[str, int] = {"task": rows}
        self.counts: dict[str, tuple[str, Array]] = {}
        self.notes: list[str] = []
        self._variables = set(variable_names)

    def name(self, column: DataColumn, counts: Array | None, declared: Sequence[str]) -> DataColumn:
        """The column with its dimensions; `counts` has the elements of each row unless FIXED."""
        wanted = self._wanted(column, declared)
        if counts is None:
            return replace(column, dims=self._claim_all(column, wanted, column.inner))
        if column.layout is ColumnLayout.RAGGED:
            sample, count_name = self._claim_sample(column, wanted[0], counts)
            inner_dims = self._claim_all(column, wanted[1:], column.inner)
            return replace(column, dims=(sample, *inner_dims), count_name=count_name)
        sample, count_name = self._claim_sample(column, f"{column.name}_dim0", counts)
        return replace(
            column,
            dims=(sample,),
            count_name=count_name,
            shape_name=unique_name(f"{column.name}_shape", self._variables),
            axis_dim=self._claim(column, f"{column.name}_axis", column.ndim),
        )

    def _wanted(self, column: DataColumn, declared: Sequence[str]) -> list[str]:
        if declared and len(declared) == column.ndim:
            return list(declared)
        if declared:
            self.notes.append(
                f"dims names {len(declared)} dimensions for {column.source_name}, which has "
                f"{column.ndim}: its dimensions are named {column.name}_dim0 and so on"
            )
        return [f"{column.name}_dim{axis}" for axis in range(column.ndim)]

    def _claim_all(
        self, column: DataColumn, wanted: Sequence[str], sizes: Sequence[int]
    ) -> tuple[str, ...]:
        pairs = zip(wanted, sizes, strict=True)
        return tuple(self._claim(column, name, size) for name, size in pairs)

    def _claim(self, column: DataColumn, wanted: str, size: int) -> str:
        is_other = wanted in self._variables or wanted in self.counts
        if not is_other and self.sizes.setdefault(wanted, size) == size:
            return wanted
        name = unique_name(f"{column.name}_{wanted}", self._variables | set(self.sizes))
        self.sizes[name] = size
        self.notes.append(
            f"the dimension {wanted} of {column.name} is named {name}: {wanted} already names "
            f"something other than a dimension of size {size:,}"
        )
        return name

    def _claim_sample(self, column: DataColumn, wanted: str, counts: Array) -> tuple[str, str]:
        """A dimension along which rows lie one after the other, and the name of their counts."""
        if wanted in self.counts:
            count_name, known_counts = self.counts[wanted]
            if np.array_equal(known_counts, counts):
                return wanted, count_name
        dimension = self._claim(column, wanted, int(counts.sum()))
        is_own = dimension != wanted or wanted.startswith(f"{column.name}_")
        count_name = unique_name(f"n_{column.name if is_own else wanted}", self._variables)
        self.counts[dimension] = (count_name, counts)
        return dimension, count_name
