from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.spec import probes as accessors
from apiserver.apis.virt.spec.probes import Probe
from apiserver.apis.virt.v1alpha1 import probes

PORTS: dict[str, Any] = {
    "domain": {"devices": {"interfaces": [{"name": "default", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]}}
}
TCP = {"tcpSocket": {"port": 80}}


def errors(given: Any, field: str = "readinessProbe", **spec: Any) -> list[str]:
    return [str(each) for each in probes.validate({field: given, **spec}, Path("spec"))]


@pytest.mark.parametrize(
    "given",
    [
        TCP,
        {"tcpSocket": {"port": 65535}, "initialDelaySeconds": 0, "periodSeconds": 1, "timeoutSeconds": 1, "successThreshold": 1},
        {"guestAgentPing": {}, "failureThreshold": 1000},
        {"httpGet": {"port": 80, "path": "/live?a=%20", "scheme": "HTTP", "httpHeaders": [{"name": "Host", "value": "a b"}]}},
        {"httpGet": {"port": 80, "httpHeaders": [{"name": "X-Empty", "value": ""}]}},
        {"exec": {"command": ["/bin/live", ""]}, "timeoutSeconds": 30},
    ],
)
@pytest.mark.parametrize("field", ["readinessProbe", "livenessProbe"])
def test_container_probes_are_accepted_for_guests(given: Any, field: str) -> None:
    assert errors(given, field) == []


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, ["spec.readinessProbe: Required value: one of httpGet, tcpSocket, exec, guestAgentPing"]),
        (
            {"guestAgentPing": {}, "tcpSocket": {"port": 1}, "httpGet": {"port": 1}},
            [
                "spec.readinessProbe.tcpSocket: Forbidden: may not be set together with httpGet",
                "spec.readinessProbe.guestAgentPing: Forbidden: may not be set together with httpGet",
            ],
        ),
        (
            {**TCP, "initialDelaySeconds": -1, "periodSeconds": 0, "timeoutSeconds": 0, "successThreshold": 0, "failureThreshold": 1001},
            [
                "spec.readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.readinessProbe.periodSeconds: Invalid value: 0: must be greater than or equal to 1",
                "spec.readinessProbe.timeoutSeconds: Invalid value: 0: must be greater than or equal to 1",
                "spec.readinessProbe.successThreshold: Invalid value: 0: must be greater than or equal to 1",
                "spec.readinessProbe.failureThreshold: Invalid value: 1001: must be less than or equal to 1000",
            ],
        ),
        ({"exec": {"command": []}}, ["spec.readinessProbe.exec.command: Required value: name a program"]),
        ({"exec": {"command": ["", "a"]}}, ["spec.readinessProbe.exec.command: Required value: name a program"]),
        ({"exec": {"command": ["a"] * 65}}, ["spec.readinessProbe.exec.command: Too many: 65: must have at most 64 items"]),
        ({"exec": {"command": ["a" * 4097]}}, ["spec.readinessProbe.exec.command: Too long: may not be more than 4096 bytes"]),
        (
            {"exec": {"command": ["a\0", "b"]}},
            ['spec.readinessProbe.exec.command[0]: Invalid value: "a\\x00": must not contain a null character'],
        ),
        (
            {"exec": {"command": ["a", "b\0"]}},
            ['spec.readinessProbe.exec.command[1]: Invalid value: "b\\x00": must not contain a null character'],
        ),
        (
            {"exec": {"command": ["a"]}, "timeoutSeconds": 31},
            ["spec.readinessProbe.timeoutSeconds: Invalid value: 31: must be less than or equal to 30"],
        ),
        ({"tcpSocket": {"port": 0}}, ["spec.readinessProbe.tcpSocket.port: Invalid value: 0: must be greater than or equal to 1"]),
        ({"httpGet": {"port": 65536}}, ["spec.readinessProbe.httpGet.port: Invalid value: 65536: must be less than or equal to 65535"]),
    ],
)
def test_all_that_is_wrong_is_told(given: Any, wrong: list[str]) -> None:
    assert errors(given) == wrong


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"path": "live"}, "path"),
        ({"path": "/a b"}, "path"),
        ({"path": "/\r\nHost: x"}, "path"),
        ({"path": "/ü"}, "path"),
        ({"path": "/" + "a" * 1024}, "path"),
        ({"httpHeaders": [{"name": "a", "value": "b"}] * 17}, "httpHeaders"),
        ({"httpHeaders": [{"name": "a:", "value": "b"}]}, "httpHeaders[0].name"),
        ({"httpHeaders": [{"name": "", "value": "b"}]}, "httpHeaders[0].name"),
        ({"httpHeaders": [{"name": "Transfer-Encoding", "value": "chunked"}]}, "httpHeaders[0].name"),
        ({"httpHeaders": [{"name": "a", "value": "b\r\nc: d"}]}, "httpHeaders[0].value"),
        ({"httpHeaders": [{"name": "a", "value": " b"}]}, "httpHeaders[0].value"),
        ({"httpHeaders": [{"name": "a", "value": "b" * 1025}]}, "httpHeaders[0].value"),
    ],
)
def test_a_request_is_one_that_every_server_reads_alike(asked: Any, field: str) -> None:
    (error,) = errors({"httpGet": {"port": 80, **asked}})
    assert error.startswith(f"spec.readinessProbe.httpGet.{field}: ")


def test_a_livenessprobe_succeeds_at_once() -> None:
    (error,) = errors({**TCP, "successThreshold": 2}, "livenessProbe")
    assert error == "spec.livenessProbe.successThreshold: Invalid value: 2: must be 1"
    assert errors({**TCP, "successThreshold": 2}) == []


