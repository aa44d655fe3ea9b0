"""Which addresses a job may make a worker connect to."""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network

import pytest

from workers.handlers.addresses import AddressRefused, GuardedSockets, may_reach

PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]
NOT_PUBLIC = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.0.9",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "239.1.2.3",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::8.8.8.8",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "ff0e::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:1::1",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert may_reach(ip_address(address), ())


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_others_may_not(address: str) -> None:
    assert not may_reach(ip_address(address), ())
    assert may_reach(ip_address(address), (ip_network("0.0.0.0/0"), ip_network("::/0")))


def test_an_allowed_network_opens_itself_and_no_other() -> None:
    allowed = (ip_network("127.0.0.0/8"),)
    assert may_reach(ip_address("127.0.0.1"), allowed)
    assert may_reach(ip_address("::ffff:127.0.0.1"), allowed)
    assert not may_reach(ip_address("::1"), allowed)
    assert not may_reach(ip_address("::ffff:10.0.0.1"), allowed)
    assert not may_reach(ip_address("64:ff9b::7f00:1"), allowed)


def test_no_socket_is_made_for_a_refused_address() -> None:
    sockets = GuardedSockets(())
    with pytest.raises(AddressRefused, match=r"not a public address \(CRONSTREAM_HTTP_ALLOW\)"):
        sockets((socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%eth0", 80, 0, 2)))
    with sockets((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))) as made:
        assert made.family == socket.AF_INET
