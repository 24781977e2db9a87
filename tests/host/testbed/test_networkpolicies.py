from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from tests.testbed.networkpolicies import ruleset
from tests.testbed.networkpolicies.ruleset import Cluster, Pod

pytestmark = [pytest.mark.host, pytest.mark.timeout(180)]

SERVE = """
import selectors, socket
chosen = selectors.DefaultSelector()
for port in (80, 81):
    chosen.register(socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True), selectors.EVENT_READ)
print("listening", flush=True)
while True:
    for key, _ in chosen.select():
        key.fileobj.accept()[0].close()
"""
ASK = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def ask(one):
    address, port, patience = one
    try:
        socket.create_connection((address, port), timeout=patience).close()
        return True
    except OSError as error:
        return False
asked = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(asked)) as pool:
    print(json.dumps(list(pool.map(ask, asked))))
"""
ADDRESSES = {"web": ("10.9.1.2", "fd09:1::2"), "db": ("10.9.1.3", "fd09:1::3"), "far": ("10.9.2.4", "fd09:2::4")}
PODS = (
    Pod("shop", "web", "here", {"app": "web"}, ADDRESSES["web"]),
    Pod("shop", "db", "here", {"app": "db"}, ADDRESSES["db"]),
    Pod("bank", "far", "there", {"app": "far"}, ADDRESSES["far"]),
)
GATEWAYS = {"web": ("10.9.1.1/24", "fd09:1::1/64"), "db": ("10.9.1.1/24", "fd09:1::1/64"), "far": ("10.9.2.1/24", "fd09:2::1/64")}
NO_DETECTION: dict[bool, tuple[str, ...]] = {True: ("nodad",), False: ()}
"""Options that make an address usable at once, by whether it is IPv6."""
CLOSED_SECONDS, OPEN_SECONDS = 1.0, 30.0


def run(*words: str, stdin: str = "") -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


@dataclass
class World:
    prefix: str

    def inside(self, name: str, *words: str, stdin: str = "") -> str:
        return run("ip", "netns", "exec", f"{self.prefix}-{name}", *words, stdin=stdin)

    def load(self, *policies: dict[str, Any]) -> None:
        cluster = Cluster(PODS, {"shop": {"team": "a"}, "bank": {"team": "b"}}, policies)
        self.inside("node", "nft", "-f", "-", stdin=ruleset.script(cluster, "here"))

    def check(self, source: str, *, reached: set[str], closed: set[str], addresses: Mapping[str, Sequence[str]] = ADDRESSES) -> None:
        wanted = [
            (address, int(port), open_)
            for open_, some in ((True, reached), (False, closed))
            for name, port in (each.split(":") for each in sorted(some))
            for address in addresses[name]
        ]
        asked = [[address, port, OPEN_SECONDS if open_ else CLOSED_SECONDS] for address, port, open_ in wanted]
        self.inside(source, "ip", "neighbour", "flush", "all")
        found = json.loads(self.inside(source, sys.executable, "-c", ASK, json.dumps(asked)))
        assert [(address, port, each) for (address, port, _), each in zip(wanted, found, strict=True)] == wanted


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    here = World(f"kvp{secrets.token_hex(2)}")
    names = ("node", *ADDRESSES)
    servers: list[subprocess.Popen[str]] = []
    try:
        for name in names:
            run("ip", "netns", "add", f"{here.prefix}-{name}")
            here.inside(name, "ip", "link", "set", "lo", "up")
        here.inside("node", "ip", "link", "add", "cni0", "type", "bridge")
        for gateway in GATEWAYS["web"]:
            here.inside("node", "ip", "address", "add", gateway, "dev", "cni0", *NO_DETECTION[":" in gateway])
        here.inside("node", "ip", "link", "set", "cni0", "up")
        here.inside("node", "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for name, addresses in ADDRESSES.items():
            here.inside("node", "ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", f"{here.prefix}-{name}")
            if name == "far":
                for gateway in GATEWAYS["far"]:
                    here.inside("node", "ip", "address", "add", gateway, "dev", f"to-{name}", *NO_DETECTION[":" in gateway])
            else:
                here.inside("node", "ip", "link", "set", f"to-{name}", "master", "cni0")
            here.inside("node", "ip", "link", "set", f"to-{name}", "up")
            for own, gateway in zip(addresses, GATEWAYS[name], strict=True):
                length = gateway.partition("/")[2]
                here.inside(name, "ip", "address", "add", f"{own}/{length}", "dev", "eth0", *NO_DETECTION[":" in own])
            here.inside(name, "ip", "link", "set", "eth0", "up")
            for gateway in GATEWAYS[name]:
                here.inside(name, "ip", "route", "add", "default", "via", gateway.partition("/")[0])
            command = ["ip", "netns", "exec", f"{here.prefix}-{name}", sys.executable, "-c", SERVE]
            servers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stdout = servers[-1].stdout
            assert stdout is not None
            assert stdout.readline() == "listening\n"
        yield here
    finally:
        for each in servers:
            each.kill()
            each.communicate()
        for name in names:
            subprocess.run(["ip", "netns", "delete", f"{here.prefix}-{name}"], check=False, capture_output=True)


def a_policy(name: str, app: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"podSelector": {"matchLabels": {"app": app}}, **spec}}


def test_policies_apply_to_bridged_and_routed_packets(world: World) -> None:
    everything = {"web:80", "web:81"}
    world.load()
    world.check("db", reached=everything, closed=set())
    world.check("far", reached=everything, closed=set())

    world.load(a_policy("nobody", "web", policyTypes=["Ingress"]))
    world.check("db", reached=set(), closed=everything)
    world.check("far", reached=set(), closed=everything)
    world.check("web", reached={"db:80", "far:80"}, closed=set())
    world.check("node", reached=everything, closed=set())

    world.load(
        a_policy("nobody", "web", policyTypes=["Ingress"]),
        a_policy("db", "web", ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}], "ports": [{"port": 80}]}]),
    )
    world.check("db", reached={"web:80"}, closed={"web:81"})
    world.check("far", reached=set(), closed=everything)

    world.load(a_policy("bank", "web", ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]))
    world.check("db", reached=set(), closed={"web:80"})
    world.check("far", reached=everything, closed=set())

    blocks = [
        {"ipBlock": {"cidr": "10.9.0.0/16", "except": ["10.9.2.0/24"]}},
        {"ipBlock": {"cidr": "fd09::/16", "except": ["fd09:2::/64"]}},
    ]
    world.load(a_policy("block", "web", ingress=[{"from": blocks, "ports": [{"port": 81, "endPort": 90}]}]))
    world.check("db", reached={"web:81"}, closed={"web:80"})
    world.check("far", reached=set(), closed={"web:81"})

    world.load(a_policy("out", "web", policyTypes=["Egress"], egress=[{"to": [{"namespaceSelector": {}}], "ports": [{"port": 80}]}]))
    world.check("web", reached={"db:80", "far:80"}, closed={"db:81", "far:81"})
    world.check("db", reached=everything, closed=set())

    world.load(a_policy("silent", "web", policyTypes=["Egress"]), a_policy("deaf", "db", policyTypes=["Ingress"]))
    world.check("web", reached=set(), closed={"db:80", "far:80"})
    world.check("far", reached=everything, closed={"db:80"})

    world.load()
    world.check("far", reached={"web:80", "db:81"}, closed=set())


def test_rules_of_every_kind_are_loaded(world: World) -> None:
    ports = [{"protocol": each} for each in ("TCP", "UDP", "SCTP")] + [
        {"port": 5, "endPort": 9, "protocol": each} for each in ("TCP", "UDP", "SCTP")
    ]
    peers: list[dict[str, Any]] = [
        {"podSelector": {}},
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},
        {"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"]}},
    ]
    rules = [{"from": peers, "to": peers, "ports": ports}]
    named = Pod("shop", "six", "here", {}, ("10.9.1.9", "fd00::9"), (("http", "TCP", 80),))
    policy = {"metadata": {"namespace": "shop", "name": "p"}, "spec": {"ingress": rules, "egress": [*rules, {"ports": [{"port": "http"}]}]}}
    world.inside("node", "nft", "-f", "-", stdin=ruleset.script(Cluster((*PODS, named), {}, [policy]), "here"))
    assert "sctp dport 5-9" in world.inside("node", "nft", "list", "table", "inet", ruleset.TABLE)
    world.load()


def test_isolated_pod_is_unreachable_by_its_link_local_address(world: World) -> None:
    """Policies do not contain link-local addresses, but pods of a node see each other's."""
    (link,) = json.loads(world.inside("web", "ip", "-json", "link", "show", "eth0"))
    own = {"web": [f"{network.link_local(link['address'])}%eth0"]}
    world.load()
    world.check("db", reached=set(), closed={"web:80"}, addresses=own)
    world.check("db", reached={"web:80"}, closed=set())
