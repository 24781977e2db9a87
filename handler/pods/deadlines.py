"""Passes the guardian's file with the deadline of the node's guests to each virt-launcher (``launcher.main.serving.deadline``).

Records the pods with a virt-launcher that confirmed it: the guardian promises only the end of these.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import deadlines, layout
from apiserver.apis.virt.places.deadlines import elapsed
from handler.pods import places

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
CONFIRM_SECONDS: Final = 2.0


class Deadlines:
    """Passes the guardian's file to virt-launchers.

    ``pods`` returns the uids of pods with a connected virt-launcher; ``clock`` is CLOCK_BOOTTIME.
    """

    def __init__(self, file: Path, kubelet: Path, pods: Callable[[], Iterable[str]], clock: Callable[[], float] = elapsed) -> None:
        self._file = file
        self._kubelet = kubelet
        self._pods = pods
        self._clock = clock
        self._passed: dict[str, tuple[int, int]] = {}
        """The file that each pod has."""
        self._held: dict[str, tuple[int, int]] = {}
        """The same, also of pods without a connection now."""

    async def run(self) -> None:
        """Pass the guardian's file to each new virt-launcher, and to all once there is a guardian, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Pass the guardian's deadline file to the virt-launchers that lack it, unless that deadline is over: then the guardian is gone."""
        try:
            file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # no guardian
            return
        with descriptors.closing(file):
            found, content = os.fstat(file), deadlines.decode(os.pread(file, deadlines.SIZE + 1, 0))
            given = found.st_dev, found.st_ino
            present = set(self._pods())
            self._passed = {pod: each for pod, each in self._passed.items() if pod in present}
            if content is not None and content[0] is not None and self._clock() >= content[0]:
                return
            async with asyncio.TaskGroup() as tasks:
                for pod in present:
                    if self._passed.get(pod) != given:
                        tasks.create_task(self._pass(pod, file, given))

    async def _pass(self, pod: str, file: int, given: tuple[int, int]) -> None:
        try:
            with places.run_directory(pod, self._kubelet) as directory, places.connect(directory, layout.DEADLINE_SOCKET) as link:
                socket.send_fds(link, [b"d"], [file])
                link.settimeout(0)
                async with asyncio.timeout(CONFIRM_SECONDS):
                    confirmed = await asyncio.get_running_loop().sock_recv(link, 1) == deadlines.CONFIRMED
        except (OSError, ValueError, TimeoutError) as error:  # an older virt-launcher has no such socket
            logger.debug("cannot pass the guardian's deadline to pod %s: %s", pod, error)
            return
        if confirmed:
            self._passed[pod] = given
            self._held.pop(pod, None)
            self._held[pod] = given
            self._record(given)

    def _record(self, given: tuple[int, int]) -> None:
        self._held = dict([each for each in self._held.items() if each[1] == given][-deadlines.MAX_HOLDERS :])
        path = self._file.with_name(deadlines.HOLDERS)
        new = path.with_suffix(".new")
        with suppress(FileNotFoundError):
            new.unlink()
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644), "w") as written:
                written.write("".join(f"{pod}\n" for pod in self._held))
            new.replace(path)
        except OSError as error:
            logger.warning("cannot record which pods have the guardian's deadline", extra={"error": str(error)})


def file_of(node: str) -> Path:
    """Return the path of the guardian's deadline file of this node."""
    return Path(deadlines.DIRECTORY, node, deadlines.FILE)
