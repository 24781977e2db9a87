from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights.trust import Revocations
from apiserver.client.config import Config
from apiserver.client.rest import Client
from certs.peers import Peer, described
from handler.identity.store import Store
from handler.identity.trust import Trust, Untrusted, node_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NONE = Revocations()


def peer(*alternative_names: tuple[str, str], common_name: str = "virt-handler") -> Peer:
    return Peer(common_name, alternative_names, NOW, NOW)


@pytest.mark.parametrize("node", ["n", "node1", "ip-10-0-0-1.eu-west-1.compute.internal", "virt-handler", "10.0.0.1", f"{'a' * 63}.b"])
def test_a_certificate_of_a_node_names_it(node: str) -> None:
    assert node_of(peer(("DNS", names.handler_server_name(node))), NONE) == node


@pytest.mark.parametrize(
    "untrusted",
    [
        None,
        peer(),
        peer(("DNS", "n.virt-handler"), common_name="virt-api"),
        peer(("DNS", "n.virt-handler"), common_name=""),
        peer(("DNS", "n.virt-handler"), ("DNS", "n2.virt-handler")),
        peer(("DNS", "n.virt-handler"), ("DNS", "n.virt-handler")),
        peer(("DNS", "n.virt-handler"), ("IP Address", "10.0.0.1")),
        peer(("URI", "n.virt-handler")),
        peer(("DNS", "virt-handler")),
        peer(("DNS", ".virt-handler")),
        peer(("DNS", "*.virt-handler")),
        peer(("DNS", "N.virt-handler")),
        peer(("DNS", "n.virt-handler.")),
        peer(("DNS", "n.virt-handler.example.com")),
        peer(("DNS", "nvirt-handler")),
        peer(("DNS", "n\n.virt-handler")),
        peer(("DNS", "n.virt-handler\n")),
        peer(("DNS", "n..virt-handler")),
        peer(("DNS", f"{'a' * 64}.virt-handler")),
        peer(("DNS", f"{'a.' * 121}a.virt-handler")),
    ],
)
def test_peers_without_a_valid_node_certificate_are_untrusted(untrusted: Peer | None) -> None:
    with pytest.raises(Untrusted):
        node_of(untrusted, NONE)


@given(st.text(max_size=80))
def test_no_text_names_two_nodes(text: str) -> None:
    node = names.node_of_server_name(text)

    assert not node or names.handler_server_name(node) == text
    try:
        made = names.handler_server_name(text)
    except ValueError:
        return
    assert names.node_of_server_name(made) == text
    assert made.isascii()
    assert len(made.encode("idna")) <= 253  # like Python's ssl


@pytest.mark.parametrize("name", ["", "*", "a" * 64, "a." * 120 + "ab", "A", "a_b", "a/b", "a,DNS:b", "a\n", "-a", "a-", ".a", "ä"])
def test_node_name_too_long_for_a_certificate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot get a certificate: its name must"):
        names.handler_server_name(name)


def test_ssl_peer_fields_are_read_and_unverified_ones_are_none() -> None:
    told = {
        "subject": ((("commonName", "virt-handler"),),),
        "subjectAltName": (("DNS", "n.virt-handler"),),
        "notBefore": "Nov 22 00:00:00 2026 GMT",
        "notAfter": "Nov 23 00:00:00 2026 GMT",
    }

    found = described(told)
    assert found is not None
    assert (found.dns_name, found.not_before) == ("n.virt-handler", NOW)
    assert described({}) is None
    assert described(None) is None
    two = described({**told, "subject": ((("commonName", "virt-handler"),), (("commonName", "virt-api"),))})
    assert two is not None
    assert two.common_name == ""


async def test_removed_config_map_pardons_no_node(tmp_path: Path) -> None:
    client, store = Client(Config("http://127.0.0.1:1"), user_agent="test"), Store(tmp_path)
    trust = Trust(client, "kubevirt", store)
    trust._changed({"data": {"revoked.n": "stolen"}})
    trust._changed(None)
    assert trust.revocations.is_revoked("n")
    store.load()
    assert Trust(client, "kubevirt", store).revocations.is_revoked("n"), "nor does a restart"
    trust._changed({})
    assert not trust.revocations.is_revoked("n"), "one that is there and says nothing does"
