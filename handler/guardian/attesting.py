"""Attestations between guardians: each answers every connection with whether it is cut off from the API server.

The certificate of a guardian is in its Lease, which only that guardian may write, so an answer is authentic. Anyone may ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import tempfile
from collections.abc import Callable, Collection, Mapping
from typing import Final

from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import names
from certs import contexts
from handler.identity import keys

logger = logging.getLogger(__name__)

SERVER_NAME: Final = names.GUARDIAN
ANSWER_SECONDS: Final = 2.5
MAX_ANSWER: Final = 1024
MAX_CONNECTIONS: Final = 64


async def serve(address: str, port: int, identity: keys.SelfSigned, name: str, is_cut_off: Callable[[], bool]) -> None:
    """Answer connections until cancelled."""
    context = contexts.server()
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:  # OpenSSL's binding needs a file: temporary, with mode 0600
        both.write(identity.certificate + identity.key)
        both.flush()
        context.load_cert_chain(both.name)
    slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), slots:
                writer.write(f"{json.dumps({'name': name, 'cutOff': is_cut_off()})}\n".encode())
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    server = await asyncio.start_server(answer, address, port, ssl=context, ssl_handshake_timeout=ANSWER_SECONDS)
    async with server:
        await server.serve_forever()


async def ask(voters: Mapping[str, Promise]) -> frozenset[str]:
    """Ask these guardians, and return those that state that they are cut off."""
    async with asyncio.TaskGroup() as tasks:
        asked = {name: tasks.create_task(_ask(name, promise)) for name, promise in voters.items()}
    return frozenset(name for name, answer in asked.items() if answer.result())


async def _ask(name: str, promise: Promise) -> bool:
    host, _, port = promise.address.rpartition(":")
    if not host or not port.isdecimal() or not promise.certificate:
        return False
    try:
        context = contexts.trusting(pem=promise.certificate)
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=SERVER_NAME, limit=MAX_ANSWER
            )
            try:
                answer = json.loads(await reader.readline())
            finally:
                writer.close()
    except (OSError, ssl.SSLError, ValueError, TimeoutError) as error:
        logger.info("no attestation", extra={"guardian": name, "error": str(error)})
        return False
    return isinstance(answer, dict) and answer.get("name") == name and answer.get("cutOff") is True


def known(promises: Mapping[str, Promise], voters: Collection[str], own: str) -> dict[str, Promise]:
    """Return the voters that this guardian can ask: others, by their last known promises."""
    return {name: promises[name] for name in voters if name in promises and name != own}
