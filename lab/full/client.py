"""Requests that come by the clock: latency counts from when a request was due, whether the ones before are answered.

    python -m lab.full.client PORT RATE SECONDS → {"p50_ms": …, "p99_ms": …, "errors": …, "requests": …}

It stands for clients on other machines, so nothing here may keep it waiting: it asks for SCHED_RR.
"""

import asyncio
import json
import os
import random
import sys
import time

import aiohttp

TIMEOUT_S = 2.0


async def one(session: aiohttp.ClientSession, port: int, due_s: float, took_s: list[float]) -> None:
    try:
        async with session.get(f"http://127.0.0.1:{port}/") as reply:
            await reply.read()
            if reply.status == 200:
                took_s.append(time.monotonic() - due_s)
    except (aiohttp.ClientError, TimeoutError):
        return  # counted by its absence


async def load(port: int, rate: float, seconds: float) -> dict[str, float]:
    arrivals, took_s = random.Random(7), list[float]()
    pending = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S), connector=connector) as session:
        due_s = time.monotonic()
        until_s = due_s + seconds
        while due_s < until_s:
            await asyncio.sleep(max(due_s - time.monotonic(), 0.0))
            pending.append(asyncio.create_task(one(session, port, due_s, took_s)))
            due_s += arrivals.expovariate(rate)
        await asyncio.gather(*pending)
    took_s.sort()
    at = {f"p{p}_ms": 1e3 * took_s[min(len(took_s) - 1, len(took_s) * p // 100)] if took_s else 0.0 for p in (50, 99)}
    return {**at, "errors": float(len(pending) - len(took_s)), "requests": float(len(pending))}


def main() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except OSError as error:
        print(f"lab.full.client: {error}; its own waiting is part of what it measures", file=sys.stderr)
    port, rate, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(asyncio.run(load(port, rate, seconds))))


if __name__ == "__main__":
    main()
