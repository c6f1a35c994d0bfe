"""The collection of killed writers' files, with the true values beside them.

The corpus is not part of this repository: H5SWEEP_CORPUS names the folder it lies in.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import some_of
from h5sweep.base.listed_plan import plan_list
from h5sweep.salvage.salvage import salvage_files
from salvage_checks import salvage_content

CORPUS = Path(os.environ.get("H5SWEEP_CORPUS", "nowhere"))
pytestmark = pytest.mark.skipif(
    "H5SWEEP_CORPUS" not in os.environ, reason="H5SWEEP_CORPUS does not name the corpus"
)
NAMES = ("farm_id", "farm_type", "seed")
CARVER = 8  # which entry of a row says what an experimental carver got back


@pytest.mark.parametrize("has_plan", some_of([True, False], 2), ids=["expected tasks", "key names"])
def test_killed_writers_give_what_can_be_had(has_plan: bool, tmp_path: Path) -> None:
    """Each file gives at least what an experimental carver got, and no wrong value."""
    folder = CORPUS / "killed"
    values = np.load(folder / "truth.npz")
    rows = zip(values["keys"].tolist(), values["layout"], values["aep"], strict=True)
    truth = {tuple(key): {"layout": layout, "aep": aep} for key, layout, aep in rows}
    plan = plan_list([dict(zip(NAMES, key, strict=True)) for key in truth])
    options: dict[str, Any] = {"expected": plan} if has_plan else {"key": ",".join(NAMES)}
    short = {}
    for row in json.loads((folder / "killed.json").read_text()):
        content = (folder / row[0]).read_bytes()
        found = salvage_content(content, tmp_path, truth, **options)
        assert not found.wrong, row[0]
        if len(found.right) < row[CARVER]:
            short[row[0]] = (len(found.right), row[CARVER])
    assert not short


@pytest.mark.exhaustive
def test_every_odd_file_is_survived(tmp_path: Path) -> None:
    """A salvage of all files of the corpus comes to its end, and nothing is written beside them."""
    before = sorted(str(path) for path in CORPUS.rglob("*"))
    report = salvage_files(CORPUS, to=tmp_path / "out", timeout_s=5.0)
    assert len(report.files) > 100
    assert sorted(str(path) for path in CORPUS.rglob("*")) == before
