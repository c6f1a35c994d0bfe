"""Every Python example in README.md and docs runs, and prints what the page says it prints.

A block is marked by the comment above it:

    <!-- test: file study.py -->     written to that file
    <!-- test: NAME -->              run as a script, in a folder of the page's own
    <!-- test: prints -->            what the script above it must have printed
    <!-- test: commands -->          each `$ command` is run by a shell and says what follows it;
                                     [...] stands for anything
    <!-- not run: REASON -->         left alone
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from places import ROOT, SAMPLES, TESTS

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```\n", re.S
)
LINK = re.compile(r"\]\((?!https?://)(?P<path>[^)#\s]+)(?:#[^)]*)?\)")
LONG_S = 120


@dataclass(frozen=True)
class Block:
    """A fenced block of a page and the comment above it."""

    mark: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(match["mark"] or "", match["language"], match["text"]) for match in found]


def pages_with_tests() -> list[Path]:
    return [p for p in PAGES if any(b.mark.startswith("test:") for b in blocks_of(p))]


@pytest.mark.parametrize("page", pages_with_tests(), ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """The examples of a page run in their order, in a folder that was empty."""
    printed = ""
    for block in blocks_of(page):
        what = block.mark.removeprefix("test: ")
        if what == block.mark:
            continue
        if what.startswith("file "):
            (tmp_path / what.removeprefix("file ")).write_text(block.text, encoding="utf-8")
        elif what == "prints":
            assert printed == block.text
        elif what == "commands":
            run_commands(block.text, tmp_path)
        else:
            printed = run_script(block.text, f"{what.replace(' ', '_')}.py", tmp_path)


def run_script(text: str, name: str, folder: Path) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_commands(text: str, folder: Path) -> None:
    """Run every command of a console block and compare what it says, in both streams."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONG_S,
        )
        pattern = re.escape(expected).replace(re.escape("[...]"), ".*?")
        assert re.fullmatch(pattern, done.stdout, re.S), f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_is_marked(page: Path) -> None:
    """No Python example is left out by accident."""
    unmarked = [b.text for b in blocks_of(page) if b.language == "python" and not b.mark]
    assert not unmarked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    """Whatever a page links to in this repository is there."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    missing = [m["path"] for m in LINK.finditer(text) if not (page.parent / m["path"]).exists()]
    assert not missing


@pytest.mark.parametrize("mark", ["install and run", "install and test"])
def test_readme_has_each_command_on_one_line(mark: str) -> None:
    """A newcomer pastes one line; CI runs that very line."""
    (block,) = [b for b in blocks_of(ROOT / "README.md") if b.mark == mark]
    assert len(block.text.splitlines()) == 1
    assert f'readme_command "{mark}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize(("required", "exit_codes"), [("1", {1, 2}), ("0", {0, 5})])
@pytest.mark.parametrize("skip", ["@pytest.mark.skip('no engine')", "pytest.importorskip('noway')"])
def test_skips_fail_where_all_is_required(
    skip: str, required: str, exit_codes: set[int], tmp_path: Path
) -> None:
    """CI cannot pass because a test was skipped; 2: at collection, 5: nothing was left to run."""
    conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    test = f"import pytest\n{skip}\ndef test_skipped(): pass\ndef test_passing(): pass\n"
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    outside = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**outside, "PYTHONPATH": str(SAMPLES), "H5SWEEP_REQUIRE_ALL": required},
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )
    assert done.returncode in exit_codes, done.stdout


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md"])
def test_pages_name_modules_that_are_there(page: str) -> None:
    """What a page calls `room.module` or `room/module.py` is in that room."""
    package = ROOT / "src" / "h5sweep"
    rooms = "|".join(path.name for path in package.iterdir() if (path / "__init__.py").exists())
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(rf"(?<![\w/])((?:{rooms})(?:[./](?!md\b)[a-z_0-9]+)+)", text)
    paths = {package / name.removesuffix(".py").replace(".", "/") for name in named}
    assert len(paths) > 5
    assert not [str(p) for p in paths if not (p.is_dir() or p.with_suffix(".py").exists())]
