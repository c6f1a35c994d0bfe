"""Parts at work in a folder, and who has claimed what: no lock, no clock, no shared file."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from h5sweep.base.process_id import this_process
from h5sweep.errors import LockedError, StorageError, UsageError
from h5sweep.runfolder import heartbeat, parts
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.parts import (
    SLICES,
    Claim,
    Claims,
    PartNumber,
    PartWatch,
    read_parts,
    registered,
    require_no_parts,
)
from needs import needs_root
from running import tmpfs, until

NAME = "3of40_node7_4711_1f9c2e"
FIRST = PartNumber(1, 2)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "out.h5")
    for path in (folder.path, folder.parts_path, folder.claims_path):
        path.mkdir()
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hearts beat and silence ends in a moment."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "WATCH_S", 0.3)
    monkeypatch.setattr(parts, "HEARTBEAT_S", 0.05)


def leave(folder: RunFolder, name: str = NAME, **changes: Any) -> Path:
    """The file of a part of another host, which says nothing new."""
    about = {**this_process().as_json(), "host": "node7", "part": "3/40", "code": "c"}
    path = folder.parts_path / f"{name}.json"
    path.write_text(json.dumps({**about, "beats": 3, **changes}))
    return path


# Slices


@pytest.mark.parametrize("of", [1, 2, 3, 40, 1000, 1024, 3000])
def test_every_slice_is_the_own_of_exactly_one_part(of: int) -> None:
    """Whatever N is, the shares of N parts are disjoint and leave nothing out."""
    owned = [number for part in range(1, of + 1) for number in PartNumber(part, of).slices()]
    assert sorted(owned) == list(range(SLICES))


@pytest.mark.parametrize(("number", "of"), [(0, 4), (5, 4), (-1, 4), (1, 0)])
def test_a_part_beyond_n_is_refused(number: int, of: int) -> None:
    """There is no part 0 of 4, and none 5 of 4."""
    with pytest.raises(UsageError, match="numbered from 1 to N"):
        PartNumber(number, of)


# Being known


def test_parts_of_a_dead_run_may_end_within_its_grace(folder: RunFolder, quick: None) -> None:
    """Who wants the folder waits for as long as they may take, however long that is."""
    told: list[str] = []
    with ThreadPoolExecutor(1) as thread:
        with registered(folder, FIRST, "code", "1f9c2e", grace_s=600.0):
            waiting = thread.submit(require_no_parts, folder, told.append)
            until(lambda: told or waiting.done())
        waiting.result()
    assert "of a run that has died is ending; watching it for 640 s" in told[0]


def test_a_part_is_known_while_it_works(folder: RunFolder) -> None:
    """Its file says who it is, with which code; afterwards there is none."""
    with registered(folder, PartNumber(3, 40), "code") as name:
        (part,) = read_parts(folder)
        assert (part.name, part.number, part.code) == (name, "3/40", "code")
        assert part.process == this_process()
        assert PartWatch(folder).look() == {name: True}
    assert read_parts(folder) == []


def test_a_part_that_others_thought_dead_is_known_again(folder: RunFolder, quick: None) -> None:
    """Its next heartbeat makes its file again, under its name: its new claims count."""
    with registered(folder, FIRST, "code") as name:
        path = folder.parts_path / f"{name}.json"
        path.unlink()
        until(lambda: path.exists() and path.read_text().strip())
        assert PartWatch(folder).look() == {name: True}
    assert not path.exists()


def test_a_heartbeat_is_flushed_each_time(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    """Each beat closes a descriptor of the file: until then NFS shows it to nobody else."""
    closed: list[str] = []
    close = os.close

    def noting(descriptor: int) -> None:
        closed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        close(descriptor)

    monkeypatch.setattr(os, "close", noting)
    with registered(folder, FIRST, "code") as name:
        until(lambda: sum(name in path for path in closed) >= 4)


def test_a_disk_that_refuses_the_file_of_a_part_is_told(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that cannot be known to others does not begin."""
    monkeypatch.setattr(parts, "_write_beat", refusing(errno.ENOSPC))
    with pytest.raises(StorageError), registered(folder, FIRST, "code"):
        raise AssertionError("it has begun")


