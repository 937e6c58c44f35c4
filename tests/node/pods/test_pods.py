"""The Pod table: rules, and that any interleaving of events and a snapshot ends at the truth."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico_agent.node.pods.pods import (
    CONTAINER_NAME,
    CRI_ROLE,
    POD_NAME,
    POD_NAMESPACE,
    POD_UID,
    Container,
    PodChange,
    PodTable,
    Selector,
    Snapshot,
    Task,
    TaskStatus,
)


def cri(workload: str, uid: str, name: str = "web", namespace: str = "prod", container: str = "") -> dict[str, str]:
    labels = {CRI_ROLE: workload, POD_UID: uid, POD_NAME: name, POD_NAMESPACE: namespace}
    return {**labels, CONTAINER_NAME: container} if container else labels


def feed(table: PodTable, *lines: str, namespace: str = "default") -> None:
    """`create a`, `start a 7`, `exit a 7`, `exit a 9 exec-1`, …"""
    for line in lines:
        verb, name, *rest = line.split()
        topic = f"/containers/{verb}" if verb in ("create", "delete") else f"/tasks/{verb.removeprefix('task-')}"
        table.apply(
            PodChange(
                topic,
                (namespace, name),
                100.0,
                int(rest[0]) if rest else 0,
                rest[1] if len(rest) > 1 else "",
                {} if verb == "create" else None,
            )
        )


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["create a"], 0),  # a container without a task
        (["create a", "task-create a 7"], 0),
        (["create a", "task-create a 7", "start a 7"], 1),
        (["create a", "start a 7", "exit a 7 a"], 0),  # some shims name the container as the process
        (["create a", "start a 7", "exit a 9 probe-1"], 1),  # the end of an exec is not the end
        (["create a", "start a 7", "task-delete a 9 probe-1"], 1),
        (["create a", "start a 7", "paused a"], 1),
        (["create a", "start a 7", "paused a", "resumed a"], 1),
        (["create a", "start a 7", "exit a 7", "resumed a"], 0),
        (["create a", "start a 7", "start a 7"], 1),  # reported twice
        (["create a", "task-create a 7", "exit a 7", "start a 7"], 0),  # a retried start after its exit
        (["create a", "start a 7", "exit a 7", "task-delete a 7", "delete a", "create a", "start a 8"], 1),
        (["create a", "start a 8", "exit a 7", "task-delete a 7"], 1),  # late news of an earlier life
        (["exit a 7", "delete a", "paused a"], 0),
        (["create a", "start a 7", "create b", "start b 8", "exit a 7"], 1),
    ],
)
def test_counts(lines, count):
    table = PodTable()
    feed(table, *lines)
    assert table.count == len(table.pods) == count


def test_execs_come_and_go_without_a_doubt():
    table = PodTable()
    feed(table, "create a", "task-create a 7", "start a 7")
    feed(table, "exec-started a 9 probe", "exit a 9 probe", "exit a 7 probe")
    assert (table.count, table.doubtful) == (1, False)


def test_unexplained_events_raise_a_doubt():
    for lines in (
        ["create a", "start a 7"],
        ["create a", "task-create a 8", "start a 8", "exit a 7"],
        ["create a", "task-create a 8", "start a 8", "delete a"],
    ):
        table = PodTable()
        feed(table, *lines)
        assert table.doubtful, lines
    table.close_snapshot(Snapshot())
    assert not table.doubtful


def test_a_kubernetes_pod_is_its_sandbox():
    table = PodTable()
    for name, labels in (("s1", cri("sandbox", "u1")), ("c1", cri("container", "u1", container="app"))):
        table.apply(PodChange("/containers/create", ("k8s.io", name), labels=labels))
    feed(table, "task-create s1 10", "start s1 10", namespace="k8s.io")
    assert table.count == 1
    feed(table, "task-create c1 11", "start c1 11", namespace="k8s.io")
    pod = table.pods["u1"]
    assert (table.count, pod.name, pod.namespace, pod.uid, pod.started_s) == (1, "web", "prod", "u1", 100.0)
    assert [(m.id, m.name, m.pid, m.sandbox) for m in pod.containers] == [
        ("s1", "s1", 10, True),
        ("c1", "app", 11, False),
    ]
    feed(table, "exit c1 11", namespace="k8s.io")
    assert table.count == 1, "its container ended, the Pod did not"
    feed(table, "exit s1 10", namespace="k8s.io")
    assert (table.count, dict(table.pods)) == (0, {})


def test_a_pod_that_gets_a_new_sandbox_is_one_pod():
    table = PodTable()
    for name in ("s1", "s2"):
        table.apply(PodChange("/containers/create", ("k8s.io", name), labels=cri("sandbox", "u1")))
    feed(table, "start s1 10", "exit s1 10", "start s2 20", namespace="k8s.io")
    assert table.count == 1
    feed(table, "delete s1", namespace="k8s.io")
    assert table.count == 1


def test_without_a_sandbox_record_the_containers_stand_for_the_pod():
    table = PodTable()
    for name in ("c1", "c2"):
        table.apply(PodChange("/containers/create", ("k8s.io", name), labels=cri("container", "u1")))
    feed(table, "start c1 10", "start c2 11", namespace="k8s.io")
    assert table.count == 1


def test_a_task_counts_only_once_its_labels_are_known():
    table, ref = PodTable(), ("k8s.io", "c1")
    table.apply(PodChange("/containers/create", ref))
    feed(table, "start c1 10", namespace="k8s.io")
    assert (table.count, table.nameless()) == (0, [ref])
    table.learn(ref, Container({}))
    assert (table.count, table.nameless()) == (1, [])
    table.learn(("k8s.io", "gone"), Container({}))
    assert table.count == 1


def test_labels_learned_during_a_listing_are_kept():
    table, ref = PodTable(), ("default", "a")
    table.open_snapshot()
    table.apply(PodChange("/containers/create", ref))
    table.learn(ref, Container({}))
    feed(table, "task-create a 7", "start a 7")
    table.close_snapshot(Snapshot())  # listed before it was created
    assert (table.count, table.nameless()) == (1, [])


def test_an_update_may_change_the_pod():
    table = PodTable()
    feed(table, "create a", "start a 7")
    table.apply(PodChange("/containers/update", ("default", "a"), labels=cri("sandbox", "u1")))
    assert list(table.pods) == ["u1"]


def test_selectors():
    table = PodTable(Selector(skip_namespaces=("kube-*",), skip_names=("exporter-?",)))
    for name, labels in (
        ("s1", cri("sandbox", "u1", "dns", "kube-system")),
        ("s2", cri("sandbox", "u2", "exporter-1")),
        ("s3", cri("sandbox", "u3")),
    ):
        table.apply(PodChange("/containers/create", ("k8s.io", name), labels=labels))
        table.apply(PodChange("/tasks/start", ("k8s.io", name), pid=hash(name) % 1000 + 2))
    assert (table.count, len(table.pods)) == (1, 3)
    assert [key for key, pod in table.pods.items() if pod.counts] == ["u3"]


def test_place_and_start_time_survive_events_and_snapshots():
    table = PodTable()
    feed(table, "create a", "start a 7")
    table.place("default/a", "/x/a", 42)
    feed(table, "paused a", "create b", "start b 8")
    table.close_snapshot(Snapshot({("default", "a"): Container({})}, {("default", "a"): Task(7, TaskStatus.PAUSED)}))
    pod = table.pods["default/a"]
    assert (pod.cgroup, pod.inode, pod.started_s, pod.containers[0].paused) == ("/x/a", 42, 100.0, True)
    table.close_snapshot(Snapshot({("default", "a"): Container({})}, {("default", "a"): Task(9, TaskStatus.RUNNING)}))
    assert table.pods["default/a"].inode == 0, "another process is another life"


class Truth:
    """A containerd that never lies: runs scripts of container lives and writes down the events."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.pid, self.events = rng, 100, []
        self.containers, self.tasks = {}, {}

    def step(self) -> None:
        ref = ("k8s.io", self.rng.choice("abcd"))
        self.rng.choice([self._forward, self._forward, self._noise])(ref)

    def _say(self, topic, ref, **more):
        self.events.append(PodChange(topic, ref, **more))

    def _forward(self, ref):
        task = self.tasks.get(ref)
        if ref not in self.containers:
            workload = self.rng.choice(
                [{}, cri("sandbox", self.rng.choice("xy")), cri("container", self.rng.choice("xy"))]
            )
            self.containers[ref] = Container(workload)
            self._say("/containers/create", ref, labels=workload)
        elif task is None and self.rng.random() < 0.3:
            del self.containers[ref]
            self._say("/containers/delete", ref)
        elif task is None:
            self.pid += 1
            self.tasks[ref] = Task(self.pid, TaskStatus.CREATED)
            self._say("/tasks/create", ref, pid=self.pid)
        elif task.status is TaskStatus.CREATED:
            self.tasks[ref] = Task(task.pid, TaskStatus.RUNNING)
            self._say("/tasks/start", ref, pid=task.pid)
        elif task.status is TaskStatus.STOPPED:
            del self.tasks[ref]
            self._say("/tasks/delete", ref, pid=task.pid)
        else:
            self.tasks[ref] = Task(task.pid, TaskStatus.STOPPED)
            self._say("/tasks/exit", ref, pid=task.pid, process=ref[1])

    def _noise(self, ref):
        task = self.tasks.get(ref)
        if task is None or task.status not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
            return
        if self.rng.random() < 0.5:
            self._say("/tasks/exit", ref, pid=task.pid + 50_000, process="probe")
            return
        paused = task.status is TaskStatus.PAUSED
        self.tasks[ref] = Task(task.pid, TaskStatus.RUNNING if paused else TaskStatus.PAUSED)
        self._say("/tasks/resumed" if paused else "/tasks/paused", ref)


