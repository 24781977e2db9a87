"""Serves shared file systems: one virtiofsd child process each (docs/decisions/disks.md)."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import filesystems as hardware
from apiserver.apis.virt.places import layout
from launcher.domain.filesystems import Share, shares
from launcher.main.programs import vhost_user
from launcher.main.programs.children import Children
from launcher.main.programs.vhost_user import Backend

logger = logging.getLogger(__name__)

VIRTIOFSD: Final = "/usr/libexec/virtiofsd"
READY_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
WAITS: Final = b"Waiting for vhost-user socket connection"
"""virtiofsd waits for QEMU. Its socket exists slightly earlier, when it can still fail."""
SILENT_SECONDS: Final = 2.0
"""For the message, because another version may use other words."""
SETTLE_SECONDS: Final = 2.0
"""For QEMU's end, which also ends virtiofsd."""
SPARE_FILES: Final = 64
"""Descriptors of virtiofsd itself."""
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
_EVERYBODY: Final = (1 << 32) - 1
"""All user ids but the last, which means none."""


class FilesystemUnusable(Exception):
    """A file system cannot be served; the message names it and says why."""


class Filesystems:
    """Serves the file systems of the pod's machine."""

    def __init__(
        self,
        children: Children,
        *,
        look: Callable[[], Awaitable[object]],
        lost: Callable[[str], None],
        program: str = VIRTIOFSD,
        ready_seconds: float = READY_SECONDS,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        """Store the settings.

        ``look`` refreshes the domain's state. ``lost`` gets a file system's name, ``settle_seconds`` after its process ended
        unasked.
        """
        self._program = program
        self._ready_seconds = ready_seconds
        self._settle_seconds = settle_seconds
        self._children = children
        self._look = look
        self._lost = lost
        self._servers: list[Backend[Share]] = []
        self._started: asyncio.Queue[Backend[Share]] = asyncio.Queue()

    async def start(self, specification: Mapping[str, Any]) -> None:
        """Replace earlier processes by one per file system of ``spec.domain``, and wait until QEMU can connect.

        Raises FilesystemUnusable if one ended or was not ready in time, and OSError.
        """
        await self._stop()
        for share, each in zip(shares(specification), hardware.defaulted(specification), strict=True):
            server = self._begin(share, hardware.max_files(each))
            self._servers.append(server)
            self._started.put_nowait(server)
        for server in self._servers:
            await _ready(server, self._ready_seconds)

    async def run(self) -> None:
        """Call ``lost`` for each process that ends unasked, until cancelled; then kill all."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._watch(await self._started.get()))
        finally:
            for server in self._servers:
                server.end()

    async def _stop(self) -> None:
        for server in self._servers:
            server.end()
        for server in self._servers:
            await asyncio.shield(server.exited)
        self._servers.clear()

    def _begin(self, share: Share, max_files: int) -> Backend[Share]:
        Path(share.socket).unlink(missing_ok=True)
        # virtiofsd exits if its limit exceeds the process limit
        files = min(max_files + SPARE_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        return vhost_user.start(self._children, share, command(share, files, self._program), _ENVIRONMENT)

    async def _watch(self, server: Backend[Share]) -> None:
        code = await asyncio.shield(server.exited)
        words = server.tail.end()
        if not server.is_wanted:
            return
        await asyncio.sleep(self._settle_seconds)
        await self._look()
        if server.is_wanted:
            logger.info("virtiofsd ended", extra={"filesystem": server.device.name, "exit_code": code, "last_words": words})
            self._lost(server.device.name)


def command(share: Share, max_files: int, program: str = VIRTIOFSD) -> list[str]:
    """Return virtiofsd's command line for a file system.

    virtiofsd's sandbox needs privileges, so the pod's container is the sandbox. virtiofsd opens files by names relative to directory
    descriptors, and follows no links.
    """
    uid = layout.USER_ID
    options = [f"--shared-dir={share.directory}", f"--socket-path={share.socket}", "--sandbox=none", "--log-level=info"]
    options += ["--inode-file-handles=never", f"--rlimit-nofile={max_files}"]
    options += ["--thread-pool-size=0"]  # a thread pool calls unshare(2), which the seccomp profile of restricted pods forbids
    for which in ("uid", "gid"):  # map all users of the guest to our uid, and our uid to the guest's root
        options += [f"--translate-{which}=squash-guest:0:{uid}:{_EVERYBODY}", f"--translate-{which}=host:{uid}:0:1"]
    return [program, *options, *(["--readonly"] if share.read_only else [])]


def _is_bound(server: Backend[Share]) -> bool:
    return Path(server.device.socket).is_socket()


async def _ready(server: Backend[Share], seconds: float) -> None:
    name, silent = server.device.name, 0.0
    try:
        async with asyncio.timeout(seconds):
            while WAITS not in server.tail.kept and silent < SILENT_SECONDS:
                if server.exited.done():
                    raise FilesystemUnusable(f"file system {name!r}: virtiofsd ended with {server.exited.result()}: {server.tail.end()}")
                silent += POLL_SECONDS if _is_bound(server) else 0.0
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise FilesystemUnusable(f"file system {name!r}: virtiofsd was not ready within {seconds:g} s") from None
