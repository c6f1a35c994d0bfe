"""A real writer's file after every single write: what had been flushed is recovered."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from cases import some_of
from damaged_files import DAMAGES, damaged_states
from damaged_files import PATTERN as PATTERN_OF_SEEDS
from damaged_files import STYLES as DAMAGED_STYLES
from h5sweep.hdf5.damage.carve import carve
from h5sweep.hdf5.headers import read_header
from h5sweep.hdf5.source import OpenSource
from h5sweep.hdf5.tree import Tree, data_extents, read_object
from needs import needs_strace
from recorded_writes import (
    KEY,
    PATTERN,
    STYLES,
    Write,
    key_of,
    record_writes,
    states_of,
    write_tasks,
)
from salvage_checks import Results, salvage_content, true_plan, true_results

FEW, MANY = 12, 60
# The least share of flushed tasks that comes back, over all states.
LEAST = {
    "names earliest": 0.9,
    "names latest": 0.95,
    "columns earliest gzip": 0.9,
    "columns latest gzip": 0.9,
    "compound earliest gzip": 0.9,
    "compound latest gzip": 0.9,
}
DAMAGED_TASKS = 60


def options_of(style: str, tasks: int) -> dict[str, Any]:
    key = {"key": PATTERN} if style.startswith("names") else {}
    return {"expected": true_plan(tasks), **key}


def recovered(
    writes: list[Write], style: str, tasks: int, folder: Path, *, library_every: int
) -> tuple[int, int, int]:
    """Over all states: how many tasks had been flushed, came back, and came back wrong."""
    truth = true_results(tasks)
    flushed = right = wrong = 0
    for number, (completed, content) in enumerate(states_of(writes)):
        asks = number % library_every == 0
        found = salvage_content(
            content, folder, truth, use_library=asks, **options_of(style, tasks)
        )
        # Of a single group nobody can say whether it has all its values: it is shown, not taken.
        is_alone = completed == 1 and style.startswith(("group", "names")) and not found.right
        keys = {tuple(key_of(task).values()) for task in range(completed)}
        flushed += 0 if is_alone else completed
        right += len(keys & found.right)
        wrong += found.wrong
    return flushed, right, wrong


@needs_strace
@pytest.mark.parametrize("tasks", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("style", some_of(STYLES, 6))
def test_what_was_flushed_is_recovered_in_every_state(
    style: str, tasks: int, tmp_path: Path
) -> None:
    """After each write, every flushed task comes back; of gzip columns, nine in ten; none wrong."""
    writes = record_writes(tmp_path / "recorded.h5", style, tasks)
    every = 8 if tasks == MANY else 25  # of the states: the library starts a process for each
    flushed, right, wrong = recovered(writes, style, tasks, tmp_path, library_every=every)
    print(f"{style}: {len(writes)} states, {right} of {flushed} tasks, {wrong} wrong")
    least = LEAST.get(style, 1.0)
    if tasks == FEW and style in LEAST:
        least -= 0.1  # of few tasks, more are in the making
    assert not wrong and right >= least * flushed


@needs_strace
@pytest.mark.parametrize("style", some_of(["columns latest gzip", "columns earliest gzip"], 2))
def test_without_a_plan_nothing_is_wrong(style: str, tmp_path: Path) -> None:
    """Where no list of tasks says which stream is which column, less is taken, and none wrong."""
    truth = true_results(FEW)
    for _, content in states_of(record_writes(tmp_path / "recorded.h5", style, FEW)):
        found = salvage_content(content, tmp_path, truth, use_library=False, key=KEY)
        assert not found.wrong


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(200, len(content)) :]


def zero_page(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(0, len(content), 4096)
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))


def zero_first_page(content: bytearray, chance: random.Random) -> None:
    content[:4096] = bytes(4096)


def zero_superblock(content: bytearray, chance: random.Random) -> None:
    size = 96 if content[8] == 0 else 48
    content[:size] = bytes(size)


def damaged(
    style: str, damage: Callable[[bytearray, random.Random], None], count: int, folder: Path
) -> tuple[float, int]:
    """Which share of tasks comes back from a closed file that was damaged, and how many wrong."""
    path = folder / "closed.h5"
    write_tasks(path, style, DAMAGED_TASKS)
    truth: Results = true_results(DAMAGED_TASKS)
    chance = random.Random(3)
    right = wrong = 0
    for _ in range(count):
        content = bytearray(path.read_bytes())
        damage(content, chance)
        options = options_of(style, DAMAGED_TASKS)
        found = salvage_content(bytes(content), folder, truth, use_library=False, **options)
        right, wrong = right + len(found.right), wrong + found.wrong
    return right / (count * DAMAGED_TASKS), wrong


@pytest.mark.parametrize("style", STYLES)
def test_the_superblock_of_a_closed_file_may_be_lost(style: str, tmp_path: Path) -> None:
    """A file whose superblock is zeros gives every task."""
    assert damaged(style, zero_superblock, 1, tmp_path) == (1.0, 0)


@pytest.mark.parametrize("style", [s for s in STYLES if s.startswith("group")])
def test_the_first_page_of_a_group_file_may_be_lost(style: str, tmp_path: Path) -> None:
    """A file whose first 4 KiB are zeros gives all tasks but those that lay there."""
    share, wrong = damaged(style, zero_first_page, 1, tmp_path)
    assert share >= 0.93 and not wrong


@pytest.mark.parametrize("key", ["seed", PATTERN_OF_SEEDS])
@pytest.mark.parametrize(("libver", "first"), [("earliest", 0), ("latest", 1)])
def test_no_task_stands_for_a_lost_root(libver: str, first: int, key: str, tmp_path: Path) -> None:
    """Without its root, a file gives every task behind it, though each has a group inside."""
    truth: Results = {(seed,): {"in_aep": seed + 0.5} for seed in range(6)}
    with h5py.File(tmp_path / "closed.h5", "w", libver=libver) as file:
        for seed in range(6):
            file[f"s{seed}/in/aep"] = seed + 0.5
            file[f"s{seed}"].attrs["seed"] = seed
    content = bytes(512) + (tmp_path / "closed.h5").read_bytes()[512:]
    found = salvage_content(content, tmp_path, truth, use_library=False, key=key)
    assert found.right == {(seed,) for seed in range(first, 6)} and not found.wrong


def test_names_are_found_without_the_directory_that_has_them(tmp_path: Path) -> None:
    """Groups of which only the names are the key give all but those in the first page."""
    share, wrong = damaged("names earliest", zero_first_page, 1, tmp_path)
    assert share >= 0.8 and not wrong


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damage", [cut, zero_page], ids=["cut", "page"])
@pytest.mark.parametrize("style", some_of(STYLES, 5))
def test_damage_never_gives_a_wrong_value(
    style: str, damage: Callable[[bytearray, random.Random], None], count: int, tmp_path: Path
) -> None:
    """Cut anywhere, or with any page lost, a file gives true values or none."""
    share, wrong = damaged(style, damage, count, tmp_path)
    print(f"{style}: {100 * share:.1f} %")
    assert not wrong


@pytest.mark.parametrize("style", ["group earliest", "group latest"])
def test_everything_before_a_cut_is_recovered(style: str, tmp_path: Path) -> None:
    """Tasks whose last byte lies before the end of a truncated file all come back."""
    path = tmp_path / "closed.h5"
    write_tasks(path, style, DAMAGED_TASKS)
    ends = {tuple(key_of(task).values()): end_of(path, task) for task in range(DAMAGED_TASKS)}
    content, truth = path.read_bytes(), true_results(DAMAGED_TASKS)
    for cut_at in range(8192, len(content), 16384):
        found = salvage_content(content[:cut_at], tmp_path, truth, use_library=False)
        whole = {key for key, end in ends.items() if end <= cut_at}
        assert whole <= found.right and not found.wrong


@pytest.mark.parametrize("style", some_of([s for s in STYLES if s.startswith("group")], 3))
def test_a_lost_page_costs_only_the_tasks_that_lie_in_it(style: str, tmp_path: Path) -> None:
    """A task of which no byte was lost comes back, whichever page is zeros."""
    path = tmp_path / "closed.h5"
    write_tasks(path, style, DAMAGED_TASKS)
    content, truth = path.read_bytes(), true_results(DAMAGED_TASKS)
    places = places_of(path)
    for start in range(0, len(content), 3 * 4096):
        damaged = bytearray(content)
        damaged[start : start + 4096] = bytes(len(content[start : start + 4096]))
        found = salvage_content(
            bytes(damaged), tmp_path, truth, use_library=False, **options_of(style, DAMAGED_TASKS)
        )
        hit = {
            k for k, own in places.items() if any(start - n < at < start + 4096 for at, n in own)
        }
        assert truth.keys() - hit <= found.right and not found.wrong


def places_of(path: Path) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Where all that makes up each task lies: offsets and sizes."""
    found = {}
    with OpenSource(path) as source:
        carving = carve(source)
        for group in carving.objects.values():
            if group.is_group and group.path != "/":
                own: list[tuple[int, int]] = []
                for address in (group.address, *(child for _, child in group.links)):
                    carving.file.structures.clear()
                    header = read_header(carving.file, address)
                    one, _ = read_object(Tree(carving.file), header)
                    own += carving.file.structures.items()
                    own += [] if one.dataset is None else data_extents(one.dataset)
                values = [group.object.attributes[name].value for name in KEY.split(",")]
                found[tuple(int.from_bytes(value, "little") for value in values)] = own
    return found


