"""A pod that serves HTTPS from one source file."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

from certs.issuing import Pair, Profile, issue, new_authority
from tests.cluster.kube import Kubectl

IMAGE = "localhost/kubevirt/virt-api:dev"


def serve(kubectl: Kubectl, name: str, module: ModuleType) -> Pair:
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = new_authority(name, day, now)
    pair = issue(authority, Profile(name, dns_names=(f"{name}.{kubectl.namespace}.svc",), server=True), day, now)
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": name,
        "image": IMAGE,
        "command": ["python3", "/srv/server.py"],
        "ports": [{"name": "https", "containerPort": module.PORT}],
        "readinessProbe": {"tcpSocket": {"port": "https"}, "periodSeconds": 1},
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}, {"name": "source", "mountPath": "/srv"}],
        "securityContext": restricted,
    }
    pod_security = {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    volumes = [{"name": "tls", "secret": {"secretName": name}}, {"name": "source", "configMap": {"name": name}}]
    encoded = {"tls.crt": pair.certificate, "tls.key": pair.key}
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    kubectl.api.apply(
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in encoded.items()},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"server.py": source}},
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 443, "targetPort": "https"}]},
        },
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [container], "volumes": volumes, "securityContext": pod_security},
        },
    )  # fmt: skip
    kubectl.api.ready("pod", name, timeout=120)
    return authority
