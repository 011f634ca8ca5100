"""Which addresses Hermes may connect to on its own account.

One parser reads the URL, the checks and the connection use what it read, and every address that
a name stands for is judged, whatever notation hides it. ``outbound_line`` connects to the very
addresses that were judged here, so that a name cannot mean something else a moment later.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import httpx2

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolved: TypeAlias = "Future[list[IP]]"

RESOLVE_SECONDS: Final = 5.0


class BadAddress(ValueError):
    """An address that is not connected to; the message says why, in plain words."""


class UnknownName(OSError):
    """The name of a host could not be resolved."""


class Reach(StrEnum):
    """Where an address leads."""

    PUBLIC = "public"
    LOOPBACK = "loopback"  # this machine
    PRIVATE = "private"  # a network of somebody's own
    NEVER = "never"  # metadata services, link-local, multicast, reserved, disguises


@dataclass(frozen=True)
class Policy:
    """What the settings open beyond public addresses over https."""

    allow_loopback: bool = False
    allowed_hosts: frozenset[str] = frozenset()  # may be in a private network, also over http

    @classmethod
    def of(cls, *, allow_loopback: bool, allowed_hosts: Iterable[str] = ()) -> Policy:
        names = (name.strip().rstrip(".").strip("[]").lower() for name in allowed_hosts)
        return cls(allow_loopback, frozenset(name for name in names if name))


@dataclass(frozen=True)
class BaseURL:
    """A base URL that was read and whose form is right."""

    url: httpx2.URL
    host: str  # lower case, ASCII, no brackets, no final dot
    port: int
    literal: IP | None  # set where the host is an address, not a name

    @property
    def secure(self) -> bool:
        return self.url.scheme == "https"


_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMERIC: Final = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\@?#%]")


def parse_base_url(text: str) -> BaseURL:
    """Read a base URL, or raise ``BadAddress``. No name is looked up.

    >>> parse_base_url("https://API.example.org/v1").host
    'api.example.org'
    >>> parse_base_url("http://127.1/v1")
    Traceback (most recent call last):
    hermes.lib.outbound.BadAddress: The host “127.1” is a number in an unusual form; \
