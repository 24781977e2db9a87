from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.testbed import layout, nodes
from tests.testbed.networkpolicies import following, ruleset
from tests.testbed.networkpolicies.ruleset import Cluster, Pod

WEB = Pod("shop", "web", "node1", {"app": "web"}, ("10.244.1.2", "fd00::2"), (("http", "TCP", 8080), ("dns", "UDP", 53)))
DB = Pod("shop", "db", "node1", {"app": "db"}, ("10.244.1.3",), (("http", "TCP", 9090),))
FAR = Pod("shop", "far", "node2", {"app": "db"}, ("10.244.2.4",))
OTHER = Pod("bank", "web", "node2", {"app": "web"}, ("10.244.2.5",))
PODS = (WEB, DB, FAR, OTHER)
NAMESPACES: Mapping[str, Mapping[str, str]] = {"shop": {"team": "a"}, "bank": {"team": "b"}}


def a_policy(namespace: str = "shop", name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"podSelector": {}, **spec}}


def chains(*policies: dict[str, Any], node: str = "node1") -> dict[str, list[str]]:
    script = ruleset.script(Cluster(PODS, NAMESPACES, policies), node)
    assert script.startswith("table inet network-policies\ndelete table inet network-policies\n")
    found = re.findall(r"  chain (\S+) \{\n(.*?)\n  \}", script, re.DOTALL)
    return {name: [line.strip() for line in body.splitlines()] for name, body in found}


def of_web(**spec: Any) -> list[str]:
    """Return the ingress rules for the IPv4 address of ``web``, without the last, which drops.

    A policy of namespace ``shop`` with this ``spec`` must select it.
    """
    rules = chains(a_policy(policyTypes=["Ingress"], **spec))["ingress-10-244-1-2"]
    assert rules[-1] == "counter drop"
    return rules[:-1]


def test_without_policies_all_traffic_of_known_addresses_passes() -> None:
    first = ["type filter hook forward priority filter; policy accept;", "ct state established,related accept"]
    neighbours = ["icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept", "ip6 saddr fe80::/10 ip6 daddr fe80::/10 drop"]
    assert chains() == {"forward": [*first, *neighbours]}
    assert chains(a_policy("bank")).keys() == {"forward"}


def test_policy_isolates_its_selected_pods_in_its_directions() -> None:
    both = chains(a_policy(podSelector={"matchLabels": {"app": "web"}}, policyTypes=["Ingress", "Egress"]))
    assert both["forward"][4:] == [
        "ip saddr 10.244.1.2 jump egress-10-244-1-2",
        "ip6 saddr fd00::2 jump egress-fd00__2",
        "ip daddr 10.244.1.2 jump ingress-10-244-1-2",
        "ip6 daddr fd00::2 jump ingress-fd00__2",
    ]
    assert all(rules == ["counter drop"] for name, rules in both.items() if name != "forward")
    assert chains(a_policy(policyTypes=["Egress"])).keys() == {"forward", "egress-10-244-1-2", "egress-fd00__2", "egress-10-244-1-3"}
    assert chains(a_policy(policyTypes=["Ingress"]), node="node2").keys() == {"forward", "ingress-10-244-2-4"}


def test_directions_that_are_not_named_follow_from_the_rules() -> None:
    assert not any(name.startswith("egress") for name in chains(a_policy()))
    assert any(name.startswith("ingress") for name in chains(a_policy()))
    named = chains(a_policy(egress=[{}]))
    assert named["egress-10-244-1-3"] == ["return", "counter drop"]
    assert named["ingress-10-244-1-3"] == ["counter drop"]


@pytest.mark.parametrize(
    ("peer", "wanted"),
    [
        ({"podSelector": {}}, ["ip saddr { 10.244.1.2, 10.244.1.3, 10.244.2.4 } return"]),
        ({"podSelector": {"matchLabels": {"app": "db"}}}, ["ip saddr { 10.244.1.3, 10.244.2.4 } return"]),
        ({"podSelector": {"matchLabels": {"app": "none"}}}, []),
        ({"namespaceSelector": {}}, ["ip saddr { 10.244.1.2, 10.244.1.3, 10.244.2.4, 10.244.2.5 } return"]),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, ["ip saddr { 10.244.2.5 } return"]),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}, ["ip saddr { 10.244.1.2, 10.244.2.5 } return"]),
        ({"ipBlock": {"cidr": "10.0.0.0/8"}}, ["ip saddr 10.0.0.0/8 return"]),
        (
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.0.0/16"]}},
            ["ip saddr 10.0.0.0/8 ip saddr != { 10.1.0.0/16, 10.2.0.0/16 } return"],
        ),
        ({"ipBlock": {"cidr": "fd00::/8"}}, []),
    ],
)
def test_peers(peer: dict[str, Any], wanted: list[str]) -> None:
    assert of_web(ingress=[{"from": [peer]}]) == wanted


