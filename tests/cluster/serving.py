from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.cluster.kube import Console, Kubectl, until_in
from tests.cluster.test_testbed import a_pod
from tests.given_time import Deadline
from tests.testbed import kubectl as testbed_kubectl

PORT = 8080
BOTH = {"ipFamilyPolicy": "PreferDualStack"}
"""One address per family of the cluster."""


def serve(guest: Console, word: str, *addresses: str) -> None:
    """``addresses``: that the guest must have; by default those of the pod network."""
    wait_for_addresses(guest, *(addresses or ("10.0.2.2", *(["fd10:0:2::2"] if testbed_kubectl.is_own_cluster() else []))))
    guest.run(f"mkdir -p /www && echo {word} >/www/index.html && httpd -p {PORT} -h /www")


def wait_for_addresses(guest: Console, *addresses: str) -> None:

    def missing() -> set[str]:
        lines = guest.run("ip address show").splitlines()
        usable = {line.split()[1].partition("/")[0] for line in lines if line.strip().startswith("inet") and "tentative" not in line}
        return set(addresses) - usable

    deadline = Deadline(120)
    while left := missing():
        assert deadline.left > 0, f"the guest does not have {', '.join(sorted(left))} after 120 s"
        time.sleep(0.5)  # more output would push the ready message out of the replay


def a_server(name: str, node: str = "", **labels: str) -> dict[str, Any]:
    pod = a_pod(
        name,
        "sh",
        "-c",
        f"mkdir /tmp/www && hostname >/tmp/www/index.html && exec httpd -f -p {PORT} -h /tmp/www",
        node=node,
        restart="Always",
    )
    pod["metadata"]["labels"] |= labels
    return pod


def a_client(name: str, node: str = "", **labels: str) -> dict[str, Any]:
    pod = a_pod(name, "sleep", "100000", node=node, restart="Always")
    pod["metadata"]["labels"] |= labels
    return pod


def a_service(name: str, app: str, **spec: Any) -> dict[str, Any]:
    spec |= {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def address_of(kubectl: Kubectl, pod: str) -> str:
    return pod_addresses(kubectl, pod)[0]


def pod_addresses(kubectl: Kubectl, pod: str) -> tuple[str, ...]:
    kubectl.api.ready("pod", pod, timeout=90)
    return addresses_in(kubectl.api.get("pod", pod))


def addresses_in(pod: dict[str, Any]) -> tuple[str, ...]:
    found = tuple(str(each["ip"]) for each in pod["status"]["podIPs"])
    if testbed_kubectl.is_own_cluster():
        assert [":" in each for each in found] == [False, True], found
    return found


def service_addresses(kubectl: Kubectl, service: str) -> tuple[str, ...]:
    found = tuple(kubectl.api.get("service", service)["spec"]["clusterIPs"])
    if testbed_kubectl.is_own_cluster():
        assert [":" in each for each in found] == [False, True], found
    return found


def host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def fetched(kubectl: Kubectl, client: str, url: str) -> subprocess.CompletedProcess[str]:
    return kubectl.try_run("exec", client, "--", "fetch", url)


def reached(kubectl: Kubectl, client: str, *addresses: str, port: int = PORT) -> None:
    _wait(kubectl, client, addresses, port, is_open=True)


def kept_off(kubectl: Kubectl, client: str, *addresses: str, port: int = PORT) -> None:
    _wait(kubectl, client, addresses, port, is_open=False)


def _wait(kubectl: Kubectl, client: str, addresses: tuple[str, ...], port: int, *, is_open: bool) -> None:
    def wait(address: str) -> None:
        what = f"{client} {'reaches' if is_open else 'is kept off'} {address}:{port}"
        fetches = f'said=$(fetch "http://{host(address)}:{port}/" 2>&1)'
        reaches = f'{{ {fetches} || {{ echo "$said"; ! echo "$said" | grep -qi timeout; }}; }}'
        until_in(kubectl, client, reaches if is_open else f"! {reaches}", timeout=60, what=what)

    assert addresses
    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(wait, addresses))
