"""An API server on loopback for development, benchmarks and tests (``make dev``).

Creates certificates and a kubeconfig in its own directory, starts an etcd there (``--etcd-binary``; else data stays in
memory), and serves with client certificates and, by an explicit flag, without authorization.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import uvloop

from apiserver import logs
from apiserver.client.config import ConfigError
from apiserver.server import options
from apiserver.server.__main__ import serve as serve_virtual_machines
from certs.files import write_file
from certs.issuing import Profile, issue, new_authority

Serve = Callable[[options.Options], Awaitable[None]]
HOST: Final = "127.0.0.1"
_LIFETIME: Final = timedelta(days=30)
_ETCD_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Paths:
    """The files of one development server."""

    directory: Path

    @property
    def authority(self) -> Path:
        """Path of the authority's certificate, which signed the server's and the client's."""
        return self.directory / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        """Path of the kubeconfig."""
        return self.directory / "kubeconfig"

    def certificate(self, name: str) -> tuple[Path, Path]:
        """Return the paths of certificate and key; ``name``: ``server`` or ``client``."""
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"


def make_certificates(paths: Paths) -> None:
    """Write a CA's certificate, one for serving on loopback and a client's, over earlier files; discard the CA's key."""
    paths.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.now(UTC)
    authority = new_authority("virt-api-dev", _LIFETIME, now)
    write_file(paths.authority, authority.certificate)
    profiles = {
        "server": Profile("virt-api", dns_names=("localhost",), ip_addresses=(HOST,), server=True),
        "client": Profile("developer", client=True),
    }
    for name, profile in profiles.items():
        pair = issue(authority, profile, _LIFETIME, now)
        certificate, key = paths.certificate(name)
        write_file(certificate, pair.certificate)
        write_file(key, pair.key)


def kubeconfig(paths: Paths, port: int) -> str:
    """Return a kubeconfig's text for the server on ``port``, with the client certificate."""
    certificate, key = (each.resolve() for each in paths.certificate("client"))
    return f"""apiVersion: v1
kind: Config
clusters:
- name: dev
  cluster: {{server: "https://{HOST}:{port}", certificate-authority: "{paths.authority.resolve()}"}}
users:
- name: dev
  user: {{client-certificate: "{certificate}", client-key: "{key}"}}
contexts:
- name: dev
  context: {{cluster: dev, user: dev, namespace: default}}
current-context: dev
"""


def server_arguments(paths: Paths, port: int, etcd_url: str = "") -> list[str]:
    """Return virt-api's flags for a server that allows every client with the certificate. ``etcd_url`` empty: data stays in memory."""
    certificate, key = paths.certificate("server")
    return [
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={paths.authority}",
        "--authentication-skip-lookup",
        "--no-anonymous-auth",
        "--authorization-mode=AlwaysAllow",
        "--no-require-node-claims",
        "--shutdown-delay-duration=0s",
        "--log-format=text",
        *(["--storage=etcd", f"--etcd-servers={etcd_url}"] if etcd_url else ["--storage=memory"]),
    ]


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def etcd(binary: Path, directory: Path) -> AsyncIterator[str]:
    """Run an etcd on loopback during the block; yield its URL. Its data stay in ``directory``, which must exist.

    Raises OSError if it cannot start, or does not listen within 20 s.
    """
    client, peer = free_port(), free_port()
    url, peer_url = f"http://{HOST}:{client}", f"http://{HOST}:{peer}"
    flags = [
        "--name=dev",
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=dev={peer_url}",
        "--force-new-cluster",  # the ports changed
        "--log-level=warn",
    ]
    if not (directory / "etcd").exists():
        flags.remove("--force-new-cluster")
    journal = directory / "etcd.log"
    with journal.open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(str(binary), *flags, stdout=log_file, stderr=subprocess.STDOUT)
    try:
        await _listening(process, client, journal)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(process: asyncio.subprocess.Process, port: int, journal: Path) -> None:
    deadline = time.monotonic() + _ETCD_SECONDS
    while process.returncode is None and time.monotonic() < deadline:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    raise OSError(f"etcd does not listen on port {port}; see {journal}")


async def run(directory: Path, port: int, binary: Path | None, more: Sequence[str], serve: Serve, plural: str) -> None:
    """Create certificates and a kubeconfig in ``directory``, start etcd if ``binary``, and serve until a signal.

    ``port`` 0: any free one. ``more``: further flags of virt-api.
    """
    paths = Paths(directory)
    make_certificates(paths)
    port = port or free_port()
    write_file(paths.kubeconfig, kubeconfig(paths, port).encode())
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(etcd(binary, directory)) if binary is not None else ""
        given = options.parse([*server_arguments(paths, port, url), *more])
        logs.configure(given.log_level, given.log_format)
        print(f"export KUBECONFIG={paths.kubeconfig.resolve()}\nkubectl get {plural}", flush=True)  # noqa: T201 - what the user asked for
        await serve(given)


def main(serve: Serve = serve_virtual_machines, plural: str = "vms") -> None:
    """Parse our flags and serve, passing others to virt-api. ``plural``: resource in the ``kubectl get`` hint."""
    parser = argparse.ArgumentParser(prog="make dev", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("build/dev"), help="directory for certificates, data and the kubeconfig")
    parser.add_argument("--port", type=int, default=6444, help="0: any free port")
    parser.add_argument("--etcd-binary", type=Path, help="default: data is kept in memory")
    given, more = parser.parse_known_args()
    failures: list[str] = []
    try:
        uvloop.run(run(given.directory, given.port, given.etcd_binary, more, serve, plural))
    except* (OSError, ValueError, ConfigError) as errors:
        failures += reasons(errors, given.port)
    if failures:
        sys.exit(f"cannot start the API server: {'; '.join(failures)}")


def reasons(error: BaseException, port: int) -> list[str]:
    """Return why the server cannot start: a text for each error in a group. ``port``: the one of ``--port``."""
    if isinstance(error, BaseExceptionGroup):
        return [reason for each in error.exceptions for reason in reasons(each, port)]
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return [f"port {port} is in use; choose another one with --port (0: any free port)"]
    return [str(error)]


if __name__ == "__main__":
    main()
