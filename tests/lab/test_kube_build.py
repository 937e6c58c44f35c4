"""The builder of the real parts: the module it writes, the Go it takes, and real builds of a small module that a folder
serves as a module proxy does."""

import io
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lab.support import kube_build, kube_versions
from lab.support.go_toolchain import Go, number, on_path, toolchain
from lab.support.kube_build import BuildError, built, go_mod, linker_flags
from lab.support.kube_versions import Part, kubernetes, markdown, part, parts
from tests.conftest import TREE

KUBERNETES = Part.of(
    {"name": "1.36", "module": "k8s.io/kubernetes", "version": "v1.36.4", "packages": ["cmd/kubelet"], "use": ""}
)
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")


def test_the_table_names_what_can_be_told_apart() -> None:
    assert next(one.name for one in parts().values() if one.is_kubernetes) == kubernetes().name
    for one in parts().values():
        assert one.version.startswith("v") and len(one.programs) == len(one.packages) > 0
        assert all(name in parts() for name in one.beside)
    programs = [name for one in parts().values() if not one.is_kubernetes for name in one.programs]
    assert len(programs) == len(set(programs))


def test_the_docs_show_the_table() -> None:
    assert markdown() in (TREE / "docs/kubernetes.md").read_text(), "python -m lab.support.kube_versions prints it"


def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE", "1.20")
    with pytest.raises(LookupError, match=r"1\.20 is not in kube_versions\.toml; there are 1\.36"):
        kubernetes()
    monkeypatch.setenv("KUBE", "kwok")
    with pytest.raises(LookupError, match="no version of Kubernetes"):
        kubernetes()


def test_staging_folders_become_the_versions_under_which_they_are_published() -> None:
    module = {
        "Go": "1.26.0",
        "Require": [
            {"Path": "k8s.io/api", "Version": "v0.0.0"},
            {"Path": "example.test/other", "Version": "v1.2.3", "Indirect": True},
        ],
        "Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "k8s.io/kms"}, "New": {"Path": "./staging/src/k8s.io/kms"}},
            {"Old": {"Path": "example.test/old"}, "New": {"Path": "example.test/new", "Version": "v2.0.0"}},
            {"Old": {"Path": "example.test/beside"}, "New": {"Path": "../beside"}},
        ],
        "Exclude": [{"Path": "example.test/bad", "Version": "v0.1.0"}],
    }
    lines = [" ".join(line.split()) for line in go_mod(KUBERNETES, module).splitlines() if line]
    assert lines == [
        "module carico.dev/kube",
        "go 1.26.0",
        "require k8s.io/kubernetes v1.36.4",
        "require k8s.io/api v0.36.4",
        "require example.test/other v1.2.3",
        "replace k8s.io/api => k8s.io/api v0.36.4",
        "replace k8s.io/kms => k8s.io/kms v0.36.4",
        "replace example.test/old => example.test/new v2.0.0",
        "exclude example.test/bad v0.1.0",
    ]


