"""Whatever happens to the bytes of a file, a check ends, in bounds, with a verdict."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from h5sweep.check.check import check_files
from mutations import DAMAGES, run_apart, seeds

TIMEOUT_S = 5.0
BATCH = 250


def fuzz(folder: Path, count: int, seed: int) -> Counter[str]:
    """Check `count` mutations in batches; what matters is that it ends, and what it says."""
    chance = random.Random(seed)
    healthy = seeds(folder / "seeds")
    found: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        batch = folder / "batch"
        batch.mkdir()
        for number in range(first, min(first + BATCH, count)):
            content = bytearray(chance.choice(healthy))
            chance.choice(DAMAGES)(content, chance)
            (batch / f"{number}.h5").write_bytes(content)
        begun = time.monotonic()
        report = check_files(batch, depth="deep", timeout_s=TIMEOUT_S)
        hung = sum(f.code == "D206" for file in report.files for f in file.findings)
        assert time.monotonic() - begun < 60 + 2 * TIMEOUT_S * (hung + 1)
        assert len(report.files) + report.others == len(list(batch.iterdir()))
        found.update(finding.code for file in report.files for finding in file.findings)
        found.update(file.state.value for file in report.files)
        own = [f for file in report.files for f in file.findings if "our own reader" in f.message]
        assert not own, own
        for path in batch.iterdir():
            path.unlink()
        batch.rmdir()
    return found


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (60, 1),
        pytest.param(300, 1, marks=pytest.mark.exhaustive),
        pytest.param(20_000, 2, marks=pytest.mark.slow),
    ],
)
def test_mutations_never_crash_hang_or_exhaust(count: int, seed: int, tmp_path: Path) -> None:
    """No crash of the tool, no wait beyond the limit, and memory that does not grow."""
    said = run_apart("test_check", tmp_path, count, seed)
    print(said)
    grown = re.search(r"grown by (\d+)", said)
    assert grown is not None and int(grown[1]) < 150
    assert "'damaged'" in said and "'sound'" in said
