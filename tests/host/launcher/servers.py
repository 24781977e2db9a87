from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from certs.issuing import Pair, Profile, issue, new_authority
from tests.host.launcher.sandbox import wait_for
from tests.ports import free_port


def listens(port: int, address: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


class NbdServer:
    def __init__(self, image: Path, export: str = "", *options: str) -> None:
        self.port = free_port()
        self._command = ["qemu-nbd", "--persistent", "--shared=8", "--format=raw", f"--port={self.port}", "--bind=127.0.0.1", *options]
        self._command += [f"--export-name={export}", str(image)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        try:
            wait_for(lambda: listens(self.port), 30, "qemu-nbd")
        except BaseException:  # the caller cannot close a server that did not start
            self.kill()
            raise

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()


class Certificates:
    """An authority, and certificates of it, valid for two days."""

    _LIFETIME = timedelta(days=2)

    def __init__(self, issued: datetime | None = None) -> None:
        self._issued = issued or datetime.now(UTC)
        self._authority = new_authority("disks", self._LIFETIME, self._issued)

    @property
    def authority(self) -> bytes:
        return self._authority.certificate

    def of_server(self, name: str) -> Pair:
        return issue(self._authority, Profile(name, (name,), server=True), self._LIFETIME, self._issued)

    def of_client(self) -> Pair:
        return issue(self._authority, Profile("vm", client=True), self._LIFETIME, self._issued)

    def tls(self, directory: Path, name: str, *, asks: bool = True) -> tuple[str, ...]:
        """Write a server's certificate into a new directory; return qemu-nbd's options. ``asks``: clients must show a certificate."""
        pair = self.of_server(name)
        directory.mkdir()
        for file, content in (("ca-cert", self.authority), ("server-cert", pair.certificate), ("server-key", pair.key)):
            (directory / f"{file}.pem").write_bytes(content)
        verify = "yes" if asks else "no"
        return "--tls-creds=tls", f"--object=tls-creds-x509,id=tls,endpoint=server,verify-peer={verify},dir={directory}"


class IscsiTarget:
    """``tgtd`` with one target of the given images, LUN 1 first, until it is killed."""

    iqn = "iqn.2026-01.example:vms"

    def __init__(self, *images: Path, user: str = "", password: str = "", address: str = "127.0.0.1") -> None:
        self.portal_port, self._address = free_port(), address
        self._directory = tempfile.TemporaryDirectory()  # sun_path is short, paths of tests are long
        self._environment = {**os.environ, "TGT_IPC_SOCKET": f"{self._directory.name}/tgtd"}
        self._images, self._account = images, (user, password)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def portal(self) -> str:
        return f"{self._address}:{self.portal_port}"

    def start(self) -> None:
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
        return self._tell("target", "show")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            self._tell("target", "show")
            return listens(self.portal_port, self._address)
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


class NfsServer:
    address = "192.0.2.1"

    def __init__(self, namespace: str, directory: Path) -> None:
        self._namespace, self._directory, self.export = namespace, directory, directory / "export"
        self._server: subprocess.Popen[bytes] | None = None
        self._portmapper: subprocess.Popen[bytes] | None = None
        for path in (directory, self.export, directory / "recovery"):
            path.mkdir()
        self._ip("netns", "add", namespace)
        self._ip("-netns", namespace, "link", "set", "lo", "up")
        self._ip("-netns", namespace, "address", "add", f"{self.address}/32", "dev", "lo")
        (directory / "configuration").write_text(
            "NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }\n"
            f"NFSv4 {{ Graceless = true; RecoveryRoot = {directory}/recovery; }}\n"
            f"EXPORT {{ Export_Id = 1; Path = {self.export}; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash;"
            " SecType = sys; PrivilegedPort = false; FSAL { Name = VFS; } }\n"
        )

    def start(self) -> None:
        if self._portmapper is None:
            self._portmapper = self._run("rpcbind", "-f")
            wait_for(lambda: self._rpcinfo("100000"), 30, "rpcbind")
        files = ("-f", f"{self._directory}/configuration", "-L", f"{self._directory}/log", "-p", f"{self._directory}/pid")
        self._server = self._run("ganesha.nfsd", "-F", *files)
        wait_for(lambda: self._rpcinfo("100003") and self._rpcinfo("100005"), 60, "ganesha.nfsd")

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["ip", "netns", "exec", self._namespace, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _rpcinfo(self, program: str) -> bool:
        command = ["ip", "netns", "exec", self._namespace, "rpcinfo", "-T", "tcp", self.address, program, "3"]
        return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()
        if self._portmapper is not None:
            self._portmapper.kill()
            self._portmapper.wait()
        self._ip("netns", "delete", self._namespace)
