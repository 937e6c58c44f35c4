"""Builds what kube_versions.toml pins: `python -m lab.support.kube_build [NAME …]`; without a name, Kubernetes.

Each part is built in a module of its own that requires the pinned one with its own go.mod's versions and replacements.
Kubernetes replaces its staging modules by folders that are not in its module; they are published as v0.<minor>.<patch>,
so those are named instead. Every module is verified by Go: those in the part's go.sum by it, the others (and the part
itself) by the checksum database.

Why modules, and not a checkout or a release: `go` gets them from where this machine gets its modules, each is verified
without a key of ours, and no host is named here.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.support.go_toolchain import Go, toolchain
from lab.support.kube_versions import Part, cache_folder, go_version, kubernetes, part, parts

HEARTBEAT_S = 30.0
LOG_LINES = 25
START_TIMEOUT_S = 60.0


class BuildError(Exception):
    """Says what failed and where its log is."""


def built(name: str) -> Path:
    """The folder with the programs of this part, built now if they are not there yet."""
    one = part(name)
    if _complete(one):
        return one.bin
    with _locked(one):
        if not _complete(one):  # another process may have built it while this one waited
            _build(one, toolchain(go_version(), cache_folder() / "go"))
    return one.bin


def _complete(one: Part) -> bool:
    return not one.missing() and all(
        not other.missing() and _is_linked(other, one, program) for other, program in _beside(one)
    )


def _beside(one: Part) -> list[tuple[Part, str]]:
    return [(part(name), program) for name in one.beside for program in part(name).programs]


def _is_linked(other: Part, one: Part, program: str) -> bool:
    return (one.bin / program).exists() and (one.bin / program).samefile(other.bin / program)


@contextmanager
def _locked(one: Part) -> Iterator[None]:
    one.folder.mkdir(parents=True, exist_ok=True)
    with (one.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(one, "another process is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(one: Part, go: Go) -> None:
    if missing := one.missing():
        started_s = time.monotonic()
        work, log = one.folder / "module", one.folder / "build.log"
        shutil.rmtree(work, ignore_errors=True)
        (work / "out").mkdir(parents=True)
        log.write_text("")
        _say(one, f"{one.pin} with {go.version}: {', '.join(missing)}")
        _scratch_module(one, go, work, log)
        _compile(one, go, missing, work, log)
        for program in missing:
            _start(one, work / "out" / program)
        _keep(one, missing, work / "out")
        shutil.rmtree(work)
        _say(one, f"built in {time.monotonic() - started_s:.0f} s, in {one.bin}")
    for other, program in _beside(one):
        built(other.name)
        if not _is_linked(other, one, program):
            _link(other.bin / program, one.bin / program)


def _scratch_module(one: Part, go: Go, work: Path, log: Path) -> None:
    _say(one, "reading its module")
    where = json.loads(_output(go, work, log, "mod", "download", "-json", one.pin))
    source = Path(where["Dir"])
    module = json.loads(_output(go, work, log, "mod", "edit", "-json", str(source / "go.mod")))
    (work / "go.mod").write_text(go_mod(one, module))
    (work / "go.sum").write_bytes((source / "go.sum").read_bytes())


def go_mod(one: Part, module: dict[str, Any]) -> str:
    """The scratch module for a part whose own go.mod is `module` (as `go mod edit -json` prints it)."""
    staging = f"v0.{one.version.partition('.')[2]}"
    lines = ["module carico.dev/kube", "", f"go {module['Go']}", "", f"require {one.module} {one.version}"]
    for require in module.get("Require") or ():
        version = staging if require["Version"] == "v0.0.0" else require["Version"]
        lines.append(f"require {require['Path']} {version}")
    for replace in module.get("Replace") or ():
        old, new = replace["Old"], replace["New"]
        path, version = new["Path"], new.get("Version", "")
        if path.startswith("./staging/"):
            path, version = old["Path"], staging
        if version:  # the others are folders of the same repository, whose published version is required above
            lines.append(f"replace {old['Path']} {old.get('Version', '')} => {path} {version}")
    lines += [f"exclude {exclude['Path']} {exclude['Version']}" for exclude in module.get("Exclude") or ()]
    return "\n".join(lines) + "\n"


def linker_flags(one: Part) -> str:
    """Kubernetes says v0.0.0 without them, and clients then judge its age wrongly."""
    values = dict.fromkeys(one.stamp, one.version)
    if one.is_kubernetes:
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            major, minor = one.version.removeprefix("v").split(".")[:2]
            values |= {f"{package}.gitVersion": one.version, f"{package}.gitMajor": major}
            values |= {f"{package}.gitMinor": minor, f"{package}.gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def _compile(one: Part, go: Go, programs: list[str], work: Path, log: Path) -> None:
    """One `go build` per program; those that follow find what they share in Go's cache."""
    for index, program in enumerate(programs, 1):
        package = one.packages[one.programs.index(program)]
        path = one.module if package == "." else f"{one.module}/{package}"
        flags = ["-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", linker_flags(one)]
        command = go.command("build", *flags, "-o", str(work / "out" / program), path)
        started_s = time.monotonic()
        with log.open("ab") as output:
            environment = go.env() | {"CGO_ENABLED": "0", "GOWORK": "off"}
            process = subprocess.Popen(
                ["nice", *command], cwd=work, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            _watch(one, process, f"{program} ({index} of {len(programs)})")
        if process.returncode:
            ended = f"{program} does not build (go ended with {process.returncode})"
            raise BuildError(f"{one.name}: {ended}; the end of {log}:\n{_tail(log)}")
        _say(one, f"{program} ({index} of {len(programs)}) done after {time.monotonic() - started_s:.0f} s")


def _start(one: Part, program: Path) -> None:
    """A build counts when the program starts: the modules fit together, and it says the version that is pinned."""
    asked = one.asked.get(program.name, "--version")
    ran = subprocess.run(
        [program, *asked.split()], capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S
    )
    said = ran.stdout + ran.stderr
    if ran.returncode:
        raise BuildError(f"{one.name}: `{program.name} {asked}` ended with {ran.returncode}:\n{said[-2000:]}")
    if (one.stamp or one.is_kubernetes) and "version" in asked and one.version not in said:
        raise BuildError(f"{one.name}: `{program.name} {asked}` does not say {one.version}:\n{said[-2000:]}")


def _watch(one: Part, process: "subprocess.Popen[bytes]", what: str) -> None:
    started_s = time.monotonic()
    try:
        while True:
            try:
                process.wait(HEARTBEAT_S)
                return
            except subprocess.TimeoutExpired:
                _say(one, f"{what}: {time.monotonic() - started_s:.0f} s so far")
    finally:
        if process.poll() is None:  # the builder was interrupted
            process.terminate()
            process.wait()


def _keep(one: Part, programs: list[str], out: Path) -> None:
    """Into place in one step each: another process may be running the old one."""
    one.bin.mkdir(exist_ok=True)
    stamps = one.built()
    for program in programs:
        os.replace(out / program, one.bin / program)
        stamps[program] = one.pin
    fresh = one.folder / "built.json.new"
    fresh.write_text(json.dumps(stamps, indent=1, sort_keys=True) + "\n")
    os.replace(fresh, one.folder / "built.json")


def _link(source: Path, target: Path) -> None:
    fresh = target.with_name(f".{target.name}.new")
    fresh.unlink(missing_ok=True)
    os.link(source, fresh)
    os.replace(fresh, target)


def _output(go: Go, work: Path, log: Path, *arguments: str) -> str:
    environment = go.env() | {"GOWORK": "off"}
    ran = subprocess.run(go.command(*arguments), cwd=work, env=environment, capture_output=True, text=True, check=False)
    with log.open("a") as output:
        output.write(ran.stderr)
    if ran.returncode:  # `go mod download -json` says why on its standard output
        raise BuildError(
            f"go {' '.join(arguments[:2])} failed:\n{ran.stderr}{ran.stdout if '-json' in arguments else ''}"
        )
    return ran.stdout


def _tail(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("go: downloading")]
    return "\n".join(lines[-LOG_LINES:])


def _say(one: Part, text: str) -> None:
    print(f"kube: {one.name}: {text}", flush=True)


def main() -> None:
    known = ", ".join(parts())
    options = argparse.ArgumentParser(description="Build what kube_versions.toml pins, into the cache.")
    options.add_argument("name", nargs="*", help=f"one of {known}; without a name the Kubernetes of $KUBE")
    names = options.parse_args().name
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("kube: stopped"))  # so that `go` is stopped, too
    if not names and (given := os.environ.get("KUBEBUILDER_ASSETS")):
        print(f"kube: KUBEBUILDER_ASSETS={given} is used; nothing is built")
        return
    try:
        for name in names or [kubernetes().name]:
            folder = built(name)
            print(f"kube: {name}: {part(name).version} is in {folder}")
    except (BuildError, LookupError) as error:
        sys.exit(f"kube: {error}")


if __name__ == "__main__":
    main()
