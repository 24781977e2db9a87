"""Passes the guardian's file with the deadline of the node's guests to each virt-launcher (``launcher.main.serving.deadline``)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import deadlines, layout
from handler.pods import places

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0


class Deadlines:
    """``pods`` returns the uids of the pods with a connected virt-launcher."""

    def __init__(self, file: Path, kubelet: Path, pods: Callable[[], Iterable[str]]) -> None:
        self._file = file
        self._kubelet = kubelet
        self._pods = pods
        self._passed: dict[str, tuple[int, int]] = {}
        """The file that each pod has."""

    async def run(self) -> None:
        """Pass the file to each new virt-launcher, and to all once there is a guardian, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Pass the file to the virt-launchers that lack it."""
        try:
            file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # no guardian
            return
        with descriptors.closing(file):
            found = os.fstat(file)
            present = set(self._pods())
            self._passed = {pod: each for pod, each in self._passed.items() if pod in present}
            for pod in present:
                if self._passed.get(pod) != (found.st_dev, found.st_ino) and self._pass(pod, file):
                    self._passed[pod] = (found.st_dev, found.st_ino)

    def _pass(self, pod: str, file: int) -> bool:
        try:
            with places.run_directory(pod, self._kubelet) as directory, places.connect(directory, layout.DEADLINE_SOCKET) as link:
                socket.send_fds(link, [b"d"], [file])
        except (OSError, ValueError) as error:  # an older virt-launcher has no such socket
            logger.debug("cannot pass the guardian's deadline to pod %s: %s", pod, error)
            return False
        return True


def file_of(node: str) -> Path:
    """Return the path of the node's file."""
    return Path(deadlines.DIRECTORY, node, deadlines.FILE)
