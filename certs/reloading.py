"""TLS contexts that follow their files, so renewed certificates need no restart.

* Certificate, key and authorities belong to one version of the files. An unloadable set (half-written, wrong key) is refused with a
  warning, and the last good one stays.
* New connections use a new set within ``interval`` seconds; open ones are unchanged.
* Removed authorities lose trust, because every set has its own context. Session resumption, which skips the check of client certificates,
  is off.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from certs import contexts
from certs.files import DATA

logger = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of a certificate, its key and the trusted authorities."""

    certificate: Path
    key: Path
    authorities: Path | None = None

    @classmethod
    def in_directory(cls, directory: Path) -> Files:
        """Return the files of a mounted ``kubernetes.io/tls`` Secret: ``tls.crt``, ``tls.key`` and ``ca.crt``."""
        return cls(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")

    def resolved(self) -> Files:
        """Return the files that the kubelet's symlink leads to. Resolves each directory once, and accepts missing files.

        Raises OSError for a directory that cannot be read.
        """
        paths = [path for path in (self.certificate, self.key, self.authorities) if path is not None]
        versions = {parent: (parent / DATA).resolve() for parent in {path.parent for path in paths} if (parent / DATA).is_symlink()}

        def through(path: Path) -> Path:
            return versions.get(path.parent, path.parent) / path.name

        return Files(through(self.certificate), through(self.key), through(self.authorities) if self.authorities else None)


@dataclass(frozen=True, slots=True)
class Material:
    """Certificate, key and authorities as PEM, for libraries without ``ssl.SSLContext`` (gRPC)."""

    certificate: bytes
    key: bytes
    authorities: bytes

    def __repr__(self) -> str:
        return "Material(<redacted>)"


Signature = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Calls ``load`` with the paths of each new version of the files.

    ``load`` refuses a version by OSError (including ``ssl.SSLError``) or ValueError. The constructor already
    loads, and raises that error.
    """

    def __init__(self, files: Files, load: Callable[[Files], None], *, interval: float = INTERVAL_SECONDS) -> None:
        self.files = files
        self._load = load
        self._interval = interval
        self._seen: Signature = ()
        resolved, signature = self._look()
        self._load(resolved)
        self._seen = signature

    async def run(self) -> None:
        """Load new versions of the files until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            self.refresh()

    def refresh(self) -> bool:
        """Load changed files now; return whether it did. Errors are logged."""
        try:
            resolved, signature = self._look()
            if signature == self._seen:
                return False
            self._load(resolved)
        except (OSError, ValueError) as error:
            # A half-written file may be completed within its time stamp.
            logger.warning("cannot load the certificate files, keeping the previous certificate", extra=self._about(error=str(error)))
            return False
        self._seen = signature
        logger.info("using a new certificate", extra=self._about())
        return True

    def _look(self) -> tuple[Files, Signature]:
        resolved = self.files.resolved()
        paths = [path for path in (resolved.certificate, resolved.key, resolved.authorities) if path is not None]
        stats = [(path, path.stat()) for path in paths]
        return resolved, tuple((str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in stats)

    def _about(self, **more: str) -> dict[str, str]:
        return {"certificate": str(self.files.certificate), **more}


class ServerTls:
    """Server context with the newest certificate and authorities.

    Pass :attr:`context` to the listening socket and run :meth:`run`. ``clients`` says whether a client certificate is required; it is
    verified against the authorities in the files and of :meth:`trust`. Callers must check names with :mod:`certs.peers`.
    """

    def __init__(
        self,
        files: Files,
        *,
        clients: ssl.VerifyMode = ssl.CERT_NONE,
        minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        alpn: tuple[str, ...] = ("http/1.1",),
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._clients = clients
        self._minimum = minimum
        self._alpn = alpn
        self._trusted = ""
        self._reloader = Reloader(files, self._load, interval=interval)
        self.context = self._build(files.resolved())
        self.context.sni_callback = self._use_newest

    @property
    def newest(self) -> ssl.SSLContext:
        """The current context, for servers with one context per connection."""
        return self._current

    @property
    def material(self) -> Material:
        """The current files as bytes, without :meth:`trust`."""
        return self._material

    async def run(self) -> None:
        """Load new versions of the files until cancelled."""
        await self._reloader.run()

    def refresh(self) -> bool:
        """Check the files now; return whether a new version was loaded. Errors are logged."""
        return self._reloader.refresh()

    def trust(self, authorities: str) -> None:
        """Also trust these client authorities (PEM), replacing those of the last call.

        Raises:
            OSError, ValueError: the PEM or the files cannot be loaded; the trust stays.
        """
        if authorities == self._trusted:
            return
        before, self._trusted = self._trusted, authorities
        try:
            self._load(self._reloader.files.resolved())
        except (OSError, ValueError):
            self._trusted = before
            raise

    def _load(self, files: Files) -> None:
        self._current, self._material = self._build(files), _read(files)

    def _build(self, files: Files) -> ssl.SSLContext:
        context = contexts.server()
        context.minimum_version = self._minimum
        context.set_alpn_protocols(list(self._alpn))
        context.options |= ssl.OP_NO_TICKET
        # Clients choose the fastest cipher: Go's takes AES-128.
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        context.num_tickets = 0
        context.load_cert_chain(files.certificate, files.key)
        if self._clients is not ssl.CERT_NONE:
            context.verify_mode = self._clients
            if files.authorities is not None:
                context.load_verify_locations(cafile=files.authorities)
            if self._trusted:
                context.load_verify_locations(cadata=self._trusted)
        return context

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL calls this for every handshake. The new context determines the certificate and the store for clients (SSL_set_SSL_CTX);
        # versions, ALPN and the request for a certificate never differ.
        connection.context = self._current


class ClientTls:
    """Client contexts; get :attr:`context` for every dial."""

    def __init__(self, files: Files, *, interval: float = INTERVAL_SECONDS) -> None:
        self._reloader = Reloader(files, self._load, interval=interval)

    @property
    def context(self) -> ssl.SSLContext:
        """The current context: presents our certificate, trusts the files' authorities, verifies the server's name."""
        return self._context

    @property
    def material(self) -> Material:
        """The current files as bytes."""
        return self._material

    def offering(self, protocol: str) -> ssl.SSLContext:
        """Return a new context that offers this protocol (ALPN). If the files cannot be read, return :attr:`context`, which offers none."""
        try:
            context = _client(self._reloader.files.resolved())
        except OSError:
            return self._context
        context.set_alpn_protocols([protocol])
        return context

    async def run(self) -> None:
        """Load new versions of the files until cancelled."""
        await self._reloader.run()

    def refresh(self) -> bool:
        """Check the files now; return whether a new version was loaded. Errors are logged."""
        return self._reloader.refresh()

    def _load(self, files: Files) -> None:
        self._context, self._material = _client(files), _read(files)


def _client(resolved: Files) -> ssl.SSLContext:
    context = contexts.client()
    context.load_cert_chain(resolved.certificate, resolved.key)
    if resolved.authorities is not None:
        context.load_verify_locations(cafile=resolved.authorities)
    return context


def _read(resolved: Files) -> Material:
    return Material(
        resolved.certificate.read_bytes(),
        resolved.key.read_bytes(),
        resolved.authorities.read_bytes() if resolved.authorities is not None else b"",
    )
