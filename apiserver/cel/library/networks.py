"""IP addresses and networks, parsed like Go's ``net/netip``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import ClassVar, Final

from apiserver.apis.meta.validation import quote
from apiserver.cel import cost
from apiserver.cel.frame import Frame
from apiserver.cel.registry import NOMINAL, Library
from apiserver.cel.values import CelError, Opaque

LIBRARY: Final = Library()
_member, _function = LIBRARY.member, LIBRARY.function
_PREFIX: Final = re.compile(r"(.*)/(0|[1-9][0-9]{0,2})", re.DOTALL)
_LONGEST: Final = 64


@dataclass(slots=True, eq=False)
class Ip(Opaque):
    """An IP address as CEL value."""

    type_name: ClassVar[str] = "net.IP"
    address: IPv4Address | IPv6Address

    def equals(self, other: Opaque) -> bool:
        """Return whether ``other`` has the same address."""
        return isinstance(other, Ip) and self.address == other.address

    def size(self) -> int:
        """Return the address's length in bytes."""
        return self.address.max_prefixlen // 8


@dataclass(slots=True, eq=False)
class Cidr(Opaque):
    """An address with a prefix length; further bits may be set."""

    type_name: ClassVar[str] = "net.CIDR"
    address: IPv4Address | IPv6Address
    bits: int

    def equals(self, other: Opaque) -> bool:
        """Return whether address and prefix length are equal."""
        return isinstance(other, Cidr) and (self.address, self.bits) == (other.address, other.bits)

    def size(self) -> int:
        """Return the prefix length in bytes, rounded up."""
        return -(-self.bits // 8)

    def network(self) -> IPv4Network | IPv6Network:
        """Return the network, with the bits behind the prefix cleared."""
        if isinstance(self.address, IPv4Address):
            return IPv4Network((self.address, self.bits), strict=False)
        return IPv6Network((self.address, self.bits), strict=False)


def _address(text: str) -> IPv4Address | IPv6Address:
    shown = quote(text[:_LONGEST])
    if "%" in text:
        raise CelError(f"IP address {shown} with zone value is not allowed")
    try:
        address = ip_address(text)
    except ValueError:
        raise CelError(f"IP Address {shown} parse error during conversion from string: ParseAddr({shown}): unable to parse IP") from None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {shown} is not allowed")
    return address


def _network(text: str) -> Cidr:
    shown = quote(text[:_LONGEST])
    failed = "network address parse error during conversion from string: "
    match = _PREFIX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise CelError(f"{failed}netip.ParsePrefix({shown}): no '/'")
    try:
        address = _address(match[1])
    except CelError as error:
        raise CelError(f"{failed}{error}") from None
    if int(match[2]) > address.max_prefixlen:
        raise CelError(f"{failed}netip.ParsePrefix({shown}): prefix length out of range")
    return Cidr(address, int(match[2]))


def _is(parse: object, text: str) -> bool:
    try:
        parse(text)  # type: ignore[operator]  # one of the two above
    except CelError:
        return False
    return True


@_function("ip", str)
def _ip(frame: Frame, text: str) -> Ip:
    frame.charge(cost.traversal(len(text)))
    return Ip(_address(text))


@_function("isIP", str)
def _is_ip(frame: Frame, text: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return _is(_address, text)


@_function("ip.isCanonical", str)
def _is_canonical(frame: Frame, text: str) -> bool:
    frame.charge(cost.traversal(len(text), 2))
    return str(_address(text)) == text


@_function("cidr", str)
def _cidr(frame: Frame, text: str) -> Cidr:
    frame.charge(cost.traversal(len(text)))
    return _network(text)


@_function("isCIDR", str)
def _is_cidr(frame: Frame, text: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return _is(_network, text)


@_function("string", Ip)
def _ip_text(frame: Frame, ip: Ip) -> str:
    frame.cost += NOMINAL
    return str(ip.address)


@_function("string", Cidr)
def _cidr_text(frame: Frame, cidr: Cidr) -> str:
    frame.cost += NOMINAL
    return f"{cidr.address}/{cidr.bits}"


@_member("family", Ip)
def _family(frame: Frame, ip: Ip) -> int:
    frame.cost += NOMINAL
    return ip.address.version


def _is_link_local_multicast(address: IPv4Address | IPv6Address) -> bool:
    packed = address.packed
    return packed[:3] == b"\xe0\x00\x00" if len(packed) == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 2


def _is_global_unicast(address: IPv4Address | IPv6Address) -> bool:
    broadcast = address.packed == b"\xff\xff\xff\xff"
    return not (broadcast or address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local)


for _name, _property in (
    ("isUnspecified", lambda address: address.is_unspecified),
    ("isLoopback", lambda address: address.is_loopback),
    ("isLinkLocalMulticast", _is_link_local_multicast),
    ("isLinkLocalUnicast", lambda address: address.is_link_local),
    ("isGlobalUnicast", _is_global_unicast),
):

    def _predicate(of: object) -> object:
        def read(frame: Frame, ip: Ip) -> bool:
            frame.cost += NOMINAL
            return of(ip.address)  # type: ignore[operator,no-any-return]  # one of the functions above

        return read

    _member(_name, Ip)(_predicate(_property))  # type: ignore[arg-type]  # it makes a function


@_member("ip", Cidr)
def _cidr_ip(frame: Frame, cidr: Cidr) -> Ip:
    frame.cost += NOMINAL
    return Ip(cidr.address)


@_member("prefixLength", Cidr)
def _prefix_length(frame: Frame, cidr: Cidr) -> int:
    frame.cost += NOMINAL
    return cidr.bits


@_member("masked", Cidr)
def _masked(frame: Frame, cidr: Cidr) -> Cidr:
    frame.cost += NOMINAL
    return Cidr(cidr.network().network_address, cidr.bits)


@_member("containsIP", Cidr, Ip)
def _contains_ip(frame: Frame, cidr: Cidr, ip: Ip) -> bool:
    frame.charge(cost.traversal(2 * cidr.size()))
    return ip.address in cidr.network()


@_member("containsIP", Cidr, str)
def _contains_ip_text(frame: Frame, cidr: Cidr, text: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return bool(_contains_ip(frame, cidr, Ip(_address(text))))


@_member("containsCIDR", Cidr, Cidr)
def _contains_cidr(frame: Frame, cidr: Cidr, other: Cidr) -> bool:
    frame.charge(cost.traversal(2 * cidr.size()) + cost.traversal(cidr.size()) + 1)
    return cidr.bits <= other.bits and other.address in cidr.network()


@_member("containsCIDR", Cidr, str)
def _contains_cidr_text(frame: Frame, cidr: Cidr, text: str) -> bool:
    frame.charge(cost.traversal(len(text)))
    return bool(_contains_cidr(frame, cidr, _network(text)))
