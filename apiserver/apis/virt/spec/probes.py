"""``spec.readinessProbe`` and ``spec.livenessProbe`` as plain JSON with defaults.

Numbers and defaults are those of containers (kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1, Probe).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

READINESS: Final = "readinessProbe"
LIVENESS: Final = "livenessProbe"
HTTP: Final = "httpGet"
TCP: Final = "tcpSocket"
EXEC: Final = "exec"
AGENT: Final = "guestAgentPing"
HANDLERS: Final = (HTTP, TCP, EXEC, AGENT)
"""A probe has exactly one."""
OVER_NETWORK: Final = (HTTP, TCP)
PERIOD_SECONDS: Final = 10
TIMEOUT_SECONDS: Final = 1
SUCCESS_THRESHOLD: Final = 1
FAILURE_THRESHOLD: Final = 3
MAX_SECONDS: Final = 24 * 3600
MAX_EXEC_SECONDS: Final = 30
"""Less than virt-handler waits for virt-launcher."""
MAX_THRESHOLD: Final = 1000
MAX_PORT: Final = 65535
PING: Final = "guestping"
"""The launcher's ``Read`` that pings the guest agent; its text is empty."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A readiness or liveness probe of a guest, with defaults. ``port`` 0: the guest agent's, or invalid, so it cannot run."""

    handler: str
    port: int = 0
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    initial_delay_seconds: int = 0
    period_seconds: int = PERIOD_SECONDS
    timeout_seconds: int = TIMEOUT_SECONDS
    success_threshold: int = SUCCESS_THRESHOLD
    failure_threshold: int = FAILURE_THRESHOLD
    command: tuple[str, ...] = ()
    """For ``exec``; else empty."""


def of(spec: Mapping[str, Any], field: str) -> Probe | None:
    """Return the ``Probe`` in a field of ``spec``; None without one or without a handler, which virt-api refuses.

    Numbers outside of virt-api's limits become the nearest limit, an invalid port 0.
    """
    given = spec.get(field)
    if not given:
        return None
    handler = next((each for each in HANDLERS if given.get(each) is not None), "")
    if not handler:
        return None
    asked = given[handler]
    return Probe(
        handler=handler,
        port=_port(asked),
        path=str(asked.get("path") or "/"),
        command=tuple(map(str, asked.get("command") or ())),
        headers=tuple((str(each["name"]), str(each["value"])) for each in asked.get("httpHeaders") or ()),
        initial_delay_seconds=_number(given, "initialDelaySeconds", 0, (0, MAX_SECONDS)),
        period_seconds=_number(given, "periodSeconds", PERIOD_SECONDS, (1, MAX_SECONDS)),
        timeout_seconds=_number(given, "timeoutSeconds", TIMEOUT_SECONDS, (1, max_timeout(handler))),
        success_threshold=_number(given, "successThreshold", SUCCESS_THRESHOLD, (1, MAX_THRESHOLD)),
        failure_threshold=_number(given, "failureThreshold", FAILURE_THRESHOLD, (1, MAX_THRESHOLD)),
    )


def max_timeout(handler: str) -> int:
    """Return the maximum of ``timeoutSeconds`` for a handler."""
    return MAX_EXEC_SECONDS if handler == EXEC else MAX_SECONDS


def _port(asked: Mapping[str, Any]) -> int:
    port = int(asked.get("port") or 0)
    return port if 1 <= port <= MAX_PORT else 0


def _number(given: Mapping[str, Any], field: str, otherwise: int, limits: tuple[int, int]) -> int:
    value, (least, most) = given.get(field), limits
    return otherwise if value is None else min(max(least, int(value)), most)
