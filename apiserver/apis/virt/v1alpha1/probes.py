"""Probes of the guest: ``spec.readinessProbe`` and ``spec.livenessProbe``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.spec import probes
from apiserver.apis.virt.v1alpha1 import guest_commands
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_count
from apiserver.apis.virt.v1alpha1.guest_commands import ExecAction

MAX_HEADERS: Final = 16
MAX_HEADER: Final = 1024
MAX_PATH: Final = 1024

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
"""RFC 9110, section 5.6.2."""
_VALUE: Final = re.compile(r"[!-~]([\t -~]*[!-~])?|")
_PATH: Final = re.compile(r"/[!-~]*")
_OURS: Final = frozenset({"connection", "content-length", "transfer-encoding"})
"""virt-handler sets these itself, or they would delay the answer."""


class HTTPHeader(Model):
    """A header field of the request."""

    name: str = Field(description="The field's name. Host replaces the pod's address.")
    value: str = Field(description="Its value.")


class HTTPGetAction(Model):
    """An HTTP request. Status codes from 200 to 399 are a success; redirects are not followed."""

    port: Int32 = Field(description="The guest's TCP port, 1 to 65535.")
    path: str | None = Field(None, description="The path of the request. Default /.")
    scheme: Literal["HTTP"] | None = Field(
        None,
        description="Default HTTP. It is the only value, because virt-handler has all rights on its node, and opens no TLS connections to "
        "guests.",
    )
    http_headers: list[HTTPHeader] | None = Field(
        None, alias="httpHeaders", description="Further header fields of the request.", json_schema_extra=ATOMIC
    )


class TCPSocketAction(Model):
    """A connection, closed once accepted. Not for interfaces of type passt, which accepts connections before the guest."""

    port: Int32 = Field(description="The guest's TCP port, 1 to 65535.")


class GuestAgentPing(Model):
    """A probe that succeeds if the QEMU guest agent answers guest-ping."""


class Probe(Model):
    """A periodic check of the running guest: one of httpGet, tcpSocket, exec and guestAgentPing.

    The guest's node sends the first two to the pod's address, like the kubelet. A probe pauses while the guest is paused, migrates or shuts
    down.
    """

    http_get: HTTPGetAction | None = Field(None, alias="httpGet", description="An HTTP request.")
    tcp_socket: TCPSocketAction | None = Field(None, alias="tcpSocket", description="A TCP connection.")
    exec: ExecAction | None = Field(None, description="A command in the guest, run by the QEMU guest agent; timeoutSeconds is at most 30.")
    guest_agent_ping: GuestAgentPing | None = Field(None, alias="guestAgentPing", description="A ping of the QEMU guest agent.")
    initial_delay_seconds: Int32 | None = Field(
        None, description="Seconds between the guest's start and the first probe, for its boot. Default 0."
    )
    period_seconds: Int32 | None = Field(None, description="Seconds between two probes. Default 10.")
    timeout_seconds: Int32 | None = Field(None, description="Seconds that the guest may take to answer. Default 1.")
    success_threshold: Int32 | None = Field(
        None, description="Consecutive successes after a failure that count as success; 1 for a livenessProbe. Default 1."
    )
    failure_threshold: Int32 | None = Field(None, description="Consecutive failures after a success that count as failure. Default 3.")


def validate(spec: Object, path: Path) -> list[FieldError]:
    """Return errors in the probes; ``path`` is the spec's."""
    found: list[FieldError] = []
    for field in (probes.READINESS, probes.LIVENESS):
        if (given := spec.get(field)) is not None:
            found += _validate_probe(given, path.child(field)) + _validate_reach(given, spec, field, path.child(field))
    threshold = (spec.get(probes.LIVENESS) or {}).get("successThreshold")
    if threshold is not None and threshold != 1:
        found.append(invalid(path.child(probes.LIVENESS, "successThreshold"), threshold, "must be 1"))
    return found


