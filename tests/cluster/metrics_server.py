"""A metrics API for a pod: the use that the nodes' kubelets measure, as metrics-server reports it."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

PORT = 8443
VERSION = "metrics.k8s.io/v1beta1"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SCRAPE_SECONDS = 4
LINE = re.compile(
    r'container_(?P<what>cpu_usage_seconds_total|memory_working_set_bytes)\{container="(?P<container>[^"]*)",'
    r'namespace="(?P<namespace>[^"]*)",pod="(?P<pod>[^"]*)"\} (?P<value>\S+) (?P<time>\d+)'
)


class Sample(NamedTuple):
    """A measured value, at a time in milliseconds."""

    time: int
    value: float


class Container(NamedTuple):
    namespace: str
    pod: str
    name: str


class Kubelets:
    """The newest samples of all containers: two of the processor time, one of the memory."""

    def __init__(self) -> None:
        self.processor: dict[Container, tuple[Sample, Sample]] = {}
        self.memory: dict[Container, Sample] = {}

    def scrape_always(self) -> None:
        while True:
            for node in json.loads(read("nodes"))["items"]:
                self.take(read(f"nodes/{node['metadata']['name']}/proxy/metrics/resource").decode())
            time.sleep(SCRAPE_SECONDS)

    def take(self, page: str) -> None:
        for found in LINE.finditer(page):
            container = Container(found["namespace"], found["pod"], found["container"])
            sample = Sample(int(found["time"]), float(found["value"]))
            if found["what"] == "memory_working_set_bytes":
                self.memory[container] = sample
            elif (known := self.processor.get(container, (sample, sample))[1]).time < sample.time:
                self.processor[container] = (known, sample)
            else:
                self.processor.setdefault(container, (sample, sample))

    def metrics(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        metadata = pod["metadata"]
        container = Container(metadata["namespace"], metadata["name"], pod["spec"]["containers"][0]["name"])
        earlier, later = self.processor.get(container, (Sample(0, 0), Sample(0, 0)))
        if later.time <= earlier.time:
            return None
        used = (later.value - earlier.value) * 1e12 / (later.time - earlier.time)
        usage = {"cpu": f"{used:.0f}n", "memory": f"{self.memory[container].value / 1024:.0f}Ki"}
        return {
            "metadata": {key: metadata.get(key) for key in ("name", "namespace", "labels")},
            "timestamp": datetime.fromtimestamp(later.time / 1000, UTC).isoformat(timespec="seconds"),
            "window": f"{(later.time - earlier.time) / 1000}s",
            "containers": [{"name": container.name, "usage": usage}],
        }


def read(path: str) -> bytes:
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    request = urllib.request.Request(f"https://kubernetes.default.svc/api/v1/{path}", headers=headers)
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        found: bytes = answer.read()
    return found


class Metrics(BaseHTTPRequestHandler):
    kubelets = Kubelets()

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        match url.path.strip("/").split("/"):
            case ["apis", "metrics.k8s.io", "v1beta1"]:
                pod = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
                self.answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": [pod]})
            case ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"]:
                pods = json.loads(read(f"namespaces/{namespace}/pods?{url.query}"))["items"]
                found = [metrics for each in pods if (metrics := self.kubelets.metrics(each)) is not None]
                self.answer({"kind": "PodMetricsList", "apiVersion": VERSION, "metadata": {}, "items": found})
            case _:
                self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}, 404)

    def answer(self, body: dict[str, Any], code: int = 200) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


if __name__ == "__main__":
    threading.Thread(target=Metrics.kubelets.scrape_always, daemon=True).start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
    server = ThreadingHTTPServer(("", PORT), Metrics)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
