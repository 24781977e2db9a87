from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.guards import Promise
from certs import contexts
from handler.guardian import attesting
from handler.identity import keys
from tests.ports import free_port


@asynccontextmanager
async def a_guardian(name: str, *, cut_off: bool) -> AsyncIterator[Promise]:
    identity, port = await keys.self_signed(attesting.SERVER_NAME), free_port()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(attesting.serve("127.0.0.1", port, identity, name, lambda: cut_off))
        async with asyncio.timeout(30):
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                except OSError:
                    await asyncio.sleep(0.05)
        yield Promise(address=f"127.0.0.1:{port}", certificate=identity.certificate.decode())
        serving.cancel()


async def test_guardians_tell_whether_they_are_cut_off() -> None:
    async with a_guardian("a", cut_off=True) as a, a_guardian("b", cut_off=False) as b:
        gone = Promise(address=f"127.0.0.1:{free_port()}", certificate=a.certificate)
        assert await attesting.ask({"a": a, "b": b, "gone": gone}) == {"a"}


async def test_an_answer_counts_only_with_the_certificate_of_the_lease() -> None:
    async with a_guardian("a", cut_off=True) as a:
        another = await keys.self_signed(attesting.SERVER_NAME)
        assert await attesting.ask({"a": replace(a, certificate=another.certificate.decode())}) == frozenset()
        assert await attesting.ask({"b": a}) == frozenset()
        for broken in (
            replace(a, certificate="x"),
            replace(a, certificate=""),
            replace(a, address="x"),
            replace(a, address="127.0.0.1:99999"),
            replace(a, address=""),
        ):
            assert await attesting.ask({"a": broken}) == frozenset()


@pytest.mark.parametrize("answer", [b"[" * 1020, b"1" * 1020, b'"', b"\xff", b"[]", b"x" * 5000])
async def test_no_answer_of_a_voter_ends_a_guardian(tmp_path: Path, answer: bytes) -> None:
    identity, context, file = await keys.self_signed(attesting.SERVER_NAME), contexts.server(), tmp_path / "voter.pem"
    file.write_bytes(identity.certificate + identity.key)
    context.load_cert_chain(file)

    async def attest(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer + b"\n")
        writer.close()

    async with a_guardian("a", cut_off=True) as a, await asyncio.start_server(attest, "127.0.0.1", 0, ssl=context) as server:
        hostile = Promise(address=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", certificate=identity.certificate.decode())
        assert await attesting.ask({"a": a, "b": hostile}) == {"a"}


async def test_a_fault_of_ours_costs_one_attestation() -> None:
    async with a_guardian("a", cut_off=True) as a:
        fault: Any = None
        assert await attesting.ask({"a": a, "b": replace(a, address=fault)}) == {"a"}


async def test_silent_connections_do_not_take_memory() -> None:
    """Each TLS connection takes 256 KiB; a guardian without memory ends the guests of its node."""
    async with a_guardian("a", cut_off=True) as a, asyncio.timeout(60):
        port = int(a.address.rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(attesting.MAX_PER_HOST + 20)]
        try:
            async with asyncio.timeout(2):  # before the limit for the handshake
                for reader, _ in opened[attesting.MAX_PER_HOST :]:
                    assert await _is_closed(reader)
            assert not opened[0][0].at_eof()
            assert await attesting.ask({"a": a}) == frozenset()
            assert await _is_closed(opened[0][0])
        finally:
            for _, writer in opened:
                writer.close()
        async with asyncio.timeout(30):
            while await attesting.ask({"a": a}) != {"a"}:
                await asyncio.sleep(0.1)


async def test_a_connection_that_is_no_tls_is_closed() -> None:
    async with a_guardian("a", cut_off=True) as a, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(a.address.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await _is_closed(reader)
        writer.close()
        assert await attesting.ask({"a": a}) == {"a"}


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_a_guardian_does_not_ask_itself() -> None:
    known = {name: Promise() for name in ("a", "b", "x")}
    assert set(attesting.known(known, ("a", "b", "c"), "a")) == {"b"}


@pytest.mark.parametrize("address", ["[::1]:1", "127.0.0.1:1"])
async def test_addresses_of_both_families_are_tried(address: str) -> None:
    identity = await keys.self_signed(attesting.SERVER_NAME)
    assert await attesting.ask({"a": Promise(address=address, certificate=identity.certificate.decode())}) == frozenset()
