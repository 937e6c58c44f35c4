"""/v1/status over the socket from one client process: requests per second and latency."""

import time

from carico_agent.client import AgentClient
from lab.bench.process import Http, agent, cpu_s
from lab.bench.table import Row

RATE_BUDGET, P99_BUDGET_MS = 2000.0, 5.0


def measure(count: int) -> list[Row]:
    with agent() as own:
        http = Http(own.path)
        for _ in range(200):
            http.get("/v1/status")
        used_s, took_s, started_s = cpu_s(own.pid), [], time.perf_counter()
        for _ in range(count):
            asked_s = time.perf_counter()
            http.get("/v1/status")
            took_s.append(time.perf_counter() - asked_s)
        elapsed_s, used_s = time.perf_counter() - started_s, cpu_s(own.pid) - used_s
        with AgentClient(own.path) as client:
            started_s = time.perf_counter()
            for _ in range(count // 4):
                client.status()
            client_s = time.perf_counter() - started_s
        missed = own.about_itself()["missed_ticks"]
    took_s.sort()
    return [
        Row("/v1/status, one kept connection", count / elapsed_s, "/s", RATE_BUDGET, least=True),
        Row("/v1/status: p50 latency", 1e3 * took_s[count // 2], "ms"),
        Row("/v1/status: p99 latency", 1e3 * took_s[int(count * 0.99)], "ms", P99_BUDGET_MS),
        Row("/v1/status: the agent's CPU per request", 1e6 * used_s / count, "µs"),
        Row("carico_agent.client, AgentClient.status()", count // 4 / client_s, "/s"),
        Row("ticks missed meanwhile", missed, "", 0),
    ]
