"""Addresses, where the doctests leave off."""

import pytest

from carico_agent.lib.net.address import BadAddress, check, split


@pytest.mark.parametrize("address", ["", ":", "host", "host:", ":80", "host:-1", "host:70000", "host:8o", "host:²"])
def test_no_address(address: str) -> None:
    with pytest.raises(BadAddress):
        split(address)


@pytest.mark.parametrize("address", ["unix:", "unix:/" + "x" * 200])
def test_no_path(address: str) -> None:
    with pytest.raises(BadAddress, match="1 to 102 characters"):
        check(address, encrypted=False, allow_plaintext=True)


def test_plaintext_stays_on_this_machine() -> None:
    for private in ("127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/run/a"):
        check(private, encrypted=False, allow_plaintext=False)
    with pytest.raises(BadAddress, match="plaintext is for loopback"):
        check("10.0.0.1:80", encrypted=False, allow_plaintext=False)
    check("10.0.0.1:80", encrypted=True, allow_plaintext=False)
    check("10.0.0.1:80", encrypted=False, allow_plaintext=True)
