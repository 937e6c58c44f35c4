"""What *full* does to a service: a real HTTP server beside batch Pods that are added until Pod-Capacity is 0.

    python -m lab.full [--limits 0.8 1.0 …] [--batch loop quarter] [--seconds 12] [--out lab/results] [--table]

The server answers requests that come by the clock (some 0.25 cores). For each limit, in runnable threads per core,
batch Pods come as long as one more fits by what carico believes the server and a batch Pod to cost: `loop` wants a core
all the time, `quarter` works 30 ms and sleeps 90 ms. Then latency (from when a request was due), errors, and what the
batch Pods got. Once all groups have the same cpu shares, once those that requests give: 256 to the server for 250m, 2
to a batch Pod that requests nothing.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from carico_agent.core import ModelConfig
from carico_agent.node.pods.meter import open_cgroups
from lab.crowded.__main__ import code_hash
from lab.crowded.run import PERIOD_S, NoCompiler, build
from lab.crowded.watch import CORES, NodeWatch, follow
from lab.full.node import USUAL_SHARES, CgroupPods

LIMITS = (0.8, 1.0, 1.25, 1.5, 2.0)
BATCH = {"loop": ("busy", 1.0), "quarter": ("quarter", 0.25)}
RATE = 50.0
SERVER_SHARES, BATCH_SHARES = 256, 2
SETTLE_S = 16.0
"""Until the model knows a first Pod of each."""
MAX_RATIO = 2.0
"""p99 may be this many times that of the server alone."""


@dataclass(frozen=True)
class FullRow:
    """One measurement; limit 0: the server alone."""

    limit: float
    batch: str
    weights: bool
    pods: int
    p50_ms: float
    p99_ms: float
    errors: int
    requests: int
    batch_cores: float
    busy_ratio: float


class FullLab:
    def __init__(self, groups: CgroupPods, load: Path, seconds: float) -> None:
        self._groups, self._load, self._seconds = groups, load, seconds
        self._serial = 0

    def rows(self, batch: str, weights: bool, limits: Sequence[float]) -> Iterator[FullRow]:
        """The server alone, then more batch Pods with each limit."""
        command = [sys.executable, "-m", "lab.full.server"]
        shares = SERVER_SHARES if weights else USUAL_SHARES
        server = self._groups.start("server", command, shares, stdout=subprocess.PIPE)
        assert server.stdout is not None
        port, names = int(server.stdout.readline()), list[str]()
        try:
            yield self._row(0.0, batch, weights, port, names)
            cost = self._costs(batch, weights, port, names)
            for limit in limits:
                while cost["server"] + (len(names) + 1) * cost["batch"] <= limit * CORES + 1e-9:
                    names.append(self._start(batch, weights))
                yield self._row(limit, batch, weights, port, names)
        finally:
            for name in [*names, "server"]:
                self._groups.stop(name)

    def _start(self, batch: str, weights: bool) -> str:
        self._serial += 1
        name = f"batch{self._serial}"
        self._groups.start(name, [str(self._load), BATCH[batch][0], "1"], BATCH_SHARES if weights else USUAL_SHARES)
        return name

    def _costs(self, batch: str, weights: bool, port: int, names: list[str]) -> dict[str, float]:
        """What carico believes the server and a batch Pod to cost, after one of the latter ran beside it [cores]."""
        names.append(self._start(batch, weights))
        pods = {name: replace(pod, workload=name.rstrip("0123456789")) for name, pod in self._groups.pods().items()}
        watch = NodeWatch(pods, open_cgroups(self._groups.locator), PERIOD_S, ModelConfig(cores=CORES))
        client = self._client(port, SETTLE_S + 1)
        follow([watch], SETTLE_S)
        client.communicate()
        found = {name: watch.cost_of(name)[0] for name in ("server", "batch")}
        watch.close()
        if any(math.isnan(cost) for cost in found.values()):
            raise RuntimeError(f"the model does not know {found} after {SETTLE_S:g} s")
        print(f"{batch}: {found}", file=sys.stderr, flush=True)
        return found

    def _client(self, port: int, seconds: float) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "lab.full.client", str(port), str(RATE), str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _row(self, limit: float, batch: str, weights: bool, port: int, names: list[str]) -> FullRow:
        before, idle = self._used_s(names), _idle_s()
        client = self._client(port, self._seconds)
        out, _ = client.communicate()
        got = json.loads(out)
        used = (self._used_s(names) - before) / self._seconds
        busy = 1 - (_idle_s() - idle) / self._seconds / CORES
        row = FullRow(
            limit,
            batch,
            weights,
            len(names),
            got["p50_ms"],
            got["p99_ms"],
            int(got["errors"]),
            int(got["requests"]),
            used,
            busy,
        )
        print(row, file=sys.stderr, flush=True)
        return row

    def _used_s(self, names: Sequence[str]) -> float:
        total = 0.0
        for name, pod in self._groups.pods().items():
            if name in names:
                (files,) = open_cgroups(self._groups.locator)(pod)
                total += (files.read(0.0).cpu_usec or 0) / 1e6
                files.close()
        return total


def _idle_s() -> float:
    first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(first[4]) + int(first[5])) / os.sysconf("SC_CLK_TCK")


def table(rows: Sequence[FullRow]) -> list[str]:
    lines = [
        "| batch Pods | cpu shares | limit | Pods | p50 [ms] | p99 [ms] | / alone | errors | batch got | CPUs busy |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        alone = next(one for one in rows if one.limit == 0 and (one.batch, one.weights) == (row.batch, row.weights))
        ratio = row.p99_ms / alone.p99_ms
        mark = f"**{ratio:.1f}**" if ratio > MAX_RATIO or row.errors else f"{ratio:.1f}"
        lines.append(
            f"| {row.batch} | {'from requests' if row.weights else 'equal'} | {row.limit or 'alone'} | {row.pods} | "
            f"{row.p50_ms:.1f} | {row.p99_ms:.1f} | {mark} | {row.errors} of {row.requests} | "
            f"{row.batch_cores:.2f} | {row.busy_ratio:.0%} |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=float, nargs="+", default=LIMITS)
    parser.add_argument("--batch", nargs="+", choices=BATCH, default=list(BATCH))
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--out", type=Path, default=Path("lab/results"))
    parser.add_argument("--first", action="store_true", help="before all other users of this machine, who agree")
    parser.add_argument("--table", action="store_true", help="print what is there")
    given = parser.parse_args()
    file = given.out / "full.json"
    if not given.table:
        if os.geteuid() != 0:
            print("lab.full: cannot run here: cgroups need root")
            return 1
        with tempfile.TemporaryDirectory() as folder, CgroupPods(f"carico-full-{os.getpid()}", given.first) as groups:
            try:
                build(Path(folder) / "load")
            except NoCompiler as error:
                print(f"lab.full: cannot run here: {error}")
                return 1
            lab = FullLab(groups, Path(folder) / "load", given.seconds)
            rows = [
                row
                for weights in (False, True)
                for batch in given.batch
                for row in lab.rows(batch, weights, given.limits)
            ]
        given.out.mkdir(parents=True, exist_ok=True)
        found = {"code": code_hash(), "cores": CORES, "rows": [asdict(row) for row in rows]}
        file.write_text(json.dumps(found, indent=0) + "\n")
    saved = json.loads(file.read_text())
    lines = [
        "# What full does to a service",
        "",
        f"`python -m lab.full`, {saved['cores']} CPUs, code {saved['code']}. Limit: runnable threads per core.",
        "",
        *table([FullRow(**row) for row in saved["rows"]]),
        "",
    ]
    (given.out / "full.md").write_text("\n".join(lines))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
