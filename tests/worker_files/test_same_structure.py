"""Which files are siblings, and that what they do not share is looked at in each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cases import some_of
from check_samples import change, flip
from h5sweep import check_files
from h5sweep.worker_files import findings, same_structure
from h5sweep.worker_files.read_values import Values
from h5sweep.worker_files.survey import Survey
from own_values import DESCRIBE, Describe, checked_headers, write_described

HEAP_AT = 16  # behind the head of a heap: the first text's number, references and size


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("describe", DESCRIBE.values(), ids=DESCRIBE)
def test_siblings_have_their_own_values(describe: Describe, libver: str, tmp_path: Path) -> None:
    """One structure describes all, and of whatever is opened the values are its own."""
    survey, alone = Survey(), []
    for number in range(5):
        path = write_described(tmp_path / f"w{number}.h5", number, describe, libver)
        alone.append(_values(Survey(), path))
    found = survey.look_at_all([tmp_path])
    assert len({one.family for one in found}) == 1 and found[0].family is not None
    assert [_values(survey, one.path) for one in found] == alone


@pytest.mark.usefixtures("way")
def test_a_flipped_byte_under_a_checksum_is_damage_in_any_of_many(tmp_path: Path) -> None:
    """A wrong value, time or checksum is found among siblings, by `merge` and by `check`."""
    for number in range(20):
        write_described(tmp_path / f"w{number:02}.h5", number, DESCRIBE["a stamp"], "latest")
    family = Survey().look_at(tmp_path / "w00.h5").family
    assert family is not None
    headers = checked_headers(tmp_path / "w00.h5")
    holes = [a for a, _ in family.holes.spans if any(start <= a < end for start, end in headers)]
    assert len(holes) >= 6  # a text's length, a number, times and checksums of three headers
    for place in holes:
        flip(tmp_path / "w13.h5", place)
        found = Survey().look_at_all([tmp_path])
        codes = {findings.METADATA_CHECKSUM.code, findings.ROOT.code}
        assert [n for n, one in enumerate(found) if one.findings] == [13], place
        assert codes & {finding.code for finding in found[13].findings}, place
        report = check_files(tmp_path)
        assert [Path(one.path).name for one in report.files if one.findings] == ["w13.h5"], place
        flip(tmp_path / "w13.h5", place)


DAMAGES = {
    "a text of another number": lambda heap: (heap + HEAP_AT, b"\x07"),
    "a text that is too short": lambda heap: (heap + HEAP_AT + 8, b"\x03"),
    "a text beyond the heap": lambda heap: (heap + HEAP_AT + 8, b"\xff\xff"),
    "no heap": lambda heap: (heap, b"XXXX"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_heap_that_is_not_whole_is_read_by_itself(damage: Any, tmp_path: Path) -> None:
    """It is no sibling, though only its heap is different; and what is wrong with it is told."""
    survey = Survey()
    for number in range(2):
        write_described(tmp_path / f"w{number}.h5", number, DESCRIBE["a stamp"])
    sound = survey.look_at(tmp_path / "w0.h5")
    path = tmp_path / "w1.h5"
    assert survey.look_at(path).family is sound.family
    change(path, *damage(path.read_bytes().index(b"GCOL")))
    assert survey.look_at(path).family is not sound.family
    (good, bad) = check_files(tmp_path).files
    assert not good.findings and bad.findings


def test_a_heap_that_claims_what_lies_behind_it_is_no_hole(tmp_path: Path) -> None:
    """Otherwise a structure could differ there, and nobody would look."""
    path = write_described(tmp_path / "w0.h5", 0, DESCRIBE["a stamp"])
    content = path.read_bytes()
    heap = content.index(b"GCOL")
    size = int.from_bytes(content[heap + 8 : heap + 16], "little")
    bytes_more = len(content) - heap - size  # a part of the root's header
    behind = heap + HEAP_AT + 16 + 24  # the text: what is free begins there
    free = int.from_bytes(content[behind + 8 : behind + 16], "little")
    assert behind + free == heap + size and bytes_more > 0
    assert Survey().look_at(path).family.holes.heaps  # type: ignore[union-attr]
    change(path, heap + 8, (size + bytes_more).to_bytes(8, "little"))
    change(path, behind + 8, (free + bytes_more).to_bytes(8, "little"))
    family = Survey().look_at(path).family
    assert family is not None and not family.holes.heaps
    assert all(not start <= heap + size < end for start, end in family.holes.spans)


@pytest.mark.parametrize("part", some_of(range(40), 20))
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_file_is_judged_the_same_whichever_byte_differs(
    libver: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sibling known or not: the same findings, contents, and values of attributes."""

    def describe(file: Any, number: int) -> None:
        for one in (DESCRIBE["a stamp"], DESCRIBE["texts of any length"]):
            one(file, number)

    write_described(tmp_path / "w0.h5", 0, describe, libver)
    path = write_described(tmp_path / "w1.h5", 1, describe, libver)
    size = path.stat().st_size
    for place in range(part * size // 40, (part + 1) * size // 40, 3):
        flip(path, place)
        survey = Survey()
        survey.look_at(tmp_path / "w0.h5")
        found = _facts(survey, path)
        with monkeypatch.context() as patch:
            patch.setattr(same_structure, "MOST_FOR_ONE_SIZE", 0)
            assert found == _facts(Survey(), path), place
        flip(path, place)


def _facts(survey: Survey, path: Path) -> tuple[object, ...]:
    one = survey.look_at(path)
    return one.findings, one.contents, _values(survey, path) if one.is_readable else None


def _values(survey: Survey, path: Path) -> object:
    """The values of all attributes; if there is no reading them, the reason."""
    try:
        with survey.opened(survey.look_at(path)) as layout:
            values = Values(layout.tree.file)
            return [
                (found.path, name, values.text_of(attribute))
                for found in layout.tree.objects
                for name, attribute in found.attributes.items()
            ]
    except Exception as error:  # the same must come of both ways
        return type(error), str(error)
