"""A real Chromium, driven by chromedriver: opened empty, closed for good, nothing sent to anybody but the page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


def missing() -> str:
    """Why there is no browser here; empty when there is one."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    try:
        import selenium  # noqa: F401
    except ImportError:
        lacking.append("selenium")
    return f"{', '.join(lacking)} is not here (make browser)" if lacking else ""


@contextmanager
def open_browser(folder: Path, width: int = 1280, height: int = 1000, scripts: bool = True) -> Iterator[Any]:
    """A browser with a profile of its own in `folder`."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    if not scripts:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver") or ""))
    try:
        yield driver
    finally:
        driver.quit()


def screen(driver: Any, width: int, height: int, dark: bool = False) -> None:
    """Another size of the screen, and whether the user likes it dark."""
    mobile = width < 600
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def whole_page(driver: Any, file: Path) -> None:
    """A picture of all of it, not only of what fits on the screen."""
    import base64

    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
    file.write_bytes(base64.b64decode(taken["data"]))


def serious_findings(driver: Any) -> list[Any]:
    """What axe-core finds of more than minor impact; skips where there is no axe-core."""
    import pytest

    axe = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache/carico") / "npm/node_modules/axe-core/axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is not here (make browser)")
    driver.execute_script(axe.read_text())
    found = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] != "minor"]


def errors(driver: Any) -> list[str]:
    """What the console has complained about since the last call."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
