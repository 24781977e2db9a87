"""A real etcd on loopback: start, kill, stop, continue, restart with the same data."""

import concurrent.futures
import contextlib
import functools
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port

STARTING_SECONDS = 50.0


@functools.cache
def etcd_binary() -> str:
    if given := os.environ.get("ETCD"):
        return given
    command = [sys.executable, "-m", "tests.testbed.build", "etcd"]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    return built.stdout.split()[-1]


class EtcdServer:
    """One etcd member, not started yet. ``tls``: (CA, certificate, key) files; clients must present a certificate of that CA."""

    def __init__(self, directory: Path, *, durable: bool, tls: tuple[Path, Path, Path] | None = None, name: str = "test") -> None:
        self._directory = directory
        self._tls = tls
        self._durable = durable
        scheme = "https" if tls else "http"
        self.endpoint = f"{scheme}://127.0.0.1:{free_port()}"
        self.name = name
        self.peer = f"http://127.0.0.1:{free_port()}"
        self.cluster = f"{name}={self.peer}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        arguments = [
            etcd_binary(),
            f"--name={self.name}",
            f"--data-dir={self._directory / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.peer}",
            f"--initial-cluster={self.cluster}",
            "--log-level=warn",
            "--heartbeat-interval=50",
            "--election-timeout=500",
        ]
        if not self._durable:
            arguments.append("--unsafe-no-fsync")
        if self._tls:
            ca, cert, key = self._tls
            arguments += [f"--trusted-ca-file={ca}", f"--cert-file={cert}", f"--key-file={key}", "--client-cert-auth"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)
        try:
            self._wait_until_serving()
        except BaseException:  # the caller cannot close a server that did not start
            self.kill()
            raise

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process:
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop etcd with SIGSTOP; return when all threads are stopped. Its connections stay open."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any(_state(task) not in "TtZX" for task in tasks.iterdir()):
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def back_up(self, name: str = "backup") -> None:
        shutil.copytree(self._directory / "data", self._directory / name)

    def restore(self, name: str = "backup") -> None:
        shutil.rmtree(self._directory / "data")
        shutil.copytree(self._directory / name, self._directory / "data")

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log(self) -> str:
        return (self._directory / "log").read_text()[-2000:]

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(number)

    def _wait_until_serving(self) -> None:
        tls = None
        if self._tls:  # the server's certificate also serves as a client's
            tls = ssl.create_default_context(cafile=self._tls[0])
            tls.check_hostname = False
            tls.load_cert_chain(self._tls[1], self._tls[2])
        until = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"etcd ended: {self.log()}")
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/health", timeout=10, context=tls):
                return
            time.sleep(0.02)
        raise RuntimeError(f"etcd does not serve at {self.endpoint}: {self.log()}")


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@contextlib.contextmanager
def three_members(directory: Path) -> Iterator[list[EtcdServer]]:
    members = [EtcdServer(directory / name, durable=True, name=name) for name in ("a", "b", "c")]
    cluster = ",".join(member.cluster for member in members)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(members)) as threads:  # none serves before two of them run
            for member in members:
                member.cluster = cluster
            list(threads.map(EtcdServer.start, members))
        yield members
    finally:
        for member in members:
            member.close()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), durable=False)
    server.start()
    yield server
    server.close()
