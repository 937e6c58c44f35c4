"""What root does with files of a service's user is done with that user's rights."""

import json
import os
import stat
from pathlib import Path

import pytest

from carico_agent.cli._drop import as_owner
from carico_agent.lib.kube.access import access_to, from_kubeconfig_of_service
from carico_agent.lib.kube.errors import BadAccess
from carico_agent.lib.net.owners import writable_by_others
from carico_agent.service.commands.restore import give_seats_back

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up rights")


def exec_kubeconfig(folder: Path, command: Path) -> Path:
    """A kubeconfig with a credential plugin."""
    config = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": {"command": str(command)}}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path = folder / "kubeconfig.json"
    path.write_text(json.dumps(config))
    return path


def open_to_all(folder: Path) -> None:
    """Every folder of pytest's own may be entered, as /var/lib may."""
    for path in (folder, *folder.parents):
        if path.stat().st_uid == 0 and path != Path("/"):
            path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o055)


@AS_ROOT
def test_uninstall_runs_no_command_of_the_agents_user_as_root(tmp_path: Path) -> None:
    """Issue 37, 4: a note in the agent's folder named a kubeconfig whose plugin `carico uninstall` ran as root."""
    open_to_all(tmp_path)
    state = tmp_path / "state"
    state.mkdir()
    plugin = state / "plugin"
    plugin.write_text(f"#!/bin/sh\nid -u >{state}/whoami\necho '{{}}'\n")
    plugin.chmod(0o755)
    kubeconfig = exec_kubeconfig(state, plugin)
    note = {"kubeconfig": str(kubeconfig), "context": "", "object": "carico-reserve"}
    (state / "plane-reserve.json").write_text(json.dumps(note))
    (tmp_path / "precious").write_text("all of it")
    (state / "plane.lock").symlink_to(tmp_path / "precious")
    for path in (state, *state.iterdir()):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    seats, failed = give_seats_back([state])
    assert (seats, failed) == ([], True)
    assert (tmp_path / "precious").read_text() == "all of it", "no link of that user is written through"
    (state / "plane.lock").unlink()
    give_seats_back([state])
    assert (state / "whoami").read_text().strip() == str(NOBODY)


@AS_ROOT
def test_an_error_of_the_child_is_told(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    os.chown(tmp_path, NOBODY, NOBODY)

    def work(folder: Path) -> str:
        if os.geteuid() == 0:
            return "as root"
        raise ValueError(f"user {os.geteuid()} in {folder}")

    with pytest.raises(OSError, match=rf"^user {NOBODY} in \.$"):
        as_owner(tmp_path, work, (ValueError,))
    os.chown(tmp_path, 0, 0)
    assert as_owner(tmp_path, work, (ValueError,)) == "as root"


@AS_ROOT
@pytest.mark.parametrize("loose", ["owner", "mode", "folder", "command", "link"])
def test_a_service_runs_a_plugin_only_of_a_file_that_is_roots(tmp_path: Path, loose: str) -> None:
    """Issue 37, 3: whoever may write a service's kubeconfig could name a command for it to run."""
    place = tmp_path / "etc"
    place.mkdir(mode=0o755)
    command = place / "plugin"
    command.write_text("#!/bin/sh\n")
    kubeconfig = exec_kubeconfig(place, command)
    assert from_kubeconfig_of_service(str(kubeconfig)).exec is not None
    if loose == "owner":
        os.chown(kubeconfig, NOBODY, 0)
    if loose == "mode":
        kubeconfig.chmod(0o664)
    if loose == "folder":
        place.chmod(0o777)
    if loose == "command":
        os.chown(command, NOBODY, 0)
    if loose == "link":
        elsewhere = tmp_path / "theirs"
        kubeconfig.rename(elsewhere)
        os.chown(elsewhere, NOBODY, 0)
        kubeconfig.symlink_to(elsewhere)
    with pytest.raises(BadAccess, match="exec plugin is not run"):
        from_kubeconfig_of_service(str(kubeconfig))


def test_no_plugin_is_run_in_a_pod(tmp_path: Path) -> None:
    kubeconfig = exec_kubeconfig(tmp_path, Path("/bin/true"))
    assert access_to(str(kubeconfig), environ={}).exec is not None
    with pytest.raises(BadAccess, match="in a Pod"):
        access_to(str(kubeconfig), environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_a_file_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    assert "No such file" in writable_by_others(tmp_path / "none")
