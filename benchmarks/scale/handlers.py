"""virt-handler's loops for many nodes in one process: ``python -m benchmarks.scale.handlers SETTINGS``."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from apiserver import logs
from apiserver.apis.core.resources import PODS
from apiserver.apis.meta.objects import Object, dig, uid_of
from apiserver.apis.virt.places import names
from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from benchmarks.scale.guests import Guest, Guests
from controller.runtime.clock import SystemClock
from handler import heartbeat
from handler.devices.acceleration import Verdict
from handler.pods import limits as links
from handler.reconcilers.limits import Limits
from handler.storage import adding
from tests.component.handler.world import FakeNode, FakeRelays, Handler

RELAY_PORT: Final = 8445
HOLDS: Final = 4
"""A Lease is valid for so many renewals, as the kubelet's is."""
START_SECONDS: Final = 0.004
"""Between the starts of two nodes' loops, because a rollout does not start all at once either."""


@dataclass(frozen=True, slots=True)
class Node:
    """A simulated node."""

    name: str
    address: str
    token: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The nodes that one process simulates."""

    kubeconfig: str
    """An administrator's, to see which pods start."""
    directory: str
    lease_namespace: str
    renew: int
    """Seconds between two renewals of a node's Lease."""
    nodes: tuple[Node, ...]

    def write(self, path: Path) -> None:
        """Write the file that :meth:`read` reads."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Return the settings in a file."""
        found = json.loads(path.read_text())
        return cls(**{**found, "nodes": tuple(Node(**each) for each in found["nodes"])})


class Host:
    """All simulated nodes of this process."""

    def __init__(self, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks
        self._guests = Guests(tasks)
        self._relays: dict[str, FakeRelays] = {}
        self._names = {each.name for each in settings.nodes}

    async def run(self) -> None:
        """Run all loops until cancelled."""
        config = Config.load(self._settings.kubeconfig)
        async with Client(config, user_agent="kubelets") as client:
            pods = Informer(client, PODS, label_selector=f"{names.COMPONENT_LABEL}={names.LAUNCHER}", trim=_trim)
            pods.subscribe(self._pod_changed)
            self._tasks.create_task(pods.run())
            await pods.synced.wait()
            for node in self._settings.nodes:
                self._tasks.create_task(self._serve(node, config))
                await asyncio.sleep(START_SECONDS)
            await asyncio.Event().wait()

    async def _serve(self, node: Node, config: Config) -> None:
        own = Config(server=config.server, ca_file=config.ca_file, ca_data=config.ca_data, token=node.token)
        async with Client(own, user_agent=f"virt-handler/{node.name}") as client, asyncio.TaskGroup() as tasks:
            handler = Handler(
                client,
                node.name,
                self._kubelet(node.name),
                self._guests.running,
                self._relays,
                fake=self._node(),
                address=f"{node.address}:{RELAY_PORT}",
                limits=Limits(),
                link_limits=links.Limits(),
                disk_limits=adding.Limits(),
            )
            tasks.create_task(handler.run())
            verdict = Verdict(accelerated=True, reason="simulated")
            beats = heartbeat.run(
                client,
                node.name,
                self._settings.lease_namespace,
                lambda: verdict,
                SystemClock(),
                renew_seconds=self._settings.renew,
                duration_seconds=HOLDS * self._settings.renew,
            )
            tasks.create_task(beats)

    def _node(self) -> FakeNode:
        found = FakeNode()
        found.accelerator = "kvm"
        return found

    def _kubelet(self, node: str) -> Path:
        return Path(self._settings.directory, node)

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        pod = new or old or {}
        node, uid = str(dig(pod, "spec", "nodeName") or ""), uid_of(pod)
        if node not in self._names:
            return
        known = self._guests.running.get(uid)
        if new is None:
            if known is not None:
                known.exit()
        elif known is None:
            self._tasks.create_task(self._launch(self._guests.add(uid), node))

    async def _launch(self, guest: Guest, node: str) -> None:
        async with guest.serving(self._kubelet(node)):
            await guest.over.wait()
        self._guests.running.pop(guest.pod_uid, None)


def _trim(pod: Object) -> Object:
    metadata = {key: pod["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"metadata": metadata, "spec": {"nodeName": dig(pod, "spec", "nodeName")}}


async def run(settings: Settings) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(Host(settings, tasks).run())


def main() -> None:
    logs.configure("warning")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with suppress(asyncio.CancelledError):
        asyncio.run(run(Settings.read(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