@pytest.mark.parametrize(
    ("ports", "wanted"),
    [
        ([], ["return"]),
        ([{"port": 80}, {"port": 90, "protocol": "UDP"}], ["tcp dport 80 return", "udp dport 90 return"]),
        ([{"port": 80, "endPort": 90, "protocol": "TCP"}], ["tcp dport 80-90 return"]),
        ([{"protocol": "SCTP"}], ["meta l4proto sctp return"]),
        ([{"port": "http", "protocol": "TCP"}], ["ip daddr { 10.244.1.2 } tcp dport 8080 return"]),
        ([{"port": "http", "protocol": "UDP"}, {"port": "none"}], []),
    ],
)
def test_ports(ports: list[dict[str, Any]], wanted: list[str]) -> None:
    assert of_web(ingress=[{"ports": ports}]) == wanted


def test_a_ports_name_is_the_destinations() -> None:
    """A named port may have another number in each peer of an egress rule."""
    rules = chains(a_policy(egress=[{"to": [{"podSelector": {}}], "ports": [{"port": "http"}]}]))["egress-10-244-1-3"]
    peers = "ip daddr { 10.244.1.2, 10.244.1.3, 10.244.2.4 }"
    assert rules == [
        f"{peers} ip daddr {{ 10.244.1.2 }} tcp dport 8080 return",
        f"{peers} ip daddr {{ 10.244.1.3 }} tcp dport 9090 return",
        "counter drop",
    ]
    everybody = chains(a_policy(egress=[{"ports": [{"port": "dns", "protocol": "UDP"}]}]))["egress-10-244-1-3"]
    assert everybody == ["ip daddr { 10.244.1.2 } udp dport 53 return", "counter drop"]


def test_policies_add_up() -> None:
    rules = chains(a_policy(name="b", ingress=[{"ports": [{"port": 1}]}]), a_policy(name="a", ingress=[{"ports": [{"port": 2}]}]))
    assert rules["ingress-10-244-1-3"] == ["tcp dport 2 return", "tcp dport 1 return", "counter drop"]


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ({"operator": "In", "values": ["web", "x"]}, {"web"}),
        ({"operator": "NotIn", "values": ["web"]}, {"db", "none"}),
        ({"operator": "Exists"}, {"web", "db"}),
        ({"operator": "DoesNotExist"}, {"none"}),
    ],
)
def test_label_selectors(expression: dict[str, Any], chosen: set[str]) -> None:
    labels = {"web": {"app": "web"}, "db": {"app": "db"}, "none": {"tier": "1"}}
    selector = {"matchExpressions": [{"key": "app", **expression}]}
    assert {name for name, each in labels.items() if ruleset.matches(selector, each)} == chosen
    assert ruleset.matches(None, {})
    assert not ruleset.matches({"matchLabels": {"tier": "1"}, **selector}, labels["web"])


def test_unknown_selector_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown operator"):
        ruleset.matches({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, {})


def test_a_pod_counts_while_it_has_a_network_of_its_own() -> None:
    pod: dict[str, Any] = {
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"nodeName": "node1", "containers": [{"ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}]}, {}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.244.1.9"}]},
    }
    assert ruleset.pod_of(pod) == Pod("n", "p", "node1", {}, ("10.244.1.9",), (("http", "TCP", 80),))
    for change in (
        {"spec": {**pod["spec"], "hostNetwork": True}},
        {"status": {"phase": "Running"}},
        {"status": {**pod["status"], "phase": "Failed"}},
    ):
        assert ruleset.pod_of({**pod, **change}) is None


def test_follower_keeps_selected_parts_and_signals_changes_only() -> None:
    changed = threading.Event()
    context: Any = None
    follower = following.Follower("h:1", context, "/x", lambda obj: obj.get("kept"), changed)
    answers = [
        [b'{"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}, "kept": 1}, {"metadata": {"name": "b"}}]}'],
        [
            b'{"type": "MODIFIED", "object": {"metadata": {"name": "a", "resourceVersion": "6"}, "kept": 1}}\n',
            b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}\n',
        ],
        [b'{"type": "ADDED", "object": {"metadata": {"name": "b", "resourceVersion": "8"}, "kept": 2}}\n'],
        [b'{"type": "DELETED", "object": {"metadata": {"name": "a", "resourceVersion": "9"}, "kept": 1}}\n'],
        [b'{"type": "ERROR", "object": {"code": 410}}\n'],
    ]
    asked: list[str] = []

    def get(path: str, timeout: float) -> Any:
        asked.append(path)
        return iter(answers.pop(0))

    follower._get = get  # type: ignore[method-assign]  # the connection is kube-apiserver's

    def told() -> bool:
        was = changed.is_set()
        changed.clear()
        return was

    assert follower._list() == "5"
    assert (told(), follower.found(), follower.known) == (True, [1], True)
    assert follower._watch("5") == "7"
    assert not told()
    assert follower._watch("7") == "8"
    assert (told(), follower.found()) == (True, [1, 2])
    assert follower._watch("8") == "9"
    assert (told(), follower.found()) == (True, [2])
    assert follower._watch("9") == ""
    assert [each.rpartition("=")[2] for each in asked[1:]] == ["5", "7", "8", "9"]


def test_policy_engine_runs_per_node_and_restarts_when_changed() -> None:
    for node in layout.NODES:
        assert f"{node.name}-network-policies" in nodes.process_names(node)
    before = nodes.digest_of_network_policies()
    assert re.fullmatch("[0-9a-f]{8}", before)