def test_the_server_is_told_its_version() -> None:
    flags = linker_flags(KUBERNETES)
    for value in ("gitVersion=v1.36.4", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{value}" in flags


# ---- which Go


@pytest.fixture
def go_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A `go` that says it is this version, alone on the PATH but for the shell's tools."""

    def put(version: str, toolchain: str = "local") -> None:
        script = f'#!/bin/sh\ncase "$2" in GOVERSION) echo {version};; GOTOOLCHAIN) echo {toolchain};; esac\n'
        folder = tmp_path / "path"
        folder.mkdir(exist_ok=True)
        (folder / "go").write_text(script)
        (folder / "go").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    monkeypatch.setenv("PATH", "")
    return put


def test_go_of_this_machine_must_be_new_enough(go_on_path: Any) -> None:
    assert on_path("1.26") == "there is no Go on PATH"
    go_on_path("go1.19.8")
    assert "is go1.19.8, Go 1.26 or newer is needed" in str(on_path("1.26"))
    go_on_path("go1.24.4")
    assert isinstance(on_path("1.26"), str)
    go_on_path("go1.24.4", "auto")  # gets the newer one by itself, verified
    assert isinstance(on_path("1.26"), Go)
    go_on_path("go1.26.0")
    assert isinstance(on_path("1.26"), Go)
    assert number("go1.9") < number("go1.26rc1")


def test_without_any_go_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "env"):  # no apt-get here
        (tools / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(LookupError) as refused:
        toolchain("1.26", tmp_path / "go")
    for words in ("there is no Go on PATH", "apt-get is missing", "Put a newer `go` on PATH", "KUBEBUILDER_ASSETS"):
        assert words in str(refused.value)


def test_nothing_is_built_where_binaries_are_given(tmp_path: Path) -> None:
    given = {"KUBEBUILDER_ASSETS": str(tmp_path), "CARICO_CACHE": str(tmp_path)}
    ran = run_builder({**os.environ, **given})
    assert (ran.returncode, ran.stdout) == (0, f"kube: KUBEBUILDER_ASSETS={tmp_path} is used; nothing is built\n")


def run_builder(environment: dict[str, str], *names: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lab.support.kube_build", *names]
    return subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, check=False, timeout=120)


# ---- real builds of a small module

MAIN = 'package main\n\nimport "example.test/tool/version"\n\nfunc main() { println(version.Text) }\n'
VERSION = 'package version\n\nvar Text = "unknown"\n'


class Proxy:
    """A folder as `go` reads it with GOPROXY=file://…; no checksum database knows its modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "example.test/tool/@v"
        self.folder.mkdir(parents=True)

    def put(self, version: str, main: str = MAIN) -> None:
        module = "module example.test/tool\n\ngo 1.21\n"
        files = {"go.mod": module, "go.sum": "", "cmd/tool/main.go": main, "version/version.go": VERSION}
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"example.test/tool@{version}/{name}", text)
        (self.folder / f"{version}.zip").write_bytes(whole.getvalue())
        (self.folder / f"{version}.mod").write_text(module)
        (self.folder / f"{version}.info").write_text(json.dumps({"Version": version}))


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    own = {
        "GOPROXY": f"file://{tmp_path}/proxy",
        "GONOSUMDB": "example.test",
        "GOMODCACHE": f"{tmp_path}/modules",
        "GOFLAGS": "-modcacherw",
        "CARICO_CACHE": f"{tmp_path}/cache",
    }
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return Proxy(tmp_path / "proxy")


def pin(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    row = {
        "name": "tool",
        "module": "example.test/tool",
        "version": version,
        "packages": ["cmd/tool"],
        "stamp": ["example.test/tool/version.Text"],
        "use": "a test",
    }
    beside = {**row, "name": "host", "packages": ["cmd/tool"], "programs": ["host"], "beside": ["tool"]}
    monkeypatch.setattr(kube_versions, "_table", lambda: {"go": "1.21", "kubernetes": "tool", "part": [row, beside]})


def says(path: Path) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stderr.strip()


@needs_go
def test_a_part_is_built_once_per_version(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.put("v1.0.0")
    proxy.put("v1.1.0")
    pin(monkeypatch, "v1.0.0")
    assert says(built("tool") / "tool") == "v1.0.0"
    first = (part("tool").bin / "tool").stat().st_mtime_ns
    assert (built("tool") / "tool").stat().st_mtime_ns == first
    pin(monkeypatch, "v1.1.0")
    assert part("tool").missing() == ["tool"]
    assert says(built("tool") / "tool") == "v1.1.0"
    (part("tool").bin / "tool").unlink()
    assert says(built("tool") / "tool") == "v1.1.0"


@needs_go
def test_what_belongs_beside_a_part_is_put_there_and_renewed(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.put("v1.0.0")
    pin(monkeypatch, "v1.0.0")
    host = part("host").bin
    assert says(built("host") / "tool") == says(host / "host") == "v1.0.0"
    (host / "tool").unlink()
    (host / "tool").write_text("of another build")
    assert says(built("host") / "tool") == "v1.0.0"


@needs_go
def test_a_build_that_fails_fails_with_the_compilers_words(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.put("v1.0.0", MAIN.replace("println(", "print_line("))
    pin(monkeypatch, "v1.0.0")
    with pytest.raises(BuildError, match="undefined: print_line"):
        built("tool")
    assert part("tool").missing() == ["tool"] and not part("tool").bin.exists()
    pin(monkeypatch, "v9.9.9")
    with pytest.raises(BuildError, match=r"v9\.9\.9"):
        built("tool")


@needs_go
@pytest.mark.parametrize(
    ("body", "why"),
    [('panic("no config")', "ended with 2:.*no config"), ('println("v0.0.0")', r"does not say v1\.0\.0")],
    ids=["does not start", "another version"],
)
def test_a_program_that_does_not_start_is_no_build(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    proxy.put("v1.0.0", f"package main\n\nfunc main() {{ {body} }}\n")
    pin(monkeypatch, "v1.0.0")
    with pytest.raises(BuildError, match=f"(?s)`tool --version` {why}"):
        built("tool")
    assert part("tool").missing() == ["tool"]


@needs_go
def test_checksums_are_verified(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exception for this proxy's modules, Go asks the checksum database, which is not there."""
    proxy.put("v1.0.0")
    pin(monkeypatch, "v1.0.0")
    monkeypatch.setenv("GONOSUMDB", "")
    monkeypatch.setenv("GOSUMDB", "sum.golang.org http://127.0.0.1:1")
    with pytest.raises(BuildError, match=r"verifying (module|go\.mod)"):
        built("tool")


@needs_go
def test_two_at_once_build_one_after_the_other(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.put("v1.0.0")
    pin(monkeypatch, "v1.0.0")
    holder = "import fcntl, sys, time\nf = open(sys.argv[1], 'w')\nfcntl.flock(f, 2)\nprint('held', flush=True)"
    folder = part("tool").folder
    folder.mkdir(parents=True)
    other = subprocess.Popen(
        [sys.executable, "-c", f"{holder}\ntime.sleep(1)", str(folder / "lock")], stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdout.readline() == b"held\n"
    began_s = time.monotonic()
    built("tool")
    assert time.monotonic() - began_s > 0.5 and other.wait() == 0
    assert "another process is building it; waiting" in capsys.readouterr().out


@needs_go
def test_a_long_build_says_that_it_goes_on(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.put("v1.0.0")
    pin(monkeypatch, "v1.0.0")
    monkeypatch.setattr(kube_build, "HEARTBEAT_S", 0.02)
    built("tool")
    said = capsys.readouterr().out
    assert "tool (1 of 1): 0 s so far" in said and "tool (1 of 1) done after" in said
