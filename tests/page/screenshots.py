"""Pictures for the README: the real page in a real Chromium, in front of the sample node. `make screenshots`."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.page.browser import missing, open_browser, screen, whole_page
from tests.page.conftest import Sample


def take(folder: Path, work: Path) -> None:
    sample = Sample(work)
    sample.start()
    command = [sys.executable, "-m", "carico_agent", "page", "--no-browser", "--socket", sample.socket]
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    address = page.stdout.readline().strip()
    try:
        with open_browser(work / "profile") as driver:
            screen(driver, 1180, 900)
            driver.get(address)
            time.sleep(5)  # the Pods' rates come with their second reading
            whole_page(driver, folder / "page.png")
    finally:
        page.kill()
        page.wait()
        sample.stop()


if __name__ == "__main__":
    if why := missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as work:
        take(Path(sys.argv[1]), Path(work))
