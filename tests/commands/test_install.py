"""`carico install`: the units it puts down are hardened, and everything it does can be taken back."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carico_agent.cli import main
from carico_agent.service.commands import install, uninstall
from carico_agent.service.units import CannotInstall, ServiceOptions, plan
from carico_agent.settings import example

TREE = Path(__file__).parent.parent.parent
OPT = Path("/opt/carico/bin/carico")


@pytest.fixture
def opt(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if carico were installed in /opt/carico, wherever this tree is."""
    monkeypatch.setattr("carico_agent.service.commands.install.own_command", lambda: OPT)


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As if systemd ran this machine."""
    monkeypatch.setattr(install, "BOOTED", tmp_path_factory.mktemp("systemd"))


def exposure(root: Path, unit: str) -> float:
    """What systemd itself thinks of the installed unit with its drop-ins."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    command = ["systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit]
    result = subprocess.run(command, capture_output=True, text=True)
    last = result.stdout.strip().splitlines()[-1]
    assert "Overall exposure" in last, result.stdout + result.stderr
    return float(last.split(":")[1].split()[0])


@pytest.mark.parametrize(
    ("flags", "most"), [([], 1.5), (["--containerd"], 1.5), (["--tuning"], 1.9), (["--tuning", "--containerd"], 2.0)]
)
def test_the_agent_is_hardened(opt: None, tmp_path: Path, flags: list[str], most: float) -> None:
    assert main(["install", "--systemd", "--root", str(tmp_path), *flags]) == 0
    assert exposure(tmp_path, "carico-agent.service") <= most


@pytest.mark.parametrize("unit", ["carico-aggregator.service", "carico-extender.service", "carico-plane.service"])
def test_so_are_its_servers(opt: None, tmp_path: Path, unit: str) -> None:
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    assert exposure(tmp_path, unit) <= 1.2


def test_a_blank_in_the_path(tmp_path: Path) -> None:
    wanted = plan(ServiceOptions(Path("/root/a b/bin/carico")))
    assert 'ExecStart="/root/a b/bin/carico" agent' in wanted[Path("/etc/systemd/system/carico-agent.service")]
    assert 'BindReadOnlyPaths="/root/a b"\n' in wanted[Path("/etc/systemd/system/carico-agent.service.d/home.conf")]


