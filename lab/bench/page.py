"""What the pages cost: frames of the cluster's page with 5,000 nodes, and an agent's CPU with ten browsers open.

`python -m lab.bench.page [--nodes 5000] [--write]`. Needs Chromium (make browser).

Frames are measured in the page while it is scrolled and sorted: the time between two animation frames, and long tasks
as the browser itself reports them. Both are wall time, which grows with whatever else runs: the blank page, in the
same browser and run, shows how much of it is the machine.
The agent's CPU with ten readers is beside its CPU with none, a minute apart, in one run: the difference is the claim.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from lab.support.browser import missing, open_browser

TREE = Path(__file__).resolve().parents[2]
RESULT = TREE / "lab/results/page.md"
MAX_FRAME_MS = 100.0
FRAMES = 400
"""At 60 a second the page gets new numbers once meanwhile."""
BROWSERS = 10
SLOW_S = 10.0
"""How often a page asks for everything but the status (static/app.js)."""
SLOW_PATHS = ("/v1/history?after=9e9", "/v1/pods", "/v1/progress", "/v1/reservations", "/v1/self", "/v1/plugins")

WATCH_FRAMES = """
const done = arguments[arguments.length - 1], steps = arguments[0], step = (i) => { STEP };
const frames = [], long = [];
const tasks = new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)));
tasks.observe({type: "longtask"});
let i = 0, last = performance.now();
function frame(now) {
  if (i > 0) frames.push(now - last);
  last = now;
  if (i === steps) { setTimeout(() => done({frames, long}), 100); return; }
  step(i);
  i += 1;
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
STEPS = {
    "new numbers": "",
    "scrolling": "document.getElementById('nodes-scroll').scrollTop = 1500 * (i % 100)",
    "sorting": "const all = document.querySelectorAll('#nodes thead button'); "
    "if (i % 5 === 0) all[(i / 5) % all.length].click()",
    "finding": "const f = document.getElementById('find'); if (i % 5 === 0) { f.value = String(i % 7); "
    "f.dispatchEvent(new Event('input')); }",
}


def frames(nodes: int) -> dict[str, dict[str, float]]:
    """Step → frames: longest, 99th percentile and long tasks [ms]."""
    command = [sys.executable, "-m", "lab.support.sample_cluster", str(nodes), "0"]
    server = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    try:
        with tempfile.TemporaryDirectory() as folder, open_browser(Path(folder)) as browser:
            browser.set_script_timeout(60)
            browser.get("about:blank")
            found = {"blank page": _watch(browser, "", FRAMES)}
            browser.get(address)
            _wait(browser)
            return found | {name: _watch(browser, step, FRAMES) for name, step in STEPS.items()}
    finally:
        server.kill()
        server.wait()


def _wait(browser: Any) -> None:
    for _ in range(600):
        if browser.execute_script("return /[0-9]/.test(document.getElementById('capacity')?.textContent ?? '')"):
            return
        time.sleep(0.1)
    raise TimeoutError("the page shows no number")


def _watch(browser: Any, step: str, steps: int) -> dict[str, float]:
    # written into the script: the page's Content-Security-Policy makes no code out of strings
    seen = browser.execute_async_script(WATCH_FRAMES.replace("STEP", step), steps)
    times = sorted(seen["frames"])
    return {
        "frames": len(times),
        "p99_ms": times[int(0.99 * (len(times) - 1))],
        "max_ms": times[-1],
        "long_tasks": len(seen["long"]),
        "longest_task_ms": max(seen["long"], default=0.0),
    }


async def readers(socket: str, count: int, seconds: float) -> None:
    """So many pages, as their scripts ask: the stream of statuses, and the rest every ten seconds, all at once."""

    async def watch() -> None:
        async with session.get("http://localhost/v1/watch") as stream:
            async for _ in stream.content:
                pass

    async def ask_slow() -> None:
        while True:
            for path in SLOW_PATHS:
                async with session.get(f"http://localhost{path}") as given:
                    await given.read()
            await asyncio.sleep(SLOW_S)

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket, limit=0), timeout=timeout) as session:
        tasks = [asyncio.create_task(one()) for _ in range(count) for one in (watch, ask_slow)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def cpu_ratio(process: psutil.Process, socket: str, count: int, seconds: float) -> float:
    """CPU of the agent with so many readers, as a share of a core."""
    before, started_s = process.cpu_times(), time.monotonic()
    asyncio.run(readers(socket, count, seconds)) if count else time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - started_s)


def ten_browsers(seconds: float) -> dict[str, float]:
    """Readers → the agent's CPU; none, ten, none again, ten again, so that a machine that drifts shows."""
    from carico_agent.client import AgentClient, AgentError, AgentUnavailable

    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/agent.sock"
        command = [sys.executable, "-m", "carico_agent", "agent", "--socket", socket, "--quiet"]
        agent = subprocess.Popen(command, cwd=TREE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                try:
                    AgentClient(socket).status()
                    break
                except (AgentUnavailable, AgentError):
                    time.sleep(0.2)
            time.sleep(5)
            process, found = psutil.Process(agent.pid), dict[str, list[float]]()
            for count in (0, BROWSERS, 0, BROWSERS):
                found.setdefault(f"{count} pages", []).append(cpu_ratio(process, socket, count, seconds))
            return {name: sum(values) / len(values) for name, values in found.items()}
        finally:
            agent.terminate()
            agent.wait()


def report(nodes: int, seen: dict[str, dict[str, float]], cost: dict[str, float]) -> str:
    none, ten = cost["0 pages"], cost[f"{BROWSERS} pages"]
    rows = [
        f"| {name} | {one['frames']:.0f} | {one['p99_ms']:.0f} | {one['max_ms']:.0f} | {one['long_tasks']:.0f} |"
        f" {one['longest_task_ms']:.0f} |"
        for name, one in seen.items()
    ]
    return "\n".join(
        [
            "# The pages",
            "",
            f"Written by `python -m lab.bench.page --write` on {os.cpu_count()} cores, with a load of"
            f" {os.getloadavg()[0]:.0f} by all that ran there.",
            "",
            f"Frames of the cluster's page with {nodes} nodes, in Chromium, {FRAMES} of each step [ms]:",
            "",
            "| step | frames | 99 % below | longest | long tasks (above 50) | longest task |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"An agent's CPU: {none:.2%} of a core without a page, {ten:.2%} with {BROWSERS} open;"
            f" {(ten - none) * 100:.2f} % of a core more, {ten / none:.2f} times as much.",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0, help="per measurement of the agent's CPU")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(TREE)}")
    given = parser.parse_args()
    if why := missing():
        print(why, file=sys.stderr)
        return 1
    seen, cost = frames(given.nodes), ten_browsers(given.seconds)
    text = report(given.nodes, seen, cost)
    print(text, json.dumps({"frames": seen, "cost": cost}), sep="\n")
    if given.write:
        RESULT.write_text(text)
    steps = [seen[name] for name in ("scrolling", "sorting")]
    return int(not all(one["max_ms"] <= MAX_FRAME_MS for one in steps))


if __name__ == "__main__":
    sys.exit(main())
