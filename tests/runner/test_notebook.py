"""In a real Jupyter kernel: a bar that redraws itself, reports as HTML, and the interrupt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from h5sweep.base.static_html import MOST_ROWS, ShownAsText, bar_html, lines_html, table_html
from running import is_running, until, worker_pids

pytest.importorskip("jupyter_client", reason="needs ipykernel")
pytest.importorskip("ipykernel", reason="needs ipykernel")

NASTY = "<script>alert('x')</script>"
DECLARED = """
import os, time, h5sweep
@h5sweep.sweep(seed=range(4), farm=["a", "<script>alert('x')</script>"])
def f(seed, farm):
    open(f"in_{seed}_{len(farm)}", "w").close()  # which is IPython's own open
    while not os.path.exists("go"):
        time.sleep(0.01)
    if seed == 3:
        raise ValueError(f"no {farm}")
    return {"x": seed}
"""


class Kernel:
    """A Jupyter kernel in a folder, and what cells of it show."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import KernelManager

        self._manager = KernelManager()
        self._manager.start_kernel(cwd=str(folder))
        self._client: Any = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def begin(self, code: str) -> None:
        self._cell = self._client.execute(code)
        self.shown: list[dict[str, Any]] = []
        self.said = self.error = self.html = ""

    def read_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._take(self._client.get_iopub_msg(timeout=60))

    def run(self, code: str) -> None:
        self.begin(code)
        self.finish()

    def finish(self) -> None:
        self._is_idle = False
        self.read_until(lambda: self._is_idle)

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)

    def _take(self, message: dict[str, Any]) -> None:
        if message["parent_header"].get("msg_id") != self._cell:
            return
        kind, content = message["msg_type"], message["content"]
        if kind in ("display_data", "update_display_data"):
            self.shown.append({"kind": kind, **content})
        elif kind == "stream":
            self.said += content["text"]
        elif kind == "error":
            self.error = f"{content['ename']}: {content['evalue']}"
        elif kind == "execute_result":
            self.html = content["data"].get("text/html", "")
        elif kind == "status":
            self._is_idle = content["execution_state"] == "idle"

    @property
    def bars(self) -> list[str]:
        """What the bar said, from the first to the last."""
        return [one["data"]["text/plain"] for one in self.shown]


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    found = Kernel(tmp_path)
    yield found
    found.close()


def test_a_bar_redraws_itself_below_the_cell(kernel: Kernel, tmp_path: Path) -> None:
    """It is there before anything is computed, is drawn in its place, as text; its end stays."""
    kernel.run(DECLARED)
    kernel.begin("f.run('out.h5', workers=2)")
    kernel.read_until(lambda: len(kernel.shown) > 1)
    assert kernel.bars[0] == "·" * 40 + "   0 %\nstarting"
    assert kernel.bars[1] == "·" * 40 + "   0 %\n0 of 8 done"
    (tmp_path / "go").touch()
    kernel.finish()
    assert kernel.bars[-1] == "█" * 40 + " 100 %\n6 of 8 done, 2 failed"
    kinds = [one["kind"] for one in kernel.shown]
    assert kinds == ["display_data"] + ["update_display_data"] * (len(kinds) - 1)
    assert len({one["transient"]["display_id"] for one in kernel.shown}) == 1
    assert all(list(one["data"]) == ["text/plain"] for one in kernel.shown)
    assert kernel.html.startswith("<pre>out.h5: 6 of 8 done, 2 failed\nwritten with 6 tasks, ")


def test_what_does_not_begin_leaves_no_bar(kernel: Kernel) -> None:
    """A mistake is all that is to be seen."""
    kernel.run(DECLARED)
    kernel.run("f.run('out.h5', only={'turbine': 3})")
    assert kernel.error.startswith("UsageError: there is no parameter 'turbine'")
    assert kernel.bars[-1] == ""


def test_an_interrupt_lets_running_tasks_finish(kernel: Kernel, tmp_path: Path) -> None:
    """The time that they have is said; no other is begun, and the kernel goes on."""
    kernel.run(DECLARED)
    kernel.begin("f.run('out.h5', workers=2)")
    until(lambda: len(list(tmp_path.glob("in_0_*"))) == 2)
    kernel.interrupt()
    again = "waiting up to 20 s for 2 running tasks; interrupt the kernel again to stop now"
    kernel.read_until(lambda: again in kernel.said)
    (tmp_path / "go").touch()
    kernel.finish()
    assert "InterruptedRunError: stopped; 2 finished results are kept. Run the" in kernel.error
    kernel.run("f.run('out.h5', workers=2)")
    assert "2 kept, 6 to do" in kernel.said
    assert not kernel.error


def test_a_second_interrupt_ends_at_once(kernel: Kernel, tmp_path: Path) -> None:
    """No worker is left, and the kernel goes on."""
    kernel.run(DECLARED)
    kernel.begin("f.run('out.h5', workers=2)")
    until(lambda: len(list(tmp_path.glob("in_0_*"))) == 2)
    pids = worker_pids(tmp_path)
    kernel.interrupt()
    kernel.read_until(lambda: "interrupt the kernel again" in kernel.said)
    kernel.interrupt()
    kernel.finish()
    assert "InterruptedRunError: stopped; 0 finished results are kept" in kernel.error
    until(lambda: not any(map(is_running, pids)))
    kernel.run("print(6 * 7)")
    assert kernel.said == "42\n"


def test_what_is_asked_shows_itself(kernel: Kernel, tmp_path: Path) -> None:
    """Sweeps, status, missing and reports: small static HTML in which no name is HTML."""
    (tmp_path / "go").touch()
    kernel.run(DECLARED)
    kernel.run("f.run('out.h5', workers=2)")
    said = {
        "f": "8 tasks",
        "f.status('out.h5')": "out.h5: 6 of 8 done (75.0 %)",
        "h5sweep.read_status('out.h5', by=['farm'])": "3 of 4",
        "f.missing('out.h5')": "2 missing",
        "h5sweep.read_missing('out.h5')": "2 of 8 missing",
        "h5sweep.check_files('out.h5')": "1 file",
        "h5sweep.find_removable('out.h5')": "out.h5",
        "h5sweep.read_audit('out.h5')": "out.h5",
        "h5sweep.redo_tasks('out.h5', only={'seed': 0})": "2",
    }
    for code, words in said.items():
        kernel.run(code)
        assert not kernel.error, code
        assert words in kernel.html, code
        assert "<script" not in kernel.html
        assert "http" not in kernel.html
        assert len(kernel.html) < 20_000
    kernel.run("f.missing('out.h5')")
    assert kernel.html.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;") >= 2


# The pieces


class Report(ShownAsText):
    def __str__(self) -> str:
        return f"a\n{NASTY}\x1b[31m"


def test_every_piece_is_escaped() -> None:
    """Tags, quotes and escapes of a terminal, wherever a text may go."""
    pieces = [
        Report()._repr_html_(),
        lines_html([NASTY, NASTY]),
        table_html([NASTY], [[NASTY]]),
        bar_html([(f'"{NASTY}', 3, f'"{NASTY}')]),
    ]
    for piece in pieces:
        assert "&lt;script&gt;" in piece
        assert "<script" not in piece and "\x1b" not in piece
    assert '""' not in pieces[-1]


def test_a_table_is_small() -> None:
    """Of a million rows those are shown that anybody reads, and all are counted."""
    shown = table_html(["seed"], [[n] for n in range(500)], 1_000_000)
    assert shown.count("<tr>") == MOST_ROWS + 1
    assert re.search(r"… and 999,800 more", shown)
