"""Lines that matter, each changed for the worse in a copy of the tree: the test named beside it must fail.

`make mutations` runs them all; `python -m tests.mutations 3` only the third; `python -m tests.mutations --page` prints
docs/development/mutations.md. A mutation that survives means a line that no test guards.

Why a list by hand and no mutation tool: a tool changes thousands of lines, most of which do not matter, and runs for
days; these are the lines whose loss would overfill a node, lose a value or let an attacker in.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).parent.parent
COPIED = (
    "carico_agent",
    "plugins",
    "systemd",
    "deploy",
    "tests",
    "lab",
    "docs",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
)
FAILED = 1
"""pytest's exit code for a test that failed; 2 to 5 mean that it could not even run."""
HUNG, LONGEST_S = -1, 900.0
"""A test that hangs instead of failing has noticed nothing."""


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
        "carico_agent/node/plugin_host/journal.py",
        "            if sync:\n                self._sync()",
        "            if not sync:\n                self._sync()",
        "a power failure forgets what to put back",
        "tests/node/plugin_host/test_plugin_machine.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/journal.py",
        'entry.ours, entry.applied = [_text(record["old"]), _text(record["new"])], False',
        'entry.ours, entry.applied = [_text(record["new"])], False',
        "a crash between two writes leaves our first value behind",
        "tests/node/plugin_host/test_plugin_machine.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/journal.py",
        "if not mark or crc != b'%08x\"}' % zlib.crc32(body):",
        "if not mark:",
        "a damaged line is believed",
        "tests/node/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/restore.py",
        "if now not in entry.ours:",
        "if now in ():",
        "a value that another program wrote is overwritten",
        "tests/node/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/restore.py",
        "if problem := _unbelievable(entry):",
        "if problem := None:",
        "root writes any file of a cgroup that a journal names",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/cgroupfs.py",
        "if not is_cgroup2(found.st_dev):",
        "if found.st_dev < 0:",
        "root writes into any folder that a journal names",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/cgroupfs.py",
        "inode not in (None, found.st_ino)",
        "inode is None",
        "a cgroup that was reborn under the same name gets the dead one's values",
        "tests/node/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/extender/placement/lifecycle.py",
        "(_STATE.ACCEPTED, _EVENT.UNLISTED): _STATE.ASSUMED,",
        "(_STATE.ACCEPTED, _EVENT.UNLISTED): _STATE.ENDED,",
        "a list that is a moment old gives a place away twice",
        "tests/extender/placement",
    ),
    Mutation(
        "carico_agent/extender/placement/lifecycle.py",
        "return self is not PodState.ENDED",
        "return self in (PodState.BOUND, PodState.RUNNING)",
        "a Pod on its way holds no place",
        "tests/extender",
    ),
    Mutation(
        "carico_agent/extender/placement/ledger.py",
        "if self._places[uid].until_s < now_s]",
        "if self._places[uid].until_s > now_s]",
        "places are released before they are confirmed",
        "tests/extender",
    ),
    Mutation(
        "carico_agent/node/reservations.py",
        "if places > max(made.each, self._owner_ratio * room) + 1e-9:",
        "if places > room + 1e-9:",
        "one user holds all room of a node",
        "tests/extender/test_reservations.py",
    ),
    Mutation(
        "carico_agent/node/reservations.py",
        "expires_s = min(float(saved.expires_s), now_s + self._max_ttl_s)",
        "expires_s = float(saved.expires_s)",
        "after the clock was set a reservation lasts for years",
        "tests/extender/test_reservations.py",
    ),
    Mutation(
        "carico_agent/lib/net/limits.py",
        "self._connections[peer.name] >= most",
        "self._connections[peer.name] > most + 1000",
        "one user takes all connections",
        "carico_agent/lib/net/limits.py",
    ),
    Mutation(
        "carico_agent/lib/net/limits.py",
        "if not rate or peer.trusted:",
        "if rate or peer.trusted:",
        "one user floods the socket",
        "carico_agent/lib/net/limits.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/journal.py",
        "        os.fsync(self._file)",
        "        os.fstat(self._file)",
        "what is to be put back is in memory only when the power fails",
        "tests/node/plugin_host/test_plugin_journal.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/journal.py",
        "        os.fchown(file, folder.st_uid, folder.st_gid)",
        "        os.fchown(file, 0, 0)",
        "after a restore by root the agent cannot write its journal (seen by root only)",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/cgroupfs.py",
        "os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=above)",
        "os.O_CLOEXEC, dir_fd=above)",
        "a link leads root out of the cgroup tree",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/cgroupfs.py",
        "_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW",
        "_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC",
        "root writes through a link that stands in for a cgroup file",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/cgroupfs.py",
        'if "/" in key or key in ("", ".", ".."):',
        'if key in ("", ".", ".."):',
        "an absolute name of a file leaves the cgroup",
        "tests/node/plugin_host/test_plugin_restore.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/load.py",
        'for item in (*path.parents, path, *path.rglob("*")):',
        'for item in (path, *path.rglob("*")):',
        "a plugin below a folder that everybody may write is run",
        "tests/node/plugin_host/test_plugin_host.py",
    ),
    Mutation(
        "carico_agent/node/plugin_host/load.py",
        '(stat.S_IWGRP, f"group {found.st_gid}")',
        '(0, f"group {found.st_gid}")',
        "a plugin that a group may write is run",
        "tests/node/plugin_host/test_plugin_host.py",
    ),
    Mutation(
        "carico_agent/service/units.py",
        "if at_home and (options.tuning or options.containerd):",
        "if at_home and options.tuning and options.containerd:",
        "the owner of a home folder is as good as root",
        "tests/commands/test_install.py",
    ),
    Mutation(
        "carico_agent/service/commands/uninstall.py",
        "*([CONFIG, *LEARNED, *PRIVATE] if purge else [])",
        "*([CONFIG, *LEARNED] if purge else [])",
        "the state of aggregator and plane outlives uninstall --purge",
        "tests/commands/test_install.py",
    ),
    Mutation(
        "carico_agent/lib/net/sockets.py",
        "if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:",
        "if found.st_mode & stat.S_ISVTX:",
        "anybody replaces the agent's socket by its own",
        "tests/lib/net/test_sockets.py",
    ),
    Mutation(
        "carico_agent/lib/net/sockets.py",
        "for owner in (folder.lstat().st_uid, found.st_uid):",
        "for owner in (found.st_uid,):",
        "a user who made a link in the temporary folder leads clients elsewhere (seen by root only)",
        "tests/lib/net/test_sockets.py",
    ),
    Mutation(
        "carico_agent/client.py",
        "found.st_uid == os.geteuid()",
        "found.st_uid >= 0",
        "a client believes what another user put into the temporary folder (seen by root only)",
        "tests/lib/net/test_sockets.py",
    ),
    Mutation(
        "carico_agent/lib/net/connections.py",
        "if tls and limits.connections and self.of(origin) >= limits.connections:",
        "if tls and limits.connections and self.of(origin) > 1000 * limits.connections:",
        "connections that never shake hands are not limited",
        "tests/lib/net/test_handshake.py",
    ),
    Mutation(
        "carico_agent/lib/net/handshake.py",
        "        super().connection_lost(exc)\n        self._gone()",
        "        super().connection_lost(exc)",
        "lost connections without a handshake still count against the limit",
        "tests/lib/net/test_handshake.py",
    ),
    Mutation(
        "carico_agent/lib/net/handshake.py",
        "ssl_handshake_timeout=HANDSHAKE_S",
        "ssl_handshake_timeout=3600",
        "a silent connection is held for an hour",
        "tests/lib/net/test_handshake.py",
    ),
    Mutation(
        "carico_agent/node/reservations.py",
        "made.pods + sum(reservation.pods for reservation in own)",
        "1 + len(own)",
        "one user holds any number of Pods in a few reservations",
        "tests/extender/test_reservations.py",
    ),
    Mutation(
        "carico_agent/node/reserve.py",
        "0o600, synced=True)",
        "0o600, synced=False)",
        "a reservation that was called durable is gone after a power failure",
        "tests/node/test_reserve.py",
    ),
    Mutation(
        "carico_agent/node/reserve.py",
        "        return room / fits",
        "        return 1.0",
        "a workload that takes three places is given one",
        "tests/node/test_reserve.py",
    ),
    Mutation(
        "carico_agent/lib/supervise/files.py",
        "                os.fsync(file.fileno())",
        "                file.fileno()",
        "a file is empty after a power failure",
        "tests/lib/supervise/test_files.py",
    ),
    Mutation(
        "carico_agent/node/pods/tree.py",
        "            counts=self._selector.counts(namespace, name),",
        "            counts=True,",
        "skip_namespaces does nothing where Pods are found in the cgroup tree",
        "tests/node/pods/test_log_names.py",
    ),
    Mutation(
        "carico_agent/node/pods/demand.py",
        "min(alone_s, after.quota_cores * elapsed_s)",
        "alone_s",
        "a Pod that its own quota stops looks as if it wanted the whole node",
        "tests/node/pods/test_demand.py",
    ),
    Mutation(
        "carico_agent/node/pods/demand.py",
        "after is not None and after >= before else nan",
        "after is not None else nan",
        "a counter that was reset makes a Pod's use negative",
        "tests/node/pods/test_demand.py",
    ),
    Mutation(
        "carico_agent/lib/kube/placement_lease.py",
        "return leader.duration_s + times.bound_within_s if leader.holder else",
        "return leader.duration_s if leader.holder else",
        "a new leader gives places away that the last one's Pods are about to take",
        "tests/extender/placement/test_placed_pods.py",
    ),
    Mutation(
        "carico_agent/lib/kube/leader.py",
        "in_time = self.holder == self.identity and now_s < self._renewed_s + self._duration_s",
        "in_time = self.holder == self.identity",
        "a leader that slept goes on with offers that have fallen since",
        "tests/extender/placement/test_placed_pods.py",
    ),
    Mutation(
        "carico_agent/extender/placement/placed_pods.py",
        "if (self._seen.now.holder, self._seen.now.term) != (leader.identity, leader.term):",
        "if False:",
        "a new leader places Pods by numbers that have fallen",
        "tests/extender/placement/test_placed_pods.py",
    ),
    Mutation(
        "carico_agent/extender/placement/placed_pods.py",
        "seen = Acknowledgement(token, self.leader.identity, self.leader.term, self.on_the_way(node))",
        "seen = Acknowledgement(token, self.leader.identity, self.leader.term)",
        "a number falls below the Pods that are on their way",
        "tests/extender/placement/test_placed_pods.py",
    ),
    Mutation(
        "carico_agent/extender/node_rules.py",
        "if other != uid and not self._cluster.knows(other, name)]",
        "if False]",
        "a binding that got no answer, and is made all the same, overfills its node",
        "tests/extender/placement/test_placed_pods.py",
    ),
    Mutation(
        "carico_agent/node/publish/own_lease.py",
        "            if self._content.waits and not await self._acknowledged():",
        "            if False and not await self._acknowledged():",
        "a lower number is published while Pods are bound to the higher one",
        "tests/node/publish/test_own_lease.py",
    ),
    Mutation(
        "carico_agent/node/publish/own_lease.py",
        "if self._leader.now.version and leads == (seen.leader, seen.term):",
        "if self._leader.now.version and leads:",
        "a leader of the past is believed whose successor has not seen the lower number",
        "tests/node/publish/test_own_lease.py",
    ),
    Mutation(
        "carico_agent/lib/kube/placement_lease.py",
        "        if now_s >= self.until_s:\n            return NO_OFFER\n",
        "",
        "a node whose agent is gone is never opened again",
        "tests/extender/test_admission.py",
    ),
    Mutation(
        "carico_agent/extender/second_look.py",
        "end_s = began_s + min(LOOK_AGAIN_S, self._budget_s(began_s))",
        "end_s = began_s + LOOK_AGAIN_S",
        "two hundred waiting Pods hold up kube-scheduler for ten seconds at every change of a Node",
        "tests/extender/test_second_look.py",
    ),
    Mutation(
        "carico_agent/extender/gangs.py",
        "        for uid, until_s in self._held.pop(gang, {}).items():",
        "        for uid, until_s in ():",
        "a gang that does not fit keeps others from the room that there is",
        "tests/extender/test_second_look.py",
    ),
    Mutation(
        "carico_agent/extender/placement/placer.py",
        "judged = binds or self.refused_lately(asked.uid, node)",
        "judged = binds",
        "with `ignorable: true` the webhook lets in what bind has refused",
        "tests/extender/test_admission.py",
    ),
    Mutation(
        "carico_agent/lib/kube/placement_lease.py",
        "if self.rise.id and self.rise.id == node_rise else",
        "if self.rise.id else",
        "a leader that still sees the Node of before a fall places Pods by the next rise",
        "tests/kube/test_placement_lease.py",
    ),
    Mutation(
        "carico_agent/node/publish/publication.py",
        "return replace(self, perhaps=self.perhaps.max(offer))",
        "return self",
        "a number falls below Pods that were placed by a rise whose answer was lost",
        "tests/kube/test_placement_lease.py",
    ),
    Mutation(
        "carico_agent/node/publish/publication.py",
        "(LeaseState.UNKNOWN, LeaseState.RISING, LeaseState.OUTDATED)",
        "(LeaseState.UNKNOWN, LeaseState.OUTDATED)",
        "a fall is published while Pods are placed by a rise whose answer was lost",
        "tests/kube/test_placement_lease.py",
    ),
    Mutation(
        "carico_agent/node/publish/publication.py",
        "return LeaseContent(state, self.offered, Rise(rise_id, offer))",
        "return LeaseContent(state, offer, Rise(rise_id, offer))",
        "a rise holds before the Node has it",
        "tests/node/publish/test_own_lease.py",
    ),
    Mutation(
        "carico_agent/node/publish/throttle.py",
        "if changed and before.slots is not None and (summary",
        "if changed and before.slots is None and (summary",
        "a number that falls is published when there is time for it",
        "tests/node/publish/test_throttle.py",
    ),
    Mutation(
        "carico_agent/node/publish/throttle.py",
        "max(-MAX_DEBT, self._credit_at(now_s) - 1), now_s",
        "MAX_CREDIT, now_s",
        "a node whose load wanders writes all the time",
        "tests/node/publish/test_throttle.py",
    ),
    Mutation(
        "carico_agent/node/publish/pace.py",
        "return max(min_s, nodes / NODE_WRITES_PER_S)",
        "return min_s",
        "5,000 nodes write as often as ten",
        "carico_agent/node/publish/pace.py",
    ),
    Mutation(
        "carico_agent/extender/admission.py",
        "why = None if dry_run else await",
        "why = await",
        "a question of `kubectl --dry-run=server` takes a place",
        "tests/extender/test_admission.py",
    ),
    Mutation(
        "carico_agent/extender/admission.py",
        "or not texts or not all(map(is_name, (namespace, name, node))):",
        "or not texts:",
        "a name in a review becomes an address of the API server",
        "tests/extender/test_admission.py",
    ),
    Mutation(
        "carico_agent/burst/protocol.py",
        "    if pods is not None and pods.bound:",
        "    if pods is not None and pods.bound < 0:",
        "a Job is moved away whose Pod is about to start",
        "tests/burst/test_steps.py",
    ),
    Mutation(
        "carico_agent/burst/protocol.py",
        "    if seen.home_pods.count:",
        "    if seen.home_pods.count < 0:",
        "a Job is committed elsewhere while a Pod of it still ends at home",
        "tests/burst/test_steps.py",
    ),
    Mutation(
        "carico_agent/burst/steps.py",
        "if fresh.ledger.state != State.AWAY or fresh.ledger.epoch != copy.epoch or",
        "if",
        "a copy is released after its Job was started at home again: it runs twice",
        "tests/burst/test_steps.py",
    ),
    Mutation(
        "carico_agent/burst/objects.py",
        "        if not seal.holds(value, _sealed_for(job)):",
        "        if False:",
        "a user writes where burst shall create Pods",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/burst/seal.py",
        "json.dumps([*job, record], sort_keys",
        "json.dumps([record], sort_keys",
        "a ledger that is copied from another Job holds",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/burst/steps.py",
        "    if why := route.obstacle(seen.home):",
        '    if why := "":',
        "a Job that is in flight goes to a target without any check",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/burst/protocol.py",
        "    return bool(place) and (home.ledger.cluster",
        "    return (home.ledger.cluster",
        "a target whose cluster is not known takes Jobs",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/burst/link.py",
        "refused.status == 409 or refused.says_absent(request.path)",
        "refused.status in (404, 409)",
        "a load balancer's 404 deletes a copy that runs",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/burst/link.py",
        '        return body.get("kind") == "PodList" and "items" in body',
        "        return True",
        "an empty page reads as: no Pods are left at home",
        "tests/burst/test_forged.py",
    ),
    Mutation(
        "carico_agent/service/drop.py",
        "    if os.geteuid() != 0 or owner.st_uid == 0:",
        "    if True:",
        "uninstalling runs a command of the agent's user as root",
        "tests/commands/test_drop.py",
    ),
    Mutation(
        "carico_agent/burst/overflow.py",
        "    if job.unschedulable_s < min_s:",
        "    if job.unschedulable_s < 0:",
        "a Job goes to the cloud that home would have taken a second later",
        "tests/burst/test_planner.py",
    ),
    Mutation(
        "carico_agent/lib/kube/watch.py",
        'return {"resourceVersion": self._seen} if self._seen else {}',
        "return {}",
        "every agent's start makes etcd list all Pods of the cluster",
        "tests/kube/test_client.py",
    ),
    Mutation(
        "carico_agent/node/publish/pace.py",
        'meta.get("continue") and meta.get("remainingItemCount") is None',
        "False",
        "an agent of a large cluster writes as often as one of a small cluster",
        "tests/kube/test_client.py",
    ),
    Mutation(
        "carico_agent/lib/net/connections.py",
        "        if not self._make_room(origin, limits.max_connections):",
        "        if not self._make_room(origin, 10 * limits.max_connections):",
        "the client that connects last locks all others out",
        "tests/lib/net/test_connections.py",
    ),
    Mutation(
        "carico_agent/lib/net/accepted.py",
        "if counts[one.address] > most:",
        "if counts[one.address] > 10 * most:",
        "one address holds all connections of the aggregator",
        "tests/lib/net/test_accepted.py",
    ),
    Mutation(
        "carico_agent/extender/expired.py",
        "            if self._leads():",
        "            if True:",
        "every replica lowers the resource of a silent node",
        "tests/extender/test_expired.py",
    ),
    Mutation(
        "carico_agent/node/publish/own_lease.py",
        'is_other = record.holder not in ("", self._identity)',
        "is_other = False",
        "two agents with one node name correct each other without end",
        "tests/node/publish/publishers/test_kubernetes.py",
    ),
    Mutation(
        "carico_agent/core/room.py",
        "(ran_s >= ASLEEP_S or not self.sleeps(cost))",
        "(ran_s >= 0 or not self.sleeps(cost))",
        "Pods that wait for their work make their workload free, here and in the cluster",
        "tests/core/test_measured_model.py",
    ),
    Mutation(
        "carico_agent/core/workloads.py",
        "if x >= least else x for x, growth, least in leaks",
        "if not x < least else x for x, growth, least in leaks",
        "a resource that is not measured costs nothing once a workload leaks",
        "tests/core/test_workloads.py",
    ),
    Mutation(
        "carico_agent/core/workloads.py",
        "max(differ, (READING_NOISE_RATIO * cost) ** 2)",
        "(READING_NOISE_RATIO * cost) ** 2",
        "Pods that change, each in its own way, count as a leak",
        "tests/core/test_workloads.py",
    ),
    Mutation(
        "carico_agent/core/measured.py",
        "pod.since_t = pod.t = pod.mark_t = pod.shown_t = -inf",
        "pod.since_t = pod.t = pod.mark_t = -inf",
        "after a reboot a Pod seems to have grown in a minute by what it did in a day",
        "tests/core/test_measured_model.py",
    ),
    Mutation(
        "carico_agent/core/pods.py",
        "self.readings, self.rise = [0.0] * len(mean), None",
        "self.readings = [0] * len(mean)",
        "a workload whose Pods wake is believed to warm up, and the node is closed for those that sleep",
        "tests/core/test_pods.py",
    ),
    Mutation(
        "carico_agent/federation/cluster_workloads.py",
        "cut = min(max(0.25 * total, float(weight.max())), (0.5 - 1e-9) * total)",
        "cut = 0.25 * total",
        "one of three nodes decides what a workload costs in the cluster",
        "tests/federation/test_cluster_workloads.py",
    ),
    Mutation(
        "carico_agent/core/estimators/resource_space.py",
        " and channel.misfit <= MAX_MISFIT",
        "",
        "without readings of each Pod a node with several workloads is trusted and wrong",
        "tests/core/test_resource_space.py",
    ),
    Mutation(
        "carico_agent/core/room.py",
        "if now.calm[i] >= FULL:",
        "if False:",
        "a node that is filled one and a half times offers a place whenever a Pod leaves",
        "tests/core/test_measured_model.py",
    ),
    Mutation(
        "carico_agent/core/workloads.py",
        "past[0] = min(past[0], 1.0)",
        "pass",
        "a new version that costs twice as much is believed after half an hour",
        "tests/core/test_workloads.py",
    ),
    Mutation(
        "carico_agent/core/workloads.py",
        "self.past[i] = [0.0, 0.0, 0.0]",
        "pass",
        "Pods that left before they had work make their workload cheap for minutes",
        "tests/core/test_workloads.py",
    ),
    Mutation(
        "carico_agent/extender/placement/placer.py",
        ">= self._max_nodes_per_pod:",
        "> 1000 * self._max_nodes_per_pod:",
        "one waiting Pod closes the whole cluster",
        "tests/extender/test_admission.py",
    ),
    Mutation(
        "carico_agent/lib/net/handshake.py",
        "max_size = RECORD_BYTES",
        "max_size = 16 * RECORD_BYTES",
        "an idle TLS connection takes a quarter of a megabyte",
        "tests/lib/net/test_connections.py",
    ),
    Mutation(
        "carico_agent/federation/wire_workloads.py",
        "row.nodes >= MIN_REPORTERS",
        "row.nodes >= 1",
        "the only reporter of a workload decides what it costs everywhere",
        "tests/federation/test_few_reporters.py",
    ),
    Mutation(
        "carico_agent/node/publish/throttle.py",
        "return max(published, 1, floor(",
        "return max(published, floor(",
        "an empty node that fits one Pod stays closed",
        "tests/node/publish/test_throttle.py",
    ),
    Mutation(
        "carico_agent/node/pods/tree.py",
        "                    if self._is_trusted(entry):",
        "                    if True:",
        "a local user closes the node with empty folders",
        "tests/node/pods/test_tree.py",
    ),
    Mutation(
        "carico_agent/lib/kube/leader.py",
        "return boottime_s() < self._renewed_s",
        "return __import__('time').monotonic() < self._renewed_s",
        "a leader that was suspended goes on placing Pods beside the next one",
        "tests/extender/placement/test_suspend.py",
    ),
)


def page() -> str:
    """docs/development/mutations.md."""
    rows = [f"| {n} | `{m.path}` | {m.harm} | `{m.test}` |" for n, m in enumerate(MUTATIONS, 1)]
    return "\n".join(
        [
            "# What the tests would notice",
            "",
            "After this page you can tell which defects the tests notice, and add a row for another one. Each row is",
            "one defect: `make mutations` puts it into a copy of the tree, and the named test must fail then (minutes;",
            "not part of `make test`). `python -m tests.mutations 3` tries only the third. `tests/mutations.py` has",
            "the changed lines and prints this page (`python -m tests.mutations --page`).",
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


def environment() -> dict[str, str]:
    return {"CARICO_LIVES": "200", **os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def runs(tree: Path, test: str) -> int:
    """pytest's exit code in that tree, whose packages come first: it is the working directory."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    try:
        return subprocess.run(
            command, cwd=tree, env=environment(), stdout=subprocess.DEVNULL, timeout=LONGEST_S
        ).returncode
    except subprocess.TimeoutExpired:
        return HUNG


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
