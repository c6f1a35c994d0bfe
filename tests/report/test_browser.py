"""The page in a real browser: hovered, picked, filtered, narrow and wide, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import h5sweep
from browser import chromium, new_tab, open_page, settle, use_paper
from h5sweep.base.plan import plan_product
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from needs import needs_browser
from written_records import write_failure, write_records, write_scattered

pytestmark = needs_browser
PLAN = plan_product({"farm": ["a", "b", "c"], "kind": ["x", "y"], "seed": range(10)})
FAILED, NEVER = range(25, 30), range(52, 60)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a sweep of 60 tasks: 5 failed, 8 never ran, the others drew a layout."""
    folder = RunFolder(tmp_path_factory.mktemp("sweep") / "out.h5")
    done = [task for task in range(60) if task not in {*FAILED, *NEVER}]
    layouts = np.random.default_rng(1).random((60, 7, 2)) * 1000
    write_records(folder, PLAN, {t: {"aep": 100.0 - t, "layout": layouts[t]} for t in done})
    for task in FAILED:
        write_failure(
            folder, PLAN, task, message="no area", where="study.py:3 in f", traceback="f(3)"
        )
    folder.save_sweep({"name": "f", "dims": {"layout": ["turbine", "xy"]}})
    merge_run(folder)
    return h5sweep.write_report(folder.output)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests of this module; each opens a tab of its own."""
    with chromium() as found:
        yield found


@pytest.fixture(params=product((1280, 400), (False, True)), ids=lambda p: f"{p[0]}-{p[1]}")
def driver(request: pytest.FixtureRequest, browser: Any, path: Path) -> Iterator[Any]:
    """The page in a browser; nothing may be on its console at the end."""
    width, is_dark = request.param
    with new_tab(browser, width=width, is_dark=is_dark) as found:
        open_page(found, path)
        yield found
        assert [entry["message"] for entry in found.get_log("browser")] == []


def all_of(driver: Any, css: str) -> list[Any]:
    found: list[Any] = driver.find_elements("css selector", css)
    return found


def hover(driver: Any, row: int, tick: int, panel: int = 0) -> str:
    """Point at the middle of a tick of the map; what the page says then."""
    from selenium.webdriver import ActionChains

    svg = all_of(driver, "#task-map tbody svg")[row]
    script = "arguments[0].scrollIntoView({block: 'center'})"
    driver.execute_script(script, svg)
    settle(driver)  # else the page may hear of the scroll after the pointer, and hide what it says
    axes = driver.execute_script(
        "return JSON.parse(document.querySelector('#task-map').dataset.axes)"
    )
    x = panel * (len(axes["ticks"]) * axes["step"] + axes["gap"]) + (tick + 0.4) * axes["step"]
    natural = float(svg.get_attribute("width"))
    x = x * svg.rect["width"] / natural - svg.rect["width"] / 2
    ActionChains(driver).move_to_element_with_offset(svg, round(x), 0).perform()
    tip = all_of(driver, "#tip")[0]
    return tip.text if tip.is_displayed() else ""


def test_page_fits_its_window(driver: Any) -> None:
    """Nothing but what scrolls by itself is wider than the window; every section has a height."""
    script = "return [document.documentElement.scrollWidth, innerWidth]"
    wide, window = driver.execute_script(script)
    assert wide <= window
    assert all(section.rect["height"] > 30 for section in all_of(driver, "main > section"))
    assert len(all_of(driver, "main > section")) >= 7


def test_text_stands_out_from_its_ground(driver: Any) -> None:
    """Light on dark or dark on light, as the reader's system has it: a contrast of 7 at least."""
    script = (
        "const s = getComputedStyle(document.documentElement); return [s.color, s.backgroundColor]"
    )
    ink, ground = map(luminance, driver.execute_script(script))
    is_dark = driver.execute_script("return matchMedia('(prefers-color-scheme: dark)').matches")
    assert (ground < ink) is is_dark
    assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 7


