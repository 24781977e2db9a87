from __future__ import annotations

import logging
import shutil
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import files, issuing, peers
from certs.issuing import Pair, Profile
from certs.reloading import ClientTls, Files, Reloader, ServerTls

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def publish(directory: Path, leaf: Pair, *authorities: Pair) -> None:
    files.publish(
        directory, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": b"".join(each.certificate for each in authorities)}
    )


class Side:
    def __init__(self, root: Path) -> None:
        self.server, self.client = Files.in_directory(root / "server"), Files.in_directory(root / "client")
        self.root = root
        self.authority = issuing.new_authority("ca", DAY, NOW)
        self.issue_server()
        self.issue_client()

    def leaf(self, name: str) -> Pair:
        return issuing.issue(self.authority, Profile(name, dns_names=(name,), server=True, client=True), DAY, NOW)

    def issue_server(self, *trusted: Pair) -> None:
        publish(self.root / "server", self.leaf("virt-handler"), *(trusted or (self.authority,)))

    def issue_client(self, *trusted: Pair) -> None:
        publish(self.root / "client", self.leaf("virt-api"), *(trusted or (self.authority,)))


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = "virt-handler") -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Do a TLS handshake and send a byte, so the server has verified a client of TLS 1.3; return server's and client's end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    )
    done: set[int] = set()
    while len(done) < 2:
        for index in (1, 0):
            try:
                ends[index].do_handshake()
                done.add(index)
            except ssl.SSLWantReadError:
                pass
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"
    return ends


def presented(end: ssl.SSLObject) -> bytes:
    der = end.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der).encode()


def test_both_ends_use_a_renewed_certificate_without_restart(side: Side) -> None:
    server, client = ServerTls(side.server, clients=ssl.CERT_REQUIRED), ClientTls(side.client)
    first = handshake(server.context, client.context)
    side.issue_server()
    side.issue_client()

    assert server.refresh()
    assert client.refresh()

    second = handshake(server.context, client.context)
    assert presented(second[1]) == side.server.certificate.read_bytes() != presented(first[1])
    assert presented(second[0]) == side.client.certificate.read_bytes() != presented(first[0])
    assert peers.subject_common_name(second[0].getpeercert()) == "virt-api"
    assert presented(handshake(server.newest, client.context)[1]) == presented(second[1])
    assert not server.refresh()


def test_client_without_server_name_gets_the_renewed_certificate(side: Side) -> None:
    server = ServerTls(side.server)
    side.issue_server()
    server.refresh()
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    probe.check_hostname = False
    probe.verify_mode = ssl.CERT_NONE

    ends = handshake(server.context, probe, None)

    assert presented(ends[1]) == side.server.certificate.read_bytes()


def test_an_authority_that_left_the_files_is_no_longer_trusted(side: Side) -> None:
    server, old_client = ServerTls(side.server, clients=ssl.CERT_REQUIRED), ClientTls(side.client).context
    handshake(server.context, old_client)
    old, side.authority = side.authority, issuing.new_authority("ca", DAY, NOW)
    publish(side.root / "server", issuing.issue(old, Profile("virt-handler", ("virt-handler",), server=True), DAY, NOW), side.authority)

    server.refresh()

    with pytest.raises(ssl.SSLError):
        handshake(server.context, old_client)


def test_old_and_new_authorities_work_during_their_overlap(side: Side) -> None:
    old = side.authority
    old_client = ClientTls(side.client)
    side.authority = issuing.new_authority("ca", DAY, NOW)
    side.issue_server(old, side.authority)
    side.issue_client(side.authority, old)
    server = ServerTls(side.server, clients=ssl.CERT_REQUIRED)

    handshake(server.context, ClientTls(side.client).context)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ServerTls(side.server).context, _only(old))
    old_client.refresh()
    handshake(server.context, old_client.context)


def _only(authority: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate.decode())
    return context


