"""What survives a cast, which values are the same in two dtypes, and how far others are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from h5sweep.base.compare import Agreement, are_same, cast_and_back, compare_again

LARGEST = 2**63 - 1
CASTS: list[tuple[str, Any, str, bool]] = [
    ("<i4", 5, "<f8", True),
    ("<i8", 2**53, "<f8", True),
    ("<i8", 2**53 + 1, "<f8", False),
    ("<i8", LARGEST, "<f8", False),  # 2**63 as a float, which comes back as anything
    ("<u8", 2**64 - 1, "<f8", False),
    ("<u8", 2**64 - 1, "<i8", False),  # -1, which comes back as it was
    ("<i8", -1, "<u8", False),
    ("<u8", LARGEST, "<i8", True),
    ("<i4", 300, "<i1", False),
    ("<f8", 2.0**63, "<i8", False),
    ("<f8", -(2.0**63), "<i8", True),
    ("<f8", 2.5, "<i8", False),
    ("<f8", np.nan, "<i8", False),
    ("<f8", -0.0, "<i8", False),
    ("<f8", -0.0, "<f4", True),
    ("<f8", np.nan, "<f4", True),
    ("<f8", 1e300, "<f4", False),
    (">f8", 2.5, "<f4", True),
    ("<c16", 2 + 0j, "<f8", True),
    ("<c16", 2 + 1j, "<f8", False),
    ("<c16", 2.0**63, "<i8", False),
    ("|b1", True, "<i8", True),
    ("<i8", 2, "|b1", False),
    ("<M8[s]", 5, "<M8[ns]", True),
    ("<M8[ns]", 5, "<M8[s]", False),
    ("<M8[s]", 5, "<M8[M]", False),
]


@pytest.mark.parametrize(("dtype", "value", "other", "survives"), CASTS)
def test_what_survives_a_cast(dtype: str, value: Any, other: str, survives: bool) -> None:
    """A value survives if it comes back as it was, whatever the processor makes of others."""
    values = (
        np.array([value, 0], np.int64).view(dtype) if "M" in dtype else np.array([value, 0], dtype)
    )
    converted, are_kept = cast_and_back(values, other)
    assert are_kept.tolist() == [survives, True]
    assert not survives or are_same(values, converted).all()


def test_values_are_the_same_only_in_both_dtypes() -> None:
    """2**53 + 1 becomes 2**53 as a float, and is not the same; neither are zeros of two signs."""
    integers = np.array([2**53, 2**53 + 1, 7, 0])
    assert are_same(integers, np.array([2.0**53, 2.0**53, 8.0, -0.0])).tolist() == [True] + 3 * [
        False
    ]
    assert are_same(np.array([np.nan, 0.0]), np.array([np.nan, -0.0], "<f4")).tolist() == [
        True,
        False,
    ]


OTHER_NAN = np.array([0x7FF8000000000001], "<u8").view("<f8")
EQUAL, CLOSE, DIFFERENT = Agreement
AGAIN: list[tuple[Any, Any, Agreement]] = [
    ([1.5, 2.5], [1.5, 2.5], EQUAL),
    ([1.5, np.nan], [1.5, np.nan], EQUAL),
    (np.array([np.nan]), OTHER_NAN, EQUAL),
    (np.array(3.0), np.array(3), EQUAL),  # stored in a wider type
    (np.array([]), np.array([]), EQUAL),
    ([np.inf], [np.inf], EQUAL),
    (np.array(["a", "b"], object), np.array(["a", "b"], object), EQUAL),
    (np.array(5, "M8[s]"), np.array(5000, "M8[ms]"), EQUAL),
    ([0.0], [-0.0], CLOSE),
    ([1.0, 2.0], [1.0, 2.0 * (1 + 1e-12)], CLOSE),
    ([2**60], [2**60 + 1], CLOSE),
    ([1 + 1j], [1 + 1j + 1e-12], CLOSE),
    ([1.0], [1.0 + 1e-6], DIFFERENT),
    ([0.0], [1e-300], DIFFERENT),
    ([1.0, np.nan], [1.0, 2.0], DIFFERENT),
    ([np.inf], [-np.inf], DIFFERENT),
    ([np.inf], [1.0], DIFFERENT),
    ([3], [3.5], DIFFERENT),
    ([True], [False], DIFFERENT),
    ([1.0, 2.0], [1.0], DIFFERENT),
    (np.array(["a"], object), np.array(["b"], object), DIFFERENT),
    (np.array(["1"], object), np.array([1]), DIFFERENT),
    (np.array(5, "M8[s]"), np.array(5001, "M8[ms]"), DIFFERENT),
]


@pytest.mark.parametrize(("then", "now", "agreement"), AGAIN)
def test_a_value_is_compared_with_the_one_that_was_stored(
    then: Any, now: Any, agreement: Agreement
) -> None:
    """Bit by bit in the stored type; NaN is NaN, and a last digit is told from another value."""
    found, difference = compare_again(np.asarray(then), np.asarray(now))
    assert found is agreement
    assert (difference <= 1e-9) == (agreement is not DIFFERENT)
