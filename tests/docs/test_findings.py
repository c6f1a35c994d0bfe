"""The page of findings is what the code says."""

from __future__ import annotations

import runpy

from check_samples import SAMPLES
from h5sweep.worker_files.findings import RULES
from places import DOCS, TESTS

# Made by other tests, with processes and run folders.
ELSEWHERE = {"D113", "D205", "D206", "D207", "D501", "D502", "D503", "D504", "N601", "N610", "N611"}


def test_findings_page_is_up_to_date() -> None:
    """docs/findings.md is what docs/make_findings.py writes."""
    made = runpy.run_path(str(DOCS / "make_findings.py"))["page"]()
    assert (DOCS / "findings.md").read_text(encoding="utf-8") == made


def test_every_finding_has_a_file_in_the_tests() -> None:
    """No finding is only a sentence: a test makes a file with it."""
    assert {rule.code for rule in RULES} == SAMPLES.keys() | ELSEWHERE
    paths = [path for room in ("check", "library") for path in (TESTS / room).glob("test_*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert all(f'"{code}"' in text for code in ELSEWHERE)


def test_codes_and_names_are_each_of_one_finding() -> None:
    """A code has one name, and a name one code."""
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


def test_every_finding_ends_with_a_next_step() -> None:
    """No finding leaves its reader alone."""
    assert all(rule.next and rule.example for rule in RULES)