def test_a_port_is_one_that_reaches_the_guest() -> None:
    assert errors(TCP, **PORTS) == []
    for handler in ("tcpSocket", "httpGet"):
        (error,) = errors({handler: {"port": 53}}, **PORTS)
        assert error == (
            f"spec.readinessProbe.{handler}.port: Invalid value: 53: must be one of the TCP ports of interface default: other ports do "
            "not reach the guest"
        )
    assert errors({"guestAgentPing": {}}, **PORTS) == []
    assert errors({"tcpSocket": {"port": 53}}, domainXML="<domain/>", **PORTS) == []


def test_guest_without_pod_network_allows_only_the_agent_probe() -> None:
    private = {"name": "private", "type": "plugin", "plugin": "isolated"}
    for interfaces in ([], [{"name": "lan", "type": "bridge", "network": "lan"}], [private]):
        spec: dict[str, Any] = {"domain": {"devices": {"interfaces": interfaces}}}
        assert errors(TCP, **spec) == ["spec.readinessProbe.tcpSocket: Forbidden: requires an interface in the pod's network"]
        assert errors({"guestAgentPing": {}}, **spec) == []


@pytest.mark.parametrize("place", [0, 1])
def test_probe_port_must_be_one_of_the_pod_network_interface(place: int) -> None:
    spec: dict[str, Any] = {"domain": {"devices": {"interfaces": [{"name": "private", "type": "plugin", "plugin": "isolated"}]}}}
    spec["domain"]["devices"]["interfaces"].insert(place, {"name": "own", "type": "masquerade", "ports": [{"port": 22}]})
    (error,) = errors(TCP, **spec)
    assert "must be one of the TCP ports of interface own" in error
    assert errors({"tcpSocket": {"port": 22}}, **spec) == []


def test_passt_allows_no_tcp_probe_except_its_ports() -> None:
    spec: dict[str, Any] = {"domain": {"devices": {"interfaces": [{"name": "own", "type": "passt", "ports": [{"port": 80}]}]}}}
    assert errors(TCP, **spec) == [
        (
            "spec.readinessProbe.tcpSocket: Forbidden: passt accepts TCP connections itself, even if the "
            "guest does not: use httpGet or guestAgentPing"
        )
    ]
    assert errors({"httpGet": {"port": 80}}, **spec) == []
    assert errors({"guestAgentPing": {}}, **spec) == []
    (_, port) = errors({"tcpSocket": {"port": 81}}, **spec)
    assert port.startswith("spec.readinessProbe.tcpSocket.port: Invalid value: 81: must be one of the TCP ports of interface own: ")


def test_link_down_allows_readiness_but_no_liveness_probe() -> None:
    spec: dict[str, Any] = {"domain": {"devices": {"interfaces": [{"name": "own", "state": "down"}]}}}
    assert errors(TCP, **spec) == []
    for given in (TCP, {"httpGet": {"port": 80}}):
        (error,) = errors(given, "livenessProbe", **spec)
        assert error.endswith(
            "Forbidden: the link of interface own is down (state: down), so the probe would always fail and end the guest"
        )
    assert errors({"guestAgentPing": {}}, "livenessProbe", **spec) == []
    spec["domain"]["devices"]["interfaces"][0]["state"] = "up"
    assert errors(TCP, "livenessProbe", **spec) == []


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"tcpSocket": {"port": 70_000}}, Probe("tcpSocket", 0)),
        ({"tcpSocket": {"port": 65_536}}, Probe("tcpSocket", 0)),
        ({"httpGet": {"port": -1}}, Probe("httpGet", 0)),
        ({"tcpSocket": {"port": 65_535}}, Probe("tcpSocket", 65_535)),
        ({"tcpSocket": {"port": 1}}, Probe("tcpSocket", 1)),
        (
            {**TCP, "initialDelaySeconds": -1, "periodSeconds": 0, "timeoutSeconds": -7, "successThreshold": 0, "failureThreshold": 0},
            Probe("tcpSocket", 80, "/", (), 0, 1, 1, 1, 1),
        ),
        (
            {**TCP, **dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "successThreshold"), 2**31 - 1)},
            Probe("tcpSocket", 80, "/", (), 86_400, 86_400, 86_400, 1000, 3),
        ),
    ],
)
def test_stored_probes_beyond_the_limits_are_clamped(given: Any, wanted: Probe) -> None:
    assert accessors.of({"readinessProbe": given}, "readinessProbe") == wanted


def test_probe_defaults_are_those_of_containers() -> None:
    found = accessors.of({"livenessProbe": {"httpGet": {"port": 80}}}, "livenessProbe")
    assert found == Probe("httpGet", 80, "/", (), 0, 10, 1, 1, 3)
    headers = [{"name": "a", "value": "b"}]
    given = {
        "httpGet": {"port": 8, "path": "/x", "httpHeaders": headers},
        "initialDelaySeconds": 2,
        "periodSeconds": 3,
        "timeoutSeconds": 4,
    }
    found = accessors.of({"readinessProbe": {**given, "successThreshold": 5, "failureThreshold": 6}}, "readinessProbe")
    assert found == Probe("httpGet", 8, "/x", (("a", "b"),), 2, 3, 4, 5, 6)
    assert accessors.of({"readinessProbe": {"guestAgentPing": {}}}, "readinessProbe") == Probe("guestAgentPing")
    assert accessors.of({}, "readinessProbe") is None
    assert accessors.of({"readinessProbe": {"periodSeconds": 1}}, "readinessProbe") is None
