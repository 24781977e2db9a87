"""Attestations between guardians: each answers every connection with whether it is cut off from the API server.

The certificate of a guardian is in its Lease, which only that guardian may write, so an answer is authentic. Anyone may ask.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
import ssl
import tempfile
from collections import Counter
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
MAX_PER_HOST: Final = 8
ACCEPT_SECONDS: Final = 0.1


async def serve(address: str, port: int, identity: keys.SelfSigned, name: str, is_cut_off: Callable[[], bool]) -> None:
    """Answer TLS connections with a line of JSON, until cancelled: this guardian's name, and whether it is cut off.

    Closes those above ``MAX_CONNECTIONS`` or, from one host, ``MAX_PER_HOST``. Raises OSError if it cannot listen.
    """
    context = contexts.server()
    with tempfile.NamedTemporaryFile(suffix=".pem") as both:  # OpenSSL's binding needs a file: temporary, with mode 0600
        both.write(identity.certificate + identity.key)
        both.flush()
        context.load_cert_chain(both.name)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:
        listener.settimeout(0)
        async with asyncio.TaskGroup() as tasks:
            places = Counter[str]()
            while True:
                try:
                    connection, (host, *_) = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:
                    logger.warning("cannot accept a connection", extra={"error": str(error)})
                    await asyncio.sleep(ACCEPT_SECONDS)
                    continue
                if places.total() >= MAX_CONNECTIONS or places[host] >= MAX_PER_HOST:
                    connection.close()  # before TLS, which takes 256 KiB
                    continue
                places[host] += 1
                task = tasks.create_task(_answer(connection, context, name, is_cut_off))
                task.add_done_callback(functools.partial(_leave, places, host))


def _leave(places: Counter[str], host: str, _: object) -> None:
    places[host] -= 1
    if not places[host]:
        del places[host]


async def _answer(connection: socket.socket, context: ssl.SSLContext, name: str, is_cut_off: Callable[[], bool]) -> None:
    with connection:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_ANSWER)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                try:
                    writer.write(f"{json.dumps({'name': name, 'cutOff': is_cut_off()})}\n".encode())
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
                finally:
                    transport.abort()
        except (OSError, TimeoutError) as error:
            logger.debug("cannot send an attestation", extra={"error": str(error)})


async def ask(voters: Mapping[str, Promise]) -> frozenset[str]:
    """Ask these guardians, and return those that state that they are cut off; without those that do not answer in ``ANSWER_SECONDS``."""
    async with asyncio.TaskGroup() as tasks:
        asked = {name: tasks.create_task(_answered(name, promise)) for name, promise in voters.items()}
    return frozenset(name for name, answer in asked.items() if answer.result())


async def _answered(name: str, promise: Promise) -> bool:
    try:
        return await _ask(name, promise)
    except Exception:  # the other voters' answers count; without its guardian, a node's guests end
        logger.exception("a guardian sent no attestation", extra={"guardian": name})
        return False


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
    except (OSError, ssl.SSLError, ValueError, OverflowError, RecursionError, TimeoutError) as error:
        logger.info("a guardian sent no attestation", extra={"guardian": name, "error": str(error)})
        return False
    return isinstance(answer, dict) and answer.get("name") == name and answer.get("cutOff") is True


def known(promises: Mapping[str, Promise], voters: Collection[str], own: str) -> dict[str, Promise]:
    """Return the voters that this guardian can ask: others, by their last known promises."""
    return {name: promises[name] for name in voters if name in promises and name != own}
