from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from grpclib.server import Stream

from handler.devices.plugin import Device, Plugin
from handler.devices.v1beta1 import api_pb2
from tests.testbed import layout, processes

DOMAIN: Final = "devices.example.org"


class NamingPlugin(Plugin):
    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        super().__init__(Device(f"{DOMAIN}/{name}", "/dev/null", 1, 3), directory, offered=True)
        self._environment = environment

    async def _allocate(self, stream: Stream[api_pb2.AllocateRequest, api_pb2.AllocateResponse]) -> None:
        request = await stream.recv_message()
        asked = request.container_requests if request else []
        answers = [api_pb2.ContainerAllocateResponse(envs=self._environment) for _ in asked]
        await stream.send_message(api_pb2.AllocateResponse(container_responses=answers))


@contextmanager
def offered(node: layout.Node, plugins: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Run device plugins on a node during the block, which may begin before they are registered.

    ``plugins``: containers' environment variables, by resource name.
    """
    command = [sys.executable, "-m", __name__, str(_directory(node)), json.dumps(plugins)]
    with subprocess.Popen(command, cwd=layout.REPOSITORY) as process:
        try:
            yield
        finally:
            process.terminate()


async def serve(directory: Path, plugins: Mapping[str, Mapping[str, str]]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name, environment in plugins.items():
            tasks.create_task(NamingPlugin(name, directory, environment).run())


def _directory(node: layout.Node) -> Path:
    holder = processes.find(f"{node.name}-init")
    assert holder is not None, f"{node.name} does not run"
    first = processes.children(holder)[0]
    return Path(f"/proc/{first.pid}/root/var/lib/kubelet/device-plugins")


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), json.loads(sys.argv[2])))
