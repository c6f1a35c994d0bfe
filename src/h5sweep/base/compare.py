"""Whether values are the same, also in another dtype: bit by bit, and on every processor.

NaN is what it was, and -0.0 is not 0.0. If they are not the same, how far they are apart.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from .values import Array

CLOSE = 1e-9  # relative: beyond the noise of other processors and libraries


class Agreement(StrEnum):
    """How a value agrees with one that was computed again."""

    EQUAL = "equal"
    CLOSE = "equal within 1e-9"
    DIFFERENT = "different"


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


def compare_again(then: Array, now: Array) -> tuple[Agreement, float]:
    """How a value that was stored agrees with the one that there is now; and how far it is off.

    The one of now is compared in the dtype of the other. NaN equals NaN. Texts are objects. The
    largest difference is relative to the larger of two numbers; infinite if it is no number.
    """
    if then.shape != now.shape or (then.dtype == object) != (now.dtype == object):
        return Agreement.DIFFERENT, math.inf
    if then.dtype == object:
        return (Agreement.EQUAL, 0.0) if np.array_equal(then, now) else _FAR
    converted, are_kept = cast_and_back(now, then.dtype)
    if are_kept.all() and (_same_bits(converted, then) | _are_nan(converted, then)).all():
        return Agreement.EQUAL, 0.0
    if {then.dtype.kind, now.dtype.kind} - set("biufc"):
        return _FAR
    apart = _largest_difference(then, now)
    return (Agreement.CLOSE if apart <= CLOSE else Agreement.DIFFERENT), apart


_FAR = (Agreement.DIFFERENT, math.inf)


def _largest_difference(values: Array, others: Array) -> float:
    with np.errstate(all="ignore"):
        # Compared before they become floats: large integers that differ may be one float.
        are_equal = (values == others) | (np.isnan(values) & np.isnan(others))
        first, second = values.astype(np.complex128), others.astype(np.complex128)
        apart = np.abs(first - second) / np.maximum(np.abs(first), np.abs(second))
    apart = np.where(np.isnan(apart), math.inf, apart)
    return float(np.where(are_equal, 0.0, apart).max())


def _are_nan(values: Array, others: Array) -> Array:
    """Which pairs of one dtype are both NaN, of whichever bits."""
    if values.dtype.kind not in "fc":
        return np.zeros(values.size, bool)
    return np.asarray(np.isnan(values) & np.isnan(others)).reshape(-1)


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
