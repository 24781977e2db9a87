from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import objects
from handler.storage import adding
from launcher.domain import network_disks
from tests.component.handler.tls import Authority
from tests.component.handler.world import VMS, World, eventually
from tests.damage import never_again
from tests.host.handler.test_guests import Node, Pods, machine, pods, world
from tests.unit.handler.reconcilers.builders import a_request

__all__ = ["pods", "world"]

pytestmark = [pytest.mark.host, pytest.mark.timeout(400)]

EXAMPLE = Path(__file__).parents[3] / "examples/plugins/images/images.py"
MIB = 1 << 20


class Daemon:
    def __init__(self, top: Path) -> None:
        self.images = top / "images"
        self.images.mkdir()
        (top / "plugins").mkdir()
        self._program = top / "plugins/images"
        shutil.copy(EXAMPLE, self._program)
        self._program.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, self._program, "serve"], env={**os.environ, "IMAGES": str(self.images)})

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.kill()


def told(world: World) -> Mapping[str, Any]:
    return objects.condition(world.status().get("conditions"), "DisksReady") or {}


def says(world: World, reason: str, words: str) -> bool:
    return (told(world).get("status"), told(world).get("reason")) == ("False", reason) and words in told(world)["message"]


async def test_guest_has_a_plugin_disk_for_its_pods_lifetime(world: World, pods: Pods, daemon: Daemon, tmp_path: Path) -> None:
    world.disk_limits = adding.Limits(first_check_seconds=1.0)
    pod_uid = pods.start()
    vm = machine(pod_uid, linux=True)
    vm["spec"]["domain"]["devices"]["disks"] = [
        {"name": "data", "type": "Plugin", "source": {"plugin": "images", "options": {"image": "data.img"}}}
    ]
    await world.api.put(VMS, vm)
    node = Node(pods, Authority(tmp_path / "certs"), "n")
    image = daemon.images / "data.img"
    async with node.running() as way:
        async with world.handler(way=way):
            await eventually(
                lambda: says(world, "PluginFailed", "disk 'data': plugin images (ADD): its daemon does not answer"), seconds=60
            )
            daemon.start()
            await eventually(lambda: says(world, "PluginFailed", "there is no image data.img on this node"), seconds=60)
            assert world.status()["phase"] == "Scheduled"
            content = os.urandom(4 * MIB)
            image.write_bytes(content)
            await eventually(lambda: world.status()["phase"] in ("Running", "Failed"), seconds=90)
            assert world.status()["phase"] == "Running", world.status()
            assert told(world)["status"] == "True"
            barrier = objects.condition(world.status()["conditions"], "Migratable") or {}
            assert barrier["message"] == "the disk 'data' is set up only on its node, by plugin 'images'"
            with pods.running[pod_uid].console() as console:
                await asyncio.to_thread(console.expect, "GUEST-READY", 120)
                await asyncio.to_thread(console.expect, "#")
                with never_again("wrong bytes"):
                    assert hashlib.sha256(content).hexdigest() in await asyncio.to_thread(console.sh, "sha256sum /dev/vda")
                await asyncio.to_thread(console.sh, "echo written-by-guest | dd of=/dev/vda conv=fsync")
                with never_again("a lost write"):
                    assert image.read_bytes()[:16] == b"written-by-guest"

                daemon.kill()
                console.type("echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
                await eventually(lambda: says(world, "PluginFailed", "plugin images (CHECK): its daemon does not answer"), seconds=90)

        async with world.handler(way=way):
            await eventually(lambda: says(world, "PluginFailed", "plugin images (CHECK): its daemon does not answer"), seconds=60)
            daemon.start()
            with pods.running[pod_uid].console() as console:
                await asyncio.to_thread(console.expect, "COPIED 0", network_disks.RECONNECT_SECONDS + 120)
            with never_again("a lost write"):
                assert image.read_bytes()[:17] == b"written-meanwhile"
            await eventually(lambda: told(world)["status"] == "True", seconds=60)
            assert len(list((daemon.images / ".served").iterdir())) == 1
            await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Stop")))
            await eventually(lambda: world.status()["phase"] == "Stopped", seconds=60)
        assert pods.running[pod_uid].wait() == 0
        volumes = tmp_path / "pods" / pod_uid / "volumes"
        volumes.rename(volumes.with_name("gone"))
        async with world.handler(way=way):
            await eventually(lambda: not list((daemon.images / ".served").iterdir()), seconds=60)
            await eventually(lambda: not list((tmp_path / "records").iterdir()))
        volumes.with_name("gone").rename(volumes)
