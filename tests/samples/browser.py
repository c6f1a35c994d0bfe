"""Debian's Chromium, without a window, a network or a profile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def chromium(*, width: int = 1280, height: int = 900) -> Iterator[Any]:
    """A Selenium driver of a new browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = Service(str(shutil.which("chromedriver")))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            imitate_screen(driver, width=width, height=height)
            yield driver
        finally:
            driver.quit()


@contextmanager
def new_tab(driver: Any, *, width: int, is_dark: bool = False) -> Iterator[Any]:
    """The driver of a browser that others use too, in a tab that is as a new browser's."""
    driver.get_log("browser")  # what pages of before said
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        imitate_screen(driver, width=width, is_dark=is_dark)
        yield driver
    finally:
        driver.close()
        driver.switch_to.window(first)


def imitate_screen(driver: Any, *, width: int, height: int = 900, is_dark: bool = False) -> None:
    """Show pages as in a window of that size, to somebody who likes them dark or light."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def open_page(driver: Any, path: Path) -> None:
    driver.get(path.absolute().as_uri())


def settle(driver: Any) -> None:
    """Wait until the page has drawn itself, and heard of what it did before."""
    script = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    driver.execute_async_script(script)


def use_paper(driver: Any) -> None:
    """Show the page as it is printed; returns when it is."""
    from selenium.webdriver.support.wait import WebDriverWait

    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    is_paper = "return matchMedia('print').matches"
    WebDriverWait(driver, 30).until(lambda _: driver.execute_script(is_paper))
    settle(driver)
