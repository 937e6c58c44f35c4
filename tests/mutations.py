"""Lines that matter, each changed for the worse in a copy of the tree: the test named beside it must fail.

`make mutations` runs them all; `python -m tests.mutations 3` only the third; `python -m tests.mutations --page` prints
docs/mutations.md. A mutation that survives means a line that no test guards.

Why a list by hand and no mutation tool: a tool changes thousands of lines, most of which do not matter, and runs for
days; these are the lines whose loss would overfill a node, lose a value or let somebody in.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).parent.parent
COPIED = ("carico_agent", "plugins", "systemd", "tests", "lab", "setup.cfg", "pyproject.toml", "README.md")
FAILED = 1
"""pytest's exit code for a test that failed; 2 to 5 mean that it could not even run."""


@dataclass(frozen=True)
class Mutation:
    """One change, what would happen in the world, and the test that notices."""

    path: str
    old: str
    new: str
    harm: str
    test: str


MUTATIONS = (
    Mutation(
        "carico_agent/core/subspace.py",
        "room = max(0.0, (limit - y) / step)",
        "room = (limit - y) / step",
        "a full node offers a negative number",
        "tests/core/test_subspace.py",
    ),
    Mutation(
        "carico_agent/core/answer.py",
        "first = prior if prior.value < span.value else span",
        "first = span",
        "a model that has seen nothing offers more than the prior",
        "tests/core/test_measured_model.py",
    ),
    Mutation(
        "carico_agent/core/estimators/resource_space.py",
        "elif residual > 0:",
        "elif residual < 0:",
        "one idle Pod opens a node for ten busy ones",
        "tests/core/test_resource_space.py",
    ),
    Mutation(
        "carico_agent/core/estimators/resource_space.py",
        "share = p / (p + variance)",
        "share = variance / (p + variance)",
        "a node believes the cluster more the less the cluster knows",
        "tests/core/test_resource_space.py",
    ),
    Mutation(
        "carico_agent/plugin_host/journal.py",
        "            if sync:\n                self._sync()",
        "            if not sync:\n                self._sync()",
        "a power failure forgets what to put back",
        "tests/plugin_host/test_plugin_machine.py",
    ),
    Mutation(
        "carico_agent/plugin_host/journal.py",
        'entry.ours, entry.applied = [_text(record["old"]), _text(record["new"])], False',
        'entry.ours, entry.applied = [_text(record["new"])], False',
        "a crash between two writes leaves our first value behind",
        "tests/plugin_host/test_plugin_machine.py",
    ),
    Mutation(
        "carico_agent/plugin_host/journal.py",
        "if not mark or crc != b'%08x\"}' % zlib.crc32(body):",
        "if not mark:",
        "a damaged line is believed",
        "tests/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/plugin_host/restore.py",
        "if now not in entry.ours:",
        "if now in ():",
        "a value that somebody else wrote is overwritten",
        "tests/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/plugin_host/restore.py",
        "if problem := _unbelievable(entry):",
        "if problem := None:",
        "root writes any file of a cgroup that a journal names",
        "tests/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/plugin_host/cgroupfs.py",
        "if not is_cgroup2(found.st_dev):",
        "if found.st_dev < 0:",
        "root writes into any folder that a journal names",
        "tests/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/plugin_host/cgroupfs.py",
        "inode not in (None, found.st_ino)",
        "inode is None",
        "a cgroup that was reborn under the same name gets the dead one's values",
        "tests/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/schedule/placement/lifecycle.py",
        "(_STATE.ACCEPTED, _EVENT.UNLISTED): _STATE.ASSUMED,",
        "(_STATE.ACCEPTED, _EVENT.UNLISTED): _STATE.ENDED,",
        "a list that is a moment old gives a place away twice",
        "tests/schedule/placement",
    ),
    Mutation(
        "carico_agent/schedule/placement/lifecycle.py",
        "return self is not PodState.ENDED",
        "return self in (PodState.BOUND, PodState.RUNNING)",
        "a Pod on its way holds no place",
        "tests/schedule",
    ),
    Mutation(
        "carico_agent/schedule/placement/ledger.py",
        "if self._places[uid].until_s < now_s]",
        "if self._places[uid].until_s > now_s]",
        "places are released before they are confirmed",
        "tests/schedule",
    ),
    Mutation(
        "carico_agent/schedule/reservations.py",
        "if places > max(made.each, self._owner_ratio * room) + 1e-9:",
        "if places > room + 1e-9:",
        "one user holds all room of a node",
        "tests/schedule/test_reservations.py",
    ),
    Mutation(
        "carico_agent/schedule/reservations.py",
        "expires_s = min(float(saved.expires_s), now_s + self._most_ttl_s)",
        "expires_s = float(saved.expires_s)",
        "after the clock was set a reservation lasts for years",
        "tests/schedule/test_reservations.py",
    ),
    Mutation(
        "carico_agent/net/limits.py",
        "self._connections[peer.name] >= most",
        "self._connections[peer.name] > most + 1000",
        "one user takes all connections",
        "carico_agent/net/limits.py",
    ),
    Mutation(
        "carico_agent/net/limits.py",
        "if not rate or peer.trusted:",
        "if rate or peer.trusted:",
        "one user floods the socket",
        "carico_agent/net/limits.py",
    ),
    Mutation(
        "carico_agent/kube/watch.py",
        'return {"resourceVersion": self._seen} if self._seen else {}',
        "return {}",
        "every agent's start makes etcd list all Pods of the cluster",
        "tests/kube/test_client.py",
    ),
    Mutation(
        "carico_agent/publish/pace.py",
        'meta.get("continue") and meta.get("remainingItemCount") is None',
        "False",
        "an agent of a large cluster writes as often as one of a small cluster",
        "tests/kube/test_client.py",
    ),
    Mutation(
        "carico_agent/net/handshake.py",
        "if not self._limiter.connect(address):",
        "if self._limiter.connect(address) is None:",
        "connections that never shake hands are not counted",
        "tests/net/test_handshake.py",
    ),
    Mutation(
        "carico_agent/net/accepted.py",
        "if counts[one.address] > most:",
        "if counts[one.address] > 10 * most:",
        "one address holds all connections of the aggregator",
        "tests/net/test_accepted.py",
    ),
    Mutation(
        "carico_agent/schedule/expired.py",
        " or not await self._leader.hold(now_s)",
        "",
        "every replica lowers the resource of a silent node",
        "tests/schedule/test_expired.py",
    ),
    Mutation(
        "carico_agent/publish/own_lease.py",
        'is_other = record.holder not in ("", self._identity)',
        "is_other = False",
        "two agents with one node name correct each other for ever",
        "tests/publish/publishers/test_kubernetes.py",
    ),
)


