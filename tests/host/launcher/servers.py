"""Servers of disks on loopback, as real ones as Debian has."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.host.launcher.sandbox import wait_for


def free_port() -> int:
    """Return a port of loopback that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number: int = listener.getsockname()[1]
        return number


def listens(port: int) -> bool:
    """Return whether somebody does."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


class NbdServer:
    """``qemu-nbd`` with one export of a raw image; it serves until it is killed."""

    def __init__(self, image: Path, export: str = "", *options: str) -> None:
        self.port = free_port()
        self._command = ["qemu-nbd", "--persistent", "--shared=8", "--format=raw", f"--port={self.port}", "--bind=127.0.0.1", *options]
        self._command += [f"--export-name={export}", str(image)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve; return once somebody can connect."""
        self._process = subprocess.Popen(self._command)
        wait_for(lambda: listens(self.port), 30, "qemu-nbd")

    def kill(self) -> None:
        """Be gone, as by a power failure: nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


class IscsiTarget:
    """``tgtd`` with one target of the given images, LUN 1 first; it serves until it is killed."""

    iqn = "iqn.2026-01.example:vms"

    def __init__(self, *images: Path, user: str = "", password: str = "") -> None:
        self.portal_port = free_port()
        self._directory = tempfile.TemporaryDirectory()  # not a test's: sun_path is short, paths of tests are long
        self._environment = {**os.environ, "TGT_IPC_SOCKET": f"{self._directory.name}/tgtd"}
        self._images, self._account = images, (user, password)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def portal(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.portal_port}"

    def start(self) -> None:
        """Serve; return once initiators can log in."""
        command = ["tgtd", "--foreground", "--iscsi", f"portal={self.portal}"]
        self._process = subprocess.Popen(command, env=self._environment, stderr=subprocess.DEVNULL)
        wait_for(self._answers, 30, "tgtd")
        self._tell("target", "new", "--tid=1", f"--targetname={self.iqn}")
        for lun, image in enumerate(self._images, 1):
            self._tell("logicalunit", "new", "--tid=1", f"--lun={lun}", f"--backing-store={image}")
        user, password = self._account
        if user:
            self._tell("account", "new", f"--user={user}", f"--password={password}")
            self._tell("account", "bind", "--tid=1", f"--user={user}")
        self._tell("target", "bind", "--tid=1", "--initiator-address=ALL")

    def initiators(self) -> str:
        """Return what it tells of those who are logged in."""
        return self._tell("target", "show")

    def kill(self) -> None:
        """Be gone, as by a power failure: nobody is told."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            self._tell("target", "show")
            return listens(self.portal_port)
        return False

    def _tell(self, mode: str, operation: str, *arguments: str) -> str:
        command = ["tgtadm", "--lld=iscsi", f"--mode={mode}", f"--op={operation}", *arguments]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        self._directory.cleanup()
