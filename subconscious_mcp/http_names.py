"""By which names an HTTP server may be asked, and for the pages of which sites.

A page in a browser may send requests to this machine. Its address says another name than this server's
(Host, where the page's own name was pointed here), or says where the page came from (Origin).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")


class Names:
    """The names that are allowed: those of this machine, and those that the settings give.

    Args:
        hosts: More names, with a port or for any.
        origins: More origins, as browsers send them: scheme, name, and port where it is not the usual one.
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        self._hosts = frozenset(host.lower() for host in hosts) | LOOPBACK_NAMES
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def takes_host(self, host: str, address: str) -> bool:
        """Returns whether a Host header names this server.

        Args:
            address: The address that the request came to. It is a number, so no page's name leads to it.
        """
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = match[1]
        own = f"[{address}]" if ":" in address else address
        return name in self._hosts or match[0] in self._hosts or name == own.lower()

    def takes_origin(self, origin: str) -> bool:
        """Returns whether an Origin header is that of a page which may ask."""
        origin = origin.lower()
        if origin in self._origins:
            return True
        match = _ORIGIN.fullmatch(origin)
        host = _HOST.fullmatch(match[2]) if match is not None else None
        return host is not None and host[1] in LOOPBACK_NAMES


def is_loopback(host: str) -> bool:
    """Returns whether an address, or a name that means one, is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        # Any other name may mean another address tomorrow.
        return False
