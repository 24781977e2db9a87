from __future__ import annotations

import functools
import os
import signal
import socket
from typing import Any

import pytest

from apiserver.apis.virt.places import names
from tests.cluster import processes
from tests.cluster.api import condition_of
from tests.cluster.kube import Console, Kubectl, console, eventually, forwarded, port_of_guest, said_at, until_in
from tests.cluster.serving import BOTH, PORT, a_server, addresses_in, host, pod_addresses, service_addresses, wait_for_addresses
from tests.cluster.test_guest_network import pings, pod_of, start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

CARD: dict[str, Any] = {"name": "default", "type": "passt", "ports": [{"name": "greeting", "port": 8080}, {"port": 22}]}


def process_of(pod: dict[str, Any]) -> int:
    return next((pid for pid, command in processes.of_pod(pod).items() if "--vhost-user" in command and "unsandboxed" not in command), 0)


def serve(guest: Console, port: int, program: str = "") -> None:
    """Serve each connection to a guest's port in a separate process, by default with a greeting.

    A connection that passt lost stays open, and would block one process.
    """
    guest.run(f"(nc -ll -p {port} -e {program or f'echo hello-from-{port}'}) >/dev/null 2>&1 & true")


def echoed(connection: socket.socket) -> None:
    connection.settimeout(60)
    connection.sendall(b"still-there")
    assert connection.recv(100) == b"still-there"


def asked(kubectl: Kubectl, address: str, port: int) -> str:
    return kubectl.try_run("exec", "beside", "--", "nc", "-w", "3", address, str(port), stdin="").stdout.strip()


def wait_for_answer(kubectl: Kubectl, address: str, port: int) -> None:
    answered = f'[ "$(nc -w 3 {address} {port} </dev/null)" = hello-from-8080 ]'
    until_in(kubectl, "beside", answered, timeout=60, what=f"an answer by port {port} of {address}")


def test_passt_guest_is_connected_and_survives_the_end_of_passt(kubectl: Kubectl) -> None:
    kubectl.api.apply(a_server("beside"))
    vm = start(kubectl, "passt-one", CARD)
    pod, (seen,) = pod_of(kubectl, vm), vm["status"]["interfaces"]
    addresses, others = addresses_in(pod), pod_addresses(kubectl, "beside")
    assert seen["ipAddress"] == vm["status"]["podIP"] == addresses[0]
    assert tuple(seen["ipAddresses"]) == addresses
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    spec = {"selector": {names.VM_NAME_LABEL: "passt-one"}, "ports": [{"port": 80, "targetPort": "greeting"}], **BOTH}
    kubectl.api.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "passt"}, "spec": spec})
    services = service_addresses(kubectl, "passt")
    with console(kubectl, "passt-one") as guest:
        guest.expect("GUEST-READY", timeout=90)
        wait_for_addresses(guest, *addresses)
        assert seen["mac"] in guest.run("cat /sys/class/net/eth0/address")

        def fetches(address: str) -> bool:
            return "\nbeside" in guest.run(f"wget -T 5 -q -O - http://{host(address)}:{PORT}/")

        # Out: to a pod, and to a name by the cluster's DNS.
        for other in others:
            eventually(functools.partial(fetches, other), timeout=60, what=f"an answer of {other}")
            assert pings(guest, other)
        eventually(lambda: services[0] in guest.run(f"nslookup passt.{kubectl.namespace}.svc.cluster.local"), timeout=60, what="a name")

        # In: by a Service, at the pod's addresses, by kubectl port-forward; no other port.
        for port in (8080, 8081):
            serve(guest, port)
        for service, address in zip(services, addresses, strict=True):
            wait_for_answer(kubectl, service, 80)
            wait_for_answer(kubectl, address, 8080)
            assert "hello-from" not in asked(kubectl, address, 8081)
        with forwarded(kubectl, f"pod/{vm['status']['podName']}", 8080) as own:
            eventually(lambda: said_at(own) == "hello-from-8080", timeout=60, what="an answer by port-forward")
        with port_of_guest(kubectl, "passt-one", "8080") as own:
            eventually(lambda: said_at(own) == "hello-from-8080", timeout=60, what="an answer by kubectl virt port-forward")

        # passt ends three times; the guest gets no notice of lost connections.
        serve(guest, 22, "cat")
        eventually(lambda: ":22 " in guest.run("netstat -ltn"), timeout=60, what="the port")
        for _ in range(3):
            with forwarded(kubectl, f"pod/{vm['status']['podName']}", 22) as own, socket.create_connection(("127.0.0.1", own)) as open_one:
                echoed(open_one)
                before = process_of(pod)
                assert before, "passt does not run"
                os.kill(before, signal.SIGKILL)
                eventually(lambda: process_of(pod) not in (0, before), timeout=60, what="another passt")  # noqa: B023  # it is called at once
                for service, other in zip(services, others, strict=True):
                    wait_for_answer(kubectl, service, 80)
                    eventually(functools.partial(fetches, other), timeout=60, what=f"an answer of {other} afterwards")
        kubectl.api.events("PasstEnded", timeout=90)
    after = kubectl.api.get("vm", "passt-one")
    assert after["status"]["podName"] == vm["status"]["podName"]
    told = condition_of(after, "Migratable")
    assert told["status"] == "False"
    assert "uses passt" in told["message"]
