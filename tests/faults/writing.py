"""Random writes of VMs, by clients that may miss the result."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from typing import Any, Final

import aiohttp

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES

NAMESPACES: Final = ("red", "green", "blue")
NAMES: Final = 12
LABELS: Final = ("watched", "other", None)
SECONDS: Final = 10.0
MERGE: Final = "application/merge-patch+json"


class Writer:
    """Creates, updates, patches and deletes a few VMs, so labels and objects come and go."""

    def __init__(self, session: aiohttp.ClientSession, url: str, random: Random) -> None:
        self._session = session
        self._url = url
        self._random = random
        self._allowed = asyncio.Event()
        self.outcomes: Counter[str] = Counter()
        self._number = 0

    def begin(self) -> None:
        self._allowed.set()

    def pause(self) -> None:
        self._allowed.clear()

    async def run(self) -> None:
        while True:
            await self._allowed.wait()
            try:
                async with asyncio.timeout(SECONDS):
                    await self._write()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._random.choice((0, 0, 0.005, 0.02)))

    async def _write(self) -> None:
        self._number += 1
        namespace, name = self._random.choice(NAMESPACES), f"vm-{self._random.randrange(NAMES):02}"
        path = VIRTUAL_MACHINES.path(namespace, name)
        match self._random.choice(("create", "create", "label", "annotate", "update", "delete", "purge", "purge")):
            case "create":
                await self._send("POST", VIRTUAL_MACHINES.path(namespace), self._machine(namespace, name))
            case "label":
                await self._send("PATCH", path, {"metadata": {"labels": {"kind": self._random.choice(LABELS)}}}, MERGE)
            case "annotate":
                await self._send("PATCH", path, {"metadata": {"annotations": {"number": str(self._number)}}}, MERGE)
            case "update":
                await self._update(path)
            case "delete":
                await self._send("DELETE", path)
            case _:
                if await self._send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE) < 300:
                    await self._send("DELETE", path)

    async def _update(self, path: str) -> None:
        async with self._session.get(self._url + path) as answer:
            if answer.status != 200:
                self.outcomes[f"GET {answer.status}"] += 1
                return
            machine = await answer.json()
        machine["metadata"]["labels"] = {"kind": label} if (label := self._random.choice(LABELS)) else {}
        machine["spec"]["terminationGracePeriodSeconds"] = self._number
        await self._send("PUT", path, machine)

    def _machine(self, namespace: str, name: str) -> dict[str, Any]:
        label = self._random.choice(LABELS)
        return {
            "apiVersion": VIRTUAL_MACHINES.api_version,
            "kind": VIRTUAL_MACHINES.kind,
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": {"kind": label} if label else {},
                "annotations": {"number": str(self._number), "text": 'né"\\}{' + "x" * self._random.choice((0, 10, 3000))},
            },
            "spec": {"runStrategy": "Halted", "domain": {"memory": {"guest": "64Mi"}}},
        }

    async def _send(self, method: str, path: str, body: Any = None, media_type: str = "application/json") -> int:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": media_type} if data else {}
        async with self._session.request(method, self._url + path, data=data, headers=headers) as answer:
            await answer.read()
            self.outcomes[f"{method} {answer.status}"] += 1
            assert answer.status not in (400, 415, 422, 500), await answer.text()
            return answer.status
