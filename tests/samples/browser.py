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
def chromium(*, width: int, height: int = 900, is_dark: bool = False) -> Iterator[Any]:
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
            scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            yield driver
        finally:
            driver.quit()


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
