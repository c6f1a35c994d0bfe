"""Which columns an output has, decided from the dtypes and shapes of all results. Pure.

A result's cell has a name, a dtype and a shape. Cells of one name and one dtype are a *variant*.
Variants whose values all survive in a common dtype share a column; the others get a column of their
own, so that no value is ever lost. A column lies in the output in one of three layouts:

    FIXED    one shape for all tasks          name(task, dim...)
    RAGGED   the first axis varies            name(dim, rest...) and a count for each task
    SHAPED   the shape varies otherwise       name(dim), flat; a count and a shape for each task
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from ..base.values import NOT_STORED, STR, Array

TIME_WORDS = {
    "D": "days",
    "h": "hours",
    "m": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
NAT = -(2**63)  # how NumPy stores "not a time"
FILL_CANDIDATES = 64


class ColumnLayout(Enum):
    """How the cells of a column lie in the output."""

    FIXED = "fixed"
    RAGGED = "ragged"
    SHAPED = "shaped"


@dataclass
class Variant:
    """All cells of one name and one dtype: how many there are and between which shapes."""

    name: str
    dtype: str
    rows: int = 0
    shapes: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def add(self, rows: int, axes: Array) -> None:
        """Count the cells of some rows in; `axes` has every shape they have, at least once."""
        self.rows += rows
        ndim = axes.shape[1]
        low, high = axes.min(axis=0), axes.max(axis=0)
        if ndim in self.shapes:
            known_low, known_high = self.shapes[ndim]
            low, high = np.minimum(low, known_low), np.maximum(high, known_high)
        self.shapes[ndim] = (low, high)

    @property
    def words(self) -> str:
        return "text" if self.dtype == STR else np.dtype(self.dtype).name


@dataclass(frozen=True)
class DataColumn:
    """One data column of an output.

    `source_name` is its name in the results, `source_dtypes` those that go into it, `dtype` what
    its values mean. `inner` is the shape of a row (FIXED) or of an element (RAGGED). `dims` are the
    names of all its dimensions but `task`.
    """

    name: str
    source_name: str
    source_dtypes: frozenset[str]
    dtype: str
    layout: ColumnLayout
    inner: tuple[int, ...]
    ndim: int
    has_gaps: bool = False
    fill: Any = None
    dims: tuple[str, ...] = ()
    count_name: str = ""
    shape_name: str = ""
    axis_dim: str = ""

    @property
    def is_text(self) -> bool:
        return self.dtype == STR

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype of the elements in the file; bytes objects for text."""
        return stored_dtype(self.dtype)

    @property
    def row_elements(self) -> int:
        """How many elements a row of a FIXED column has."""
        return math.prod(self.inner)

    @property
    def row_bytes(self) -> int:
        """The size of every row of a FIXED column of numbers; 0 for others."""
        is_of_one_size = self.layout is ColumnLayout.FIXED and not self.is_text
        return self.row_elements * self.stored.itemsize if is_of_one_size else 0

    def to_stored(self, values: Array) -> Array:
        """Convert values of one of the source dtypes to what is stored."""
        if self.is_text:
            return values
        return values.astype(self.dtype, copy=False).view(self.stored)


class Questions(Protocol):
    """What only the values themselves can answer; each reads a column from the sources."""

    def survives(self, variant: Variant, dtype: str) -> bool:
        """Whether every value is the same after a conversion to `dtype` and back."""

    def values_among(self, variants: Sequence[Variant], candidates: Array) -> set[int]:
        """Those of the candidates that occur as values."""


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """What stands in the file for a dtype of values: every reader knows these."""
    if dtype == STR:
        return np.dtype(object)
    kind = np.dtype(dtype).kind
    return np.dtype({"b": "i1", "M": "<i8", "m": "<i8"}.get(kind, dtype))


