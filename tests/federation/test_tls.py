"""mTLS with certificates made on the fly: who may speak, for whom, and what happens when files change."""

import asyncio
import os
import shutil
import subprocess
from contextlib import AsyncExitStack

import pytest

from carico_agent.federation.status import fetch_status
from carico_agent.lib.net.address import BadAddress, check, is_private
from carico_agent.lib.net.tls import TlsFiles

from .processes import aggregator, until
from .test_client import client, contributed, fast
from .test_floods import connect, is_closed

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="needs the openssl command"),
]


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        self._openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            "-subj",
            f"/CN={name}",
        )

    def _openssl(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)

    def issue(self, common_name: str, file: str) -> dict[str, str]:
        self._openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            f"{file}.key",
            "-out",
            f"{file}.csr",
            "-subj",
            f"/CN={common_name}",
        )
        (self.folder / f"{file}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._openssl(
            "x509",
            "-req",
            "-in",
            f"{file}.csr",
            "-CA",
            f"{self.name}.pem",
            "-CAkey",
            f"{self.name}.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            f"{file}.pem",
            "-extfile",
            f"{file}.ext",
        )
        return {
            "tls_ca": str(self.folder / f"{self.name}.pem"),
            "tls_cert": str(self.folder / f"{file}.pem"),
            "tls_key": str(self.folder / f"{file}.key"),
        }


@pytest.fixture
def authority(tmp_path) -> Authority:
    return Authority(tmp_path)


async def _status(server, files):
    return await fetch_status(server.address, TlsFiles.mutual(files["tls_ca"], files["tls_cert"], files["tls_key"]))


async def test_a_certificate_speaks_for_its_own_name_only(authority):
    serving = authority.issue("agg", "agg")
    a, b = authority.issue("node-a", "a"), authority.issue("system:node:node-b", "b")
    async with (
        aggregator(**serving) as server,
        client(fast(server.address, **a), "node-a", contributed(0.5)) as one,
        client(fast(server.address, **b), "node-b", contributed(0.7)) as two,
        client(fast(server.address, **a), "node-c", contributed(0.9)) as liar,
    ):
        await until(lambda: one.view and two.view and one.view.nodes == 2)
        await until(
            lambda: "rejects this node: identity: the certificate of node-a does not speak for node-c" in liar.condition
        )
        status = await _status(server, a)
        assert {n["node"] for n in status["nodes"]} == {"node-a", "node-b"}
        assert status["rejects"][0]["reason"] == "identity"


async def test_foreigns_and_plaintext_are_not_served(authority, tmp_path):
    serving = authority.issue("agg", "agg")
    (tmp_path / "other").mkdir()
    foreign = Authority(tmp_path / "other", "other").issue("node-a", "a")
    foreign["tls_ca"] = serving["tls_ca"]
    async with (
        aggregator(**serving) as server,
        client(fast(server.address, **foreign), "node-a", contributed(0.5)) as one,
        client(fast(server.address), "node-b", contributed(0.5)) as two,
    ):
        await until(lambda: "does not answer" in one.condition and "does not answer" in two.condition)
        assert one.view is None and two.view is None
        assert (await _status(server, authority.issue("admin", "admin")))["exchanges"] == "0"


@pytest.mark.long
async def test_one_address_holds_few_connections_that_never_shake_hands(authority):
    """300 of them at a limit of 2; three nodes that share an address, and one that comes later, are served."""
    serving, *nodes = (authority.issue(name, name) for name in ("agg", "n0", "n1", "n2", "n3"))
    async with aggregator(address_connections=2, handshake_s=100.0, **serving) as server, AsyncExitStack() as stack:

        async def join(number: int):
            settings = fast(server.address, **nodes[number])
            return await stack.enter_async_context(client(settings, f"n{number}", contributed(0.5)))

        first = [await join(number) for number in range(3)]
        await until(lambda: all(one.view and one.view.nodes == 3 for one in first))
        failures = [one.failures for one in first]
        flood = [await connect(server.address, "127.0.0.2") for _ in range(300)]
        closed = [asyncio.create_task(is_closed(reader)) for reader, _ in flood]
        await until(lambda: sum(task.done() for task in closed) >= 298)
        last = await join(3)
        await until(lambda: last.view is not None and last.view.nodes == 4)
        exchanges = [one.exchanges for one in first]
        await until(lambda: all(one.exchanges > was + 2 for one, was in zip(first, exchanges, strict=True)))
        assert sum(task.done() for task in closed) == 298
        assert [one.failures for one in first] == failures
        for _, writer in flood:
            writer.close()
        await asyncio.gather(*closed)


@pytest.mark.long
async def test_only_named_certificates_are_peers(authority):
    x, y, z = (authority.issue(name, name) for name in "xyz")
    async with (
        aggregator(name="x", **x, tls_peer_names=("y",)) as first,
        aggregator(name="y", **y, peers=(first.address,)) as second,
        aggregator(name="z", **z, peers=(first.address,)) as third,
    ):

        async def conditions():
            return [(await _status(s, x))["peers"][0]["condition"] for s in (second, third)]

        await until(lambda: _equals(conditions, ["ok", "not one of tls_peer_names"]))
        assert [p["aggregator"] for p in (await _status(first, x))["peers"]] == ["y"]


async def _equals(get, wanted) -> bool:
    return await get() == wanted


@pytest.mark.long
async def test_changed_files_are_read_again(authority):
    """The whole chain is renewed under a running aggregator and client: new authority, new certificates."""
    serving, mine = authority.issue("agg", "agg"), authority.issue("node-a", "a")
    async with aggregator(**serving) as server, client(fast(server.address, **mine), "node-a", contributed(0.5)) as one:
        await until(lambda: one.view is not None)
        (authority.folder / "agg.pem").write_text("half a fi")  # broken on the way: the old one serves on
        admin = authority.issue("admin", "admin")
        assert (await _status(server, admin))["aggregator"]
        (authority.folder / "new").mkdir()
        fresh = Authority(authority.folder / "new", "ca")
        for files in (fresh.issue("agg", "agg"), fresh.issue("node-a", "a"), fresh.issue("admin", "admin")):
            for path in files.values():
                os.replace(shutil.copy(path, path + ".tmp"), authority.folder / os.path.basename(path))
        assert (await _status(server, admin))["aggregator"]  # admin's files are of the new authority now
        before = one.exchanges
        await until(lambda: one.exchanges > before + 3 and one.condition.startswith("connected"))
    assert "keeping the old ones" in server.log() and "read again" in server.log()


async def test_missing_files_stop_the_start():
    with pytest.raises(RuntimeError, match="No such file"):
        async with aggregator(tls_ca="/nowhere", tls_cert="/nowhere", tls_key="/nowhere"):
            pass
    with pytest.raises(RuntimeError, match="needed together"):
        async with aggregator(tls_ca="/nowhere"):
            pass


async def test_missing_client_files_mean_local_operation(tmp_path):
    files = {key: str(tmp_path / key) for key in ("tls_ca", "tls_cert", "tls_key")}
    async with client(fast("127.0.0.1:1", **files), "a", contributed(0.5)) as one:
        await until(lambda: "certificates: [Errno 2]" in one.condition)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("unix:/run/x", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        ("localhost.evil:1", False),
    ],
)
async def test_what_counts_as_private(address, private):
    assert is_private(address) is private
    if not private:
        with pytest.raises(BadAddress, match="plaintext"):
            check(address, None, False)
    check(address, None, True)


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:99999", "unix:", "unix:/" + "x" * 110])
async def test_bad_addresses(address):
    with pytest.raises(BadAddress):
        check(address, None, True)