def test_half_written_set_is_refused_and_the_last_good_one_kept(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    server, client = ServerTls(side.server), ClientTls(side.client)
    good = side.server.certificate.read_bytes()
    files.publish(side.root / "server", {"tls.crt": side.leaf("virt-handler").certificate, "tls.key": b"garbage", "ca.crt": b""})

    with caplog.at_level(logging.WARNING):
        assert not server.refresh()

    assert "cannot load the certificate files" in caplog.text
    assert presented(handshake(server.context, client.context)[1]) == good
    side.issue_server()
    assert server.refresh()


class Loads:
    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.refusal: Exception | None = None

    def __call__(self, resolved: Files) -> None:
        self.seen.append(resolved.certificate.read_bytes())
        if self.refusal is not None:
            raise self.refusal


def test_only_what_changed_is_loaded(side: Side) -> None:
    loads = Loads()
    reloader = Reloader(side.server, loads)
    first = side.server.certificate.read_bytes()
    assert [reloader.refresh() for _ in range(3)] == [False] * 3
    assert loads.seen == [first]
    side.issue_server()
    assert [reloader.refresh() for _ in range(3)] == [True, False, False]
    assert loads.seen == [first, side.server.certificate.read_bytes()]


@pytest.mark.parametrize("refusal", [ssl.SSLError("no match"), ValueError("no certificate"), OSError("read error")])
def test_refused_files_are_reread_though_unchanged(side: Side, refusal: Exception) -> None:
    """On some file systems a file has its final time and size before its last byte."""
    loads = Loads()
    reloader = Reloader(side.server, loads)
    side.issue_server()
    loads.refusal = refusal
    assert [reloader.refresh(), reloader.refresh()] == [False, False]
    loads.refusal = None
    assert [reloader.refresh(), reloader.refresh()] == [True, False]
    assert len(loads.seen) == 4


def test_a_defect_of_a_loader_is_not_taken_for_bad_files(side: Side) -> None:
    loads = Loads()
    reloader = Reloader(side.server, loads)
    side.issue_server()
    loads.refusal = KeyError("a defect")
    with pytest.raises(KeyError):
        reloader.refresh()


def test_files_that_vanish_do_no_harm(side: Side) -> None:
    server, client = ServerTls(side.server), ClientTls(side.client)
    (side.root / "server" / "..data").unlink()

    assert not server.refresh()

    handshake(server.context, client.context)
    side.issue_server()
    assert server.refresh()


def test_without_files_there_is_no_beginning(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        ServerTls(Files.in_directory(tmp_path))


def test_authorities_from_elsewhere_are_trusted_and_replaced(side: Side, tmp_path: Path) -> None:
    """The request-header CA comes from a ConfigMap and rotates separately."""
    proxies = [Side(tmp_path / name) for name in ("front-proxy-1", "front-proxy-2")]
    for proxy in proxies:
        publish(proxy.root / "client", proxy.leaf("front-proxy-client"), side.authority)
    one, two = (ClientTls(proxy.client).context for proxy in proxies)
    server = ServerTls(side.server, clients=ssl.CERT_OPTIONAL)

    server.trust(proxies[0].authority.certificate.decode())
    ends = handshake(server.context, one)
    assert peers.subject_common_name(ends[0].getpeercert()) == "front-proxy-client"
    with pytest.raises(ssl.SSLError):
        handshake(server.context, two)
    server.trust(proxies[1].authority.certificate.decode())
    handshake(server.context, two)
    with pytest.raises(ssl.SSLError):
        handshake(server.context, one)
    with pytest.raises((OSError, ValueError)):
        server.trust("garbage")
    handshake(server.context, two)
    side.issue_server()
    assert server.refresh()
    handshake(server.context, two)


def test_tls_session_cannot_be_resumed(side: Side) -> None:
    server, client = ServerTls(side.server, clients=ssl.CERT_REQUIRED), ClientTls(side.client)
    ends = handshake(server.context, client.context)
    with pytest.raises(ssl.SSLWantReadError):
        ends[1].read(1)

    assert ends[1].session is None or not ends[1].session.has_ticket


@pytest.mark.parametrize("first", ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"])
def test_the_client_chooses_the_cipher(side: Side, first: str) -> None:
    server, client = ServerTls(side.server), ClientTls(side.client).context
    client.maximum_version = ssl.TLSVersion.TLSv1_2  # OpenSSL decides alike with TLS 1.3, but Python cannot set what a client offers
    client.set_ciphers(f"{first}:ECDHE-ECDSA-AES256-GCM-SHA384")
    for context in (server.context, server.newest):
        assert (handshake(context, client)[1].cipher() or ("",))[0] == first


def test_a_server_with_another_name_is_refused(side: Side) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(ServerTls(side.server).context, ClientTls(side.client).context, "virt-api")


def test_context_that_offers_a_protocol_is_apart_and_the_newest(side: Side) -> None:
    server, client = ServerTls(side.server, alpn=("one", "other")), ClientTls(side.client)
    side.issue_client()
    ends = handshake(server.context, client.offering("other"))
    assert ends[1].selected_alpn_protocol() == "other"
    assert handshake(server.context, client.context)[1].selected_alpn_protocol() is None
    shutil.rmtree(side.root / "client")
    assert client.offering("other") is client.context


def test_key_material_is_one_version_and_hidden_from_logs(side: Side) -> None:
    material = ClientTls(side.client).material

    assert material.certificate == side.client.certificate.read_bytes()
    assert "PRIVATE" not in repr(material)


def test_following_files_needs_no_cryptography_library() -> None:
    code = "import sys, certs.reloading, certs.peers; print('cryptography' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