# Who is alive


def test_a_silent_part_of_another_host_is_dead_after_a_while(
    folder: RunFolder, quick: None
) -> None:
    """It is doubtful while it is watched; then it is dead and its file goes."""
    path, watch = leave(folder), PartWatch(folder)
    assert watch.look() == {NAME: None}
    until(lambda: watch.look() == {NAME: False})
    assert not path.exists()
    assert watch.look() == {}


def test_a_part_of_another_host_whose_file_changes_is_alive(folder: RunFolder) -> None:
    """What changes is alive, whatever time its clock has."""
    path, watch = leave(folder), PartWatch(folder)
    assert watch.look() == {NAME: None}
    leave(folder, beats=4)
    os.utime(path, (0, 0))
    assert watch.look() == {NAME: True}


def test_a_machine_of_the_same_name_is_another_machine(folder: RunFolder) -> None:
    """A pid is not looked up for a part of another boot: two machines may have one name."""
    leave(folder, host=this_process().host, boot="another")
    assert PartWatch(folder).look() == {NAME: None}


def test_a_dead_part_of_this_machine_is_seen_at_once(folder: RunFolder) -> None:
    """Nobody waits for the heartbeat of a process that is known to be gone."""
    leave(folder, host=this_process().host, start_ticks=1)
    assert PartWatch(folder).look() == {NAME: False}


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 512, b"{", b"[]", b'{"since": "x"}', b'{"since": [1], "code": {}}', b"\xff\xfe"],
)
def test_a_part_file_with_garbage_is_a_part_that_says_nothing(
    folder: RunFolder, quick: None, content: bytes
) -> None:
    """It is watched like any other, removed in the end, and breaks nothing."""
    for name in (NAME, "garbage"):
        (folder.parts_path / f"{name}.json").write_bytes(content)
    assert [part.is_alive for part in read_parts(folder)] == [None, None]
    said: list[str] = []
    require_no_parts(folder, said.append)
    assert len(said) == 1
    assert "may still be at work; watching it" in said[0]
    assert list(folder.parts_path.iterdir()) == []


def test_what_is_no_file_is_no_part(folder: RunFolder, quick: None) -> None:
    """A folder or link of such a name breaks nothing either."""
    (folder.parts_path / f"{NAME}.json").mkdir()
    (folder.parts_path / "x.json").symlink_to("/dev/null")
    said: list[str] = []
    require_no_parts(folder, said.append)
    assert (read_parts(folder), said) == ([], [])


def test_a_live_part_keeps_others_out(folder: RunFolder) -> None:
    """Who must have the folder alone is told which part is at work, where."""
    with registered(folder, PartNumber(3, 40), "code"), pytest.raises(LockedError) as refused:
        require_no_parts(folder, lambda _: None)
    assert f"part 3/40 (pid {os.getpid()} on " in str(refused.value)
    assert "h5sweep status" in str(refused.value)


# Claims


def test_exactly_one_can_claim_a_slice(folder: RunFolder) -> None:
    """The second is told that it has not got it, and who has."""
    first, second = Claims(folder, "first", "all"), Claims(folder, "second")
    assert first.claim(7, 0, 2000)
    assert not second.claim(7, 0, 3000)
    assert (second.counts(), second.find(7, 1)) == ({7: 1}, Claim("first", 2000, "all"))


def test_a_claim_after_a_look_fails_if_somebody_came_between(folder: RunFolder) -> None:
    """A claim has the number behind the one that was seen: that still holds, or it fails."""
    first, second, third = (Claims(folder, name) for name in ("first", "second", "third"))
    assert first.claim(7, 0, 9)
    assert second.claim(7, 1, 9)
    assert not third.claim(7, 1, 9)
    assert not third.claim(7, 0, 9)
    assert third.find(7, third.counts()[7]) == Claim("second", 9)


def test_a_claim_without_a_name_is_nobodys(folder: RunFolder) -> None:
    """Who was killed between creating and writing it is not known, nor is one with garbage."""
    (folder.claims_path / "7.1").touch()
    (folder.claims_path / "8.1").mkdir()
    for name in ("x.1", "7.x", "7", "\N{SUPERSCRIPT ONE}.1", "-1.1"):
        (folder.claims_path / name).touch()
    claims = Claims(folder, "me")
    assert claims.counts() == {7: 1, 8: 1}
    assert claims.find(7, 1) is None
    assert claims.find(8, 1) is None
    assert not claims.claim(7, 0, 9)