def _validate_probe(given: Object, path: Path) -> list[FieldError]:
    handlers = [each for each in probes.HANDLERS if given.get(each) is not None]
    found = [] if handlers else [required(path, f"one of {', '.join(probes.HANDLERS)}")]
    found += [forbidden(path.child(each), f"may not be set together with {handlers[0]}") for each in handlers[1:]]
    for field, least, most in (
        ("initialDelaySeconds", 0, probes.MAX_SECONDS),
        ("periodSeconds", 1, probes.MAX_SECONDS),
        ("timeoutSeconds", 1, probes.max_timeout(handlers[0] if handlers else "")),
        ("successThreshold", 1, probes.MAX_THRESHOLD),
        ("failureThreshold", 1, probes.MAX_THRESHOLD),
    ):
        if given.get(field) is not None:
            found += validate_between(given[field], least, most, path.child(field))
    for handler in probes.OVER_NETWORK:
        if (asked := given.get(handler)) is not None and asked.get("port") is not None:
            found += validate_between(asked["port"], 1, probes.MAX_PORT, path.child(handler, "port"))
    found += guest_commands.validate(given.get(probes.EXEC), path.child(probes.EXEC))
    return found + _validate_request(given.get(probes.HTTP) or {}, path.child(probes.HTTP))


def _validate_request(asked: Object, path: Path) -> list[FieldError]:
    wanted, headers, place = asked.get("path"), asked.get("httpHeaders") or [], path.child("httpHeaders")
    found = validate_count(headers, MAX_HEADERS, place)
    if wanted is not None and len(wanted) > MAX_PATH:
        found.append(too_long(path.child("path"), MAX_PATH))
    elif wanted and not _PATH.fullmatch(wanted):
        text = "must begin with / and consist of visible ASCII characters, others percent-encoded"
        found.append(invalid(path.child("path"), wanted, text))
    for position, each in enumerate(headers):
        name, value = each.get("name") or "", each.get("value") or ""
        if not _TOKEN.fullmatch(name):
            found.append(invalid(place.index(position).child("name"), name, "must be the name of a header field"))
        elif name.lower() in _OURS:
            found.append(forbidden(place.index(position).child("name"), "is set by virt-handler"))
        if len(value) > MAX_HEADER:
            found.append(too_long(place.index(position).child("value"), MAX_HEADER))
        elif not _VALUE.fullmatch(value):
            text = "must consist of printable ASCII characters, and not begin or end with a space"
            found.append(invalid(place.index(position).child("value"), value, text))
    return found


def _validate_reach(given: Object, spec: Mapping[str, Any], field: str, path: Path) -> list[FieldError]:
    """Return errors of the probe at ``path`` if it cannot reach the guest; none with ``domainXML``, which may have the interfaces."""
    if spec.get("domainXML"):
        return []
    own = next((each for each in interfaces.defaulted(spec.get("domain") or {}) if interfaces.is_on_pods_network(each)), None)
    found: list[FieldError] = []
    for handler in (each for each in probes.OVER_NETWORK if given.get(each) is not None):
        if own is None:
            found.append(forbidden(path.child(handler), "requires an interface in the pod's network"))
            continue
        if handler == probes.TCP and own["type"] == interfaces.PASST:
            found.append(
                forbidden(
                    path.child(handler), "passt accepts TCP connections itself, even if the guest does not: use httpGet or guestAgentPing"
                )
            )
        if field == probes.LIVENESS and own.get("state") == "down":
            text = f"the link of interface {own.get('name')} is down (state: down), so the probe would always fail and end the guest"
            found.append(forbidden(path.child(handler), text))
        ports, port = interfaces.ports(own), given[handler].get("port")
        if ports is not None and not any((each.get("port"), each["protocol"]) == (port, "TCP") for each in ports):
            text = f"must be one of the TCP ports of interface {own.get('name')}: other ports do not reach the guest"
            found.append(invalid(path.child(handler, "port"), port, text))
    return found
