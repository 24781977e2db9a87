"""The smallest Ceph cluster: one monitor, and one OSD in memory."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path
from typing import Self

from tests.host.launcher.sandbox import wait_for
from tests.host.launcher.servers import listens
from tests.ports import free_port

_SECONDS = 120.0


class Ceph:
    """A Ceph cluster on loopback, with the pool ``rbd``."""

    def __init__(self, directory: Path) -> None:
        self.port, self._directory = free_port(), directory
        self._monitor: subprocess.Popen[bytes] | None = None
        self._osd: subprocess.Popen[bytes] | None = None
        for path in (directory, directory / "mon", directory / "osd"):
            path.mkdir()
        self._identity = str(uuid.uuid4())
        (directory / "conf").write_text(
            f"[global]\nfsid = {self._identity}\nmon host = v1:127.0.0.1:{self.port}\n"
            "auth cluster required = cephx\nauth service required = cephx\nauth client required = cephx\n"
            "osd pool default size = 1\nosd pool default min size = 1\nosd crush chooseleaf type = 0\nmon allow pool size one = true\n"
            "mon data avail crit = 1\nosd objectstore = memstore\nmemstore device bytes = 134217728\nms bind msgr2 = false\n"
            f"public addr = 127.0.0.1\ncluster addr = 127.0.0.1\nadmin socket =\nkeyring = {directory}/keyring\n"
            f"log file = {directory}/$name.log\nrun dir = {directory}\nmon data = {directory}/mon\nosd data = {directory}/osd\n"
        )

    def start(self) -> None:
        keyring = f"{self._directory}/keyring"
        everything = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self._run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self._run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", *everything)
        monitors = f"{self._directory}/monmap"
        self._run("monmaptool", "--create", "--addv", "a", f"[v1:127.0.0.1:{self.port}]", "--fsid", self._identity, monitors)
        self.tell("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keyring)
        self.start_monitor()
        self._start_osd()
        self.tell("ceph", "osd", "pool", "create", "rbd", "8", "replicated")
        self.tell("ceph", "osd", "pool", "application", "enable", "rbd", "rbd")

    def start_monitor(self) -> None:
        self._monitor = self._serve("ceph-mon", "-i", "a")
        wait_for(lambda: listens(self.port), _SECONDS, "ceph-mon")

    def kill_monitor(self) -> None:
        assert self._monitor is not None
        self._monitor.kill()
        self._monitor.wait()
        self._monitor = None

    def user(self, name: str) -> str:
        self.tell("ceph", "auth", "get-or-create", f"client.{name}", "mon", "profile rbd", "osd", "profile rbd pool=rbd")
        return self.tell("ceph", "auth", "print-key", f"client.{name}").decode().strip()

    def add(self, image: str, content: bytes) -> None:
        source = self._directory / image
        source.write_bytes(content)
        self.tell("rbd", "import", str(source), image)

    def content(self, image: str) -> bytes:
        return self.tell("rbd", "export", image, "-")

    def tell(self, program: str, *arguments: str) -> bytes:
        return self._run(program, "-c", f"{self._directory}/conf", *arguments)

    def _start_osd(self) -> None:
        keyring, identity = f"{self._directory}/osd/keyring", str(uuid.uuid4())
        number = self.tell("ceph", "osd", "new", identity).decode().strip()
        self._run("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", f"osd.{number}")
        self.tell("ceph", "auth", "add", f"osd.{number}", "mon", "allow profile osd", "osd", "allow *", "-i", keyring)
        self.tell("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", identity, "--keyring", keyring)
        self._osd = self._serve("ceph-osd", "-i", number, "--keyring", keyring)

    def _serve(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [program, "-c", f"{self._directory}/conf", "--foreground", *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @staticmethod
    def _run(*command: str) -> bytes:
        return subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS).stdout

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in (self._monitor, self._osd):
            if process is not None:
                process.kill()
                process.wait()
