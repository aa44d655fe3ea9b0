"""Which addresses a worker may connect to for a job: public ones, and what its settings allow.

Whoever may write jobs must not reach, through a worker, what only the worker's
own network can: loopback, private networks, the cloud's metadata. Names prove
nothing, so this is asked of the address of each socket, right before it connects.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = IPv6Network("::/96")


class AddressRefused(OSError):
    """An address that this worker may not reach.

    It does not say which: all that a name leads to are refused in the same words, and
    then the client hands on this error, not a sum of several.
    """

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "not a public address (CRONSTREAM_HTTP_ALLOW)")


def may_reach(address: Address, allowed: Sequence[Network]) -> bool:
    """True for a public address, and for one in an allowed network.

    IPv6 addresses that stand for IPv4 ones are never public: somebody else decides where
    they lead. A mapped one (::ffff:10.0.0.1) is allowed where its IPv4 address is.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return any(address.ipv4_mapped in network for network in allowed)
    if any(address in network for network in allowed):
        return True
    return address.is_global and not address.is_multicast and not _stands_for_another(address)


def _stands_for_another(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return False
    embeds = address.sixtofour is not None or address.teredo is not None
    return embeds or any(address in network for network in (*_NAT64, _COMPATIBLE))


class GuardedSockets:
    """Makes the sockets of a client, and none for an address that may not be reached."""

    def __init__(self, allowed: Sequence[Network]) -> None:
        self._allowed = tuple(allowed)

    def __call__(self, address_info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """A socket that is about to connect there. Raises AddressRefused."""
        family, kind, protocol, _, place = address_info
        if not may_reach(ip_address(str(place[0]).partition("%")[0]), self._allowed):
            raise AddressRefused
        return socket.socket(family, kind, protocol)
