"""Topology and counters from a fake root."""

from carico_agent.node.plugin_host.facts import read_facts, read_file
from carico_agent.plugin_api import Cpu, Stall, read_usage


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def test_two_sockets_with_threads(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-7")
    put(tmp_path, "proc/meminfo", "MemTotal:       16384 kB\nSwapTotal:       2048 kB")
    for node in (0, 1):
        put(tmp_path, f"sys/devices/system/node/node{node}/cpulist", "0-1,4-5" if node == 0 else "2-3,6-7")
    for cpu in range(8):
        base, socket = f"sys/devices/system/cpu/cpu{cpu}", "0-1,4-5" if cpu % 4 < 2 else "2-3,6-7"
        put(tmp_path, f"{base}/topology/package_cpus_list", socket)
        put(tmp_path, f"{base}/topology/core_cpus_list", f"{cpu % 4},{cpu % 4 + 4}")
        put(tmp_path, f"{base}/cache/index3/shared_cpu_list", socket)
    facts = read_facts(tmp_path)
    assert (facts.cores, facts.memory_total_bytes, facts.swap_total_bytes) == (8, 16 << 20, 2 << 20)
    assert facts.topology[6] == Cpu(cpu=6, core=2, l3=2, numa=1, socket=2)


def test_a_machine_that_tells_nothing_is_flat(tmp_path):
    put(tmp_path, "sys/devices/system/cpu/online", "0-1")
    assert read_facts(tmp_path).topology == (Cpu(0, 0, 0, 0, 0), Cpu(1, 1, 0, 0, 0))


def test_this_machine():
    facts = read_facts()
    assert facts.cores >= 1 and facts.memory_total_bytes > 0 and len({c.cpu for c in facts.topology}) == facts.cores


def test_usage_unknown_is_none(tmp_path):
    put(tmp_path, "cpu.stat", "usage_usec 10\nuser_usec 5")
    put(tmp_path, "memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 total=3")
    usage = read_usage(read_file, str(tmp_path), 0.0)
    assert (usage.cpu_usage_usec, usage.nr_throttled, usage.memory_current) == (10, None, None)
    assert usage.pressure == {"memory": Stall(5, 3)}
    assert read_usage(read_file, "/nowhere", 0.0).cpu_usage_usec is None
