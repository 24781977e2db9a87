"""The tap for the guest's solicitations and DHCPv6, and for their answers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, Self

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import network
from launcher.ipv6 import dhcpv6, discovery, lease
from launcher.ipv6.packets import ICMPV6, Packet, encode, parse
from launcher.ipv6.settings import Settings, packed
from launcher.protocol import leases, messages

logger = logging.getLogger(__name__)

FRAME_BYTES: Final = 2048
"""More than any client sends. Longer frames are cut, and malformed."""
TURN_FRAMES: Final = 16
"""Frames read before other tasks get their turn."""
ADVERTISE_SECONDS: Final = 600.0
"""Interval of unsolicited advertisements: several per ``discovery.ROUTER_SECONDS``."""
AGAIN_SECONDS: Final = 5.0
"""Interval of attempts to reopen the tap."""
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
_UDP_HEAD: Final = struct.Struct("!HHHH")


def open_tap() -> int:
    """Return a non-blocking descriptor of the tap that virt-handler made for this user. Raises OSError."""
    opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    with descriptors.on_error(functools.partial(os.close, opened)):
        fcntl.ioctl(opened, _TUNSETIFF, struct.pack("16sH22x", network.CONTROL_TAP.encode(), _IFF_TAP | _IFF_NO_PI))
    return opened


class Server:
    """Router advertisements and DHCPv6 for the guest; a context manager that ends them."""

    def __init__(
        self,
        opened: Callable[[], int] = open_tap,
        find: Callable[[str, leases.Lease6, socket.socket], Settings] = lease.of,
        *,
        again_seconds: float = AGAIN_SECONDS,
        advertise_seconds: float = ADVERTISE_SECONDS,
        turn_frames: int = TURN_FRAMES,
    ) -> None:
        self._open, self._find, self._again_seconds = opened, find, again_seconds
        self._advertise_seconds, self._turn_frames = advertise_seconds, turn_frames
        self._tap: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        """For the next advertisement or attempt to reopen the tap."""
        self._began = float("-inf")
        """When the tap was opened, in the event loop's time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._close()

    def serve(self, machine: messages.Machine) -> None:
        """Answer the guest if its pod has IPv6 and it has an interface on the pod's network, else stop; keep an earlier call's settings.

        Raises:
            OSError: virt-handler has not prepared the pod's network.
        """
        found = lease.given(machine)
        if found is None:
            self._close()
        if self._tap is not None or found is None:
            return
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as any_socket:
                told = self._find(*found, any_socket)
            self._begin(told)
        except OSError as error:
            raise OSError(error.errno, f"serve IPv6 on {network.CONTROL_TAP}: {error.strerror}") from error

    def _begin(self, told: Settings) -> None:
        loop = asyncio.get_running_loop()
        self._tap, self._began = self._open(), loop.time()
        loop.add_reader(self._tap, self._answer_some, self._tap, told)
        self._advertise(told)

    def _advertise(self, told: Settings) -> None:
        if self._tap is not None:
            _send(self._tap, discovery.advertisement(told))
            self._timer = asyncio.get_running_loop().call_later(self._advertise_seconds, self._advertise, told)

    def _answer_some(self, tap: int, told: Settings) -> None:
        for _ in range(self._turn_frames):
            try:
                frame = os.read(tap, FRAME_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(told, error)
                return
            if (said := answer(frame, told)) is not None:
                _send(tap, said)

    def _lose(self, told: Settings, error: OSError) -> None:
        """Reopen the tap, at once if virt-handler made a new one, but at most once per ``again_seconds``.

        The event loop always reports an unreadable tap as readable.
        """
        logger.warning("cannot read virt-launcher's tap, reopening it", extra={"tap": network.CONTROL_TAP, "error": str(error)})
        loop = asyncio.get_running_loop()
        left = self._began + self._again_seconds - loop.time()
        is_down = error.errno == errno.EIO  # temporary, for example while its filter cannot be loaded
        self._close()
        if left <= 0 and not is_down:
            self._begin_anew(told)
        else:
            self._timer = loop.call_later(self._again_seconds if is_down else left, self._begin_anew, told)

    def _begin_anew(self, told: Settings) -> None:
        self._close()
        try:
            self._begin(told)
        except OSError:  # virt-handler must make it first
            self._timer = asyncio.get_running_loop().call_later(self._again_seconds, self._begin_anew, told)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tap is not None:
            asyncio.get_running_loop().remove_reader(self._tap)
            os.close(self._tap)
            self._tap = None


def answer(frame: bytes, told: Settings) -> bytes | None:
    """Return the frame that answers a frame of the guest; None if it needs none. Pure."""
    packet = parse(frame)
    if packet is None or packet.source_mac != told.mac:
        return None
    return discovery.answer(packet, told) if packet.protocol == ICMPV6 else _datagram(packet, told)


def _datagram(packet: Packet, told: Settings) -> bytes | None:
    _, port, length, _ = _UDP_HEAD.unpack_from(packet.payload)
    if port != network.DHCP6_SERVER_PORT or length != len(packet.payload) or packet.source[:2] != b"\xfe\x80":
        return None
    said = dhcpv6.answer(packet.payload[_UDP_HEAD.size :], told)
    if said is None:
        return None
    datagram = _UDP_HEAD.pack(network.DHCP6_SERVER_PORT, network.DHCP6_CLIENT_PORT, _UDP_HEAD.size + len(said), 0) + said
    return encode(told.mac, Packet(told.server_mac, packed(told.server), packet.source, packet.protocol, 64, datagram))


def _send(tap: int, frame: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(tap, frame)