def test_claim_of_a_slice_that_nobody_has_is_not_looked_for(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part would ask for a thousand files that are not there, and network file systems answer
    each of these, and note it.
    """
    asked: list[Path] = []
    monkeypatch.setattr(parts, "read_file", asked.append)
    assert Claims(folder, "me").find(7, 0) is None
    assert asked == []


@pytest.mark.parametrize(
    "text", ["first", "first\n", "first\n12", "first\n12 all", "\n12 all\n", "\0"]
)
def test_half_a_claim_is_nobodys(folder: RunFolder, text: str) -> None:
    """What another host has written may be seen in pieces."""
    (folder.claims_path / "7.1").write_text(text)
    assert Claims(folder, "me").find(7, 1) is None


def test_permission_denied_means_taken_only_if_it_is_there(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshfs says EPERM to the second; so does a folder that nobody may change."""
    (folder.claims_path / "7.1").write_text("first")
    monkeypatch.setattr(os, "open", refusing(errno.EPERM))
    claims = Claims(folder, "second")
    assert not claims.claim(7, 0, 9)
    with pytest.raises(StorageError, match=r"8\.1"):
        claims.claim(8, 0, 9)


def test_a_folder_that_another_host_makes_too(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second to write what the folder is hears the same from sshfs, and goes on."""
    folder.create()
    monkeypatch.setattr(Path, "open", refusing(errno.EPERM))
    folder.create()
    folder.readme_path.unlink()
    with pytest.raises(PermissionError):
        folder.create()


def test_claim_that_is_refused_when_it_is_closed_is_named(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS sends what was written when a file is closed, and may say only then that it failed."""
    close = os.close

    def refuse(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(parts.os, "close", refuse)
    with pytest.raises(StorageError, match=r"claims/7\.1: Input/output error"):
        Claims(folder, "1of2").claim(7, 0, 8)


@needs_root
def test_a_full_disk_is_told_when_claiming(tmp_path: Path) -> None:
    """Nothing is claimed by halves in silence: the part is told, and others can claim."""
    with tmpfs(tmp_path / "small", "size=64k") as small:
        folder = RunFolder(small / "out.h5")
        folder.claims_path.mkdir(parents=True)
        with pytest.raises(OSError, match="No space"), (small / "filler").open("wb", 0) as filler:
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(StorageError, match="No space"):
            Claims(folder, "first").claim(7, 0, 9)
        (small / "filler").unlink()
        second = Claims(folder, "second")
        assert second.claim(7, second.counts().get(7, 0), 9)


# Network file systems


@pytest.mark.parametrize("refused", ["listdir", "open"])
def test_a_stale_handle_is_looked_up_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """ESTALE means that the name leads elsewhere by now; for ever, it is an error."""
    leave(folder)
    real = getattr(os, refused)
    refusals = [errno.ESTALE] * 3

    def stale(*arguments: Any, **named: Any) -> Any:
        if refusals and arguments[0] != "/proc":
            raise OSError(refusals.pop(), "Stale file handle")
        return real(*arguments, **named)

    monkeypatch.setattr(os, refused, stale)
    assert [part.name for part in read_parts(folder)] == [NAME]
    assert not refusals
    refusals += [errno.ESTALE] * 99
    with pytest.raises(OSError, match="Stale"):
        read_parts(folder)


def test_a_look_changes_the_folder_before_it_lists(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sshfs shows the listing of 20 s ago, and NFS one as old, until something changes there."""
    events: list[str] = []
    listdir, unlink = os.listdir, Path.unlink
    monkeypatch.setattr(os, "listdir", lambda path: events.append("list") or listdir(path))
    monkeypatch.setattr(
        Path, "unlink", lambda path, **how: events.append("change") or unlink(path, **how)
    )
    PartWatch(folder).look()
    assert events == ["change", "list"]
    assert list(folder.parts_path.iterdir()) == []


def refusing(number: int) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse
