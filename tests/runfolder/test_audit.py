"""The audit trail: what each merge took from where is on disk, whatever is killed or rots."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from h5sweep.base.plan import plan_product
from h5sweep.errors import StorageError
from h5sweep.merge.audit_entry import entry_of_files
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder import audit
from h5sweep.runfolder.audit import (
    AuditEntry,
    Conflict,
    append_entry,
    audit_path,
    audit_text,
    read_entries,
)
from h5sweep.runfolder.layout import RunFolder
from h5sweep.worker_files.findings import EMPTY
from h5sweep.worker_files.inputs import Input, Taken
from h5sweep.worker_files.layouts import Contents, Style
from h5sweep.worker_files.survey import Survey
from kill_points import CrashPoint, points_in
from needs import needs_strace
from terminal import Terminal
from written_records import write_records


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Something that lies where an output does: the trail does not look inside."""
    path = tmp_path / "layouts.h5"
    path.write_bytes(b"an output")
    return path


def entry(output: Path, name: str = "worker_1.h5", **options: object) -> AuditEntry:
    """The entry of a merge of one file."""
    source = Input(str(output.with_name(name)), 12, 34, contents=Contents(Style.ROWS, 2))
    taken = Taken(source, 0xABC, 2, 1, ("/aep",), ("/aep@units",), {"/": (10, 2)}, ("/init",))
    return entry_of_files(output, [taken], way="columns", duration_s=0.5, **options)  # type: ignore[arg-type]


def test_an_entry_reads_back_as_it_was_written(output: Path) -> None:
    """Everything about a merge survives the way through the file."""
    refused = Input(str(output.with_name("worker_2.h5")), 0, 5, (EMPTY.finding(),))
    written = entry(
        output,
        'wörker "1".h5',
        refused=[refused],
        key="farm{farm_id:d}",
        policy={"on_damaged": "skip", "max_damaged": None, "on_conflict": "newest"},
        conflicts=[Conflict("farm3", "/a.h5", ["/b.h5"], "newest")],
        notes=["aep was filled"],
    )
    append_entry(output, written)
    (read,) = read_entries(output)
    assert read.as_json() == json.loads(json.dumps(written.as_json()))
    assert read.inputs[0].xxh3 == "0000000000000abc"
    assert read.refused[0].why == f"D101 {EMPTY.sentence}"
    assert read.about["versions"].keys() >= {"python", "h5sweep", "h5py", "hdf5", "numpy"}
    assert {"command", "host", "user"} <= read.about.keys()


def test_a_line_is_what_a_json_parser_expects(output: Path) -> None:
    """Any program can read the trail: one JSON object a line, with schema and all inputs."""
    append_entry(output, entry(output))
    (line,) = audit_path(output).read_text().splitlines()
    value = json.loads(line)
    assert value["schema"] == "h5sweep.audit/1"
    assert value["inputs"] == json.loads(json.dumps([entry(output).inputs[0]._asdict()]))
    assert value["output"]["identity"] == [9, output.stat().st_mtime_ns]


@pytest.mark.parametrize("tail", [b'{"schema":"h5sweep.aud', b"\0\0\0\0", b""])
def test_a_torn_last_line_is_passed_over_and_not_continued(output: Path, tail: bytes) -> None:
    """What a kill left of the last line costs neither the entries before it nor the next one."""
    append_entry(output, entry(output, "a.h5"))
    with audit_path(output).open("ab") as file:
        file.write(tail)
    assert [Path(e.inputs[0].path).name for e in read_entries(output)] == ["a.h5"]
    append_entry(output, entry(output, "b.h5"))
    assert [Path(e.inputs[0].path).name for e in read_entries(output)] == ["a.h5", "b.h5"]
    unread = audit.read_audit(output).unread
    assert [one.line for one in unread] == ([2] if tail else [])


def test_a_damaged_line_is_reported_and_the_others_are_read(output: Path) -> None:
    """One flipped byte, wherever it is, makes its line unread and no other."""
    for name in ("a.h5", "b.h5", "c.h5"):
        append_entry(output, entry(output, name))
    lines = audit_path(output).read_bytes().splitlines(keepends=True)
    for place in range(0, len(lines[1]) - 1, 7):
        line = bytearray(lines[1])
        line[place] ^= 0x01
        audit_path(output).write_bytes(lines[0] + bytes(line) + lines[2])
        trail = audit.read_audit(output)
        assert [Path(e.inputs[0].path).name for e in trail.entries] == ["a.h5", "c.h5"]
        assert [one.line for one in trail.unread] == [2]


def test_lines_of_a_later_version_are_reported(output: Path) -> None:
    """A schema that we do not know is not taken for one that we do."""
    append_entry(output, entry(output))
    text = audit_path(output).read_bytes().replace(b"h5sweep.audit/1", b"h5sweep.audit/9")
    body = text[: text.rindex(b',"line_crc32"')]
    audit_path(output).write_bytes(b'%s,"line_crc32":"%08x"}\n' % (body, audit.crc32(body)))
    assert "h5sweep.audit/9" in audit.read_audit(output).unread[0].why


def test_without_a_trail_there_are_no_entries(output: Path) -> None:
    """An output that nobody noted anything about is no error."""
    assert read_entries(output) == []


def test_a_full_disk_leaves_the_earlier_entries(output: Path) -> None:
    """An append that the disk refuses raises, and the next one goes well."""
    append_entry(output, entry(output, "a.h5"))
    size = audit_path(output).stat().st_size
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"layouts.h5.audit.jsonl"):
            append_entry(output, entry(output, "b.h5"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert audit_path(output).stat().st_size == size + 100, "part of it was written"
    append_entry(output, entry(output, "c.h5"))
    assert [Path(e.inputs[0].path).name for e in read_entries(output)] == ["a.h5", "c.h5"]


APPEND_CODE = """
import sys
from pathlib import Path
from h5sweep.runfolder.audit import AuditEntry, append_entry
output = Path(sys.argv[1])
append_entry(output, AuditEntry(str(output), 9, None, "groups", "now", 0.0, notes=["second"]))
"""


@needs_strace
def test_killed_at_every_call_of_an_append(output: Path) -> None:
    """SIGKILL before any system call leaves the old entries, and the next append works."""
    append = [sys.executable, "-c", APPEND_CODE, str(output)]
    points = _calls(append, output)
    assert {point.call for point in points} >= {"openat", "write", "fsync"}
    for point in points:
        audit_path(output).unlink(missing_ok=True)
        append_entry(output, entry(output))
        done = subprocess.run(["strace", "-o", "/dev/null", *point.killing(), *append])
        assert done.returncode in (-9, 137)
        before = len(read_entries(output))
        subprocess.run(append, check=True)
        after = read_entries(output)
        assert after[0].inputs[0].datasets == ["/aep"]
        assert len(after) == before + 1
        assert after[-1].notes == ("second",)


def _calls(command: list[str], output: Path) -> list[CrashPoint]:
    """Every call that touches the trail, in an append that nobody kills."""
    log = output.with_name("log")
    calls = "write,fsync,openat,pread64,close"
    subprocess.run(["strace", "-f", "-y", "-o", log, "-e", f"trace={calls}", *command], check=True)
    return points_in(log, "audit.jsonl")


def test_a_run_leaves_an_entry(tmp_path: Path) -> None:
    """A merge of a run folder says which record files it took, and the output names the trail."""
    folder = RunFolder(tmp_path / "out.h5")
    plan = plan_product({"seed": range(3)})
    write_records(folder, plan, {0: {"x": 1.0}, 1: {"x": 2.0}})
    write_records(folder, plan, {2: {"x": 3.0}})
    merge_run(folder)
    (found,) = read_entries(folder.output)
    assert found.way == "sweep"
    assert sorted(one.tasks for one in found.inputs) == [1, 2]
    assert {one.path for one in found.inputs} == {str(path) for path in folder.record_paths()}
    assert {one.xxh3 for one in found.inputs} == {None}
    status = folder.output.stat()
    assert list(found.output_identity or ()) == [status.st_size, status.st_mtime_ns]
    with h5py.File(folder.output) as file:
        assert file.attrs["h5sweep_audit"].decode() == audit_path(folder.output).name


def test_the_page_names_everything(output: Path) -> None:
    """A person reads from the page what was merged, what not, and how conflicts were decided."""
    refused = Input(str(output.with_name("worker_2.h5")), 0, 5, (EMPTY.finding(),))
    conflict = Conflict("farm3", "/a.h5", ["/b.h5"], "newest")
    page = audit_text(entry(output, refused=[refused], conflicts=[conflict], notes=["a note"]))
    for text in (
        "worker_1.h5  2 tasks; 12 bytes; xxh3 0000000000000abc; 1 of them duplicates;",
        "; / rows 10 to 11",
        "without /init",
        "1 file not merged",
        "worker_2.h5  empty: D101",
        "farm3: /a.h5 taken (newest), not /b.h5",
        "a note",
    ):
        assert text in page


def test_relative_paths_become_absolute(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the trail elsewhere finds the files; links are not resolved."""
    monkeypatch.chdir(output.parent)
    os.symlink("layouts.h5", "link.h5")
    taken = [Taken(Survey().look_at(Path(p))) for p in ("link.h5", "./sub/../link.h5")]
    found = entry_of_files(output, taken, way="groups", duration_s=0.0)
    assert {one.path for one in found.inputs} == {str(output.with_name("link.h5"))}


# What `h5sweep audit` prints


def test_audit_says_what_was_done_in_its_order(terminal: Terminal, output: Path) -> None:
    """Merges, requests and removals stand in the order in which they were done."""
    append_entry(output, entry(output, "worker_1.h5"))
    audit.append_event(output, "asked for 3 tasks to be run again")
    audit.append_removal(output, "moved to quarantine", [{"path": "worker_1.h5"}])
    append_entry(output, entry(output, "worker_2.h5", notes=("one result was left out",)))
    said = terminal.run("audit", "layouts.h5").stdout
    wanted = ["worker_1.h5  2 tasks", "asked for 3 tasks", "moved to quarantine, 1 file\n"]
    places = [said.index(text) for text in [*wanted, "worker_2.h5  2 tasks", "one result was left"]]
    assert places == sorted(places)
    lines = terminal.json("audit", "layouts.h5", check=0)["lines"]
    kinds = [line["schema"].partition("/")[0] for line in lines]
    assert kinds == [f"h5sweep.{kind}" for kind in ("audit", "event", "removal", "audit")]
    assert lines[2]["files"] == [{"path": "worker_1.h5"}]


def test_audit_lists_many_files_if_asked_to(terminal: Terminal, output: Path) -> None:
    """Of more than 20 files the first are listed, and --all lists every one."""
    audit.append_removal(output, "removed", [{"path": f"w{number}.h5"} for number in range(23)])
    said = terminal.run("audit", "layouts.h5").stdout
    assert "w19.h5\n  … 3 more\n" in said and "w20.h5" not in said
    assert "w22.h5" in terminal.run("audit", "layouts.h5", "--all").stdout


def test_audit_tells_a_damaged_line_from_a_torn_one(terminal: Terminal, output: Path) -> None:
    """A killed merge leaves the second; the first is damage, and the other lines are shown."""
    append_entry(output, entry(output))
    path = audit_path(output)
    path.write_bytes(path.read_bytes() + path.read_bytes()[:50])
    assert "line 2 cannot be read: torn" in terminal.run("audit", "layouts.h5").stdout
    path.write_bytes(path.read_bytes().replace(b"columns", b"colum__"))
    done = terminal.run("audit", "layouts.h5", check=3)
    assert "line 1 of layouts.h5.audit.jsonl is damaged" in done.stderr


def test_audit_without_a_trail_says_so(terminal: Terminal, output: Path) -> None:
    """There is nothing to show, which is not the same as nothing done."""
    said = terminal.run("audit", "layouts.h5", check=2).stderr
    assert "there is no audit trail layouts.h5.audit.jsonl" in said
