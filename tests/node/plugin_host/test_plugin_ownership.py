"""Who owns a file: each known owner by the trace it leaves on a node."""

import pytest

from carico_agent.node.plugin_host.ownership import Ownership

PRIVILEGED = "Name:\tx\nCapEff:\t000001ffffffffff\n"
"""Of /proc/PID/status: the capabilities of every owner that we know."""


def node(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Ownership(root)


@pytest.mark.parametrize(
    ("files", "key", "who"),
    [
        ({"var/lib/kubelet/config.yaml": "featureGates:\n  MemoryQoS: true\n"}, "memory.high", "MemoryQoS"),
        ({"etc/kubernetes/kubelet/config.json": '{"featureGates": {"MemoryQoS": true}}'}, "memory.min", "MemoryQoS"),
        (
            {
                "proc/7/comm": "kubelet\n",
                "proc/7/cmdline": "kubelet\0--feature-gates=MemoryQoS=true\0",
                "proc/7/status": PRIVILEGED,
            },
            "memory.low",
            "7",
        ),
        (
            {"var/lib/kubelet/cpu_manager_state": '{"policyName":"static","defaultCpuSet":"0-3"}'},
            "cpuset.cpus",
            "static",
        ),
        ({"opt/nri/plugins/10-topology-aware": ""}, "cpuset.cpus", "NRI plugin 10-topology-aware"),
        ({"proc/9/comm": "koordlet\n", "proc/9/status": PRIVILEGED}, "cpu.max", "koordlet"),
        ({"proc/9/comm": "nri-resource-po\n", "proc/9/status": PRIVILEGED}, "cpuset.cpus", "nri-resource-po"),
        ({"proc/9/comm": "katalyst-agent\n", "proc/9/status": PRIVILEGED}, "memory.high", "katalyst-agent"),
    ],
)
def test_owners(tmp_path, files, key, who):
    result = node(tmp_path, files).owner_of(key)
    assert result is not None and who in result and key in result


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"var/lib/kubelet/config.yaml": "featureGates:\n  MemoryQoS: false\n"},
        {"var/lib/kubelet/cpu_manager_state": '{"policyName":"none"}'},
        {"var/lib/kubelet/cpu_manager_state": "torn{"},
        {"var/run/nri/nri.sock": ""},
        {"proc/9/comm": "bash\n", "proc/9/status": PRIVILEGED},
        # any user may call a process so: root in a container without privileges, and a user
        {"proc/9/comm": "koordlet\n", "proc/9/status": "CapEff:\t00000000a80425fb\n"},
        {"proc/9/comm": "koordlet\n", "proc/9/status": "CapEff:\t0000000000000000\n"},
        {"proc/7/comm": "kubelet\n", "proc/7/cmdline": "kubelet\0--feature-gates=MemoryQoS=true\0"},
    ],
)
def test_no_owner(tmp_path, files):
    ownership = node(tmp_path, files)
    assert [ownership.owner_of(key) for key in ("memory.high", "cpuset.cpus", "cpu.max")] == [None] * 3


def test_static_cpu_manager_leaves_memory_to_us(tmp_path):
    files = {"var/lib/kubelet/cpu_manager_state": '{"policyName":"static"}'}
    assert node(tmp_path, files).owner_of("memory.high") is None
