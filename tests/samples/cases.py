"""Which cases of a test the default run takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_of(cases: Iterable[Any], every: int) -> list[Any]:
    """Of these cases the first, and then every so many; the others are exhaustive."""
    return [
        pytest.param(case, marks=pytest.mark.exhaustive) if number % every else case
        for number, case in enumerate(cases)
    ]
