"""Connections by the kernel's tables: who is beyond the limit, and that only those are ended."""

import socket
from pathlib import Path

from carico_agent.lib.net.accepted import Accepted, accepted, excess, in_use, shut_down


def test_every_address_has_its_own_limit() -> None:
    many = [Accepted("10.0.0.1", port, port) for port in range(6)] + [
        Accepted("fd00::1", port, port) for port in (7, 8)
    ]
    assert [one.port for one in excess(many, 2)] == [2, 3, 4, 5]
    assert [one.address for one in excess(many, 1)] == ["10.0.0.1"] * 5 + ["fd00::1"]


def test_own_connections_are_found_and_ended() -> None:
    """IPv4 on a socket of both families, as gRPC listens."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        clients = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(3)]
        served = [listener.accept()[0] for _ in clients]
        for one in served:
            one.settimeout(10)
        found = accepted(port)
        assert {(one.address, one.port) for one in found} == {client.getsockname() for client in clients}
        assert in_use() >= 6
        last = [one for one in found if one.port == clients[2].getsockname()[1]]
        assert shut_down(last) == 1
        assert served[2].recv(1) == b"" and clients[2].recv(1) == b""  # both sides see the end
        served[0].sendall(b"x")
        assert clients[0].recv(1) == b"x"
        # The number of a descriptor may stand for another connection by the time it is looked at.
        assert shut_down([Accepted("127.0.0.1", 1, found[0].inode)]) == 0
        for one in (*clients, *served):
            one.close()


def test_a_machine_without_ipv6(tmp_path: Path) -> None:
    (tmp_path / "sockstat").write_text("TCP: inuse 4 orphan 0\n")
    (tmp_path / "tcp").write_text("  sl  local_address rem_address   st\n")
    assert (in_use(tmp_path), accepted(80, tmp_path)) == (4, [])