def page() -> str:
    """docs/mutations.md."""
    rows = [f"| {n} | `{m.path}` | {m.harm} | `{m.test}` |" for n, m in enumerate(MUTATIONS, 1)]
    return "\n".join(
        [
            "# What the tests would notice",
            "",
            "Each row is a line changed for the worse, one at a time, in a copy of the tree, and the test that must",
            "fail then. `make mutations` does it (minutes; not part of `make test`), `python -m tests.mutations 3`",
            "only the third. The changes themselves stand in `tests/mutations.py`, which also prints this page",
            "(`python -m tests.mutations --page`).",
            "",
            "| | line of | what would happen | noticed by |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def copied(folder: Path) -> Path:
    for name in COPIED:
        source = TREE / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*results*"))
        else:
            shutil.copy(source, folder / name)
    return folder


def runs(tree: Path, test: str) -> int:
    """pytest's exit code in that tree, whose packages come first: it is the working directory."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    environment = {"CARICO_LIVES": "200", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL).returncode


def survives(tree: Path, mutation: Mutation) -> bool:
    """Change the line, run the test, change it back."""
    file = tree / mutation.path
    text = file.read_text()
    file.write_text(text.replace(mutation.old, mutation.new))
    try:
        return runs(tree, mutation.test) != FAILED
    finally:
        file.write_text(text)


def main(arguments: list[str]) -> int:
    if arguments == ["--page"]:
        print(page(), end="")
        return 0
    wanted = [MUTATIONS[int(number) - 1] for number in arguments] or list(MUTATIONS)
    with tempfile.TemporaryDirectory(prefix="carico-mutations-") as folder:
        tree = copied(Path(folder))
        broken = [test for test in sorted({mutation.test for mutation in wanted}) if runs(tree, test)]
        if broken:
            print("fails without any change:", *broken)
            return 1
        survived = 0
        for mutation in wanted:
            alive = survives(tree, mutation)
            survived += alive
            print("SURVIVED" if alive else "noticed ", mutation.path, "|", mutation.harm, flush=True)
    print(f"{len(wanted) - survived} of {len(wanted)} changes were noticed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
