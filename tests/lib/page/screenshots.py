"""Pictures for the README: the real page in a real Chromium, in front of invented nodes. `make screenshots`."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.support.browser import missing, open_browser, screen, whole_page
from tests.lib.page.conftest import Sample


def take_node(folder: Path, work: Path) -> None:
    sample = Sample(work)
    sample.start()
    command = [sys.executable, "-m", "carico_agent", "page", "--no-browser", "--socket", sample.socket]
    try:
        picture(command, folder / "page.png", work / "node", height=900)
    finally:
        sample.stop()


def take_cluster(folder: Path, work: Path) -> None:
    command = [sys.executable, "-m", "lab.support.sample_cluster", "600", "0"]
    picture(command, folder / "cluster.png", work / "cluster", height=620)


def picture(command: list[str], file: Path, profile: Path, height: int) -> None:
    """Of the page that `command` serves; it prints the address first."""
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    address = page.stdout.readline().strip()
    try:
        with open_browser(profile) as driver:
            screen(driver, 1180, height)
            driver.get(address)
            time.sleep(5)  # the Pods' rates come with their second reading
            whole_page(driver, file)
    finally:
        page.kill()
        page.wait()


if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as work:
        take_node(Path(sys.argv[1]), Path(work))
        take_cluster(Path(sys.argv[1]), Path(work))
