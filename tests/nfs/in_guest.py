"""Parts on two hosts that share a folder over NFS. `test_nfs.py` runs this in its guest.

The hosts are `node1` and `node2`, each with a mount and a cache of its own. Hearts beat as they do
for users. What tasks note of themselves is written on the server's disk, past NFS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from crash_checks import check_output, finished_tasks
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.process_id import this_process
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import holding, lock_owner
from part_runs import Parts, ended, on_host
from running import is_running, run_folder, until, worker_pids

MOUNT = os.environ.get("H5_MOUNT", "")  # the options of both mounts
SERVER, NET = Path("/srv/shared"), Path("/net")
H5SWEEP = [sys.executable, "-m", "h5sweep"]
BUSY = {"SPIN": "100"}


class Nodes(Parts):
    """Parts of one study in one folder of the server."""

    def on(self, number: int, mount: str = "") -> dict[str, Any]:
        """Where a command is started that belongs on a node: folder, name and boot."""
        boot = self.folder.with_name(f"boot{number}")
        boot.write_text(f"00000000-0000-4000-8000-00000000000{number}\n")
        place = NET / (mount or f"node{number}") / self.folder.name
        return {"cwd": place, "host": f"node{number}", "boot": boot}

    def merge_on(self, number: int) -> None:
        """Merge on a node; every result is there and right."""
        self.run_words("merge", "out.h5", **self.on(number))
        assert check_output(self.folder / "out.h5") == self.tasks

    def results(self) -> Counter[int]:
        """How often each task was finished, by the record files on the server."""
        return finished_tasks(run_folder(self.folder))

    def begun_twice(self) -> set[int]:
        """The tasks that were begun more than once."""
        return {task for task, times in Counter(self.begun()).items() if times > 1}

    def claimed_by(self, name: str) -> set[int]:
        """The tasks that a part has claimed; each is a slice of its own here."""
        claims = (run_folder(self.folder) / "claims").iterdir()
        return {int(path.stem) for path in claims if path.read_text().startswith(f"{name}_")}


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    folder = SERVER / request.node.name.replace("[", "_").rstrip("]")
    folder.mkdir()
    nodes = Nodes(folder, farms=30, program=H5SWEEP)
    yield nodes
    nodes.close()


@contextmanager
def cut_off(number: int) -> Iterator[None]:
    """Take a node from the network, and give it back."""
    link = ["ip", "-n", f"node{number}", "link", "set", "eth0"]
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


@contextmanager
def another_mount(name: str, options: str) -> Iterator[None]:
    """A second mount of the folder on node1, at /net/`name`, with options of its own."""
    place = NET / name
    place.mkdir(exist_ok=True)
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    source = next(words[0] for words in mounts if words[1] == str(NET / "node1"))
    options = f"{MOUNT},{options}"
    mount = f"hostname node1; mount.nfs {source} {place} -o {options}"
    words = ["nsenter", "--net=/run/netns/node1", "unshare", "--uts", "sh", "-ec", mount]
    subprocess.run(words, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


# Parts


def test_killed_part_is_taken_over_and_nothing_is_lost(nodes: Nodes) -> None:
    """Of four parts on two hosts one is killed; what had finished by then is not run again."""
    started = [nodes.start(f"{n}/4", **nodes.on(1 + n % 2), **BUSY) for n in (1, 2, 3, 4)]
    nodes.wait_until_begun("2/4", least=5)
    started[1].kill()
    started[1].wait()
    in_hand = nodes.claimed_by("2of4") - set(nodes.results())
    for process in (started[0], started[2], started[3]):
        ended(process)
    said = nodes.run("2/4", **nodes.on(1), ROUND="again")
    assert f"{nodes.tasks} kept, 0 tasks of its own to do" in said
    assert set(nodes.results().values()) == {1}
    assert nodes.begun_twice() <= in_hand
    nodes.merge_on(2)


@pytest.mark.parametrize("time", range(2))
def test_parts_that_begin_at_once_in_an_empty_folder(nodes: Nodes, time: int) -> None:
    """Both find nothing there, and declare the sweep; every task is run once."""
    said = [ended(one) for one in [nodes.start(f"{n}/2", **nodes.on(n)) for n in (1, 2)]]
    assert Counter(nodes.begun()) == dict.fromkeys(range(nodes.tasks), 1), said
    nodes.merge_on(1)


def test_one_part_twice_and_another_n_half_way(nodes: Nodes) -> None:
    """Part 1 of 2 is at work on both hosts when parts of 3 begin; every task is run once."""
    started = [nodes.start("1/2", **nodes.on(n), **BUSY) for n in (1, 2)]
    nodes.wait_until_begun("1/2", least=10)
    started += [nodes.start(f"{n}/3", **nodes.on(n - 1), **BUSY) for n in (2, 3)]
    said = [ended(process) for process in started]
    assert Counter(nodes.begun()) == dict.fromkeys(range(nodes.tasks), 1), said
    nodes.merge_on(1)


def test_part_that_declares_more_tasks_than_one_whose_plan_was_looked_for(nodes: Nodes) -> None:
    """A plan that was not there a moment ago is extended by the next part, and not replaced."""
    look_for_everything(nodes, 2)
    nodes.run("1/1", "--only", "farm=2..4", **nodes.on(1), FARMS="5")
    nodes.run("1/1", **nodes.on(2), ROUND="all")
    assert Counter(nodes.begun()) == dict.fromkeys(range(nodes.tasks), 1)
    nodes.merge_on(2)


# The lock

# Takes the lock again and again, for so many seconds; prints how often it was held, and by another
# at the same time. To be held twice shows in a file on the server's disk.
HAMMER = """
import os, sys, time
from collections import Counter
from pathlib import Path
from h5sweep.errors import LockedError
from h5sweep.runfolder.lock import holding
found, end = Counter(), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        with holding(Path("out.h5.lock")):
            found["held"] += 1
            try:
                os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                found["twice"] += 1
            else:
                time.sleep(0.002)
                os.unlink(sys.argv[1])
    except LockedError:
        found["refused"] += 1
