from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.relays import header
from handler.relays.header import Header, Release
from handler.relays.outgoing import split_address


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", fullmatch=True), st.sampled_from(sorted(header.SOURCE_SOCKETS)))
def test_header_survives_encoding(uid: str, channel: header.Channel) -> None:
    line = Header(uid, channel).encode()

    assert header.decode(line) == Header(uid, channel)
    assert len(line) <= header.MAX_BYTES


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}", fullmatch=True), st.booleans())
def test_a_release_is_decoded_as_one(uid: str, paused: bool) -> None:
    line = Release(uid, paused).encode()

    assert header.decode(line) == Release(uid, paused)
    assert len(line) <= header.MAX_BYTES


@given(st.text(max_size=2000))
def test_a_refusal_is_one_bounded_line(why: str) -> None:
    line = header.refusal(why)

    assert len(line) <= header.MAX_ANSWER_BYTES
    assert line.count(b"\n") == 1
    assert line != header.OK


@given(st.binary(max_size=200))
def test_anything_else_is_no_header(line: bytes) -> None:
    assert header.decode(b"x" + line) is None


@pytest.mark.parametrize("uid", [b"", b"-", b"a/b", b"../x", b"a b", b"a" * 64, b"\xff", "٣".encode()])
def test_invalid_uid_names_no_migration(uid: bytes) -> None:
    assert header.decode(b"kubevirt-relay/1 " + uid + b" data\n") is None
    assert header.decode(b"kubevirt-relay/1 " + uid + b" released running\n") is None


def test_a_uid_cannot_smuggle_a_line() -> None:
    with pytest.raises(ValueError, match="uid"):
        Header("a libvirt\nb", "data").encode()
    with pytest.raises(ValueError, match="uid"):
        Release("a released running\nb").encode()


@pytest.mark.parametrize(("address", "parts"), [("10.0.0.1:8445", ("10.0.0.1", 8445)), ("[fd00::1]:8445", ("fd00::1", 8445))])
def test_addresses_have_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["nowhere", "", "a.example:8445", "10.0.0.1:65536", "10.0.0.1:0", "fd00::1:8445", "10.0.0.1:٨٤٤٥"])
def test_invalid_target_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="it must be a pod IP address and a port"):
        split_address(address)


@pytest.mark.parametrize("address", ["169.254.169.254:8445", "[fd00:ec2::254]:8445", "[fe80::1]:8445", "0.0.0.0:8445", "224.0.0.1:8445"])
def test_an_address_that_no_virt_handler_has_is_not_dialed(address: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a relay"):
        split_address(address)
