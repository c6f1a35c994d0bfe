"""Texts laid out by us read as those that the HDF5 library wrote, and can be changed like them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h5sweep import check_files
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import plan_product
from h5sweep.merge.from_records.build import merge_run
from h5sweep.output.dimensions import Dimensions
from h5sweep.output.reader import OutputReader
from h5sweep.output.text_heap import LARGE_HEAP_BYTES, LEAST_COPIES, RepeatedTexts
from h5sweep.output.writer import OutputWriter, compact_key_column
from h5sweep.runfolder.layout import RunFolder
from written_records import write_records

KINDS = ["onshore", "", "überall", "x" * (LARGE_HEAP_BYTES + 5)]


def write(path: Path, texts: list[str]) -> RepeatedTexts:
    """An output whose key column `kind` are these texts, and nothing else in it."""
    plan = plan_list([{"kind": text, "seed": seed} for seed, text in enumerate(texts)])
    tasks = np.arange(len(plan))
    repeated = compact_key_column(plan, "kind", tasks)
    assert isinstance(repeated, RepeatedTexts)
    with OutputWriter(path, [], Dimensions(len(plan), {"kind", "seed"}), compress=False) as writer:
        writer.write_attributes({"h5sweep_format": "h5sweep.output/1"})
        writer.create_columns(plan)
        writer.allocate()
        for name in ("task", "seed"):
            writer.write(name, 0, tasks)
        writer.write_repeated("kind", repeated)
    return repeated


@pytest.fixture
def texts() -> list[str]:
    order = np.random.default_rng(1).integers(0, len(KINDS) - 1, 4_000).tolist()
    return [KINDS[-1] if place % 400 == 7 else KINDS[code] for place, code in enumerate(order)]


def test_the_library_reads_what_was_laid_out(tmp_path: Path, texts: list[str]) -> None:
    """Empty texts, long ones and those that are not ASCII; and nothing else in the file suffers."""
    write(tmp_path / "out.h5", texts)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["kind"].asstr()[:].tolist() == texts
        assert file["seed"][:].tolist() == list(range(len(texts)))


def test_an_output_with_such_texts_is_sound_and_merged_again(tmp_path: Path) -> None:
    """A merge lays key columns out so, `check --deep` has no objection, and rows are kept."""
    plan = plan_product({"kind": ["onshore", "offshore"], "seed": range(200)})
    folder = RunFolder(tmp_path / "out.h5")
    for tasks in (range(300), range(300, 400)):
        path = write_records(folder, plan, {task: {"aep": task / 7} for task in tasks})
        merge_run(folder)
        path.unlink()
    [found] = check_files([folder.output], depth="deep").files
    assert not found.findings
    with h5py.File(folder.output) as file:
        assert file["kind"].asstr()[:].tolist() == ["onshore"] * 200 + ["offshore"] * 200
        assert file["aep"][:].tolist() == [task / 7 for task in range(400)]


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.integers(LEAST_COPIES, 1_500),
    st.randoms(use_true_random=False),
)
def test_any_texts_read_back(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], copies: int, random: object
) -> None:
    """Whatever the texts and however often each is there, rows come back in their order."""
    chosen = [random.choice(kinds) for _ in range(copies * len(kinds))]  # type: ignore[attr-defined]
    path = tmp_path_factory.mktemp("texts") / "out.h5"
    repeated = write(path, chosen)
    with h5py.File(path) as file:
        assert file["kind"].asstr()[:].tolist() == chosen
    with OutputReader(path) as reader:
        assert reader.holds_texts("kind", repeated)


def test_a_changed_text_changes_no_other(tmp_path: Path, texts: list[str]) -> None:
    """Somebody who writes into the output, with longer texts and new datasets, harms nothing."""
    write(tmp_path / "out.h5", texts)
    with h5py.File(tmp_path / "out.h5", "a") as file:
        for row in (0, 7, len(texts) - 1):
            file["kind"][row] = texts[row] = f"changed {row} " * 50
        file["more"] = np.arange(1_000)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["kind"].asstr()[:].tolist() == texts
        assert file["more"][-1] == 999


@pytest.mark.parametrize("what", ["element", "heap", "text"])
def test_what_does_not_read_back_is_noticed(what: str, tmp_path: Path, texts: list[str]) -> None:
    """A flipped bit among the elements, in the head of a heap or in a text: it does not hold."""
    path = tmp_path / "out.h5"
    repeated = write(path, texts)
    with OutputReader(path) as reader:
        assert reader.holds_texts("kind", repeated)
    with h5py.File(path) as file:
        element = file["kind"].id.get_offset() + 16 * 2_000 + 12
    content = bytearray(path.read_bytes())
    place = {"element": element, "heap": content.rindex(b"GCOL") + 5}
    place["text"] = content.index(b"onshore", content.index(b"GCOL"))
    content[place[what]] ^= 4
    path.write_bytes(content)
    with OutputReader(path) as reader:
        assert not reader.holds_texts("kind", repeated)


@pytest.mark.parametrize("words", [["h5dump", "-d", "/kind"], ["ncdump", "-v", "kind"]])
def test_other_tools_read_it(words: list[str], tmp_path: Path, texts: list[str]) -> None:
    """HDF5's own tool and netCDF's print every text."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    write(tmp_path / "out.h5", texts)
    shown = subprocess.run([*words, "out.h5"], cwd=tmp_path, capture_output=True, check=True)
    assert shown.stdout.count(b"onshore") == texts.count("onshore")


def test_few_copies_are_left_to_the_library() -> None:
    """Where heaps of one text each would be mostly empty, it does not pay."""
    codes = np.arange(LEAST_COPIES * 2 - 1) % 2
    assert not RepeatedTexts([b"a", b"b"], codes).is_worth_it
    assert RepeatedTexts([b"a"], codes).is_worth_it
    assert not RepeatedTexts([], codes[:0]).is_worth_it
