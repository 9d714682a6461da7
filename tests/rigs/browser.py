"""A headless Chromium of this machine; where there is none a test is skipped, or fails if real parts are required."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Error, sync_playwright

from tests.rigs.required import missing

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, started; FLOCK_HPC_TEST_CHROMIUM names another one than the usual."""
    wanted = os.environ.get("FLOCK_HPC_TEST_CHROMIUM")
    found = next((path for name in ((wanted,) if wanted else NAMES) if (path := shutil.which(name))), None)
    if found is None:
        missing("no Chromium on this machine: scripts/setup-test-browser.sh installs one")
    with sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        except Error as error:
            missing(f"{found} does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()
