"""NetworkPolicies as one nftables script for a node's pods. Pure.

A forwarded packet passes up to two chains: one of its source pod (egress) and one of its destination pod (ingress). A pod has a chain if it
is on this node and a policy selects it for that direction. The chain returns if a rule allows the packet, and drops it at its end. The
node's own packets to its pods always arrive, as NetworkPolicy's reference requires: they are not forwarded.
"""

import dataclasses
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

TABLE = "network-policies"
Object = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Direction:
    kind: str
    field: str
    peers: str
    own: str
    """nftables' word for the packet's address of the pod."""
    other: str
    """nftables' word for the packet's address of the peer."""


EGRESS = Direction("Egress", "egress", "to", "saddr", "daddr")
INGRESS = Direction("Ingress", "ingress", "from", "daddr", "saddr")


@dataclasses.dataclass(frozen=True)
class Pod:
    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    ports: tuple[tuple[str, str, int], ...] = ()
    """(name, protocol, number) of its containers' named ports."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    pods: Sequence[Pod]
    namespaces: Mapping[str, Mapping[str, str]]
    policies: Sequence[Object]


def pod_of(obj: Object) -> Pod | None:
    """Return the used parts of a pod; None for a pod on the host network, without addresses, or finished."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    addresses = tuple(each["ip"] for each in status.get("podIPs") or ())
    if not addresses or spec.get("hostNetwork") or status.get("phase") in ("Succeeded", "Failed"):
        return None
    named = [port for each in spec.get("containers") or () for port in each.get("ports") or () if port.get("name")]
    return Pod(
        metadata["namespace"],
        metadata["name"],
        spec.get("nodeName", ""),
        metadata.get("labels") or {},
        addresses,
        tuple((each["name"], each.get("protocol", "TCP"), each["containerPort"]) for each in named),
    )


def script(cluster: Cluster, node: str) -> str:
    chains: dict[str, list[str]] = {}
    jumps: list[str] = []
    policies = sorted(cluster.policies, key=lambda each: (each["metadata"]["namespace"], each["metadata"]["name"]))
    for pod in sorted(cluster.pods, key=lambda each: (each.namespace, each.name)):
        if pod.node != node:
            continue
        for direction in (EGRESS, INGRESS):
            if not (chosen := [each for each in policies if _selects(each, direction.kind, pod)]):
                continue
            for address in pod.addresses:
                family, name = _family(address), f"{direction.field}-{address.replace('.', '-').replace(':', '_')}"
                jumps.append(f"{family} {direction.own} {address} jump {name}")
                allowed = (rule for each in chosen for rule in _rules(cluster, each, pod, family, direction))
                chains[name] = [*dict.fromkeys(allowed), "counter drop"]
    lines = [f"table inet {TABLE}", f"delete table inet {TABLE}", f"table inet {TABLE} {{"]
    for name, rules in chains.items():
        lines += [f"  chain {name} {{", *(f"    {each}" for each in rules), "  }"]
    lines += [
        "  chain forward {",
        "    type filter hook forward priority filter; policy accept;",
        "    ct state established,related accept",
        # Bridges also pass neighbor solicitations through the IP rules.
        "    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
        # No policy can match link-local addresses to a pod, so they must not bypass the rules.
        "    ip6 saddr fe80::/10 ip6 daddr fe80::/10 drop",
    ]
    return "\n".join([*lines, *(f"    {each}" for each in jumps), "  }", "}", ""])


def _selects(policy: Object, kind: str, pod: Pod) -> bool:
    spec = policy["spec"]
    kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    if kind not in kinds or policy["metadata"]["namespace"] != pod.namespace:
        return False
    return matches(spec.get("podSelector"), pod.labels)


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(each, labels) for each in selector.get("matchExpressions") or ())


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise ValueError(f"unknown operator {other!r} of a label selector")


def _rules(cluster: Cluster, policy: Object, pod: Pod, family: str, direction: Direction) -> Iterator[str]:
    for rule in policy["spec"].get(direction.field) or ():
        given = rule.get(direction.peers)
        peers = _peers(cluster, policy, given, family, direction.other) if given else [("", cluster.pods)]
        for peer, pods in peers:
            for port in _ports(rule.get("ports") or (), pod, pods, family, direction):
                yield " ".join(filter(None, (peer, port, "return")))


def _peers(cluster: Cluster, policy: Object, peers: Iterable[Object], family: str, other: str) -> Iterator[tuple[str, Sequence[Pod]]]:
    for peer in peers:
        if block := peer.get("ipBlock"):
            if _family(block["cidr"]) == family:
                excepted = ", ".join(block.get("except") or ())
                yield f"{family} {other} {block['cidr']}" + (f" {family} {other} != {{ {excepted} }}" if excepted else ""), ()
            continue
        pods = [each for each in cluster.pods if _is_peer(cluster, policy, peer, each)]
        if addresses := _addresses(pods, family):
            yield f"{family} {other} {{ {addresses} }}", pods


def _is_peer(cluster: Cluster, policy: Object, peer: Object, pod: Pod) -> bool:
    if "namespaceSelector" in peer:
        labels = cluster.namespaces.get(pod.namespace)
        if labels is None or not matches(peer["namespaceSelector"], labels):
            return False
    elif pod.namespace != policy["metadata"]["namespace"]:
        return False
    return matches(peer.get("podSelector"), pod.labels)


def _ports(ports: Sequence[Object], pod: Pod, peers: Sequence[Pod], family: str, direction: Direction) -> Iterator[str]:
    if not ports:
        yield ""
    for each in ports:
        protocol, port = str(each.get("protocol", "TCP")), each.get("port")
        if port is None:
            yield f"meta l4proto {protocol.lower()}"
        elif isinstance(port, int):
            end = each.get("endPort")
            yield f"{protocol.lower()} dport {port}" + (f"-{end}" if end else "")
        else:  # a name, defined by the destination
            for target in [pod] if direction is INGRESS else peers:
                numbers = [number for name, its, number in target.ports if (name, its) == (port, protocol)]
                addresses = _addresses([target], family)
                yield from (f"{family} daddr {{ {addresses} }} {protocol.lower()} dport {number}" for number in numbers if addresses)


def _addresses(pods: Iterable[Pod], family: str) -> str:
    return ", ".join(sorted({one for each in pods for one in each.addresses if _family(one) == family}))


def _family(address: str) -> str:
    return "ip6" if ipaddress.ip_network(address, strict=False).version == 6 else "ip"
