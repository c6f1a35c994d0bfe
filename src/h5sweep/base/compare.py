"""Whether values are the same, also in another dtype: bit by bit, and on every processor.

NaN is what it was, and -0.0 is not 0.0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .values import Array


def cast_and_back(values: Array, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """The values in another dtype, and for each whether it comes back from there as it was."""
    with np.errstate(all="ignore"):
        try:
            converted = _cast(values, dtype)
            back = _cast(converted, values.dtype)
        except (TypeError, ValueError, OverflowError):
            return values, np.zeros(values.size, bool)
        are_kept = _same_bits(back, values)
        return converted, are_kept & _fits(values, converted) & _fits(converted, values)


def are_same(values: Array, others: Array) -> Array:
    """Which values are those of another dtype: each is what the other becomes, in both."""
    if values.dtype == object or others.dtype == object:
        both = values.dtype == others.dtype
        return np.asarray(values == others) if both else np.zeros(len(values), bool)
    converted, are_kept = cast_and_back(values, others.dtype)
    return are_kept & _same_bits(converted, others) if are_kept.any() else are_kept


def are_identical(found: Array, expected: Array) -> bool:
    """Whether two arrays have one dtype and the same elements; texts are bytes objects."""
    if found.dtype != expected.dtype or found.size != expected.size:
        return False
    if found.dtype == object or not found.size:
        return np.array_equal(found, expected)
    # Long words, because the comparison makes an array of one byte for each of them.
    word = np.uint8 if found.nbytes % 8 else np.uint64
    first, second = (np.ascontiguousarray(a).reshape(-1).view(word) for a in (found, expected))
    return np.array_equal(first, second)


def _same_bits(values: Array, others: Array) -> Array:
    """Which values of one dtype are equal, bit by bit."""
    size = values.dtype.itemsize
    bits = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (values, others)]
    return np.asarray((bits[0].reshape(-1, size) == bits[1].reshape(-1, size)).all(axis=1))


def _cast(values: Array, dtype: npt.DTypeLike) -> Array:
    """The values in another dtype; of complex ones as real ones, without a warning, these parts."""
    is_halved = values.dtype.kind == "c" and np.dtype(dtype).kind != "c"
    return (values.real if is_halved else values).astype(dtype)


def _fits(values: Array, converted: Array) -> Array | bool:
    """Which values are within the integers that they were cast to.

    What a float beyond them becomes depends on the processor, and a sign may come back from where
    it was lost.
    """
    values, converted = values.real.reshape(-1), converted.reshape(-1)
    if converted.dtype.kind not in "iu" or values.dtype.kind not in "iuf":
        return True
    if values.dtype.kind in "iu":
        return np.asarray((values < 0) == (converted < 0))
    limits = np.iinfo(converted.dtype)
    return np.asarray((values >= float(limits.min)) & (values < float(limits.max + 1)))