print(found["held"], found["refused"], found["twice"])
"""


@pytest.mark.skipif("nolock" in MOUNT, reason="no host sees the locks of another with nolock")
def test_lock_is_held_by_one_at_a_time(nodes: Nodes) -> None:
    """However often it is let go of and taken, on both hosts; nobody meets an error."""
    words = [sys.executable, "-c", HAMMER, str(nodes.folder / "held"), "30"]
    places = [nodes.on(1), nodes.on(1), nodes.on(2), nodes.on(2)]
    started = [
        subprocess.Popen(
            [*on_host(place["host"], place["boot"]), *words],
            cwd=place["cwd"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]
    said = [process.communicate()[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0]
    held, refused, twice = (sum(map(int, numbers)) for numbers in zip(*said, strict=True))
    print(f"held {held} times, refused {refused} times")
    assert held > 20 and refused > 20
    assert not twice


# A network that is cut


def test_host_that_is_cut_off_is_taken_over_and_goes_on_when_it_is_back(nodes: Nodes) -> None:
    """Only what it had in hand is run twice, and the output has it once.

    The server of NFSv4 gives away the locks of a host that is silent for too long, here 10 s; what
    this writes next is refused. Its part ends with a sentence then.
    """
    part = nodes.start("1/2", **nodes.on(1), SPIN="300")
    nodes.wait_until_begun("1/2", least=5)
    with cut_off(1):
        in_hand = nodes.claimed_by("1of2") - set(nodes.results())
        said = nodes.run("2/2", **nodes.on(2))  # watches it for 20 seconds
        assert f"{nodes.tasks} of {nodes.tasks} done" in said
    said = ended(part, None)
    if part.returncode and "vers=4" in MOUNT:
        assert "Input/output error" in said and "run the same command again" in said, said
        nodes.run("1/2", **nodes.on(1))
    else:
        assert part.returncode == 0, said
    assert {task for task, times in nodes.results().items() if times > 1} <= in_hand
    nodes.merge_on(1)


def test_part_on_a_mount_that_gives_up_ends_with_a_sentence(nodes: Nodes) -> None:
    """With `soft`, calls fail while the network is cut; the same command goes on afterwards.

    The locks of NFSv3 never give up: no process that has one can end before the network is back.
    """
    has_to_wait = "vers=3" in MOUNT and "nolock" not in MOUNT
    with another_mount("soft", "soft,timeo=20,retrans=1"):
        part = nodes.start("1/1", **nodes.on(1, "soft"), SPIN="300")
        nodes.wait_until_begun("1/1", least=5)
        with cut_off(1):
            finished = set(nodes.results())
            if has_to_wait:
                with suppress(subprocess.TimeoutExpired):
                    part.wait(60)
            else:
                until(lambda: part.poll() is not None, what="the part ends")
        said = ended(part, 1)
        assert "removed" not in said, said
        assert "Input/output error" in said or "Connection timed out" in said, said
        assert "out.h5" in said and "run the same command again" in said, said
    until(lambda: not any(map(is_running, worker_pids(nodes.folder))))
    nodes.run("1/1", **nodes.on(1), ROUND="again")
    assert not finished & set(nodes.begun("again"))
    nodes.merge_on(1)


# Runs


@pytest.mark.parametrize("way", ["a run", "a part"])
def test_run_or_part_beside_a_run_on_another_host_is_refused(nodes: Nodes, way: str) -> None:
    """Also if that host has just looked for a lock, and found none."""
    run = ["run", "study.py", "-o", "out.h5", "-j", "1"]
    nodes.run_words(*run, "--only", "farm=0", **nodes.on(1), ROUND="before")
    look_for_everything(nodes, 2)
    first = nodes.start_words(*run, **nodes.on(1), WAIT="all", ROUND="1")
    nodes.wait_until_begun("1")
    words = run if way == "a run" else [*run, "--part", "1/2"]
    said = nodes.run_words(*words, **nodes.on(2), ROUND="2", check=4)
    assert f"another run (pid {first.pid} on node1) is working on out.h5" in said
    nodes.let_go()
    ended(first)
    assert nodes.begun("2") == []
    assert check_output(nodes.folder / "out.h5") == nodes.tasks


def test_run_beside_a_part_on_another_host_is_refused(nodes: Nodes) -> None:
    """It says which part it is, and disturbs nothing."""
    look_for_everything(nodes, 2)
    part = nodes.start("1/1", **nodes.on(1), WAIT="all")
    nodes.wait_until_begun("1/1")
    run = ["run", "study.py", "-o", "out.h5", "-j", "1"]
    said = nodes.run_words(*run, **nodes.on(2), ROUND="2", check=4)
    assert f"part 1/1 (pid {part.pid} on node1) is at work on out.h5" in said
    nodes.let_go()
    ended(part)
    assert nodes.begun("2") == []


# Commands that look


def look_for_everything(nodes: Nodes, number: int) -> None:
    """Have a node remember what is not there."""
    for words in (["status", "out.h5"], ["missing", "out.h5"], ["show", "out.h5", "farm=0"]):
        nodes.run_words(*words, **nodes.on(number), check=None)
    folder = NET / f"node{number}" / nodes.folder.name
    for name in ("out.h5", ".out.h5.lock", "out.h5.run/plan.jsonl", "out.h5.run/sweep.json"):
        (folder / name).exists()


def test_what_is_said_on_one_host_while_a_part_works_on_another(nodes: Nodes) -> None:
    """Nothing is missed that was finished before the command, and nobody called dead who is not."""
    look_for_everything(nodes, 2)
    part = nodes.start("1/1", **nodes.on(1), WAIT="20")
    nodes.wait_until_begun("1/1", least=20)
    until(lambda: len(nodes.results()) >= 20)
    status = json.loads(nodes.run_words("status", "out.h5", "--json", **nodes.on(2)))
    assert (status["tasks"], status["done"]) == (nodes.tasks, 20)
    assert [one["part"] for one in status["parts"]] == ["1/1"]
    said = nodes.run_words("status", "out.h5", **nodes.on(2))
    assert f"1 part at work, 1 on other hosts: part 1/1 (pid {part.pid} on node1)" in said
    said = nodes.run_words("missing", "out.h5", **nodes.on(2), check=1)
    assert f"{nodes.tasks - 20} of {nodes.tasks} missing" in said
    said = nodes.run_words("show", "out.h5", "farm=9", "kind=b", **nodes.on(2))
    assert "28.5" in said
    assert rows_opened(nodes, 2) == 20
    nodes.let_go()
    ended(part)
    nodes.merge_on(1)
    assert rows_opened(nodes, 2) == nodes.tasks


def rows_opened(nodes: Nodes, number: int) -> int:
    code = "import h5sweep; print(h5sweep.open('out.h5').sizes['task'])"
    place = nodes.on(number)
    words = [*on_host(place["host"], place["boot"]), sys.executable, "-c", code]
    return int(subprocess.check_output(words, cwd=place["cwd"]))


@pytest.mark.parametrize("name", ["plan", "sweep", "lock"])
def test_what_was_not_there_is_seen_at_once(nodes: Nodes, name: str) -> None:
    """NFS remembers "no such file" for 30 seconds; what one host writes counts on the other."""
    here, there = (RunFolder(NET / f"node{n}" / nodes.folder.name / "out.h5") for n in (1, 2))
    here.create()
    assert (there.load_plan(), there.load_sweep(), lock_owner(there.lock_path)) == (None, {}, None)
    if name == "plan":
        here.save_plan(plan_list([{"farm": 1}]))
        assert there.load_plan() == plan_list([{"farm": 1}])
    elif name == "sweep":
        here.save_sweep({"name": "optimise"})
        assert there.load_sweep() == {"name": "optimise"}
    else:
        with holding(here.lock_path):
            assert lock_owner(there.lock_path) == this_process()
