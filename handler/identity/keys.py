"""Key pairs (EC, P-256) and requests for certificates (PKCS #10), made by the program ``openssl``.

It takes 10 ms and 7 MiB for a moment; the library that would do it in this process takes 22 MiB for good, or 360 ms in one of its own, and
17 MB of the image. The key goes through a pipe and a file in memory, and lies on no disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from apiserver.apis.virt.places import names

OPENSSL_SECONDS: Final = 20.0


class KeyFailed(Exception):
    """openssl did not make what was asked for; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Made:
    """A private key and the request for its certificate, PEM."""

    key: bytes = field(repr=False)
    request: bytes


async def make(node: str, *, openssl_seconds: float = OPENSSL_SECONDS) -> Made:
    """Return a new key and the request for the certificate of virt-handler of this node.

    Raises:
        KeyFailed: openssl is absent, fails, or takes too long.
        ValueError: the node can have no certificate.
    """
    server_name = names.handler_server_name(node)
    key = await _openssl(openssl_seconds, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    # Without a configuration of its own openssl would read the distribution's, which may add extensions.
    subject = ("-config", "/dev/null", "-subj", f"/CN={names.HANDLER}", "-addext", f"subjectAltName=DNS:{server_name}")
    request = ("req", "-new", "-sha256")
    # Its standard input would be a socket, with uvloop, and a socket cannot be opened by a name.
    with in_memory(key) as handle:
        return Made(key, await _openssl(openssl_seconds, *request, "-key", f"/proc/self/fd/{handle}", *subject, inherited=(handle,)))


@contextmanager
def in_memory(content: bytes) -> Iterator[int]:
    """Yield a descriptor of a file of this content that exists in memory only, for what reads from files alone."""
    handle = os.memfd_create("identity")
    try:
        os.write(handle, content)
        yield handle
    finally:
        os.close(handle)


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
        raise KeyFailed(f"openssl {arguments[0]} takes longer than {seconds:.0f} s") from error
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode or not output:
        words = " ".join(said.decode(errors="replace").split())[:500]
        raise KeyFailed(f"openssl {arguments[0]} ended with {child.returncode}: {words}")
    return output
