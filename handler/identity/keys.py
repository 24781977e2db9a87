"""Makes key pairs (EC, P-256) and certificate requests (PKCS #10) with the program ``openssl``.

The key goes through a pipe and a file in memory, never to disk.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import names

OPENSSL_SECONDS: Final = 20.0
_NEW_KEY: Final = ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


class KeyFailed(Exception):
    """openssl is missing, failed or took too long; the message says why."""


@dataclass(frozen=True, slots=True)
class Made:
    """A private key and its certificate request, PEM."""

    key: bytes = field(repr=False)
    request: bytes


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A private key and a certificate that it signed itself, PEM."""

    key: bytes = field(repr=False)
    certificate: bytes


async def self_signed(name: str, *, openssl_seconds: float = OPENSSL_SECONDS) -> SelfSigned:
    """Return a new key with its own certificate for this DNS name. Raises KeyFailed."""
    key = await _openssl(openssl_seconds, *_NEW_KEY)
    named = ("-config", "/dev/null", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    with descriptors.in_memory(key) as handle:
        request = ("req", "-x509", "-new", "-sha256", "-days", "3650", "-key", f"/proc/self/fd/{handle}")
        return SelfSigned(key, await _openssl(openssl_seconds, *request, *named, inherited=(handle,)))


async def make(node: str, *, openssl_seconds: float = OPENSSL_SECONDS) -> Made:
    """Return a new key and certificate request for virt-handler of this node.

    Raises KeyFailed, or ValueError if the node can have no certificate.
    """
    server_name = names.handler_server_name(node)
    key = await _openssl(openssl_seconds, *_NEW_KEY)
    # the distribution's default configuration may add extensions
    subject = ("-config", "/dev/null", "-subj", f"/CN={names.HANDLER}", "-addext", f"subjectAltName=DNS:{server_name}")
    request = ("req", "-new", "-sha256")
    # with uvloop, standard input would be a socket, which cannot be opened by name
    with descriptors.in_memory(key) as handle:
        return Made(key, await _openssl(openssl_seconds, *request, "-key", f"/proc/self/fd/{handle}", *subject, inherited=(handle,)))


async def _openssl(seconds: float, *arguments: str, inherited: tuple[int, ...] = ()) -> bytes:
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec("openssl", *arguments, stdin=nothing, stdout=pipe, stderr=pipe, pass_fds=inherited)
    except OSError as error:
        raise KeyFailed(f"openssl: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(seconds):
            output, said = await child.communicate()
    except TimeoutError as error:
        raise KeyFailed(f"openssl {arguments[0]} did not end within {seconds:.0f} s") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode or not output:
        words = " ".join(said.decode(errors="replace").split())[:500]
        raise KeyFailed(f"openssl {arguments[0]} ended with {child.returncode}: {words}")
    return output
