"""Limits on a server's connections: flags, file descriptors and metrics."""

from __future__ import annotations

import argparse
import logging
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Final

from apiserver.apis.meta import flags
from apiserver.endpoints.http.caps import Caps, Places
from apiserver.endpoints.http.handshakes import Handshakes, Limits
from apiserver.endpoints.http.tls import Tls
from apiserver.metrics.instruments import Read

logger = logging.getLogger(__name__)

_OWN: Final = 512
"""For etcd, kube-apiserver, webhooks, files, and closing connections."""
_LEAST: Final = 16


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Limits of a server's connections, as flags; Go's servers lack them."""

    max_connections: int = 4096
    max_unverified_connections: int = 512
    max_unverified_connections_per_address: int = 64

    @classmethod
    def of(cls, given: argparse.Namespace) -> ConnectionOptions:
        """Return the options in parsed flags."""
        return cls(**{each.name: getattr(given, each.name) for each in fields(cls)})


def add_flags(group: argparse._ArgumentGroup) -> None:
    """Add the flags of :class:`ConnectionOptions`."""
    for name, about in (
        ("max-connections", "open connections of clients with a verified certificate, including kube-apiserver"),
        ("max-unverified-connections", "open connections of clients without a certificate; twice as many may be in the TLS handshake"),
        ("max-unverified-connections-per-address", "the same per IP address (IPv6: per /64)"),
    ):
        default = getattr(ConnectionOptions(), name.replace("-", "_"))
        group.add_argument(f"--{name}", metavar="N", type=flags.positive, default=default, help=about)


def raise_descriptors() -> int:
    """Raise the soft limit of open files to the hard limit, and return that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def limits(options: ConnectionOptions, descriptors: int, seconds: float) -> Limits:
    """Return the connections' limits; ``seconds``: a handshake's.

    Too few ``descriptors`` (files that the process may open): logs a warning, and returns smaller numbers, none below 16.
    """
    unverified = options.max_unverified_connections
    wanted = Limits(
        seconds,
        handshakes=Caps(2 * unverified, unverified),
        unverified=Caps(unverified, options.max_unverified_connections_per_address),
        verified=Caps(options.max_connections, options.max_connections),
    )
    needed = sum(each.total for each in (wanted.handshakes, wanted.unverified, wanted.verified))
    if needed + _OWN <= descriptors:
        return wanted
    logger.warning(
        "limiting connections below the flags, because of the limit of file descriptors",
        extra={"descriptors": descriptors, "wanted": needed + _OWN},
    )
    share = max(0, descriptors - _OWN) / needed

    def less(caps: Caps) -> Caps:
        return Caps(max(_LEAST, int(caps.total * share)), max(_LEAST, int(caps.each * share)))

    return Limits(seconds, less(wanted.handshakes), less(wanted.unverified), less(wanted.verified))


def families(handshakes: Handshakes) -> Iterator[Read]:
    """Yield the connection metrics."""
    kinds = {"handshake": handshakes.under_way, "unverified": handshakes.unverified, "verified": handshakes.verified}

    def read(number: Callable[[Places[Tls]], int]) -> Callable[[], list[tuple[tuple[str, ...], float]]]:
        return lambda: [((kind,), float(number(places))) for kind, places in kinds.items()]

    about = "Open connections by kind of client credential."
    yield Read("apiserver_connections", "gauge", about, ("kind",), read(len))
    about = "Connections closed because there were too many."
    yield Read("apiserver_connections_taken_away_total", "counter", about, ("kind",), read(lambda places: places.taken_away))
    about = "Failed TLS handshakes."
    yield Read("apiserver_tls_handshake_errors_total", "counter", about, (), lambda: [((), float(handshakes.failures))])
