"""Who answers connections in the cluster tests, and who asks: web servers in guests and pods, and pods that fetch from them."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.cluster.kube import Console, Kubectl, eventually
from tests.cluster.test_testbed import a_pod
from tests.host.launcher.sandbox import wait_for

PORT = 8080


def serve(guest: Console, word: str) -> None:
    """Have a guest at its prompt answer HTTP with a word, once it has its address."""
    wait_for(lambda: "10.0.2.2/24" in guest.run("ip -4 address show"), 60, "the guest's address")
    guest.run(f"mkdir -p /www && echo {word} >/www/index.html && httpd -p {PORT} -h /www")


def a_server(name: str, node: str = "", **labels: str) -> dict[str, Any]:
    """Return a pod that answers with its name."""
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
    """Return a pod from which :func:`fetched` asks."""
    pod = a_pod(name, "sleep", "100000", node=node, restart="Always")
    pod["metadata"]["labels"] |= labels
    return pod


def a_service(name: str, app: str) -> dict[str, Any]:
    """Return a Service of port 80 that leads to :data:`PORT` of the pods with the label ``app``."""
    spec = {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def address_of(kubectl: Kubectl, pod: str) -> str:
    """Return the address of a pod once it is ready to answer or to ask."""
    kubectl("wait", "pod", pod, "--for=condition=Ready", "--timeout=90s", timeout=100)
    return str(kubectl.json("get", "pod", pod)["status"]["podIP"])


def fetched(kubectl: Kubectl, client: str, url: str) -> subprocess.CompletedProcess[str]:
    """Ask for a URL from a pod; what cannot be reached takes five seconds."""
    return kubectl.try_run("exec", client, "--", "fetch", url)


def reaches(kubectl: Kubectl, client: str, address: str, port: int = PORT) -> bool:
    """Return whether something at the port of the address lets the client connect, whatever it answers."""
    done = fetched(kubectl, client, f"http://{address}:{port}/")
    assert "unable to upgrade connection" not in done.stderr, done.stderr
    return done.returncode == 0 or "timeout" not in done.stderr.lower()


def reached(kubectl: Kubectl, client: str, address: str, port: int = PORT) -> None:
    """Wait until the client reaches it."""
    eventually(lambda: reaches(kubectl, client, address, port), timeout=60, what=f"{client} reaches {address}:{port}")


def kept_off(kubectl: Kubectl, client: str, address: str, port: int = PORT) -> None:
    """Wait until the client is kept off: a policy begins to count when the node has heard of it."""
    eventually(lambda: not reaches(kubectl, client, address, port), timeout=60, what=f"{client} is kept off {address}:{port}")