write the address out, such as 192.0.2.1.
    """
    text = text.strip()
    if not text:
        raise BadAddress("The address is empty; it looks like https://api.example.org/v1.")
    if found := _FORBIDDEN.search(text):
        raise BadAddress(
            f"The address may not contain {found[0]!r}: no user name, password, query or fragment."
        )
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise BadAddress(f"This is not an address that can be read: {error}") from None
    if url.scheme not in {"https", "http"}:
        raise BadAddress(
            "The address must begin with https://, or http:// within your own network."
        )
    host = url.raw_host.decode("ascii").removesuffix(".")
    port = (443 if url.scheme == "https" else 80) if url.port is None else url.port
    if not 1 <= port <= 65535:
        raise BadAddress(f"The port {port} is not between 1 and 65535.")
    literal = _literal(host)
    if literal is None:
        _check_name(host)
    return BaseURL(url, host, port, literal)


def _literal(host: str) -> IP | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _check_name(host: str) -> None:
    labels = host.split(".")
    if not host or len(host) > 253 or not all(_LABEL.match(label) for label in labels):
        raise BadAddress(f"“{host}” is not the name of a host.")
    # The system's resolver would take these for addresses; people would read them as names.
    if _NUMERIC.match(labels[-1]):
        raise BadAddress(
            f"The host “{host}” is a number in an unusual form; "
            "write the address out, such as 192.0.2.1."
        )


_Net: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def _nets(*texts: str) -> tuple[_Net, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


_PRIVATE: Final = _nets(
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"
)
# Clouds answer their secrets on some of these, inside and outside of the ranges for private use.
_NEVER: Final = _nets(
    "0.0.0.0/8",
    "169.254.0.0/16",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "::/128",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
    "fd00:ec2::/32",
    "fe80::/9",
    "ff00::/8",
)


def _within(address: IP, nets: Sequence[_Net]) -> bool:
    return any(address.version == net.version and address in net for net in nets)


def _hidden(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address carries and a gateway would unwrap."""
    number = int(address)
    low = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if number >> 32 == 0 and number > 1:  # ::a.b.c.d, the oldest form
        yield low
    if number >> 32 == 0x64FF9B << 64 or (number >> 32) & 0xFFFFFFFF in {0x5EFE, 0x2005EFE}:
        yield low  # NAT64, ISATAP
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def reach(address: IP) -> Reach:
    """Say where an address leads.

    >>> [reach(ipaddress.ip_address(a)).value for a in ("8.8.8.8", "::1", "10.0.0.1")]
    ['public', 'loopback', 'private']
    >>> reach(ipaddress.ip_address("::ffff:a9fe:a9fe")).value
    'never'
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return reach(address.ipv4_mapped)
        if address.scope_id is not None:
            return Reach.NEVER
        if any(reach(hidden) is not Reach.PUBLIC for hidden in _hidden(address)):
            return Reach.NEVER
    if _within(address, _NEVER):
        return Reach.NEVER
    if address.is_loopback:
        return Reach.LOOPBACK
    if _within(address, _PRIVATE):
        return Reach.PRIVATE
    return Reach.PUBLIC if address.is_global else Reach.NEVER


def check_addresses(base: BaseURL, addresses: Sequence[IP], policy: Policy) -> None:
    """Raise ``BadAddress`` unless every address may be connected to; one bad one is enough."""
    reaches = {reach(address) for address in addresses}
    if Reach.NEVER in reaches:
        raise BadAddress(f"“{base.host}” leads to an address that is never connected to.")
    if Reach.LOOPBACK in reaches and not policy.allow_loopback:
        raise BadAddress(
            f"“{base.host}” is this machine itself, which HERMES_ALLOW_LOOPBACK_MODELS does not "
            "allow."
        )
    if Reach.PRIVATE in reaches and base.host not in policy.allowed_hosts:
        raise BadAddress(
            f"“{base.host}” is in a private network. Add it to HERMES_MODEL_HOSTS to allow it."
        )
    if not base.secure and Reach.PUBLIC in reaches:
        # A key and a conversation would cross networks of others in the clear.
        raise BadAddress(
            "http:// is for this machine and for hosts of HERMES_MODEL_HOSTS in your own network; "
            "use https:// for all others."
        )


def resolve(base: BaseURL) -> Resolved:
    """Begin to look up the host; the future holds its addresses or ``UnknownName``.

    The system's look-up cannot be interrupted, so it has a thread of its own, which whoever waits
    can leave behind.
    """
    answer: Resolved = Future()
    if base.literal is not None:
        answer.set_result([base.literal])
        return answer

    def look_up() -> None:
        with suppress(InvalidStateError):  # whoever waited has cancelled
            try:
                found = socket.getaddrinfo(base.host, base.port, type=socket.SOCK_STREAM)
                addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
            except (OSError, ValueError):
                answer.set_exception(UnknownName(f"The name “{base.host}” is not known."))
            else:
                answer.set_result(list(dict.fromkeys(addresses)))

    threading.Thread(target=look_up, name="resolve", daemon=True).start()
    return answer


def check_base_url(text: str, *, allow_loopback: bool, allowed_hosts: Iterable[str]) -> None:
    """Raise ``BadAddress`` unless models may be reached under this base URL now.

    It looks the name up, for at most ``RESOLVE_SECONDS``, and connects to nothing.
    """
    base = parse_base_url(text)
    policy = Policy.of(allow_loopback=allow_loopback, allowed_hosts=allowed_hosts)
    try:
        addresses = resolve(base).result(RESOLVE_SECONDS)
    except UnknownName as error:
        raise BadAddress(f"{error} Check its spelling.") from None
    except WaitedTooLong:
        raise BadAddress(f"The name “{base.host}” could not be looked up in time.") from None
    check_addresses(base, addresses, policy)


def origin(text: str) -> str:
    """Scheme, host and port of a base URL: what a key is bound to.

    >>> origin("https://api.example.org/v1")
    'https://api.example.org:443'
    """
    base = parse_base_url(text)
    host = f"[{base.host}]" if base.literal and base.literal.version == 6 else base.host
    return f"{base.url.scheme}://{host}:{base.port}"
