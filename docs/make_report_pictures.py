"""Make docs/report-broken.png and docs/report-best.png: `python docs/make_report_pictures.py`.

Runs the broken sweep of docs/report.md and the small reference sweep, writes their reports, and has
Chromium (Debian: `chromium`, `chromium-driver`; `pip install selenium pillow`) take a picture of
each. The reports are left in the folder that is named, by default the current one.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "samples"))

from browser import chromium, open_page  # noqa: E402  # found by the line above

PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
PLACE = "Commands are as typed in /home/me/farms on node1."  # not where this was run
REFERENCE = ROOT / "examples" / "energy_island" / "study.py"


def main() -> None:
    folder = Path(sys.argv[1] if sys.argv[1:] else ".").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    make_broken(folder)
    run("h5sweep run", REFERENCE, "-o", "reference.h5", cwd=folder)
    run("h5sweep report reference.h5 -o reference.html", cwd=folder)
    take(folder / "broken.html", "report-broken.png", height=1060)
    take(folder / "reference.html", "report-best.png", height=560, section="results")


def make_broken(folder: Path) -> None:
    """What the page tells its readers to type."""
    (folder / "broken.py").write_text(block("test: file broken.py"), encoding="utf-8")
    for command in re.findall(r"^\$ (.*)$", block("test: commands"), re.M):
        run(command, cwd=folder)


def block(mark: str) -> str:
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)```\n", PAGE, re.S)
    assert found, mark
    return found[1]


def run(command: str, *words: object, cwd: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    line = " ".join([command, *map(str, words)])
    subprocess.run(["bash", "-c", line], cwd=cwd, env={**os.environ, "PATH": path}, check=False)


def take(page: Path, name: str, *, height: int, section: str = "") -> None:
    """A picture of the beginning of a page, or of a section."""
    with chromium(width=1280, height=height) as driver:
        open_page(driver, page)
        driver.execute_script(f"document.querySelector('#next .note').textContent = '{PLACE}'")
        if section:
            driver.execute_script(f"document.getElementById('{section}').scrollIntoView()")
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    few_colours = picture.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few_colours.save(ROOT / "docs" / name, optimize=True)


if __name__ == "__main__":
    main()
