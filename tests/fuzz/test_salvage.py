"""Whatever happens to the bytes of a file, a salvage ends, in bounds, with a report."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from pathlib import Path

import pytest

from h5sweep.salvage.report import report_json, report_text
from h5sweep.salvage.salvage import salvage_files
from mutations import DAMAGES, run_apart, seeds

TIMEOUT_S = 5.0
MOST_S = 30.0  # for some small files, on a machine that has much else to do
BATCH = 25
KEYS = (None, "farm{farm_id:d}_t{farm_type:d}_s{seed:d}", "farm_id,seed", "x{name}")


def all_seeds(folder: Path) -> list[bytes]:
    found = seeds(folder)
    corpus = Path(os.environ.get("H5SWEEP_CORPUS", "nowhere"))
    odd = [p for p in sorted(corpus.rglob("*.h5")) if 0 < p.stat().st_size < 200_000]
    return found + [path.read_bytes() for path in odd]


def fuzz(folder: Path, count: int, seed: int) -> int:
    """Salvage `count` mutations, many in one call; returns how many results came out of them."""
    chance = random.Random(seed)
    healthy = all_seeds(folder / "seeds")
    batch = folder / "batch"
    batch.mkdir()
    results = 0
    for first in range(0, count, BATCH):
        for number in range(first, min(first + BATCH, count)):
            content = bytearray(chance.choice(healthy))
            for _ in range(chance.choice([1, 1, 2, 4])):
                if content:
                    chance.choice(DAMAGES)(content, chance)
            (batch / f"{number % BATCH}.h5").write_bytes(content)
        begun = time.process_time()
        report = salvage_files(
            batch,
            to=folder / "out",
            key=chance.choice(KEYS),
            accept="unverified",
            nameless=folder / "arrays",
            use_library=first // BATCH % 4 == 0,
            timeout_s=TIMEOUT_S,
        )
        assert time.process_time() - begun < MOST_S
        assert report_text(report) and report_json(report)
        results += report.recovered
        print(f"{min(first + BATCH, count):,} of {count:,} files", file=sys.stderr, flush=True)
    return results


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (75, 1),
        pytest.param(300, 1, marks=pytest.mark.exhaustive),
        *(pytest.param(5_000, part, marks=pytest.mark.slow) for part in range(2, 6)),
    ],
)
def test_mutations_never_crash_hang_or_exhaust(count: int, seed: int, tmp_path: Path) -> None:
    """No crash, no endless work, and memory that does not grow; intact parts come out."""
    said = run_apart("test_salvage", tmp_path, count, seed)
    print(said)
    grown, results = (re.search(rf"{what} (\d+)", said) for what in ("grown by", "found"))
    assert grown is not None and int(grown[1]) < 150
    least = count if "H5SWEEP_CORPUS" in os.environ else count // 2  # without it, smaller files
    assert results is not None and int(results[1]) > least
