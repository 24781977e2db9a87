"""Validates uids, addresses and texts in a status.

A text that is too long gets only that error.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from apiserver.apis.virt.places import network

MAX_UID: Final = 63
MAX_MESSAGE: Final = 8 << 10
"""The names of all claims of a machine fit."""
MAX_REASON: Final = 256
MAX_WORDS: Final = 256
MAX_DEVICE: Final = 64
MAX_PATH: Final = 256
MAX_MOMENT: Final = 40
"""An RFC 3339 time, with fractions of any length."""
MAX_PORT: Final = 65535
_MAX_ADDRESS: Final = 45
"""An IPv6 address as text (RFC 4291, 2.2)."""
_MAX_HOST_PORT: Final = _MAX_ADDRESS + len("[]:65535")

_WITHOUT_PODS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.100.100.200/32",  # Alibaba Cloud's metadata service
            "168.63.129.16/32",  # Azure's
            "192.0.0.192/32",  # Oracle Cloud's
            "fd00:ec2::/32",  # AWS's, and further services for each machine
            "fd20:ce::/32",  # Google Cloud's
            "64:ff9b::/96",  # the rest are mapped IPv4 addresses
            "64:ff9b:1::/48",
            "2002::/16",
            "2001::/32",
        ),
    )
)
"""Besides those in :mod:`ipaddress`: 169.254.169.254 is link-local."""

_NO_PODS: Final = "must be an address that a pod can have, not a loopback, link-local, multicast or cloud metadata address"

UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
DEVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 :._-]*")
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""``reason`` of ``metav1.Condition``."""
_IMAGE_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9][A-Za-z0-9-]*")
_PATH: Final = re.compile(r"spec\.[A-Za-z0-9.\[\]-]+")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HOST_PORT: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)):(?P<port>[1-9][0-9]{0,4})", re.ASCII)


def uid_errors(text: str) -> list[str]:
    """Return errors in a uid, which is part of paths on nodes: alphanumeric characters and hyphens, not only a UUID."""
    if len(text) > MAX_UID:
        return [f"must be no more than {MAX_UID} bytes"]
    return [] if _UID.fullmatch(text) else ["must be a uid: alphanumeric characters and '-', beginning with an alphanumeric character"]


def image_file_errors(text: str) -> list[str]:
    """Return errors in the path of a suspended guest's image: the machine's uid, ``/``, the operation's id."""
    fits = len(text) <= 2 * MAX_UID + 1 and _IMAGE_FILE.fullmatch(text)
    return [] if fits else ["must be the machine's uid, '/', and an operation's id"]


def digest_errors(text: str) -> list[str]:
    """Return errors in a digest, ``sha256:…``."""
    return [] if _DIGEST.fullmatch(text) else ["must be sha256: and 64 lower-case hexadecimal digits"]


def ip_errors(text: str) -> list[str]:
    """Return errors in an IPv4 or IPv6 address without a zone."""
    return [] if ip(text) is not None else ["must be an IP address such as 10.9.8.7 or 2001:db8::ffff"]


def pod_ip_errors(text: str) -> list[str]:
    """Return errors in a pod's address, which other components dial; loopback, link-local and metadata addresses are errors."""
    if found := ip_errors(text):
        return found
    return [] if pod_ip(text) is not None else [_NO_PODS]


def mac_errors(text: str) -> list[str]:
    """Return errors in a MAC address: six hexadecimal pairs with colons."""
    return [] if MAC.fullmatch(text) else [f"must be six pairs of hexadecimal digits such as {network.EXAMPLE_MAC}"]


def host_port_errors(text: str) -> list[str]:
    """Return errors in a pod's ``host:port`` with an IP address."""
    if (found := host_port(text)) is None:
        return ["must be an IP address and a port such as 10.9.8.7:8445 or [2001:db8::ffff]:8445"]
    return [] if pod_ip(str(found[0])) is not None else [_NO_PODS]


def reason_errors(text: str) -> list[str]:
    """Return errors in a condition's reason by the rule of ``metav1.Condition``."""
    if len(text) > MAX_REASON:
        return [f"must be no more than {MAX_REASON} bytes"]
    return [] if _REASON.fullmatch(text) else ["must be one word such as PodNotRunning: letters, digits, '_', ',' and ':'"]


def message_errors(text: str) -> list[str]:
    """Return errors in a message: more than ``MAX_MESSAGE`` bytes, or unprintable characters other than line feed and tab."""
    return _text_errors(text, MAX_MESSAGE, "\n\t")


def words_errors(text: str) -> list[str]:
    """Return errors in one printable line from a hypervisor, of at most ``MAX_WORDS`` bytes."""
    return _text_errors(text, MAX_WORDS, "")


def device_errors(text: str) -> list[str]:
    """Return errors in a guest device's name or address in a status, such as ``vda`` or ``pci 0000:01:00.0``."""
    if len(text) > MAX_DEVICE:
        return [f"must be no more than {MAX_DEVICE} bytes"]
    return [] if DEVICE.fullmatch(text) else ["must be a name or an address such as vda or pci 0000:01:00.0"]


def path_errors(text: str) -> list[str]:
    """Return errors in a field's path (``spec.domain.cpu``)."""
    if len(text) > MAX_PATH:
        return [f"must be no more than {MAX_PATH} bytes"]
    return [] if _PATH.fullmatch(text) else ["must be a path such as spec.domain.devices.disks[data].ioTune"]


def moment_errors(text: str) -> list[str]:
    """Return errors in an RFC 3339 time's length; the schema checks its form."""
    return [f"must be no more than {MAX_MOMENT} bytes"] if len(text) > MAX_MOMENT else []


def ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that the whole text is; None for any other text, also an address with a zone."""
    if len(text) > _MAX_ADDRESS or "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def pod_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address in an untrusted text if it can be a pod's; None for loopback, link-local, multicast and the like."""
    found = ip(text)
    if found is None or (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None):
        return None
    nobodys = found.is_unspecified or found.is_loopback or found.is_link_local or found.is_multicast or found.is_reserved
    return None if nobodys or any(found in each for each in _WITHOUT_PODS) else found


def host_port(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
    """Return (IP address, port) of a text such as ``10.9.8.7:8445`` or ``[2001:db8::1]:8445``; None for any other, such as a host name."""
    match = _HOST_PORT.fullmatch(text) if len(text) <= _MAX_HOST_PORT else None
    if match is None:
        return None
    host, port = ip(match["six"] or match["four"]), int(match["port"])
    fits = host is not None and port <= MAX_PORT and (host.version == 6) == bool(match["six"])
    return (host, port) if host is not None and fits else None


def _text_errors(text: str, limit: int, besides: str) -> list[str]:
    if len(text.encode(errors="surrogatepass")) > limit:
        return [f"must be no more than {limit} bytes"]
    fine = text.isprintable() or all(each.isprintable() or each in besides for each in text)
    return [] if fine else ["must consist of printable characters"]