def test_systemd_understands_every_line(opt: None, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    assert main(["install", "--systemd", "--tuning", "--containerd", "--root", str(tmp_path)]) == 0
    units = sorted(str(path) for path in (tmp_path / "etc/systemd/system").glob("*.service"))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    complaints = [line for line in verified.stderr.splitlines() if "carico" in line and "not executable" not in line]
    assert not complaints, verified.stderr


def test_install_and_uninstall(opt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--systemd", "--tuning", "--root", str(tmp_path)]) == 0
    result = capsys.readouterr().out
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "etc/carico/config.toml",
        "etc/sysusers.d/carico.conf",
        "etc/systemd/system/carico-agent.service",
        "etc/systemd/system/carico-agent.service.d/loopback.conf",
        "etc/systemd/system/carico-agent.service.d/sockets.conf",
        "etc/systemd/system/carico-agent.service.d/tuning.conf",
        "etc/systemd/system/carico-aggregator.service",
        "etc/systemd/system/carico-extender.service",
        "etc/systemd/system/carico-plane.service",
        "usr/local/lib/carico/restore.pyz",
    }
    assert all(f"write {tmp_path}/{name}" in result for name in files)
    unit = (tmp_path / "etc/systemd/system/carico-agent.service").read_text()
    assert f"ExecStart={OPT} agent" in unit
    assert "@" not in unit.replace("SystemCallFilter=@", "").replace("~@", "").replace(" @", "")
    assert main(["check-config", str(tmp_path / "etc/carico/config.toml")]) == 0
    assert main(["uninstall", "--root", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["config.toml"]
    assert not (tmp_path / "etc/systemd/system/carico-agent.service.d").exists()
    assert "kept" in capsys.readouterr().out
    assert main(["uninstall", "--purge", "--root", str(tmp_path)]) == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_purge_removes_what_every_service_learned(opt: None, tmp_path: Path) -> None:
    """systemd keeps the state of a DynamicUser in /var/lib/private, and a link where the unit names it."""
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    library = tmp_path / "var/lib"
    (library / "carico").mkdir(parents=True)
    (library / "carico/model.json").touch()
    for service in ("carico-aggregator", "carico-plane"):
        (library / "private" / service).mkdir(parents=True)
        (library / "private" / service / "contributions").touch()
        (library / service).symlink_to(f"private/{service}")
    (library / "private/others").mkdir()
    assert main(["uninstall", "--root", str(tmp_path)]) == 0
    assert (library / "carico-aggregator/contributions").exists()
    assert main(["uninstall", "--purge", "--root", str(tmp_path)]) == 0
    assert [path.relative_to(library).as_posix() for path in library.rglob("*")] == ["private", "private/others"]


@pytest.mark.parametrize("known", [True, False])
def test_purge_removes_the_user_that_is_there(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(uninstall, "installed", lambda root: [])
    monkeypatch.setattr(uninstall, "take_away", lambda *what: None)
    monkeypatch.setattr(uninstall, "give_seats_back", lambda folders: ([], False))
    monkeypatch.setattr(uninstall, "after", lambda commands, dry_run: ran.extend(commands) or 0)
    monkeypatch.setattr(uninstall, "has_user", lambda: known)
    for flags in ([], ["--purge"]):
        assert main(["uninstall", *flags]) == 0
    assert ran == ([("userdel", "carico")] if known else [])


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ([], []),
        (["--tuning"], ["--tuning: CAP_DAC_OVERRIDE opens every file"]),
        (["--containerd"], ["--containerd: a process that may write"]),
        (
            ["--tuning", "--containerd"],
            ["--tuning: CAP_DAC_OVERRIDE opens every file", "--containerd: a process that may write"],
        ),
    ],
)
def test_what_is_as_good_as_root_is_named_where_it_is_chosen(
    opt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], printed: list[str]
) -> None:
    for more in (["--dry-run"], []):
        assert main(["install", "--systemd", "--root", str(tmp_path), *flags, *more]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "as good as root" in line]
        assert len(lines) == len(printed)
        assert all(line.startswith(wanted) for line, wanted in zip(lines, printed, strict=True))
    for text in (example(), (TREE / "docs/service.md").read_text()):
        assert "as good as root" in text
    with pytest.raises(SystemExit):
        main(["install", "--help"])
    assert " ".join(capsys.readouterr().out.split()).count("as good as root") == 2


def test_with_tuning_alone_the_runtimes_sockets_are_hidden(opt: None, tmp_path: Path) -> None:
    hidden = tmp_path / "etc/systemd/system/carico-agent.service.d/sockets.conf"
    assert main(["install", "--systemd", "--tuning", "--root", str(tmp_path)]) == 0
    assert "InaccessiblePaths=-/run/containerd " in hidden.read_text()
    for flags in (["--tuning", "--containerd"], []):
        assert main(["install", "--systemd", *flags, "--root", str(tmp_path)]) == 0
        assert not hidden.exists()


def test_again_without_tuning_takes_the_right_back(opt: None, tmp_path: Path) -> None:
    assert main(["install", "--systemd", "--tuning", "--root", str(tmp_path)]) == 0
    config = tmp_path / "etc/carico/config.toml"
    config.write_text("[sampling]\nio = true\n")
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    assert not (tmp_path / "etc/systemd/system/carico-agent.service.d/tuning.conf").exists()
    assert config.read_text() == "[sampling]\nio = true\n"


@pytest.mark.parametrize(
    "text",
    [
        "[kubernetes]\nenabled = true\n",
        '[kubernetes]\nkubeconfig = "/etc/carico/kubeconfig"\n',
        '[federation]\naggregators = ["127.0.0.1:7420"]\n',
        '[listen]\naddress = "127.0.0.1:9740"\n',
    ],
)
def test_who_names_others_may_reach_them(opt: None, tmp_path: Path, text: str) -> None:
    loopback = tmp_path / "etc/systemd/system/carico-agent.service.d/loopback.conf"
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    assert "IPAddressDeny=any" in loopback.read_text()
    (tmp_path / "etc/carico/config.toml").write_text(text)
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    assert not loopback.exists()


@pytest.mark.parametrize(("site", "alone"), [(False, True), (True, False)])
def test_shipped_plugins_reach_nobody_and_those_of_the_site_may(
    opt: None, tmp_path: Path, site: bool, alone: bool
) -> None:
    """A plugin in the site folder replaces a shipped one of the same name."""
    (tmp_path / "site/memory_qos").mkdir(parents=True)
    if site:
        (tmp_path / "site/memory_qos/__init__.py").touch()
    (tmp_path / "etc/carico").mkdir(parents=True)
    enabled = f'[plugins]\nenabled = ["memory_qos", "throttling"]\nsite_folder = "{tmp_path}/site"\n'
    (tmp_path / "etc/carico/config.toml").write_text(enabled)
    assert main(["install", "--systemd", "--tuning", "--root", str(tmp_path)]) == 0
    assert (tmp_path / "etc/systemd/system/carico-agent.service.d/loopback.conf").exists() == alone


def test_a_broken_configuration_is_not_started(opt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc/carico").mkdir(parents=True)
    (tmp_path / "etc/carico/config.toml").write_text("[sampling]\nperod_s = 1\n")
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 1
    assert "did you mean period_s?" in capsys.readouterr().err
    assert not (tmp_path / "etc/systemd").exists()


def test_dry_run_does_nothing(opt: None, booted: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--systemd", "--dry-run", "--root", str(tmp_path)]) == 0
    assert not list(tmp_path.iterdir())
    assert main(["install", "--systemd", "--dry-run"]) == 0
    result = capsys.readouterr().out
    assert f"would write {tmp_path}/etc/systemd/system/carico-agent.service" in result
    assert "would run systemctl restart carico-agent.service" in result


def test_below_a_home_folder_only_that_is_seen() -> None:
    wanted = plan(ServiceOptions(Path("/root/venv/bin/carico")))
    text = wanted[Path("/etc/systemd/system/carico-agent.service.d/home.conf")]
    assert "ProtectHome=tmpfs\nBindReadOnlyPaths=/root/venv\n" in text


def test_a_fleeting_installation_is_refused() -> None:
    with pytest.raises(CannotInstall, match="does not last"):
        plan(ServiceOptions(Path("/tmp/x/bin/carico")))


def test_a_home_folder_and_capabilities_do_not_go_together() -> None:
    for more in ({"tuning": True}, {"containerd": True}):
        with pytest.raises(CannotInstall, match="home folder"):
            plan(ServiceOptions(Path("/home/me/venv/bin/carico"), **more))


def test_an_image_may_be_made_from_anywhere() -> None:
    assert plan(ServiceOptions(Path("/tmp/venv/bin/carico"), lasting=False))


def test_the_templates_are_in_the_wheel() -> None:
    """Through setuptools' own eyes: what build_py would copy."""
    script = (
        "from setuptools import Distribution; d = Distribution(); d.parse_config_files(); "
        "b = d.get_command_obj('build_py'); b.ensure_finalized(); "
        "print(*(f for p, _, _, fs in b.data_files if p == 'carico_units' for f in fs))"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=TREE, capture_output=True, text=True)
    templates = {path.name for path in (TREE / "systemd").iterdir() if path.suffix in (".service", ".conf")}
    assert set(result.stdout.split()) == templates


def test_an_image_is_not_left_through_its_links(opt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 37, 19: `install --root IMAGE` wrote wherever a link of the image led, as root."""
    image, outside = tmp_path / "image", tmp_path / "outside"
    for folder in (image / "etc", outside):
        folder.mkdir(parents=True)
    (image / "etc/systemd").symlink_to(outside)
    assert main(["install", "--systemd", "--root", str(image)]) == 1
    assert "a link leads out of" in capsys.readouterr().err
    (image / "etc/systemd").unlink()
    (image / "etc/carico").mkdir()
    (outside / "victim").write_text("as it was")
    (image / "etc/sysusers.d").mkdir()
    (image / "etc/sysusers.d/carico.conf").symlink_to(outside / "victim")
    assert main(["install", "--systemd", "--root", str(image)]) == 1
    assert (outside / "victim").read_text() == "as it was"
    assert list(outside.iterdir()) == [outside / "victim"]


def test_root_runs_its_own_restore_and_not_the_agents(opt: None, tmp_path: Path) -> None:
    """Issue 37, 4: restore.pyz lay in the agent's own folder."""
    assert main(["install", "--systemd", "--tuning", "--root", str(tmp_path)]) == 0
    unit = (tmp_path / "etc/systemd/system/carico-agent.service.d/tuning.conf").read_text()
    lines = [line for line in unit.splitlines() if line.startswith("ExecStopPost")]
    assert "/var/lib/carico/restore.pyz" not in unit
    command = lines[1].partition("=-")[2].split()
    assert command[:3] == ["/usr/bin/python3", "-I", "/usr/local/lib/carico/restore.pyz"]
    zipapp = tmp_path / "usr/local/lib/carico/restore.pyz"
    assert zipapp.stat().st_mode & 0o777 == 0o644
    ran = subprocess.run([sys.executable, "-I", str(zipapp), str(tmp_path / "none")], check=False)
    assert ran.returncode == 0
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    assert not zipapp.exists()


def test_a_restart_keeps_the_folder_that_pods_mount(opt: None, tmp_path: Path) -> None:
    """Issue 37, 18: systemd removed /run/carico at each restart, and running Pods kept a dead mount."""
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 0
    unit = (tmp_path / "etc/systemd/system/carico-agent.service").read_text()
    assert "RuntimeDirectoryPreserve=yes" in unit.splitlines()


def files_of(*folders: str) -> set[Path]:
    return {path for folder in folders for path in Path(folder).rglob("*carico*")}


def test_without_systemd_nothing_is_written(
    opt: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 36: it wrote seven files, a user and a group, failed, and `uninstall` then removed nothing."""
    monkeypatch.setattr(install, "BOOTED", tmp_path / "none")
    before = files_of("/etc", "/usr/local/lib")
    assert main(["install", "--systemd"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"systemd does not run this machine (there is no {tmp_path}/none)" in said.err
    assert files_of("/etc", "/usr/local/lib") == before
    assert main(["install", "--systemd", "--dry-run"]) == 1
    said = capsys.readouterr()
    assert "would write /etc/systemd/system/carico-agent.service" in said.out
    assert "it would be refused: systemd does not run this machine" in said.err


def test_an_ordinary_user_is_refused_before_anything_is_printed(
    opt: None, booted: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    assert main(["install", "--systemd"]) == 1
    said = capsys.readouterr()
    assert (said.out, "installing needs root" in said.err) == ("", True)


def test_a_file_that_cannot_be_written_takes_the_others_with_it(opt: None, tmp_path: Path) -> None:
    (tmp_path / "etc/carico").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/carico-plane.service").mkdir(parents=True)
    unit = tmp_path / "etc/systemd/system/carico-agent.service"
    unit.write_text("of before")
    assert main(["install", "--systemd", "--root", str(tmp_path)]) == 1
    assert unit.read_text() == "of before"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [unit]


def test_a_step_that_fails_undoes_those_before(
    opt: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a systemctl that knows no `enable`: as in a container that only has systemd's commands."""
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "systemd-sysusers", "userdel"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/ran\n[ "$1" != enable ]\n')
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    written = {tmp_path / "etc/carico.service": "new", tmp_path / "etc/old.conf": "new"}
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/old.conf").write_text("old")
    before = install.put_down(Path("/"), written, [], dry_run=False)
    assert install.after(install.AFTERWARDS, dry_run=False) == 1
    install.undo(before, new_user=False)
    assert {path.name: path.read_text() for path in (tmp_path / "etc").iterdir()} == {"old.conf": "old"}
    assert (tmp_path / "ran").read_text().splitlines()[-1] == "systemctl daemon-reload"
    assert "the steps before it are undone" in capsys.readouterr().err


def test_without_systemd_uninstall_removes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stopped at the first `systemctl`, and the files of a failed installation stayed."""
    taken: list[Path] = []
    monkeypatch.setattr(uninstall, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(uninstall, "installed", lambda root: [Path("/etc/systemd/system/carico-agent.service")])
    monkeypatch.setattr(uninstall, "take_away", lambda root, found, purge, dry_run: taken.extend(found))
    monkeypatch.setattr(uninstall, "give_seats_back", lambda folders: ([], False))
    assert main(["uninstall"]) == 0
    assert taken == [Path("/etc/systemd/system/carico-agent.service")]