def view(table: PodTable):
    return table.count, {key: (pod.name, pod.containers) for key, pod in table.pods.items()}


@given(seed=st.integers(0, 2**32), before=st.integers(0, 60), during=st.integers(0, 60), lag=st.integers(0, 10))
def test_any_interleaving_ends_at_the_truth(seed, before, during, lag):
    """Events before the subscription are never seen; lists are taken, one key at a time, while events go on; the
    stream lags behind what the lists show by up to `lag` events; labels may come with the event or asked for."""
    rng = random.Random(seed)
    truth, table = Truth(rng), PodTable()
    for _ in range(before):
        truth.step()
    truth.events.clear()
    table.open_snapshot()
    containers, tasks, delivered = {}, {}, 0
    places = sorted(rng.randint(0, during) for _ in range(2))
    for step in range(during + 1):
        if step == places[0]:
            containers = dict(truth.containers)
        if step == places[1]:
            tasks = dict(truth.tasks)
        if step < during:
            truth.step()
        while delivered < len(truth.events) - rng.randint(0, lag):
            table.apply(truth.events[delivered])
            delivered += 1
    table.close_snapshot(Snapshot(containers, tasks))
    for change in truth.events[delivered:]:
        table.apply(change)
    oracle = PodTable()
    oracle.close_snapshot(Snapshot(truth.containers, truth.tasks))
    assert view(table) == view(oracle)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 120))
