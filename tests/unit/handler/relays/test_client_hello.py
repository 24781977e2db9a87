from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.relays import client_hello, header


def hello(*protocols: str, name: str = "n2.virt-handler") -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


@pytest.mark.parametrize("protocols", [(), ("http/1.1",), ("h2", "http/1.1"), ("kubevirt-relay/" + "a" * 63,)])
def test_offered_protocols_are_read(protocols: tuple[str, ...]) -> None:
    record = hello(*protocols)

    assert client_hello.record_bytes(record[: client_hello.RECORD_HEADER_BYTES]) == len(record)
    assert client_hello.protocols(record) == tuple(each.encode() for each in protocols)


@given(st.integers(0, 600))
def test_cut_record_offers_nothing(size: int) -> None:
    record = hello(header.protocol("mig-1"))

    assert client_hello.protocols(record[:size]) == (() if size < len(record) else (b"kubevirt-relay/mig-1",))


@given(st.binary(max_size=600), st.integers(0, 516))
def test_any_bytes_are_read_without_an_error(noise: bytes, at: int) -> None:
    record = hello(header.protocol("mig-1"))

    assert len(client_hello.protocols(record[:at] + noise + record[at + len(noise) :])) < 600
    assert len(client_hello.protocols(noise)) < 600


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01\x02", b"GET /", b"\x17\x03\x03\x00\x10", b"\x16\x03\x01\xff\xff"])
def test_what_is_no_tls_has_no_record(start: bytes) -> None:
    assert client_hello.record_bytes(start) == 0


def test_a_migration_is_claimed_by_its_protocol() -> None:
    assert header.claimed((b"http/1.1", header.protocol("mig-1").encode())) == "mig-1"


@pytest.mark.parametrize("protocol", [b"", b"http/1.1", b"kubevirt-relay/", b"kubevirt-relay/a/b", b"kubevirt-relay/\xff", b"mig-1"])
def test_other_protocols_claim_no_migration(protocol: bytes) -> None:
    assert header.claimed((protocol,)) == ""


def test_a_protocol_names_a_valid_migration() -> None:
    with pytest.raises(ValueError, match="uid"):
        header.protocol("a b")
