"""TLS contexts that follow their files: a renewed certificate is used without a restart.

The promises:

* what is presented and trusted is always one consistent set: certificate, key and authorities of one version of the files. A set
  that cannot be loaded (half-written, wrong key) is refused with a warning and the last good one stays in use;
* at the first load there is no last good one: constructors raise OSError (``ssl.SSLError`` is one);
* connections that are open stay as they are; new ones use the new set within ``interval`` seconds (kubelets need about a minute
  to bring a changed Secret into a volume, so a poll of a few ``stat`` calls costs less than it could gain by inotify);
* authorities that vanish from the files are no longer trusted, which adding to a live context could never achieve: every set has a context
  of its own, and the listening context hands each handshake to the newest. Session resumption is off, because a resumed session would
  skip the check of the client's certificate.

Only the standard library: virt-handler loads this on every node. ``tests/unit/certs/test_reloading.py`` holds the promises.
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
    """Files of a certificate, its key and the authorities to trust; with the names of a ``kubernetes.io/tls`` Secret by default."""

    certificate: Path
    key: Path
    authorities: Path | None = None

    @classmethod
    def in_directory(cls, directory: Path) -> Files:
        """Return the files of a mounted Secret: ``tls.crt``, ``tls.key`` and ``ca.crt``."""
        return cls(directory / "tls.crt", directory / "tls.key", directory / "ca.crt")

    def resolved(self) -> Files:
        """Return the same files behind the symlink that the kubelet swaps, each directory's looked up once.

        Raises:
            OSError: a directory is absent.
        """
        paths = [path for path in (self.certificate, self.key, self.authorities) if path is not None]
        versions = {parent: (parent / DATA).resolve() for parent in {path.parent for path in paths} if (parent / DATA).is_symlink()}

        def through(path: Path) -> Path:
            return versions.get(path.parent, path.parent) / path.name

        return Files(through(self.certificate), through(self.key), through(self.authorities) if self.authorities else None)


@dataclass(frozen=True, slots=True)
class Material:
    """One consistent set, as bytes, for libraries that take no ``ssl.SSLContext`` (gRPC)."""

    certificate: bytes
    key: bytes
    authorities: bytes

    def __repr__(self) -> str:
        return "Material(<redacted>)"


Signature = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Follows one set of files and calls ``load`` with each new version of it.

    ``load`` gets paths that all belong to one version; it raises OSError (``ssl.SSLError``, too) or ValueError to refuse it.
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
        """Look every ``interval`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            self.refresh()

    def refresh(self) -> bool:
        """Look now; return whether a new version was taken into use."""
        try:
            resolved, signature = self._look()
            if signature == self._seen:
                return False
            self._load(resolved)
        except (OSError, ValueError) as error:
            # Not remembered: the next look tries again, for a file that was half-written may become whole without a trace in its times.
            logger.warning("keep the last good certificate: the files cannot be loaded", extra=self._about(error=str(error)))
            return False
        self._seen = signature
        logger.info("took a new certificate into use", extra=self._about())
        return True

    def _look(self) -> tuple[Files, Signature]:
        resolved = self.files.resolved()
        paths = [path for path in (resolved.certificate, resolved.key, resolved.authorities) if path is not None]
        stats = [(path, path.stat()) for path in paths]
        return resolved, tuple((str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in stats)

    def _about(self, **more: str) -> dict[str, str]:
        return {"certificate": str(self.files.certificate), **more}


class ServerTls:
    """The context to listen with: presents the newest certificate and trusts the newest authorities.

    Pass :attr:`context` to the listening socket once and run :meth:`run` beside it. Clients' certificates are verified against the
    authorities in the files and those given to :meth:`trust`; ``clients`` says whether they are not asked for (CERT_NONE), may be absent
    (CERT_OPTIONAL) or must be there (CERT_REQUIRED). That a name is allowed is the caller's to check: :mod:`certs.peers`.
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
        self.context.sni_callback = self._hand_over

    @property
    def newest(self) -> ssl.SSLContext:
        """The context for one more connection, for those who can give each its own."""
        return self._current

    @property
    def material(self) -> Material:
        """The set of the newest context, for a process of ours that makes its own; without what :meth:`trust` was given."""
        return self._material

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        await self._reloader.run()

    def refresh(self) -> bool:
        """Look at the files now; return whether a new version was taken into use."""
        return self._reloader.refresh()

    def trust(self, authorities: str) -> None:
        """Trust these authorities (PEM) of clients, too, in place of those of the last call; empty for none.

        Raises:
            OSError: the PEM, or the certificate files, cannot be loaded; what was trusted stays so.
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
        # All that is offered is good, so the client may choose what is quick where it runs: Go's takes AES-128, as its servers would.
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

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL calls this for every handshake, with or without a server name; what it sets decides the certificate and the
        # store that verifies the client (SSL_set_SSL_CTX). Versions, ALPN and whether to ask for a certificate never differ.
        connection.context = self._current


class ClientTls:
    """Contexts to dial with: ask for :attr:`context` at every dial."""

    def __init__(self, files: Files, *, interval: float = INTERVAL_SECONDS) -> None:
        self._reloader = Reloader(files, self._load, interval=interval)

    @property
    def context(self) -> ssl.SSLContext:
        """The newest context: presents our certificate, trusts only the authorities in the files, checks the server's name."""
        return self._context

    @property
    def material(self) -> Material:
        """The set of the newest context, for a process of ours that makes its own."""
        return self._material

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        await self._reloader.run()

    def refresh(self) -> bool:
        """Look at the files now; return whether a new version was taken into use."""
        return self._reloader.refresh()

    def _load(self, files: Files) -> None:
        context = contexts.client()
        context.load_cert_chain(files.certificate, files.key)
        if files.authorities is not None:
            context.load_verify_locations(cafile=files.authorities)
        self._context, self._material = context, _read(files)


def _read(resolved: Files) -> Material:
    return Material(
        resolved.certificate.read_bytes(),
        resolved.key.read_bytes(),
        resolved.authorities.read_bytes() if resolved.authorities is not None else b"",
    )
