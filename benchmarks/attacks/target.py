"""The target: virt-api over memory, and the front proxy's client, which it must serve during attacks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp

from apiserver.client.config import Config
from apiserver.server.dev import free_port
from certs.files import write_file
from certs.issuing import Pair, Profile, issue, new_authority
from tests.fakes.kubeapi import FakeAPI

_LIFETIME: Final = timedelta(hours=2)
_READY_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0
_EVERY_SECONDS: Final = 0.05
_PROXY: Final = "front-proxy-client"
_MACHINES: Final = "/apis/kubevirt.io/v1alpha1/namespaces/default/virtualmachines"
_ALICE: Final = {"X-Remote-User": "alice", "X-Remote-Group": "people"}
_PUBLIC: Final = frozenset({"/livez", "/readyz", "/healthz", "/version"})
_MEMORY: Final = re.compile(r"skmem:\(r(\d+),rb\d+,t(\d+),tb\d+,f\d+,w(\d+)")
"""Memory in ``ss --memory``: for receiving, sending and queued data (ss(8))."""


@dataclass(frozen=True)
class Certificates:
    """One run's certificate files in ``directory``."""

    directory: Path

    def make(self) -> tuple[Pair, Pair]:
        """Write the clients' authority, and certificates and keys of the server and the front proxy's client.

        Returns the authorities of clients and front proxies.
        """
        now = datetime.now(UTC)
        clients, proxies = new_authority("cluster", _LIFETIME, now), new_authority("front-proxy", _LIFETIME, now)
        write_file(self.directory / "ca.crt", clients.certificate)
        for name, authority, profile in (
            ("server", clients, Profile("virt-api", dns_names=("localhost",), ip_addresses=("127.0.0.1",), server=True)),
            ("proxy", proxies, Profile(_PROXY, client=True)),
        ):
            pair = issue(authority, profile, _LIFETIME, now)
            write_file(self.directory / f"{name}.crt", pair.certificate)
            write_file(self.directory / f"{name}.key", pair.key)
        return clients, proxies

    def proxy(self) -> ssl.SSLContext:
        """Return the front proxy's TLS context, from the files that :meth:`make` wrote."""
        context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        context.load_cert_chain(self.directory / "proxy.crt", self.directory / "proxy.key")
        return context


@asynccontextmanager
async def cluster(certificates: Certificates) -> AsyncIterator[Config]:
    """Run a fake kube-apiserver, which rejects every token and authorizes only ``alice`` and public paths; yield a Config for it."""
    clients, proxies = certificates.make()
    kube = FakeAPI()

    def judge(path: str, review: dict[str, Any]) -> None:
        kube.writes.clear()
        kube.log.clear()
        kube.requests.clear()
        spec = review["spec"]
        if path.endswith("/tokenreviews"):
            review["status"] = {"authenticated": False}
        elif path.endswith("/subjectaccessreviews"):
            public = (spec.get("nonResourceAttributes") or {}).get("path") in _PUBLIC
            review["status"] = {"allowed": public or spec["user"] == "alice"}

    kube.admit = judge
    data = {
        "client-ca-file": clients.certificate.decode(),
        "requestheader-client-ca-file": proxies.certificate.decode(),
        "requestheader-allowed-names": json.dumps([_PROXY]),
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    name = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    await kube.put("/api/v1/configmaps", {"metadata": name, "data": data})
    await kube.put("/api/v1/namespaces", {"metadata": {"name": "default"}, "status": {"phase": "Active"}})
    async with kube.serving() as config:
        yield config


@dataclass
class Target:
    """A running virt-api."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def resident_mib(self) -> float:
        """Return the process's current resident memory."""
        return self._status("VmRSS")

    @property
    def peak_mib(self) -> float:
        """Return the process's maximum resident memory since :meth:`forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Reset :attr:`peak_mib` to the current value (proc(5))."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def socket_mib(self) -> float:
        """Return the kernel's memory for the process's connections, part of a pod's limit."""
        found = subprocess.run(
            ["ss", "--tcp", "--memory", "--no-header", "--numeric", "--oneline", "state", "all", "sport", "=", f":{self.port}"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        return sum(int(number) for each in _MEMORY.findall(found) for number in each) / (1 << 20)

    def _status(self, name: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise ProcessLookupError(f"process {self.process.pid} has no {name}")


@asynccontextmanager
async def serving(certificates: Certificates, config: Config, source: Path, python: str) -> AsyncIterator[Target]:
    """Run virt-api from ``source`` with default limits on clients; yield it once it is ready."""
    directory, port = certificates.directory, free_port()
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": config.server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (directory / "kubeconfig").write_text(json.dumps(kubeconfig))
    command = [
        python, "-m", "apiserver.server", "--bind-address=127.0.0.1", f"--secure-port={port}", "--storage=memory",
        f"--kubeconfig={directory / 'kubeconfig'}", f"--tls-cert-file={directory / 'server.crt'}",
        f"--tls-private-key-file={directory / 'server.key'}", "--shutdown-delay-duration=0s",
    ]  # fmt: skip
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=source, env={**os.environ, "PYTHONPATH": str(source)}, stdout=log, stderr=log)
    try:
        target = Target(process, port)
        await _ready(target, certificates)
        yield target
    finally:
        process.kill()
        process.wait()


async def _ready(target: Target, certificates: Certificates) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=certificates.proxy()), headers=_ALICE) as session:
        while time.monotonic() < deadline:
            with suppress(aiohttp.ClientError):
                async with session.get(f"https://localhost:{target.port}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise TimeoutError(f"virt-api is not ready; see {certificates.directory / 'log'}")


@dataclass
class Served:
    """Responses to the front proxy: seconds of each, and the failures among them."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class FrontProxy:
    """Requests virtual machines like the aggregator: on a kept connection, and on a new one each time."""

    def __init__(self, target: Target, certificates: Certificates) -> None:
        self._url = f"https://localhost:{target.port}{_MACHINES}"
        self._tls = certificates.proxy()
        self.kept, self.new = Served(), Served()

    async def run(self) -> None:
        """Send requests on a kept connection and on new ones, and record seconds and failures, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask(self.kept, new=False))
            tasks.create_task(self._ask(self.new, new=True))

    async def _ask(self, served: Served, *, new: bool) -> None:
        connector = aiohttp.TCPConnector(ssl=self._tls, force_close=new)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=_ALICE) as session:
            while True:
                began = time.perf_counter()
                try:
                    async with session.get(self._url) as answer:
                        await answer.read()
                        if answer.status != 200:
                            served.failures.append(str(answer.status))
                except (aiohttp.ClientError, TimeoutError) as error:
                    served.failures.append(repr(error))
                served.seconds.append(time.perf_counter() - began)
                await asyncio.sleep(_EVERY_SECONDS)