def decide_columns(
    variants: Iterable[Variant],
    rows: int,
    questions: Questions,
    *,
    taken: Iterable[str],
) -> tuple[list[DataColumn], list[str]]:
    """Give every variant a column; return the columns and what the user should know about them."""
    by_name: dict[str, list[Variant]] = {}
    for variant in variants:
        by_name.setdefault(variant.name, []).append(variant)
    taken_names = set(taken) | set(by_name)
    columns: list[DataColumn] = []
    notes: list[str] = []
    for name, found in by_name.items():
        groups = _grouped(found, questions)
        names = [name] + [_own_name(name, group, taken_names) for group in groups[1:]]
        for column_name, group in zip(names, groups, strict=True):
            has_gaps = sum(variant.rows for variant in group.variants) < rows
            columns.append(_new_column(column_name, group, has_gaps, questions))
        notes += _notes_on_dtypes(found, groups, names)
        notes += _notes_on_gaps(columns[-len(groups)], rows - sum(v.rows for v in found))
    return columns, notes


@dataclass
class _SharedColumn:
    """Variants that share a column, and the dtype in which all their values survive."""

    variants: list[Variant]
    dtype: str


def _grouped(variants: list[Variant], questions: Questions) -> list[_SharedColumn]:
    """Put the commonest variant first and let others join where no value is changed."""
    groups: list[_SharedColumn] = []
    for variant in sorted(variants, key=lambda variant: -variant.rows):
        for group in groups:
            common = _common_dtype(group.dtype, variant.dtype)
            if common is not None and _all_survive([*group.variants, variant], common, questions):
                group.variants.append(variant)
                group.dtype = common
                break
        else:
            groups.append(_SharedColumn([variant], _own_dtype(variant, questions)))
    return groups


def _all_survive(variants: Iterable[Variant], common: str, questions: Questions) -> bool:
    return all(not _may_round(v.dtype, common) or questions.survives(v, common) for v in variants)


def _may_round(dtype: str, common: str) -> bool:
    """NumPy calls int64 to float64, and a finer time unit, safe; the values decide."""
    if dtype == common:
        return False
    source, target = np.dtype(dtype), np.dtype(common)
    if source.kind in "mM":
        return True
    return source.kind in "iu" and source.itemsize == 8 and target.kind in "fc"


def _common_dtype(first: str, second: str) -> str | None:
    """The dtype for both, or None for kinds that never share a column."""
    if first == second:
        return first
    if STR in (first, second):
        return None
    kinds = {np.dtype(first).kind, np.dtype(second).kind}
    if kinds & set("mM") and len(kinds) > 1:
        return None
    try:
        return writable_dtype(np.result_type(first, second).str)
    except TypeError:  # A month has no fixed number of days.
        return None


def _own_dtype(variant: Variant, questions: Questions) -> str:
    dtype = writable_dtype(variant.dtype)
    if dtype == variant.dtype or np.dtype(dtype).kind not in "mM":
        return dtype
    return dtype if questions.survives(variant, dtype) else variant.dtype


def writable_dtype(dtype: str) -> str:
    """The nearest dtype that every reader knows: no float16, no weeks, no picoseconds."""
    if dtype == STR:
        return dtype
    kind = np.dtype(dtype).kind
    if kind == "f" and np.dtype(dtype).itemsize == 2:
        return "<f4"
    if kind not in "mM":
        return dtype
    unit, _ = np.datetime_data(np.dtype(dtype))
    if unit in ("ps", "fs", "as"):
        return f"<{kind}8[ns]"
    if kind == "M":
        return f"<M8[{unit}]" if unit in TIME_WORDS else "<M8[D]"
    # xarray knows no durations in coarser units; a month's length in seconds nobody knows.
    return "<m8[s]" if unit in ("m", "h", "D", "W") else f"<m8[{unit}]"


def _own_name(name: str, group: _SharedColumn, taken: set[str]) -> str:
    """A name for a column that could not be joined to the one called `name`."""
    kind = "T" if group.dtype == STR else np.dtype(group.dtype).kind
    words = {"T": "text", "M": "time", "m": "interval"}
    suffix = words.get(kind) or np.dtype(group.dtype).name
    return unique_name(f"{name}_{suffix}", taken)


