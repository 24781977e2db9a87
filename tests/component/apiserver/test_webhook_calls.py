from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from apiserver.admission.matching import Matching
from apiserver.admission.webhook.calling import Caller
from apiserver.admission.webhook.errors import CallFailed
from apiserver.admission.webhook.registrations import Address, Webhook
from certs.issuing import Profile, new_authority
from tests.component.apiserver.conftest import HOUR, Pki

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Loopback:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, host: str) -> str:
        self.asked.append(host)
        return "127.0.0.1"


class Server:
    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.hangs_up = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.requests.append(head.split(b"\r\n")[0])
                await reader.readexactly(2)
                writer.write(ANSWER)
                await writer.drain()
                if self.hangs_up:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(pki: Pki, name: str, **profile: object) -> AsyncIterator[tuple[Server, int]]:
    made = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.issued(f"hook-{name}", Profile(name, dns_names=(name,), server=True)))
    context.load_verify_locations(cafile=pki.authority_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield made, server.sockets[0].getsockname()[1]


def hook(pki: Pki, port: int, service: str = "hooks") -> Webhook:
    authority = pki.authority.certificate.decode()
    return Webhook("c/w/0", "c", "w", Matching(()), Address(service=service, namespace="acc", port=port, path="/x", authority=authority))


async def test_a_service_is_found_by_its_name_and_must_prove_it(pki: Pki) -> None:
    loopback = Loopback()
    async with serving(pki, "hooks.acc.svc") as (server, port), Caller(resolve=loopback) as caller:
        assert await caller.call(hook(pki, port), b"{}") == b"{}"
        assert await caller.call(hook(pki, port), b"{}") == b"{}"
        assert (server.connections, server.requests) == (1, [b"POST /x?timeout=10s HTTP/1.1"] * 2)
        with pytest.raises(CallFailed, match="tls: failed to verify certificate: x509: Hostname mismatch"):
            await caller.call(hook(pki, port, "other"), b"{}")
    assert loopback.asked[0] == "hooks.acc.svc"


async def test_another_authority_is_another_connection(pki: Pki) -> None:
    untrusted = new_authority("untrusted", HOUR, datetime.now(UTC)).certificate.decode()
    async with serving(pki, "hooks.acc.svc") as (_, port), Caller(resolve=Loopback()) as caller:
        good = hook(pki, port)
        await caller.call(good, b"{}")
        with pytest.raises(CallFailed, match="certificate signed by unknown authority"):
            await caller.call(replace(good, address=replace(good.address, authority=untrusted)), b"{}")


async def test_a_connection_that_ended_while_it_was_idle_is_replaced(pki: Pki) -> None:
    async with serving(pki, "hooks.acc.svc") as (server, port), Caller(resolve=Loopback()) as caller:
        server.hangs_up = True
        for _ in range(5):
            await caller.call(hook(pki, port), b"{}")
        assert len(server.requests) == 5