def test_events_alone_and_a_new_client_agree(seed, steps):
    truth, table = Truth(random.Random(seed)), PodTable()
    for _ in range(steps):
        truth.step()
    for change in truth.events:
        table.apply(change)
    oracle = PodTable()
    oracle.close_snapshot(Snapshot(truth.containers, truth.tasks))
    assert view(table) == view(oracle)
    table.close_snapshot(Snapshot(truth.containers, truth.tasks))
    assert view(table) == view(oracle)


def test_workload_and_daemon_come_from_labels_and_image():
    table = PodTable(node_name="n1")
    cri = {"io.cri-containerd.kind": "sandbox", "io.kubernetes.pod.uid": "u", "io.kubernetes.pod.namespace": "shop"}
    web = {**cri, "io.kubernetes.pod.name": "web-6c5d9b7f8d-x7k2p", "pod-template-hash": "6c5d9b7f8d"}
    etcd = {**cri, "io.kubernetes.pod.name": "etcd-n1", "io.kubernetes.pod.uid": "e"}
    containers = {
        ("k8s.io", "s1"): Container(web, "registry.k8s.io/pause:3.9"),
        ("k8s.io", "s2"): Container(etcd, "registry.k8s.io/pause:3.9"),
        ("default", "a"): Container({}, "docker.io/library/redis:7"),
    }
    table.open_snapshot()
    table.close_snapshot(
        Snapshot(containers, {ref: Task(n + 1, TaskStatus.RUNNING) for n, ref in enumerate(containers)})
    )
    assert {pod.workload: pod.per_node for pod in table.pods.values()} == {
        "shop/web": False,
        "shop/etcd": True,
        "default/redis": False,
    }
    table.apply(PodChange("/containers/update", ("default", "a"), labels={"carico.dev/workload": "cache"}))
    assert table.pods["default/a"].workload == "default/cache"
    table.apply(PodChange("/containers/update", ("default", "a"), labels={"x": "y"}))
    assert table.pods["default/a"].workload == "default/redis"
