"""Where a socket may be: a folder that nobody else rules."""

import os
from pathlib import Path

import pytest

from carico_agent.net.sockets import bind_unix


def test_a_folder_of_our_own(tmp_path: Path) -> None:
    with bind_unix(tmp_path / "made/agent.sock") as listener:
        assert (tmp_path / "made/agent.sock").stat().st_mode & 0o777 == 0o660
        assert listener.getsockname() == str(tmp_path / "made/agent.sock")


def test_everybodys_folder_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="can be written by everybody"):
        bind_unix(tmp_path / "agent.sock")
    tmp_path.chmod(0o1777)
    bind_unix(tmp_path / "agent.sock").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of somebody else is made")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "carico-0").mkdir(mode=0o700)
    os.chown(tmp_path / "carico-0", 65534, 65534)
    with pytest.raises(PermissionError, match="belongs to user 65534"):
        bind_unix(tmp_path / "carico-0/agent.sock")
