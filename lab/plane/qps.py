"""What the scheduler's own client limit costs: Pods bound per second with qps 50 (the default) and 200 (table 4).

`python -m lab.plane.qps [--repeats 3]`: a real control plane, 100 nodes; 800 Pods are made while no scheduler runs,
then one starts, and `carico plane` looks at it while it binds them. Source of the numbers: *MerKury*, table 4. Results
go to lab/results/plane_qps.json. Needs `make kube`.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lab.plane.parts import Connections, every, pod_object
from lab.support.control_plane import Plane
from lab.support.waiting import wait_for

TREE = Path(__file__).parents[2]
RESULTS = TREE / "lab/results/plane_qps.json"
NODES, PODS = 100, 800


def bound(plane: Plane) -> int:
    """By the scheduler's own count: a LIST of Pods every tenth of a second would compete with it."""
    text = plane.component("kube-scheduler", "/metrics")
    found = re.search(r'scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} (\S+)', text)
    return int(float(found[1])) if found else 0


def measure(plane: Plane, qps: int) -> dict[str, Any]:
    ask = Connections(plane.port, plane.ca).ask
    every(PODS, lambda n: ask("POST", "/api/v1/namespaces/default/pods", pod_object(f"p-{n}")))
    client = {"kubeconfig": str(plane.kubeconfig("scheduler-token")), "qps": qps, "burst": 2 * qps}
    plane.start_scheduler({"clientConnection": client})
    wait_for(lambda: answers(plane) and bound(plane) > 0, "it binds", 60)
    began_s, before = time.monotonic(), bound(plane)
    said = diagnosis(plane)
    wait_for(lambda: bound(plane) >= PODS, "all are bound", 120, 0.2)
    rate = (PODS - before) / (time.monotonic() - began_s)
    plane.stop_scheduler()
    plane.admin.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
    wait_for(lambda: not plane.admin.pods(), "the Pods are gone", 60)
    return {"qps": qps, "pods_per_s": rate, "carico": said}


def answers(plane: Plane) -> bool:
    try:
        return bool(plane.component("kube-scheduler", "/healthz"))
    except OSError:
        return False


def diagnosis(plane: Plane) -> list[str]:
    """What `carico plane` warns of meanwhile, over 2 s."""
    url = f"kube-scheduler=https://127.0.0.1:{plane.ports['kube-scheduler']}/metrics"
    command = [sys.executable, "-m", "carico_agent", "plane", "--kubeconfig", str(plane.kubeconfig("admin-token"))]
    command += ["--component", url, "--interval", "2", "--json"]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True)
    return [str(one) for one in json.loads(done.stdout)["warnings"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    given, rows = parser.parse_args(), []
    with tempfile.TemporaryDirectory(prefix="carico-lab-") as name:
        plane = Plane(Path(name))
        try:
            plane.start()
            for n in range(NODES):
                plane.admin.add_node(f"n-{n}", cpus=32, pods=500)
            choose = random.Random(19)
            for _ in range(given.repeats):
                for qps in choose.sample([50, 200], 2):
                    rows.append(measure(plane, qps))
                    print(rows[-1], flush=True)
        finally:
            plane.stop()
    RESULTS.write_text(json.dumps({"version": ".".join(map(str, plane.version)), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
