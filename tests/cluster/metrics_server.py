from __future__ import annotations

import json
import ssl
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8443
VERSION = "metrics.k8s.io/v1beta1"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
USAGE = {"cpu": "900m", "memory": "64Mi"}


def pods(namespace: str, query: str) -> Any:
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    url = f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/pods?{query}"
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context, timeout=10) as answer:
        return json.load(answer)["items"]


def metrics(pod: dict[str, Any]) -> dict[str, Any]:
    kept = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    containers = [{"name": each["name"], "usage": USAGE} for each in pod["spec"]["containers"][:1]]
    return {"metadata": kept, "timestamp": datetime.now(UTC).isoformat(timespec="seconds"), "window": "1s", "containers": containers}


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        match url.path.strip("/").split("/"):
            case ["apis", "metrics.k8s.io", "v1beta1"]:
                pod = {"name": "pods", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
                self.answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": VERSION, "resources": [pod]})
            case ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"]:
                found = [metrics(each) for each in pods(namespace, url.query) if each["status"]["phase"] == "Running"]
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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
    server = ThreadingHTTPServer(("", PORT), Metrics)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