def unique_name(wanted: str, taken: set[str]) -> str:
    """`wanted`, or with a number behind it if something else has that name; it is then taken."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    taken.add(name)
    return name


def _new_column(
    name: str, group: _SharedColumn, has_gaps: bool, questions: Questions
) -> DataColumn:
    layout, inner, ndim = _layout(group.variants)
    column = DataColumn(
        name,
        group.variants[0].name,
        frozenset(variant.dtype for variant in group.variants),
        group.dtype,
        layout,
        inner,
        ndim,
        has_gaps,
    )
    if layout is not ColumnLayout.FIXED:
        return column
    return _with_fill(column, group.variants, questions)


def _layout(variants: list[Variant]) -> tuple[ColumnLayout, tuple[int, ...], int]:
    """The layout for all these cells, the shape inside it, and the most axes a cell has."""
    ndims = sorted({ndim for variant in variants for ndim in variant.shapes})
    ndim = ndims[-1]
    if len(ndims) > 1:
        return ColumnLayout.SHAPED, (), ndim
    low = np.min([variant.shapes[ndim][0] for variant in variants], axis=0)
    high = np.max([variant.shapes[ndim][1] for variant in variants], axis=0)
    shape = tuple(int(size) for size in high)
    if np.array_equal(low, high):
        return ColumnLayout.FIXED, shape, ndim
    if np.array_equal(low[1:], high[1:]):
        return ColumnLayout.RAGGED, shape[1:], ndim
    return ColumnLayout.SHAPED, (), ndim


def _with_fill(column: DataColumn, variants: list[Variant], questions: Questions) -> DataColumn:
    """Choose what stands in rows that have no value, so that it is no value."""
    if column.is_text:
        return replace(column, fill=b"")
    fills = {"f": math.nan, "c": math.nan, "M": NAT, "m": NAT, "b": -1 if column.has_gaps else 0}
    kind = np.dtype(column.dtype).kind
    if kind not in fills and column.has_gaps:
        return _with_integer_fill(column, variants, questions)
    return replace(column, fill=fills.get(kind, 0))


def _with_integer_fill(
    column: DataColumn, variants: list[Variant], questions: Questions
) -> DataColumn:
    """The first of the dtype's outermost integers that no task returned."""
    limits = np.iinfo(column.stored)
    steps = np.arange(FILL_CANDIDATES).astype(column.stored)
    candidates = steps + limits.min if limits.min else limits.max - steps
    found = questions.values_among(variants, candidates)
    free = [int(value) for value in candidates if int(value) not in found]
    if free:
        return replace(column, fill=free[0])
    wider = np.dtype(f"<{column.stored.kind}{min(column.stored.itemsize * 2, 8)}")
    fill = np.iinfo(wider).min or np.iinfo(wider).max
    return replace(column, dtype=wider.str, fill=fill)


def _notes_on_dtypes(
    found: list[Variant], groups: list[_SharedColumn], names: list[str]
) -> list[str]:
    if len(found) == 1:
        return []
    by_rows = sorted(found, key=lambda variant: -variant.rows)
    counts = ", ".join(f"{variant.words} in {_tasks(variant.rows)}" for variant in by_rows)
    first = groups[0]
    actions = [f"widened to {np.dtype(first.dtype).name}"] if len(first.variants) > 1 else []
    for group, name in zip(groups[1:], names[1:], strict=True):
        words = " and ".join(variant.words for variant in group.variants)
        actions.append(f"{words} is in the column {name}")
    return [f"{names[0]}: {counts}; {'; '.join(actions)}"]


def _notes_on_gaps(column: DataColumn, missing: int) -> list[str]:
    if missing <= 0 or column.source_name == NOT_STORED:
        return []
    if column.layout is not ColumnLayout.FIXED:
        return [f"{column.source_name} is missing in {_tasks(missing)}: it is empty there"]
    is_time = not column.is_text and np.dtype(column.dtype).kind in "mM"
    fill = '""' if column.is_text else "NaT" if is_time else str(column.fill)
    return [f"{column.source_name} is missing in {_tasks(missing)}: filled with {fill}"]


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count:,} tasks"
