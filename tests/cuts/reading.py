"""Reads of Kubernetes' API, many per second."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PERIOD_SECONDS = 0.04


class Reader:
    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = urlsplit(cluster["server"])
        self._context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pair.flush()
            self._context.load_cert_chain(pair.name)
        self._connection: http.client.HTTPSConnection | None = None

    def get(self, path: str) -> Any:
        """Return an object or list; empty for a 404; None after another error."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(
                    self._server.hostname or "", self._server.port, timeout=5, context=self._context
                )
            self._connection.request("GET", path, headers={"Accept": "application/json"})
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return {}
        return json.loads(body) if answer.status == http.HTTPStatus.OK else None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.close()
        self._connection = None

    def pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        found = self.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector.replace('=', '%3D').replace('/', '%2F')}")
        if found is None:
            raise LookupError("kube-apiserver does not answer")
        items: list[dict[str, Any]] = found.get("items") or []
        return items


class Late(Exception):
    """A wait took too long; the message has its purpose and the last observation."""


def until(look: Callable[[], Any], *, seconds: float, what: str, period: float = PERIOD_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        if value := look():
            return value
        if time.monotonic() > deadline:
            raise Late(f"{what}: not within {seconds:.0f} s; last seen: {str(value)[:300]}")
        time.sleep(period)
