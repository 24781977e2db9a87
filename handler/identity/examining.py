"""Checks by a TLS handshake with ourselves in memory whether others would accept a certificate."""

from __future__ import annotations

import ssl

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import names
from certs import contexts, peers
from certs.peers import Peer


class Unacceptable(Exception):
    """Others would refuse the certificate; the message says why."""


def examine(certificate: bytes, key: bytes, authorities: bytes, node: str) -> Peer:
    """Return the content of a certificate that others accept for virt-handler of this node; all are PEM. Else raise Unacceptable."""
    try:
        server, client = contexts.server(), contexts.client()
        with descriptors.in_memory(certificate) as chain, descriptors.in_memory(key) as private:
            for context in (server, client):
                context.load_cert_chain(f"/proc/self/fd/{chain}", f"/proc/self/fd/{private}")
                context.load_verify_locations(cadata=authorities.decode("ascii"))
        server.verify_mode = ssl.CERT_REQUIRED
        seen = _shake_hands(server, client, names.handler_server_name(node))
    except (OSError, ValueError) as error:
        raise Unacceptable(str(error)) from error
    if any(peer is None or peer.common_name != names.HANDLER or names.node_of_server_name(peer.dns_name) != node for peer in seen):
        raise Unacceptable("it has other names than requested")
    assert seen[0] is not None  # noqa: S101  the line above has seen to it
    return seen[0]


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> tuple[Peer | None, Peer | None]:
    """Return the client as server ``name`` sees it, and the server as the client does; None: unverified. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = server.wrap_bio(to_server, to_client, server_side=True)
    dialled = client.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for end in (dialled, served):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
    dialled.write(b"x")
    served.read(1)  # only now has TLS 1.3 checked the client's certificate
    return peers.described(served.getpeercert()), peers.described(dialled.getpeercert())
