"""Files that are reached without following links."""

from __future__ import annotations

from pathlib import Path

import pytest

from h5sweep.disk import inside_folder
from h5sweep.disk.inside_folder import read_file


def test_missing_file_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS says of a file that another host has made that it is not there, until it is asked to
    look; `tests/nfs` shows that this has it do so.
    """
    path = tmp_path / "plan.jsonl"
    assert read_file(path) is None
    monkeypatch.setattr(inside_folder, "forget_missing", lambda folder: path.write_bytes(b"there"))
    assert read_file(path) == b"there"
