"""Runs inside a virtual machine with systemd, python3 and pip only: a new user's first minutes, and the service.

/payload holds the wheel and what it needs (the guest has no network). Prints a line per check; the last one is
RESULT PASSED or RESULT FAILED.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

CARICO = "/opt/carico/bin/carico"
UNIT = "carico-agent.service"
failed = []


def check(name, ok, detail=""):
    said = str(detail).strip()[-300:]
    print(f"{time.monotonic():4.0f} s  {'ok    ' if ok else 'NOT OK'} {name}  [{said}]", flush=True)
    if not ok:
        failed.append(name)


def sh(command, timeout=300):
    done = subprocess.run(command, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=timeout)
    return done.returncode, done.stdout + done.stderr


def until(wanted, timeout_s=180):
    """Wait for a command to succeed; its last output."""
    end_s = time.monotonic() + timeout_s
    while True:
        code, said = sh(wanted)
        if code == 0 or time.monotonic() > end_s:
            return code == 0, said
        time.sleep(0.5)


def pid():
    return sh(f"systemctl show -p MainPID --value {UNIT}")[1].strip()


def field(name):
    lines = Path(f"/proc/{pid()}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name + ":"))


def first_minutes():
    code, said = sh("python3 -m venv /opt/carico && /opt/carico/bin/pip install -q --no-index --find-links "
                    "/payload/wheels /payload/*.whl", 1500)
    check("one command installs", code == 0, said)
    agent = subprocess.Popen([CARICO, "agent"], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    ok, said = until(f"{CARICO} status")
    check("the second prints a number", ok and "room for" in said, said.splitlines()[0] if said else "")
    code, said = sh(f"{CARICO} doctor")
    check("doctor is content", code == 0, said)
    agent.terminate()
    agent.wait(60)


def service():
    code, said = sh(f"{CARICO} install --systemd")
    check("one command more makes a service", code == 0, said)
    ok, said = until(f"{CARICO} status")
    check("the service answers", ok and "room for" in said, said.splitlines()[0] if said else "")
    check("as a user of its own", Path(f"/proc/{pid()}").owner() == "carico")
    check("without capabilities", int(field("CapEff"), 16) == 0 and int(field("CapBnd"), 16) == 0, field("CapEff"))
    check("with no new privileges, under seccomp", field("NoNewPrivs") == "1" and field("Seccomp") == "2")
    classes = [os.sched_getscheduler(int(task)) & ~os.SCHED_RESET_ON_FORK for task in os.listdir(f"/proc/{pid()}/task")]
    check("one thread samples in real time, the others do not",
          classes.count(os.SCHED_RR) == 1 and classes.count(os.SCHED_OTHER) == len(classes) - 1, classes)
    code, said = sh("systemctl show -p CPUQuotaPerSecUSec,MemoryMax,WatchdogUSec,NRestarts " + UNIT)
    check("limited and watched", "500ms" in said and "WatchdogUSec=30s" in said and "NRestarts=0" in said, said)
    code, said = sh(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    check("exposure at most 2.0", code == 0 and float(said.split(":")[1].split()[0]) <= 2.0, said)
    code, said = sh("stat -c '%U:%G %a' /run/carico/agent.sock")
    check("the socket is the group's", said.strip() == "carico:carico 660", said)
    sh("useradd -m -G carico friend; useradd -m stranger")
    check("the group may ask", sh(f"su friend -c '{CARICO} status'")[0] == 0, sh(f"su friend -c '{CARICO} status'")[1])
    check("others may not", sh(f"su stranger -c '{CARICO} status'")[0] == 1)
    Path("/tmp/reload.py").write_text("from carico_agent.client import Agent; Agent().request('POST', '/v1/reload')")
    code, said = sh("su friend -c '/opt/carico/bin/python /tmp/reload.py'")
    check("but not change the process", "root and the agent's own user only, not for uid 1000" in said, said)


def upkeep():
    sh("sed -i 's/^ttl_s = .*/ttl_s = 9.0/; s/^# ttl_s = .*/ttl_s = 9.0/' /etc/carico/config.toml")
    config = Path("/etc/carico/config.toml").read_text()
    sh(f"systemctl reload {UNIT}")
    ok, said = until(f"journalctl -u {UNIT} | grep 'read again'", 60)
    check("reload takes over", ok and "socket.ttl_s: 5.0 → 9.0" in said, said)
    Path("/etc/carico/config.toml").write_text(config + "\n[nonsense]\n")
    sh(f"systemctl reload {UNIT}")
    check("a broken file changes nothing", until(f"journalctl -u {UNIT} | grep 'the old one stays'", 60)[0])
    Path("/etc/carico/config.toml").write_text(config)
    before = pid()
    os.kill(int(before), 9)
    ok, said = until(f"test $(systemctl show -p MainPID --value {UNIT}) -gt 0 && "
                     f"test $(systemctl show -p MainPID --value {UNIT}) != {before} && {CARICO} status")
    check("killed, it comes back", ok, said)
    before = pid()
    os.kill(int(before), 19)
    ok, said = until(f"test $(systemctl show -p MainPID --value {UNIT}) -gt 0 && "
                     f"test $(systemctl show -p MainPID --value {UNIT}) != {before} && {CARICO} status")
    check("frozen, the watchdog brings it back", ok, said)
    sh(f"systemctl stop {UNIT}")
    check("what was learned is kept", Path("/var/lib/carico/model.json").exists(), sh("ls -la /var/lib/carico/")[1])


def variants():
    code, said = sh(f"{CARICO} install --systemd --tuning --containerd")
    ok, status = until(f"{CARICO} status")
    check("the tuning variant runs", code == 0 and ok, said + status)
    check("with one capability", int(field("CapEff"), 16) == 2 and int(field("CapBnd"), 16) == 2, field("CapEff"))
    code, said = sh(f"nsenter -t {pid()} -m -- findmnt -no OPTIONS /sys/fs/cgroup")
    check("cgroups are writable in its view", said.startswith("rw"), said)
    if Path("/run/containerd/containerd.sock").exists():
        ok, said = until(f"{CARICO} status | grep 'containerd 1'", 60)
        check("containerd is heard", ok, said)
    sh(f"systemctl stop {UNIT}")
    code, said = sh(f"journalctl -u {UNIT} | tail -20")
    check("and what it changed is put back after it", "nothing to put back" in said, said)
    code, said = sh("cp -a /opt/carico /root/carico && sed -i 's|/opt/carico|/root/carico|g' /root/carico/bin/carico "
                    "&& /root/carico/bin/carico install --systemd")
    ok, status = until("/root/carico/bin/carico status")
    check("it runs from below a home folder", code == 0 and ok, said + status)
    seen = sh(f"nsenter -t {pid()} -m -- ls /root")[1].split()
    check("which it otherwise does not see", seen == ["carico"], seen)
    code, said = sh("/root/carico/bin/carico uninstall --purge")
    check("uninstall leaves nothing", code == 0 and sh("find /etc -name 'carico*'")[1].strip() == ""
          and not Path("/var/lib/carico").exists() and sh(f"systemctl is-active {UNIT}")[0] != 0, said)


def main():
    for part in (first_minutes, service, upkeep, variants):
        try:
            part()
        except (OSError, ValueError, LookupError, StopIteration, subprocess.SubprocessError) as error:
            check(part.__name__, False, repr(error))
    if failed:
        print(sh(f"journalctl -u {UNIT} | tail -40")[1])
    print("RESULT FAILED: " + ", ".join(failed) if failed else "RESULT PASSED", flush=True)
    return bool(failed)


if __name__ == "__main__":  # never by an import: it installs and removes a service
    sys.exit(main())
