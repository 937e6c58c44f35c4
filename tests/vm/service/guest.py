"""Runs inside a virtual machine with systemd, python3 and pip only: a new user's first minutes, and the service.

/payload holds the wheel and what it needs: the guest has no network, so pip looks there (--no-index) and not
at PyPI; and it does not compile, which takes minutes in an emulated machine. Prints a line per check; the last one is
RESULT PASSED or RESULT FAILED.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

CARICO = "/opt/carico/bin/carico"
UNIT = "carico-agent.service"
SOCKET = "/run/carico/agent.sock"
CONFIG = Path("/etc/carico/config.toml")
LEARNED = Path("/var/lib/carico")
PODS = Path("/sys/fs/cgroup/kubepods.slice")
POD = PODS / "kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice"
"""A Pod by the name of its cgroup: the service without rights on containerd's socket finds it there."""
HIGH = 24 << 20
"""memory.high of that Pod: halfway between the request of 8 Mi and the limit of 40 Mi given to memory_qos below."""
TUNING = """
[plugins]
enabled = ["memory_qos"]
dry_run = false
[plugins.settings.memory_qos]
requests = { "*" = "8Mi" }
limits = { "*" = "40Mi" }
factor = 0.5
force_without_swap = true
"""
failed = []


def check(name, ok, detail=""):
    result = " / ".join(str(detail).strip()[-300:].splitlines())
    print(f"{time.monotonic():4.0f} s  {'ok    ' if ok else 'NOT OK'} {name}  [{result}]", flush=True)
    if not ok:
        failed.append(name)


def sh(command, timeout=600):
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout
    )
    return done.returncode, done.stdout + done.stderr


def until(test, timeout_s=300):
    """Wait until it is true; what it was at last. The bound is generous: an emulated machine is slow."""
    end_s = time.monotonic() + timeout_s
    while not (found := test()) and time.monotonic() < end_s:
        time.sleep(0.1)
    return found


