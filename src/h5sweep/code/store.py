"""The versions of the code that have made results of a run folder, by number: `code/1.json`.

Numbers begin at 1. A record file names its code by an id that is made of what the version is, so
that records which are copied into another folder are never taken for those of other code there. 0
stands for results of which the code is not known: those of other programs, or of a `Recorder`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..disk import durable
from ..disk.inside_folder import parse_json, read_file
from ..errors import DamagedError
from ..runfolder.layout import RunFolder
from .version import CodeVersion


def load_versions(folder: RunFolder) -> dict[int, CodeVersion]:
    """Every version that is known, by its number; DamagedError names a file that is none."""
    return {number: parse_version(text) for number, text in version_texts(folder).items()}


def parse_version(text: str) -> CodeVersion:
    """DamagedError if it is none."""
    try:
        return CodeVersion.from_json(parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"a version of the code is damaged ({error})") from error


def version_texts(folder: RunFolder) -> dict[int, str]:
    """What is known of each version, as JSON."""
    found = {}
    for number, path in folder.code_paths().items():
        try:
            found[number] = (read_file(path) or b"").decode()
            parse_version(found[number])
        except (ValueError, DamagedError) as error:
            raise DamagedError(
                f"{path} is damaged ({error}): move it away; no result is affected"
            ) from error
    return found


def numbers_by_id(known: Mapping[int, CodeVersion]) -> dict[str, int]:
    return {version.id: number for number, version in known.items()}


def keep_version(folder: RunFolder, version: CodeVersion, before: CodeVersion | None) -> int:
    """The number of a version, which is kept durably if it is new."""
    known = numbers_by_id(load_versions(folder))
    if version.id in known:
        return known[version.id]
    number = max(known.values(), default=0) + 1
    _save(folder, number, json.dumps(version.as_json(before), indent=1) + "\n")
    return number


def adopt_texts(folder: RunFolder, texts: Mapping[int, str]) -> None:
    """Keep the versions that an output names, durably, under the numbers of `with_texts`."""
    known = version_texts(folder)
    both, _ = with_texts(known, texts)
    for number in both.keys() - known.keys():
        _save(folder, number, both[number])


def with_texts(
    known: Mapping[int, str], texts: Mapping[int, str]
) -> tuple[dict[int, str], dict[int, int]]:
    """The versions of a folder and of an output; the number here of each that the output has."""
    both, numbers = dict(known), {}
    by_id = {parse_version(text).id: number for number, text in known.items()}
    for number, text in texts.items():
        identity = parse_version(text).id
        if identity not in by_id:
            by_id[identity] = number if number not in both else max(both) + 1
            both[by_id[identity]] = text
        numbers[number] = by_id[identity]
    return both, numbers


def _save(folder: RunFolder, number: int, text: str) -> None:
    folder.create()
    durable.make_folder(folder.code_path)
    durable.replace_text(folder.code_path / f"{number}.json", text)