def luminance(colour: str) -> float:
    """That of `rgb(28, 39, 48)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_tick_says_its_key_and_outcome(driver: Any) -> None:
    """Pointing at a tick names the task; pointing beside the map hides that."""
    assert hover(driver, 0, 3) == "farm=a, kind=x, seed=3: done"
    assert hover(driver, 1, 5) == "farm=b, kind=x, seed=5: failed"
    assert hover(driver, 2, 9, panel=1) == "farm=c, kind=y, seed=9: never started"
    from selenium.webdriver import ActionChains

    ActionChains(driver).move_to_element(all_of(driver, "h1")[0]).perform()
    assert not all_of(driver, "#tip")[0].is_displayed()


def test_a_bar_says_what_became_of_its_tasks(tmp_path: Path) -> None:
    """Of a large sweep: how many of a stretch of tasks are done, failed and missing."""
    plan = plan_product({"farm": range(3), "seed": range(8_800)})
    folder = RunFolder(tmp_path / "out.h5")
    write_scattered(folder, plan, workers=2)
    with chromium(width=1280) as driver:
        open_page(driver, h5sweep.write_report(folder.output))
        said = hover(driver, 1, 0)
    # A row has 240 bars: of 36 or 37 tasks each. Task 8,800, the first of farm 1, is 800 x 11.
    assert said == "farm=1, seed=0 to 36: 27 done, 7 failed, 3 never started"


def test_rows_that_are_complete_can_be_hidden(driver: Any) -> None:
    """The box above the map leaves the rows in which something is missing."""
    rows = lambda: [r.text.split()[0] for r in all_of(driver, "#task-map tbody tr") if r.text]  # noqa: E731
    assert rows() == ["a", "b", "c"]
    driver.find_element("id", "lacking-only").click()
    assert rows() == ["b", "c"]
    driver.find_element("id", "lacking-only").click()
    assert rows() == ["a", "b", "c"]


def test_an_outcome_can_be_picked_out(driver: Any) -> None:
    """A button of the legend dims all ticks but its own, and says that it is pressed."""
    button = all_of(driver, "button[data-outcome=failed]")[0]
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    dimmed = {path.get_attribute("class") for path in all_of(driver, "#task-map path.dimmed")}
    assert dimmed == {"s-done dimmed", "s-never-started dimmed"}
    button.click()
    assert not all_of(driver, "#task-map path.dimmed")


def test_picker_shows_the_layouts_of_one_group(driver: Any) -> None:
    """One group at first, another when it is picked; all are in the page."""
    from selenium.webdriver.support.select import Select

    figures = all_of(driver, "figure[data-of=layout]")
    keys = lambda f: f.find_element("tag name", "b").text.split(", ")[0]  # noqa: E731
    shown = lambda: [keys(f) for f in figures if f.is_displayed()]  # noqa: E731
    assert shown() == ["farm=a", "farm=a"]
    Select(all_of(driver, "select[data-picks=layout]")[0]).select_by_visible_text("c")
    assert shown() == ["farm=c", "farm=c"]


def test_all_can_be_reached_by_keyboard(driver: Any) -> None:
    """Tab goes to the skip link first, then through links, buttons and the box above the map."""
    from selenium.webdriver.common.keys import Keys

    names = []
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        script = (
            "const e = document.activeElement; return e.id || e.className || "
            "e.getAttribute('aria-label') || e.getAttribute('data-outcome') || e.tagName"
        )
        names.append(driver.execute_script(script))
    assert names[0] == "skip"
    assert set(names) >= {"A", "done", "failed", "never-started", "lacking-only"}


@pytest.mark.parametrize("width", [1280, 400])
def test_words_of_a_table_stay_whole(browser: Any, tmp_path: Path, width: int) -> None:
    """However much is said of a file, its state is on one line, and nothing widens the page."""
    from foreign_samples import write_groups

    (folder := tmp_path / "my night").mkdir()
    cut = write_groups(folder / "worker 1.h5", range(9))
    cut.write_bytes(cut.read_bytes()[:5000])
    with new_tab(browser, width=width) as driver:
        open_page(driver, h5sweep.write_report(folder, tmp_path / "report.html"))
        (state,) = (e for e in all_of(driver, "#files td") if e.text == "damaged")
        script = "const r = document.createRange(); r.selectNodeContents(arguments[0]); "
        assert driver.execute_script(f"{script}return r.getClientRects().length", state) == 1
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width


@pytest.mark.parametrize("width", [1280, 400])
def test_long_words_widen_nothing(browser: Any, tmp_path: Path, width: int) -> None:
    """A message, a path and a key without a blank in them are broken where the window ends."""
    folder, word = RunFolder(tmp_path / "out.h5"), "x" * 280
    plan = plan_product({"farm": [word, "b"], "seed": range(3)})
    dims = {"layout": ["turbine", "xy"]}
    write_records(folder, plan, {0: {"aep": 1.0, "layout": np.eye(2)}, 3: {"aep": 2.0}})
    write_failure(folder, plan, 1, message=word, where=word, traceback=f'  File "{word}", line 1')
    folder.save_sweep({"name": word, "command": word, "dims": dims})
    with new_tab(browser, width=width) as driver:
        open_page(driver, h5sweep.write_report(folder.output))
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_page_is_read_without_scripts(browser: Any, path: Path, tmp_path: Path) -> None:
    """Without JavaScript nothing is hidden but pickers, which would do nothing."""
    still = tmp_path / "still.html"
    text = path.read_text()
    still.write_text(text[: text.index("<script>")] + "</body></html>")
    with new_tab(browser, width=1280) as driver:
        open_page(driver, still)
        assert not any(e.is_displayed() for e in all_of(driver, ".pickers"))
        assert all(e.is_displayed() for e in all_of(driver, "figure, #task-map tbody tr"))
        assert len(all_of(driver, "figure[data-of=layout]")) == 6


def test_page_prints_all_of_it(browser: Any, path: Path) -> None:
    """On paper there are no pickers, and every group and traceback is there."""
    with new_tab(browser, width=1280) as driver:
        open_page(driver, path)
        use_paper(driver)
        assert count_shown(driver, ".pickers, nav") == 0
        assert count_shown(driver, "figure[data-of=layout]") == 6
        assert count_shown(driver, "details > pre") == 1


def test_a_wide_map_fits_on_paper(browser: Any, tmp_path: Path) -> None:
    """Nothing is cut off at the right of a sheet of A4, where nobody can scroll."""
    folder = RunFolder(tmp_path / "out.h5")
    plan = plan_product({"farm": ["a", "b"], "kind": range(5), "seed": range(30)})
    write_records(folder, plan, {task: {"aep": float(task)} for task in range(250)})
    write_failure(folder, plan, 260, message="no area", traceback="  File " + "x" * 300)
    folder.save_sweep({"name": "f"})
    with new_tab(browser, width=718) as driver:
        open_page(driver, h5sweep.write_report(folder.output))
        use_paper(driver)
        script = (
            "return [...document.querySelectorAll('main svg, main table, main pre')]"
            ".filter(e => e.getBoundingClientRect().right > innerWidth || "
            "(e.matches('pre') && e.scrollWidth > e.clientWidth)).map(e => e.outerHTML)"
        )
        assert driver.execute_script(script) == []


def test_drawings_on_paper_stand_side_by_side(path: Path) -> None:
    """All groups are printed: four in a row of a sheet of A4, and a heading is not left alone."""
    with chromium(width=718) as driver:
        open_page(driver, path)
        use_paper(driver)
        tops = [figure.rect["y"] for figure in all_of(driver, "figure[data-of=layout]")]
        assert len({round(top) for top in tops[:4]}) == 1
        script = "return getComputedStyle(document.querySelector(arguments[0])).breakAfter"
        for css in ("h2", "h3", "section > .note"):
            assert driver.execute_script(script, css) == "avoid", css


def count_shown(driver: Any, css: str) -> int:
    script = "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility())"
    return len(driver.execute_script(script, css))