class Local(http.client.HTTPConnection):
    """HTTP over the agent's unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(SOCKET)


def ask(path="/v1/status"):
    """The agent's answer, or {} while it has none. Not the command: that takes seconds to start here."""
    agent = Local("agent")
    try:
        agent.request("GET", path)
        return json.loads(agent.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    finally:
        agent.close()


def answers():
    return until(lambda: ask().get("sequence", 0) >= 1)


def pid():
    return int(sh(f"systemctl show -p MainPID --value {UNIT}")[1])


def another(before):
    """Wait for another main process than `before`, and for its first number."""
    return until(lambda: pid() not in (0, before)) and answers()


def logged(text):
    """Wait for a line of the service in the journal."""
    return until(lambda: sh(f"journalctl -u {UNIT} -o cat | grep -F -- '{text}'")[1].strip(), 120)


def field(name):
    lines = Path(f"/proc/{pid()}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))


def first_minutes():
    """Two commands from nothing to a number: install, and start."""
    code, result = sh(
        "python3 -m venv /opt/carico && PIP_NO_COMPILE=1 /opt/carico/bin/pip install -q --no-index "
        "--find-links /payload/wheels /payload/carico_agent-*.whl",
        1500,
    )
    check("one command installs", code == 0, result)
    terminal = {name: value for name, value in os.environ.items() if name != "INVOCATION_ID"}  # systemd's, not a user's
    agent = subprocess.Popen(
        [CARICO, "agent"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=terminal
    )
    try:
        check("the second answers", answers())
        code, result = sh(f"{CARICO} status")
        check("`carico status` prints a number", code == 0 and "Pod-Capacity" in result, result.splitlines()[:1])
        code, result = sh(f"{CARICO} doctor")
        check("`carico doctor` is content", code == 0, result)
    finally:
        agent.terminate()
        result = agent.communicate(timeout=120)[0]
    check(
        "it ends by SIGTERM, and printed a line a second",
        agent.returncode == 0 and "Pod-Capacity" in result,
        result.splitlines()[-1:],
    )


def service():
    """One command more: a hardened service."""
    code, result = sh(f"{CARICO} install --systemd")
    check("one command makes a service", code == 0, result)
    check("the service answers", answers(), ask().get("pod_capacity"))
    main = pid()
    check("as a user of its own", Path(f"/proc/{main}").owner() == "carico", Path(f"/proc/{main}").owner())
    check("without capabilities", int(field("CapEff"), 16) == 0 and int(field("CapBnd"), 16) == 0, field("CapEff"))
    check("with no new privileges, under seccomp", field("NoNewPrivs") == "1" and field("Seccomp") == "2")
    classes = [os.sched_getscheduler(int(task)) & ~os.SCHED_RESET_ON_FORK for task in os.listdir(f"/proc/{main}/task")]
    check(
        "one thread samples in real time, the others do not",
        classes.count(os.SCHED_RR) == 1 and classes.count(os.SCHED_OTHER) == len(classes) - 1,
        classes,
    )
    code, result = sh("systemctl show -p CPUQuotaPerSecUSec,MemoryMax,WatchdogUSec,NRestarts " + UNIT)
    check(
        "limited and watched",
        "CPUQuotaPerSecUSec=500ms" in result
        and "MemoryMax=167772160" in result
        and "WatchdogUSec=30s" in result
        and "NRestarts=0" in result,
        result,
    )
    code, result = sh(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    check("exposure at most 1.5", code == 0 and float(result.split(":")[1].split()[0]) <= 1.5, result)


def rights():
    code, result = sh(f"stat -c '%U:%G %a' {SOCKET}")
    check("the socket is the group's", result.strip() == "carico:carico 660", result)
    sh("useradd -m -G carico friend; useradd -m other")
    code, result = sh(f"su friend -c '{CARICO} status'")
    check("the group may ask", code == 0 and "Pod-Capacity" in result, result.splitlines()[:1])
    check("others may not", sh(f"su other -c '{CARICO} status'")[0] == 1)
    Path("/tmp/reload.py").write_text(
        "from carico_agent.client import AgentClient; AgentClient().request('POST', '/v1/reload')"
    )
    code, result = sh("su friend -c '/opt/carico/bin/python /tmp/reload.py'")
    check("but not change the process", "root and the agent's own user only, not for uid 1000" in result, result)


def reloads():
    before, config = pid(), CONFIG.read_text()
    head, mark, rest = config.partition("[socket]")
    CONFIG.write_text(head + mark + rest.replace("\nttl_s = 5.0\n", "\nttl_s = 9.0\n", 1))
    sh(f"systemctl reload {UNIT}")
    result = logged("configuration read again")
    check(
        "SIGHUP: the new configuration is taken over, by the next number",
        "socket.ttl_s: 5.0 → 9.0" in result and until(lambda: ask().get("ttl_s") == 9, 60),
        result,
    )
    CONFIG.write_text(config + "\n[nonsense]\n")
    sh(f"systemctl reload {UNIT}")
    result = logged("the old one stays")
    check("a broken one changes nothing", "nonsense" in result and ask()["ttl_s"] == 9 and pid() == before, result)
    CONFIG.write_text(config)


def pod(*command):
    """A Pod as the kernel sees one: a cgroup of the kubelet's name with a process in it."""
    POD.mkdir(parents=True, exist_ok=True)
    for folder in (PODS.parent, PODS):
        (folder / "cgroup.subtree_control").write_text("+cpu +memory")
    return subprocess.Popen(command, preexec_fn=lambda: (POD / "cgroup.procs").write_text(str(os.getpid())))


def end(process):
    process.kill()
    process.wait()
    until(lambda: not (POD / "cgroup.procs").read_text())
    POD.rmdir()


def measured_for(numbers, seen):
    """Wait until so many numbers in a row were measured ones, with one Pod; the last status, or None. `seen` gets a
    word about each number."""
    first, end_s = 0, time.monotonic() + 300
    while time.monotonic() < end_s:
        status = ask()
        if status:
            seen[status["sequence"]] = f"{status['mode']} {status['pods']} {status['usage']} {status['sampling']}"
        if status.get("mode") != "measured" or status["pods"] != 1:
            first = 0
        elif status["sequence"] - (first := first or status["sequence"]) >= numbers:
            return status
        time.sleep(0.2)
    return None


def learns_and_resumes():
    # What the checks before this one have stirred up would pass for the node's own usage, and the Pod for a free one.
    time.sleep(30)
    busy = pod("python3", "-c", "while True: pass")
    seen = {}
    status = measured_for(3, seen)
    check(
        "with a busy Pod it learns: mode measured, three times in a row",
        status,
        f"{status['pod_capacity']} Pods, a Pod takes {status['cost_vector']}" if status else list(seen.items())[-3:],
    )
    before = pid()
    sh(f"systemctl stop {UNIT}")
    check(
        "what was learned is kept, for its user only",
        sh(f"stat -c '%U %a' {LEARNED}/model.json")[1].strip() == "carico 600",
        sh(f"ls -la {LEARNED}")[1],
    )
    sh(f"systemctl start --no-block {UNIT}")
    until(lambda: os.path.exists(SOCKET))
    there_s, seen = time.monotonic(), {}

    def measured():
        status = ask()
        if "mode" in status:
            seen.setdefault(status["sequence"], f"{time.monotonic() - there_s:.1f} s: {status['mode']}")
        return status.get("mode") == "measured"

    resumed, took_s = until(measured), time.monotonic() - there_s
    # Numbers come once a second: by the second one. The emulator may take longer to answer the first request.
    check(
        "a restart resumes in measured mode within 2 s",
        resumed and pid() != before and (took_s <= 2 or max(seen) <= 2),
        seen,
    )
    end(busy)


def comes_back():
    before = pid()
    os.kill(before, 9)
    check("killed, it comes back", another(before), f"{before} → {pid()}")
    before, frozen_s = pid(), time.monotonic()
    os.kill(before, 19)
    back = another(before)
    check(
        "frozen, the watchdog brings it back",
        back and logged("Watchdog timeout"),
        f"{before} → {pid()} after {time.monotonic() - frozen_s:.0f} s",
    )


def high():
    return (POD / "memory.high").read_text().strip()


def tuning():
    CONFIG.write_text(TUNING)
    code, result = sh(f"{CARICO} install --systemd --tuning --containerd")
    check("the tuning variant runs", code == 0 and answers(), result)
    check(
        "with one capability, as its own user",
        int(field("CapEff"), 16) == 2 and int(field("CapBnd"), 16) == 2 and Path(f"/proc/{pid()}").owner() == "carico",
        field("CapEff"),
    )
    code, result = sh(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    check("exposure at most 2.0 with both", code == 0 and float(result.split(":")[1].split()[0]) <= 2.0, result)
    seen = until(lambda: "containerd 1" in ask().get("runtime", ""), 120)
    check("containerd is watched", seen, ask().get("runtime"))
    CONFIG.write_text(TUNING + "[containerd]\nenabled = false\n")  # the Pod below is the tree's, not containerd's
    code, result = sh(f"{CARICO} install --systemd --tuning")
    seen = sh(f"nsenter -t {pid()} -m -- ls /run/containerd /run/dbus")[1].split()
    hidden = code == 0 and answers() and "containerd.sock" not in seen and "system_bus_socket" not in seen
    check("with --tuning alone it does not see the sockets that are as much as root", hidden, seen)
    code, result = sh(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    check("exposure at most 1.9 then", code == 0 and float(result.split(":")[1].split()[0]) <= 1.9, result)
    quiet = pod("sleep", "9999")
    check("a plugin writes to a cgroup", until(lambda: high() == str(HIGH)), high())
    before = pid()
    os.kill(before, 9)
    check("killed: ExecStopPost=carico restore puts the old value back", until(lambda: high() == "max", 120), high())
    check("and says so", logged("memory.high: restored"), logged("memory.high"))
    check("back again, it is written again", another(before) and until(lambda: high() == str(HIGH)), high())
    sh(f"systemctl stop {UNIT}")
    check("stopped: the old value is back", high() == "max", high())
    end(quiet)


def home_and_away():
    CONFIG.unlink()
    code, result = sh(
        "cp -a /opt/carico /root/carico && sed -i 's|/opt/carico|/root/carico|g' /root/carico/bin/carico "
        "&& /root/carico/bin/carico install --systemd"
    )
    check("it runs from below a home folder", code == 0 and answers(), result)
    seen = sh(f"nsenter -t {pid()} -m -- ls /root")[1].split()
    check("which it otherwise does not see", seen == ["carico"], seen)
    sh("systemctl start carico-aggregator.service")
    state = Path("/var/lib/carico-aggregator")
    learned = until(lambda: state.is_symlink() and state.resolve().is_dir(), 60)
    check("an aggregator keeps its state as a user that systemd makes up", learned, state.resolve())
    code, result = sh("/root/carico/bin/carico uninstall --purge")
    left = sh("find /etc /run /var/lib /usr/lib/systemd -name 'carico*'")[1].split()
    running = [unit for unit in (UNIT, "carico-aggregator.service") if sh(f"systemctl is-active {unit}")[0] == 0]
    check("uninstall leaves nothing", code == 0 and not left and not running, f"{left} {running} {result}")
    check("nor the user", sh("getent passwd carico")[0] == 2, sh("getent passwd carico; getent group carico")[1])
    sh("rm -r /root/carico")


def main():
    for part in (first_minutes, service, rights, reloads, learns_and_resumes, comes_back, tuning, home_and_away):
        try:
            part()
        except (OSError, ValueError, LookupError, StopIteration, subprocess.SubprocessError) as error:
            check(part.__name__, False, repr(error))
    if failed:
        print(sh(f"journalctl -u {UNIT} | tail -60")[1])
    print("RESULT FAILED: " + ", ".join(failed) if failed else "RESULT PASSED", flush=True)
    return bool(failed)


if __name__ == "__main__":  # never by an import: it installs and removes a service
    sys.exit(main())
