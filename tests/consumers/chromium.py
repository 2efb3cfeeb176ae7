"""Headless Chromium for tests of pages; where it is not installed, they are skipped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.waiting import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)", allow_module_level=True)


@contextmanager
def browser(seconds: float) -> Iterator[Any]:
    """A driver, whose scripts may take so long."""
    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(seconds)
    try:
        yield driver
    finally:
        driver.quit()


def wait_until(condition: Callable[[], bool], driver: Any) -> None:
    """Wait until a condition holds; what the browser logged is the message of the failure."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, driver.get_log("browser")
        time.sleep(0.05)