def end_of(path: Path, task: int) -> int:
    """Where a task ends: its data, or a header with all that belongs to it, in 2 kB at most."""
    key = key_of(task)
    with h5py.File(path) as file:
        group = file[f"farm{key['farm_id']}_t{key['farm_type']}_s{key['seed']}"]
        objects = [group, group["layout"], group["aep"]]
        headers = [h5py.h5o.get_info(found.id).addr + 2048 for found in objects]
        data = [found.id.get_offset() + found.nbytes for found in objects[1:]]
        return int(max(headers + data))


QUICK = ("flat earliest plain", "flat latest fletcher32", "columns earliest plain")
QUICK += ("nested latest gzip", "attributes earliest", "compounds latest all")


@pytest.mark.parametrize(
    ("style", "count", "seed"),
    [
        (QUICK[0], len(DAMAGES), 7),
        *(
            pytest.param(style, len(DAMAGES), 7, marks=pytest.mark.exhaustive)
            for style in QUICK[1:]
        ),
        *(
            pytest.param(style, 10 * len(DAMAGES), 8, marks=pytest.mark.slow)
            for style in DAMAGED_STYLES
        ),
    ],
)
def test_no_style_and_no_damage_gives_a_wrong_result(
    style: str, count: int, seed: int, tmp_path: Path
) -> None:
    """Whatever was lost of whichever file, what is accepted has all values, and the right ones."""
    right = states = 0
    for damage, content, truth in damaged_states(style, count, seed):
        key = DAMAGED_STYLES[style].key
        # A flipped bit without a checksum is a value like any other.
        accept = "verified" if damage == "flipped" else "consistent"
        options = {"key": key, "accept": accept, "use_library": False}
        found = salvage_content(content, tmp_path, truth, **options)
        assert not found.wrong, damage
        right, states = right + len(found.right), states + 1
    print(f"{style}: {states} states, {right} results")
