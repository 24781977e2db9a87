from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kube import Kubectl


def as_account(kubectl: Kubectl, token: str, path: Path) -> Kubectl:
    config = yaml.safe_load(kubectl.kubeconfig.read_text())
    for each in config["users"]:
        each["user"] = {"token": token}
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return Kubectl(path, kubectl.namespace, kubectl.binary)


def patch(account: Kubectl, path: str, body: dict[str, Any]) -> tuple[int, str]:
    config = yaml.safe_load(account.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    data = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(data).decode() if data else None
    )
    server = urllib.parse.urlsplit(cluster["server"])
    connection = http.client.HTTPSConnection(str(server.hostname), server.port, context=context, timeout=30)
    headers = {"Content-Type": "application/merge-patch+json", "Authorization": f"Bearer {user['token']}"}
    try:
        connection.request("PATCH", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, str(json.loads(response.read()).get("message"))
    finally:
        connection.close()
